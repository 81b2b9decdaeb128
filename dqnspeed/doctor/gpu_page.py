"""What a check of a GPU found, and the page of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Result:
    """One line of the report."""

    name: str
    verdict: str
    reason: str = ""  # why it failed or was skipped
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def render(results: Mapping[str, Any], order: Sequence[str]) -> str:
    """The report: a table for each part, and a line for what did not pass."""
    lines = ["# On a GPU", "", "Written by `make gpu` (`python -m dqnspeed.doctor.gpu`).", ""]
    for name in (name for name in order if name in results):
        part = results[name]
        here, packages, found = part["machine"], part["versions"], part["results"]
        counts = ", ".join(f"{sum(r['verdict'] == v for r in found)} {v}" for v in (PASSED, FAILED, SKIPPED))
        shown = ", ".join(f"{key} {packages[key]}" for key in ("python", "torch", "cuda", "numpy") if packages.get(key))
        lines += [
            f"## {name.capitalize()}: {counts}", "",
            f"{part['when'].replace('_', ' ')}, {part['seconds']} s; {here['gpu'] or 'no GPU'}, {here['cpu']}, "
            f"{here['cores']} cores, {here['memory_gib']} GiB; {here['platform']}; {shown}; "
            f"commit {part['commit'] or 'unknown'}.", "",
        ]  # fmt: skip
        trained = [r for r in found if "steps_per_second" in r["figures"]]
        if trained:
            lines += [
                f"`python -m dqnspeed.train`, {part['length_s']:g} s or less each. Memory is the learner's process'. "
                "`time/*`, in seconds, and the share of time in which the GPU was busy are of the run's last report.",
                "",
                "| run | steps/s | updates/s | start-up, s | GPU, MiB | host, MiB | GPU busy | time/* |",
                "|---|--:|--:|--:|--:|--:|--:|---|",
            ]
        for r in trained:
            numbers, reported = [_shown(r["figures"][key]) for key in _COLUMNS], r["figures"].get("reported", {})
            busy = f"{reported['perf/gpu_busy']:.0%}" if "perf/gpu_busy" in reported else "–"
            spent = ", ".join(f"{k[5:]} {v:.1f}" for k, v in reported.items() if k.startswith("time/"))
            lines.append(f"| {r['name']} | {' | '.join(numbers)} | {busy} | {spent} |")
        lines += [""] * bool(trained)
        for r in found:  # a page of its own, a level lower
            lines += [re.sub(r"^#", "##", line) for line in r["figures"].get("text", "").splitlines()]
        rest = [r for r in found if r not in trained or r["verdict"] != PASSED]
        lines += [f"- {r['verdict']}: {r['name']}{': ' * bool(r['reason'])}{r['reason']}" for r in rest] + [""] * bool(
            rest
        )
    return "\n".join(lines)


_COLUMNS = ("steps_per_second", "updates_per_second", "startup_s", "peak_gpu_mib", "peak_rss_mib")


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"
