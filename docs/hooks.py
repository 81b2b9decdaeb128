"""Hooks of MkDocs: text that is generated, and equations as MathML.

MathML needs no JavaScript, so the pages ask nothing of other hosts.
"""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs"
OPTIONS = "reference/options.md"
LIBRARIES = ("gymnasium", "stable-baselines3", "cleanrl", "torchrl", "rllib")
# Pages that show a file of the repository.
SOURCES = {
    "changes.md": "CHANGELOG.md",
    "records.md": "RECORDS.md",
    **{f"atari/{name}.md": f"packages/atari-warp/docs/{name}.md" for name in LIBRARIES},
}
PAGES = {ROOT / source: page for page, source in SOURCES.items()}
# A fenced block, or a link or an image: its "!", text, path and anchor.
BLOCK_OR_LINK = re.compile(r"^( *)```.*?^\1```$|(!?)\[([^\[\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)", re.S | re.M)
# What pymdownx.arithmatex makes of $...$ and $$...$$.
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
ROLE = re.compile(r":(?:class|func|meth|mod):<code>~?(?:\w+\.)*(\w+)</code>")  # Sphinx's, in docstrings


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add generated text, and adapt links to the site."""
    name: str = page.file.src_uri
    markdown = adapt_links(markdown, SITE / name, name)
    if name == OPTIONS:
        from dqnspeed.options import reference

        return f"{markdown}\n{reference.markdown()}"
    if name in SOURCES:
        source = ROOT / SOURCES[name]
        _, _, without_title = source.read_text().partition("\n")
        return f"{markdown}\n{adapt_links(without_title, source, name)}"
    return markdown


def adapt_links(markdown: str, source: Path, page: str) -> str:
    """The text of the file ``source`` with its links relative to ``page`` of the site.

    A link to a file that is not part of the site, or to the source of this page, becomes its text.
    """

    def adapt(found: re.Match[str]) -> str:
        _, image, text, path, anchor = found.groups()
        if not path or path.startswith(("https:", "http:", "mailto:")):  # code, an anchor of this page, or an address
            return found[0]
        target = (source.parent / path).resolve()
        there = PAGES.get(target)
        if there is None:
            if not target.is_file() or not target.is_relative_to(SITE):
                return text
            there = target.relative_to(SITE).as_posix()
        if there == page and not anchor:
            return text
        return f"{image}[{text}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{anchor or ''})"

    return BLOCK_OR_LINK.sub(adapt, markdown)


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
