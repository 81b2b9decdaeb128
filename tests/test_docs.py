"""The documentation: its commands, its links, and the site that is built of it."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import gpu_check
import library_speeds
import pytest
import yaml
from atari_warp.command_line import parse_options
from atari_warp.games import find_game
from conftest import TESTS, make_run
from hydra.core.override_parser.overrides_parser import OverridesParser

from dqnspeed.cli.errors import explain, is_user_error
from dqnspeed.cli.preflight import check_run
from dqnspeed.config.schema import RunConfig
from dqnspeed.tracking import published

ROOT = TESTS.parent
DOCS = ROOT / "docs"
PAGES = [
    str(page.relative_to(ROOT))
    for pages in (ROOT.glob("*.md"), (ROOT / "packages" / "atari-warp").rglob("*.md"), DOCS.rglob("*.md"))
    for page in sorted(pages)
]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
LINK = re.compile(r"\[[^\[\]]*\]\(([^)\s]+)\)")
OURS = re.compile(r"(?:python -m dqnspeed\.|dqnspeed[- ])(\w[\w.]*)")
# Where the command lines of commands are that take KEY=VALUE.
COMMANDS = {
    "play": "dqnspeed.play.command",
    "publish": "dqnspeed.publish.command",
    "report": "dqnspeed.report.command",
    "doctor": "dqnspeed.doctor.command",
    "bench": "dqnspeed.bench.command",
    "options": "dqnspeed.options.command",
}
OTHER_PROGRAMS = "cd docker eval export hf mkdir pre-commit ray source ssh tensorboard wandb".split()
OF_FOLDERS = ("resume=", "sweep.")  # what takes no part in a composition
# Options of the example package, GROUP=NAME, with which tests/test_plugins.py trains.
EXAMPLE = {
    f"{group}={name}"
    for path in (ROOT / "examples").rglob("*.py")
    for group, name in re.findall(r'@register\("(\w+)", "(\w+)"\)', path.read_text())
}


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def prose_of(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def commands(name: str, language: str) -> Iterator[tuple[str, list[str]]]:
    """The command lines of a page's blocks in one language, without comments and variables; and the lines below."""
    for found, block in FENCE.findall(text_of(name)):
        lines = block.replace("\\\n", " ").splitlines() if found == language else []
        for number, line in enumerate(lines, 1):
            if language == "bash" or line.startswith("$ "):
                for command in re.sub(r"(^|\s)#.*", "", line.removeprefix("$ ")).split(" && "):
                    yield re.sub(r"^(\w+=\S+\s+)*", "", command.strip()), lines[number:]


def check(command: str) -> list[RunConfig]:
    """Compose or parse a command; a mistake raises what the command would say, and an unknown command fails.

    Returns:
        The runs that it would train or look at.
    """
    command = command.removeprefix(".venv/bin/")
    if emulator := re.match(r"python (?:-m (atari_warp\S*)|packages/atari-warp/tools/(\w+)\.py)", command):
        name = emulator[2] or (f"{emulator[1]}.__main__" if emulator[1] == "atari_warp" else emulator[1])
        words = shlex.split(command[emulator.end() :])
        if name == "atari_warp.compile":
            games = [word for word in words if "=" not in word]
            assert games and all(game == "all" or find_game(game) for game in games)
            words = [word for word in words if "=" in word]
        parse_options(words, importlib.import_module(name).OPTIONS, doc=None)
        return []
    ours = OURS.match(command)
    words = shlex.split(command[ours.end() :] if ours else command)
    if ours and ours[1] == "train":
        return composed(words)
    if ours:
        _, others = importlib.import_module(COMMANDS[ours[1]]).COMMAND_LINE.read(words)
        return composed(others) if ours[1] == "doctor" else []
    if words and words[0] == "make":
        check_make(*words[1:])
    elif words[:2] == ["pip", "install"]:
        check_install(words[2:])
    elif words[:2] == ["docker", "run"]:
        return composed(words[words.index("dqnspeed") + 1 :])
    elif words[1:2] == ["tools/library_speeds.py"]:
        return [library_speeds.CASES[words[2]].workload(words[3:]).run]
    elif re.match(r"python tools/compare_\w+\.py ", command):
        importlib.import_module(Path(words[1]).stem).COMMAND_LINE.read(words[2:])
    elif scripts := [word for word in words if word.startswith((".ci/", "examples/", "tests/", "tools/"))]:
        assert all((ROOT / script).exists() for script in scripts), command
    elif words and words[:2] != ["git", "clone"] and words[:3] != ["python3", "-m", "venv"]:
        assert words[0] in OTHER_PROGRAMS, f"{command}: is not known here"
    return []


def composed(arguments: Sequence[str]) -> list[RunConfig]:
    """The run; of a sweep, runs with every value of it, but not every combination."""
    given = [word for word in arguments if word not in EXAMPLE and word != "-m" and not word.startswith(OF_FOLDERS)]
    choices = []
    for word, override in zip(given, OverridesParser.create().parse_overrides(given), strict=True):
        assert "-m" in arguments or not override.is_sweep_override(), word
        values = override.sweep_string_iterator() if override.is_discrete_sweep() else []
        if override.is_interval_sweep():
            values = [override.value().start, override.value().end]
        choices.append([f"{override.key_or_group}={value}" for value in values] or [word])
    jobs = range(max(map(len, choices), default=1))
    return [make_run(*(values[job % len(values)] for values in choices)) for job in jobs]


def check_make(target: str, *variables: str) -> None:
    makefile = text_of("Makefile")
    assert re.search(rf"^{target}:", makefile, re.M), f"make {target}: there is no such target"
    for variable in variables:
        name, _, value = variable.partition("=")
        assert re.search(rf"^{name} *\?=", makefile, re.M), variable
        if target == "gpu" and name == "ARGS":
            assert set(shlex.split(value)) <= gpu_check.PARTS.keys(), variable
        elif name == "ARGS":
            program = "tools/compare_commits.py" if target == "bench-compare" else f"-m dqnspeed.{target}"
            check(f"python {program} {value}")


def check_install(packages: Sequence[str]) -> None:
    for package in packages:
        if found := re.fullmatch(r"(dqnspeed|\.[/\w-]*)(?:\[([\w,]+)\])?", package):
            known = (ROOT / found[1].replace("dqnspeed", ".") / "pyproject.toml").read_text()
            assert all(f"\n{extra} = [" in known for extra in (found[2] or "").split(",") if extra), package


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_every_command_composes_or_is_parsed(name: str) -> None:
    for command, _ in commands(name, "bash"):
        check(command)
    for code in re.findall(r"`([^`]+)`", " ".join(prose_of(ROOT / name).split())):
        if code.startswith(("python -m ", "dqnspeed ", "make ", "pip install ")) and "…" not in code:
            check(code)


@pytest.mark.slow
@pytest.mark.parametrize("name", [page for page in PAGES if "```console" in text_of(page)])
def test_a_command_that_is_refused_says_what_is_printed_below_it(name: str) -> None:
    for command, lines in commands(name, "console"):
        try:
            runs = check(command)
            if "dqnspeed.train" in command:
                check_run(*runs)
        except Exception as error:
            if not is_user_error(error):
                raise
            assert lines == [f"dqnspeed: {explain(error)}"]
        else:
            assert not any(line.startswith("dqnspeed: ") for line in lines), command


@pytest.mark.slow
def test_the_code_of_the_python_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    for language, block in FENCE.findall(text_of("docs/how-to/python.md")):
        if language == "python":
            exec(block, names)


def test_the_environment_of_the_tutorial_can_be_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = FENCE.findall(text_of("docs/tutorials/own_environment.md"))
    code, *changes = [block for language, block in blocks if language == "python"]
    for new, old in zip(
        changes,
        (
            "    def __init__(self, render_mode=None):\n",
            "        return self._observation(), reward, self.landed == BALLS, False, {}\n",
        ),
        strict=True,
    ):
        assert code.count(old) == 1
        code = code.replace(old, new)
    (tmp_path / "catch.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    spec = check_run(make_run("experiment=own_env", "env.id=catch:Catch", "env.kwargs={balls: 20}"))
    assert spec.frame_shape == (3,)


def test_the_guide_has_the_scores_of_the_zoo() -> None:
    rows = re.findall(r"^\| `zoo:(\w+)` \|[^|]*\| (-?[\d,.]+) ± ([\d,.]+) \|$", text_of("docs/how-to/share.md"), re.M)
    assert [game for game, *_ in rows] == published.zoo()
    for game, *shown in rows:
        found = json.loads((published.ZOO / game / "evaluation.json").read_text())
        for text, key in zip(shown, ("return_mean", "return_std"), strict=True):
            assert text == f"{found[key]:,.{len(text.partition('.')[2])}f}", game


@pytest.mark.parametrize("name", ["play", "report", "publish", "doctor", "bench"])
def test_the_reference_has_every_option_of_a_command(name: str) -> None:
    [section] = re.findall(rf"^## {name}\n(.*?)^## ", text_of("docs/reference/commands.md"), re.S | re.M)
    schema = importlib.import_module(COMMANDS[name]).COMMAND_LINE.schema
    assert set(re.findall(r"^\| `(\w+)=", section, re.M)) == {field.name for field in dataclasses.fields(schema)}


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose_of(page), re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower())) for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(name: str) -> None:
    page = ROOT / name
    documented = tuple(re.findall(r"^::: (\S+)", text_of("docs/reference/api.md"), re.M))
    for link in LINK.findall(prose_of(page)):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists() and target.is_relative_to(ROOT), link
            assert not anchor or anchor in anchors(target) or anchor.startswith(documented), link


def pages_of(nav: list[str | dict[str, str | list]]) -> Iterator[str]:
    for entry in nav:
        for page in [entry] if isinstance(entry, str) else entry.values():
            yield from pages_of(page) if isinstance(page, list) else [page]


def test_every_page_is_in_the_navigation_once() -> None:
    config = yaml.safe_load(text_of("mkdocs.yml"))
    left_out = config["exclude_docs"].splitlines()  # with its comments, which only stand on lines of their own
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}.difference(left_out)
    assert sorted(pages_of(config["nav"])) == sorted(pages)


@pytest.mark.integration
def test_the_site_is_built_and_asks_nothing_of_other_hosts(tmp_path: Path) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("material", "mkdocstrings_handlers", "latex2mathml")):
        pytest.skip("needs what pip install 'dqnspeed[docs]' brings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text()
        assert not re.search(r"<(?!a\b)\w[^>]* (?:src|href)=[\"']?(?:https?:)?//", text), page
        assert "arithmatex" not in text, page  # an equation that did not become MathML
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text()), style
