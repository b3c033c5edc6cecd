"""Part `invariance`: does an answer depend on its batch mates? Every sentence alone, and all of them together."""

from collections.abc import Iterator, Sequence

from bench.gpu import sources
from bench.gpu.plan import PRECISIONS, Findings, Plan, search_name
from bench.gpu.sides.ours import Ours
from engine.request import Hypothesis

BEAMS = (1, 4)


def run(plan: Plan) -> Iterator[tuple[str, Findings]]:
    """Yields, for each precision and search, how many answers are the same, and how far the scores are apart."""
    sizes = plan.sizes
    for precision in PRECISIONS:
        ours = Ours(plan, "zoo", precision, sizes.sentence_tokens)
        given = sources.real(ours.package, sizes.invariance_sentences, sizes.sentence_tokens)
        for num_beams in BEAMS:
            with ours.engine(num_beams) as engine:  # one at a time: there is no room for a second
                alone = engine.translate(given, num_beams, sizes.sentence_tokens)
            with ours.engine(num_beams * len(given)) as engine:
                together = engine.translate(given, num_beams, sizes.sentence_tokens)
            yield f"{precision}, {search_name(num_beams)}", compare(alone, together)


def compare(alone: Sequence[Hypothesis], together: Sequence[Hypothesis]) -> Findings:
    """Equal tokens, equal tokens and scores, and the largest difference of a score where the tokens are equal."""
    pairs = list(zip(alone, together, strict=True))
    same = [(one, other) for one, other in pairs if one.token_ids == other.token_ids]
    return {
        "sentences": len(pairs),
        "tokens_equal": len(same),
        "bits_equal": sum(one.score == other.score for one, other in same),
        "score_difference": max((abs(one.score - other.score) for one, other in same), default=0.0),
    }
