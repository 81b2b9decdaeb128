"""Examples of the README and of the pages on other libraries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]
PAGES = sorted((PACKAGE / "docs").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = BLOCK.findall((PACKAGE / "README.md").read_text())
# Blocks outside of the section "Example" are parts of scripts.
PAGE_EXAMPLES = {
    f"{page.stem} {number}": block
    for page in PAGES
    for section in re.findall(r"^## Example\n(.*?)(?=^## )", page.read_text(), re.MULTILINE | re.DOTALL)
    for number, block in enumerate(BLOCK.findall(section), 1)
}


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str) -> None:
    exec(example, {})


@pytest.mark.integration
@pytest.mark.parametrize("name", PAGE_EXAMPLES)
def test_an_example_of_a_page_runs(name: str) -> None:
    for module in re.findall(r"^(?:from|import) (\w+)", PAGE_EXAMPLES[name], re.MULTILINE):
        pytest.importorskip(module)
    exec(PAGE_EXAMPLES[name], {})


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_is_short_and_complete(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) < 400
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert {"The changed line", "Example", "Speed"} <= set(sections) and "pip install" in text
