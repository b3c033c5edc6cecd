"""The tables of a report."""

from collections.abc import Mapping, Sequence

from bench.cpu.curves import Curve
from bench.cpu.races import Race, Rate, Ratio
from bench.cpu.service import Footprint, Latency
from bench.pages.markdown import table, verdict

MILLION = 1_000_000


def how(repeats: int, quick: bool) -> str:
    """What all tables are read by."""
    size = "A quick run: few sentences, few turns. " if quick else ""
    return (
        f"{size}Two workers of one thread, unless a set-up is given. Sides are processes that take turns; medians of "
        f"{repeats}. Ratios are medians of each round's, by the clock and, behind the stroke, by the time of all cores."
    )


def races(given: Sequence[Race]) -> list[str]:
    """How fast the sides were, how they compare, and what they were."""
    names = list(dict.fromkeys(name for race in given for name in race.rates))
    units = ", ".join(dict.fromkeys(race.unit for race in given))
    header = [f"{units} a second (in a second of a core)", *(race.name for race in given)]
    rows = [[name, *(_rate(race.rates.get(name)) for race in given)] for name in names]
    parts = [table(header, rows)]
    if compared := _ratios(given):
        parts.append(table(["ratio, by the clock / by core time", *(race.name for race in given)], compared))
    if setups := _setups(given):
        parts.append(f"Set-ups (workers x threads, batches by): {setups}.")
    missing = {name: reason for race in given for name, reason in race.absent.items()}
    return [*parts, *([f"Not measured: {absent(missing)}"] if missing else [])]


def costs(race: Race, core_hour: float, cores: int) -> str:
    """What a million characters of source text costs: all cores are paid for as long as it takes."""
    rows = [
        [name, f"{cores * core_hour / 3600 * MILLION / rate.wall:.5f}", f"{MILLION / rate.wall:.1f}"]
        for name, rate in race.rates.items()
    ]
    header = [f"a million characters, at {core_hour:g} a core-hour", "price", f"seconds of {cores} cores"]
    return table(header, rows)


def latency(given: Sequence[Latency]) -> str:
    rows = []
    for one in given:
        sides = one.our_calls, one.their_calls
        for name, asked, seconds in (
            ("p50", one.asked_p50, [side.p50_s for side in sides]),
            ("p99", one.asked_p99, [side.p99_s for side in sides]),
        ):
            ratio = seconds[0] / seconds[1]
            judged = ["", ""] if asked is None else [f"{asked:.2f}", verdict(ratio <= asked)]
            what = f"{one.ours} against {one.theirs}, {one.arrivals}, {one.rate:.0f} calls/s"
            milliseconds = [f"{1000 * value:.0f}" for value in seconds]
            rows.append([what, name, *milliseconds, f"{ratio:.2f}", *judged])
    return table(["arrivals", "", "ours, ms", "theirs, ms", "ratio", "asked at most", ""], rows)


def footprints(given: Sequence[Footprint]) -> str:
    rows = []
    for one in given:
        for what, measured, asked, form in (
            ("resident memory under load, MB", one.rss_mb, one.asked_rss_mb, ".0f"),
            ("largest resident memory, MB", one.peak_rss_mb, one.asked_rss_mb, ".0f"),
            ("start to SERVING, s", one.start_s, one.asked_start_s, ".2f"),
        ):
            judged = ["", ""] if asked is None else [f"{asked:g}", verdict(measured <= asked)]
            rows.append([f"{one.name}, {what}", format(measured, form), *judged])
    return table(["server", "measured", "asked at most", ""], rows)


def curve(one: Curve) -> str:
    rows = [
        [name, *("" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}" for value in values)]
        for name, values in one.series.items()
    ]
    return table([one.axis, *map(str, one.values)], rows)


def absent(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) + "."


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return ""
    digits = 0 if rate.wall >= 1000 else 1
    return f"{rate.wall:.{digits}f}" + ("" if rate.cpu is None else f" ({rate.cpu:.{digits}f})")


def _ratios(given: Sequence[Race]) -> list[list[str]]:
    pairs = list(dict.fromkeys((ratio.ours, ratio.theirs) for race in given for ratio in race.ratios))
    rows = []
    for pair in pairs:
        found = [next((ratio for ratio in race.ratios if (ratio.ours, ratio.theirs) == pair), None) for race in given]
        rows.append([" over ".join(pair), *(_ratio(ratio) for ratio in found)])
    return rows


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    both = f"{ratio.wall:.2f}" + ("" if ratio.cpu is None else f" / {ratio.cpu:.2f}")
    if ratio.asked is None:
        return both
    return f"{both} (asked {ratio.asked:g}: {verdict(ratio.wall >= ratio.asked)})"


def _setups(given: Sequence[Race]) -> str:
    """Each side's, and for which races where it is not the same in all."""
    chosen: dict[str, dict[str, list[str]]] = {}
    for race in given:
        for name, rate in race.rates.items():
            if rate.setup:
                chosen.setdefault(name, {}).setdefault(rate.setup, []).append(race.name)
    return "; ".join(
        f"{name}: "
        + ", ".join(setup + (f" ({', '.join(names)})" if len(setups) > 1 else "") for setup, names in setups.items())
        for name, setups in chosen.items()
    )
