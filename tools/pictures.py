"""Draw the bars of the documentation from records/ and the book's ladder: docs/ladder.svg and docs/emulator_speed.svg.

python tools/pictures.py
"""

from __future__ import annotations

import html
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

from dqnspeed.report.runs import read_csv
from dqnspeed.system import atomic

ROOT = Path(__file__).resolve().parents[1]
RUNGS = "baseline", "no_torch_no_grad", "n_envs", "process", "tweaked_n_envs", "tweaked_process"
STYLE = """
  .page { fill: #ffffff; } .first { fill: #00796b; } .second { fill: #9aa7ad; } .line { stroke: #37474f; }
  text { font: 14px system-ui, sans-serif; fill: #212529; } .soft { fill: #55626a; font-size: 12px; }
  .end { text-anchor: end; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #1e2129; } .first { fill: #4db6ac; } .second { fill: #7d8a93; } .line { stroke: #cfd8dc; }
    text { fill: #eceff1; } .soft { fill: #b0bec5; }
  }
"""


def main() -> None:
    """Write both pictures."""
    for name, picture in (("ladder", ladder()), ("emulator_speed", emulator_speed())):
        atomic.write_text(ROOT / "docs" / f"{name}.svg", picture)


def ladder() -> str:
    """Speeds of the book's rungs against the baseline, in the book and here."""
    book = {
        label: float(row["steps_per_second"])
        for row in read_csv(ROOT / "dqnspeed" / "report" / "book_ladder.csv")
        for label in row["labels"].split(";")
    }
    here = {
        row["command"].rpartition("experiment=")[2]: float(row["notes"].partition(" steps/s")[0].replace(",", ""))
        for row in read_csv(ROOT / "records" / "runs.csv")
        if row["table"] == "ladder" and "make ladder" in row["notes"]
    }
    most, parts = 2.8, list[str]()
    for number, rung in enumerate(RUNGS):
        top = 44 + 52 * number
        parts.append(f'<text class="end" x="140" y="{top + 22}">{rung}</text>')
        for kind, (speeds, style) in enumerate(((here, "first"), (book, "second"))):
            ratio, y = speeds[rung] / speeds["baseline"], top + 20 * kind
            parts.append(f'<rect class="{style}" x="150" y="{y}" width="{300 * ratio / most:.0f}" height="17"/>')
            parts.append(f'<text class="soft" x="{156 + 300 * ratio / most:.0f}" y="{y + 13}">{ratio:.2f}×</text>')
    parts += legend(150, 26, [("first", "here, two CPU cores"), ("second", "the book, with a GPU")])
    about = ", ".join(
        f"{rung} {here[rung] / here['baseline']:.2f} and {book[rung] / book['baseline']:.2f}" for rung in RUNGS
    )
    return svg(500, 366, "Steps per second against the baseline, here and in the book", about, parts)


def emulator_speed() -> str:
    """Speed of the emulator in each game, against the faster of ALE's vector environment and EnvPool."""
    rows = read_csv(ROOT / "records" / "emulator_speed.csv")
    ratios = sorted((float(row["ratio_to_the_faster"]) for row in rows), reverse=True)
    median, high, parts = statistics.median(ratios), 220, list[str]()
    for ratio in (4.0, 8.0, 12.0):
        y = 250 - high * ratio / 13
        parts.append(f'<line class="line" x1="44" x2="490" y1="{y:.0f}" y2="{y:.0f}" stroke-width=".4"/>')
        parts.append(f'<text class="soft end" x="38" y="{y + 4:.0f}">{ratio:g}×</text>')
    width = 440 / len(ratios)
    for number, ratio in enumerate(ratios):
        bar = high * ratio / 13
        at = f'x="{46 + number * width:.1f}" y="{250 - bar:.1f}" width="{width - 0.9:.1f}" height="{bar:.1f}"'
        parts.append(f'<rect class="first" {at}/>')
    other = 250 - high / 13
    at = f'x1="44" x2="490" y1="{other:.0f}" y2="{other:.0f}" stroke-width="1.5" stroke-dasharray="5 4"'
    parts.append(f'<line class="line" {at}/>')
    words = f"a bar for each of the {len(ratios)} games; dashed: the faster other library"
    parts.append(f'<text class="soft" x="46" y="268">{words}</text>')
    parts.append(f'<text class="end" x="486" y="28">median {median:.1f}×</text>')
    about = f"{ratios[-1]:.1f} to {ratios[0]:.1f} times as fast, median {median:.1f}"
    return svg(500, 280, "Speed of the emulator against the faster of AtariVectorEnv and EnvPool", about, parts)


def legend(x: int, y: int, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Marks in a row with their meanings."""
    for style, words in entries:
        yield f'<rect class="{style}" x="{x}" y="{y - 11}" width="12" height="12"/>'
        yield f'<text class="soft" x="{x + 18}" y="{y}">{html.escape(words)}</text>'
        x += 170


def svg(width: int, height: int, title: str, about: str, parts: Iterable[str]) -> str:
    """A picture with its own background, readable in light and dark."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-labelledby="title desc">'
    )
    words = f'<title id="title">{html.escape(title)}</title>\n<desc id="desc">{html.escape(about)}</desc>'
    style = re.sub(r"\n\s*", "\n", STYLE).strip()
    page = f'<rect class="page" width="{width}" height="{height}" rx="8"/>'
    return "\n".join([head, words, f"<style>\n{style}\n</style>", page, *parts, "</svg>\n"])


if __name__ == "__main__":
    main()
