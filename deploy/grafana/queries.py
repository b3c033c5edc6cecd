"""PromQL, written once: what is easily got wrong in every panel anew.

Counters go through `rate` before they are summed; quantiles are taken of summed buckets, never averaged; a mean is a
sum over its count. `$__rate_interval` is Grafana's: at least four scrapes, so that every step has a rate.
"""

INSTANCE = 'instance=~"$instance", replica=~"$replica"'
"""Selects the servers, and the replicas on Ray, that are chosen at the top of a dashboard."""
MODEL = f'{INSTANCE}, model=~"$model"'
"""The same, and the chosen models. RPCs have no model: they are the server's."""
ANSWERED = f'{INSTANCE}, code="OK"'
"""Answered RPCs. Refusals take a millisecond: with them, a server that refuses would look fast."""
FAULTS = "UNAVAILABLE|INTERNAL|UNKNOWN|DEADLINE_EXCEEDED"
"""The codes that are the server's fault, as deploy/prometheus/rules/recording.yml has them."""


def rate(metric: str, where: str) -> str:
    """What a counter gains a second."""
    return f"rate({metric}{{{where}}}[$__rate_interval])"


def total(metric: str, where: str) -> str:
    """What all series of a counter gain a second."""
    return f"sum({rate(metric, where)})"


def by(labels: str, series: str) -> str:
    """Sums series, and keeps these labels."""
    return f"sum by ({labels}) ({series})"


def quantile(q: float, buckets: str, labels: str = "") -> str:
    """A quantile of a rate of buckets, for each combination of these labels."""
    kept = f"le, {labels}" if labels else "le"
    return f"histogram_quantile({q}, {by(kept, buckets)})"


def buckets(metric: str, where: str) -> str:
    """How much each bucket of a histogram gains a second."""
    return rate(f"{metric}_bucket", where)


def counts(metric: str, where: str) -> str:
    """How many observations each bucket of a histogram got, for a heat map."""
    return by("le", f"increase({metric}_bucket{{{where}}}[$__rate_interval])")


def ratio(part: str, whole: str) -> str:
    """One sum over another. Zero where 0/0 would leave a hole."""
    return f"{part} / clamp_min({whole}, 1e-9)"


def share(part: str, whole: str) -> str:
    """The same for a part that may never have been counted: series of some labels begin with their first event."""
    return ratio(f"({part} or 0 * {whole})", whole)


def split(parts: str, label: str, whole: str) -> str:
    """Series told apart by one label, each over the same sum: they add up to the mean."""
    return f"{parts} / ignoring ({label}) group_left () clamp_min({whole}, 1e-9)"


def mean(metric: str, where: str, labels: str) -> str:
    """The mean of what a histogram observed, for each combination of these labels."""
    return ratio(by(labels, rate(f"{metric}_sum", where)), by(labels, rate(f"{metric}_count", where)))


def some(series: str) -> str:
    """Those that are not zero: of many that may come, few do."""
    return f"{series} > 0"


def or_none(series: str, label: str, word: str = "none") -> str:
    """The series or, while there is none, a zero that says so in the legend."""
    return f'{series} or on () label_replace(vector(0), "{label}", "{word}", "", "")'


def named(series: str) -> str:
    """Adds the label `name`, the method without its service, to series of methods. Those of several APIs have one."""
    return f'label_replace({series}, "name", "$1", "method", ".*/(.*)")'


def by_name(series: str) -> str:
    """Sums series of methods over their names. Renamed after they are summed, those of two APIs would be the same."""
    return by("name", named(series))


FACES = {"dragoman.v1": "gRPC", "http": "HTTP", "inference": "KServe"}
"""What begins a method's name -> the API that the call came by. Others, such as `deepl`, are called as they are."""


def faces(series: str) -> str:
    """Adds the label `face`, the API that calls came by, to series of methods."""
    named = f'label_replace({series}, "face", "$1", "method", "(.*)[.][^.]*/.*")'
    for begin, face in FACES.items():
        named = f'label_replace({named}, "face", "{face}", "face", "{begin}")'
    return named


def by_face(series: str) -> str:
    """Sums series of methods over the APIs that calls came by."""
    return by("face", faces(series))


VERSIONS = f'label_replace(dragoman_model_info{{{MODEL}}}, "version", "$1", "package_sha256", "(.{{8}}).*")'
"""The models that are served, with the label `version`: the first eight digits of the package's hash."""


def versioned(series: str) -> str:
    """Adds the label `version` to series of models."""
    return f"{series} * on (job, instance, model) group_left (version) {VERSIONS}"
