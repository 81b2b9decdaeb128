"""Results in words: what the tables, the page and the picture show of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dqnspeed.bench.result import Interval, Measurement, Result
from dqnspeed.config.changes import EXACT, KINDS

# Groups of measurements in the order in which they are shown, and what they are.
GROUPS = {
    "rungs": "Whole trainings at equal learner work",
    "check": "The recommended line, checked end to end",
    "peers": "Other libraries",
    "envs": "Environments",
    "resize": "Resizing a frame",
    "replay": "Replay",
    "acting": "Acting",
    "update": "Updates",
    "transfer": "The way to the device",
}
RANKED = ("rungs", "peers")  # fastest first; others stay as they were measured
RECOMMENDED, NOISE, FAILED = "recommended", "within noise", "not measured"
NONE = "–"

Column = tuple[str, list[str]]  # a heading and its cells


@dataclass(frozen=True)
class Section:
    """The measurements of a group; failed ones come last."""

    title: str
    unit: str  # of all, or empty
    measured: list[Measurement]
    failed: list[Measurement]

    @property
    def floors(self) -> list[str]:
        """What the shares are shares of, each a part of a sentence."""
        return list(dict.fromkeys(one.floor.what for one in self.measured if one.floor))


def sections(result: Result) -> Iterator[Section]:
    """The groups that there are measurements of."""
    found = {measurement.group for measurement in result.measurements}
    for group in [*(name for name in GROUPS if name in found), *sorted(found - GROUPS.keys())]:
        members = [one for one in result.measurements if one.group == group]
        if group in RANKED:
            members.sort(key=lambda one: one.value or 0.0, reverse=True)
        units = {one.unit for one in members}
        yield Section(
            GROUPS.get(group, group.capitalize()),
            units.pop() if len(units) == 1 else "",
            [one for one in members if one.error is None],
            [one for one in members if one.error is not None],
        )


def columns(section: Section, result: Result) -> list[Column]:
    """The table of what was measured: headings and cells, most important first, without columns that say nothing."""
    measured = section.measured
    found = [
        ("", [label(one) for one in measured]),
        (section.unit, [number(one.value) if section.unit else f"{number(one.value)} {one.unit}" for one in measured]),
        ("ratio", [times(one.ratio) for one in measured]),
        ("", [remark(one, result) for one in measured]),
        ("of the most", [f"{one.floor.share:.0%}" if one.floor else NONE for one in measured]),
        ("kind", [one.kind for one in measured] if any(one.kind != EXACT for one in measured) else []),
        ("updates/s", [number(one.updates) for one in measured]),
    ]
    return [(heading, cells) for heading, cells in found if set(cells) - {NONE, ""}]


def label(measurement: Measurement) -> str:
    """The name, and the version of a peer."""
    return " ".join(filter(None, [measurement.name, measurement.version]))


def number(value: float | None) -> str:
    """Three digits, as in ``0.270``, ``61.3``, ``6,540`` and ``1.25 M``."""
    if value is None:
        return NONE
    for size, sign in ((1e9, " G"), (1e6, " M")):
        if abs(value) >= size:
            return f"{value / size:#.3g}{sign}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def times(interval: Interval | None) -> str:
    """A ratio with its interval, as in ``1.62× (1.55–1.70)``."""
    return NONE if interval is None else f"{interval.median:.2f}× ({interval.low:.2f}–{interval.high:.2f})"


def remark(measurement: Measurement, result: Result) -> str:
    """What stands beside a figure: that it is the recommended line's, or may be chance."""
    line = result.recommendation
    if line and measurement.group == "rungs" and set(measurement.overrides) == set(line.overrides):
        return RECOMMENDED
    return NOISE if measurement.within_noise else ""


def gain(result: Result) -> list[str]:
    """The recommended line's gain over the baseline: expected, and checked; and the kinds of its parts."""
    line = result.recommendation
    if line is None:
        return []
    checked = f", checked end to end {times(line.measured)}" if line.measured else ", not checked"
    doubt = "; the check disagrees" if line.agrees is False else ""
    parts = [f"{kind}: {' '.join(of for of in line.kinds if line.kinds[of] == kind)}" for kind in KINDS]
    kinds = "; ".join(part for part in parts if not part.endswith(" "))
    return [f"Expected {times(line.expected)} of the baseline's speed{checked}{doubt}.", f"{kinds.capitalize()}."]
