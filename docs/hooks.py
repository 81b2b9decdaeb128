"""Hooks of MkDocs: text that is generated, and equations as MathML.

MathML needs no JavaScript, so the pages ask nothing of other hosts.
"""

from __future__ import annotations

import html
import re
from functools import partial
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
RECORDS = re.compile(r"\((?:\.\./)?RECORDS\.md")  # the one that has a page
OUTSIDE = re.compile(r"\[([^\[\]]+)\]\(\.\./[^)]*\)")  # a link to a file of the repository
# What pymdownx.arithmatex makes of $...$ and $$...$$.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
ROLE = re.compile(r":(?:class|func|meth|mod):<code>~?(?:\w+\.)*(\w+)</code>")  # Sphinx's, in docstrings


def _options() -> str:
    from dqnspeed.options.reference import markdown

    return markdown()


def _all_but_the_title(page: str) -> str:
    """A page of the repository, with its links to pages of the site as they have them."""
    return (ROOT / page).read_text().partition("\n")[2].replace("](docs/", "](")


GENERATED = {
    "options.md": _options,
    "changes.md": lambda: _all_but_the_title("CHANGELOG.md"),
    "records.md": lambda: _all_but_the_title("RECORDS.md"),
}
LIBRARIES = ("gymnasium.md", "stable-baselines3.md", "cleanrl.md", "torchrl.md", "rllib.md")
GENERATED |= {page: partial(_all_but_the_title, f"packages/atari-warp/docs/{page}") for page in LIBRARIES}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add what is generated. Links to files that are not of the site keep their text."""
    generated = GENERATED.get(page.file.src_uri)
    if generated:
        markdown = f"{markdown}\n{generated()}"
    markdown = RECORDS.sub("(records.md", markdown)
    return OUTSIDE.sub(r"\1", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Turn LaTeX into MathML, and roles in docstrings into code."""
    return EQUATION.sub(_mathml, ROLE.sub(r"<code>\1</code>", content))


class FunctionBeforeModule(griffe.Extension):
    """Documents the function ``dqnspeed.train``, and not the module of this name."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        if mod.path == "dqnspeed":
            self._train = mod.members["train"]

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        if pkg.path == "dqnspeed":
            pkg.set_member("train", self._train)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return f"<{found[1]} class='equation'>{convert(html.unescape(found[2]).strip(), display=display)}</{found[1]}>"
