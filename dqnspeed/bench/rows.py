"""Results in words: what the tables, the page and the picture show of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dqnspeed.bench.pairs import interval
from dqnspeed.bench.result import Interval, Measurement, Recommendation, Result
from dqnspeed.config.changes import EXACT
from dqnspeed.config.schema import KINDS

# Groups of measurements in the order in which they are shown, and what they are.
GROUPS = {
    "rungs": "Whole trainings at equal learner work",
    "check": "Lines measured once more, and end to end",
    "envs": "Environments",
    "replay": "Replay",
    "acting": "Acting",
    "update": "Updates",
    "transfer": "The way to the device",
    "floors": "What this machine can do at most",
}
RANKED = ("rungs", "check")  # by their gain over the baseline; others stay as they were measured
RECOMMENDED, NOISE, FAILED = "recommended", "within noise", "not measured"
NONE = "–"
SIZES = ((1e12, " T"), (1e9, " G"), (1e6, " M"))

Column = tuple[str, list[str]]  # a heading and its cells


@dataclass(frozen=True)
class Section:
    """The measurements of a group; failed ones come last."""

    title: str
    unit: str  # of all, or empty
    is_ranked: bool  # by one reference, the baseline
    measured: list[Measurement]
    failed: list[Measurement]

    @property
    def floors(self) -> list[str]:
        """What the shares are shares of, each a part of a sentence."""
        return list(dict.fromkeys(one.floor.what for one in self.measured if one.floor))


def sections(result: Result, but: Collection[str] = ()) -> Iterator[Section]:
    """The groups that there are measurements of, ``but`` some."""
    found = {measurement.group for measurement in result.measurements}.difference(but)
    for group in [*(name for name in GROUPS if name in found), *sorted(found - GROUPS.keys())]:
        members = [one for one in result.measurements if one.group == group]
        if group in RANKED:
            members.sort(key=lambda one: one.ratio.median if one.ratio else 1.0, reverse=True)
        units = {one.unit for one in members}
        yield Section(
            GROUPS.get(group, group.capitalize()),
            units.pop() if len(units) == 1 else "",
            group in RANKED,
            [one for one in members if one.error is None],
            [one for one in members if one.error is not None],
        )


def columns(section: Section, result: Result) -> list[Column]:
    """The table of what was measured: headings and cells, most important first, without columns that say nothing."""
    measured = section.measured
    found = [
        ("", [one.name for one in measured]),
        (section.unit, [speed(one) if section.unit else f"{speed(one)} {one.unit}" for one in measured]),
        ("ratio", [times(one.ratio) for one in measured]),
        ("", [remark(one, result) for one in measured]),
        ("of the most", [f"{one.floor.share:.0%}" if one.floor else NONE for one in measured]),
        ("kind", [one.kind for one in measured] if any(one.kind != EXACT for one in measured) else []),
        ("repeats", [str(len(one.pairs)) for one in measured]),
    ]
    return [(heading, cells) for heading, cells in found if set(cells) - {NONE, ""}]


def speed(measurement: Measurement) -> str:
    """The speed; with its interval, as in ``640 (621–655)``, if there is no ratio that has one."""
    low, high = ends(measurement)
    shown = number(measurement.value)
    return shown if measurement.ratio or low == high else f"{shown} ({number(low)}–{number(high)})"


def ends(measurement: Measurement) -> tuple[float, float]:
    """The 95 % interval of a speed; with a reference that of the ratio, since the pair moves together."""
    value, ratio = measurement.value or 0.0, measurement.ratio
    if ratio is not None and ratio.median:
        return value * ratio.low / ratio.median, value * ratio.high / ratio.median
    found = interval([value for _, value in measurement.pairs if value is not None])
    return (found.low, found.high) if found else (value, value)


def number(value: float | None) -> str:
    """Three digits, as in ``0.270``, ``61.3``, ``6,540`` and ``1.25 M``."""
    if value is None:
        return NONE
    size, sign = next((one for one in SIZES if abs(value) >= one[0]), (1, ""))
    digits = f"{value / size:,.0f}" if abs(value) >= 100 * size else f"{value / size:#.3g}"
    return f"{digits}{sign}"


def times(interval: Interval | None) -> str:
    """A ratio with its interval, as in ``1.62× (1.55–1.70)``."""
    return NONE if interval is None else f"{interval.median:.2f}× ({interval.low:.2f}–{interval.high:.2f})"


def remark(measurement: Measurement, result: Result) -> str:
    """What stands beside a figure: that it is the recommended line's, or may be chance."""
    line = result.recommendation
    if line and measurement.group == "rungs" and set(measurement.overrides) == set(line.overrides):
        return RECOMMENDED
    return NOISE if measurement.within_noise else ""


def gain(line: Recommendation) -> list[str]:
    """Sentences on a recommended line: what it gains, and the kinds of its parts."""
    if not line.overrides:
        return [line.sentence]
    parts = {kind: [override for override, of in line.kinds.items() if of == kind] for kind in KINDS}
    kinds = "; ".join(f"{kind}: {' '.join(overrides)}" for kind, overrides in parts.items() if overrides)
    expected = f"Expected {times(line.expected)} of the baseline's speed."
    return [" ".join(filter(None, [expected, line.sentence])), f"{kinds.capitalize()}."]
