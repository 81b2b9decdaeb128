"""The command lines of the small commands: what they read, and what they refuse in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option


@dataclass(frozen=True)
class Options:
    run: str = option("the folder of a run")
    episodes: int = option("games to play", ge=1, default=5)
    epsilon: float | None = option("chance of a random action, null: none", le=1, default=None)
    device: str = option("where it runs", choices=("auto", "cpu"), default="auto")
    games: list[int] = option("which games", default_factory=list)
    window: bool = option("show them", default=False)


LINE = CommandLine("python -m it run=FOLDER", "It does.", Options)


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("multirun/num_envs=1,seed=0", "multirun/num_envs=1,seed=0"),
        ("'with a comma, quoted'", "with a comma, quoted"),
        ("1e3", "1e3"),
        ("true", "true"),
        ("ü/ä#1", "ü/ä#1"),
    ],
)
def test_text_is_taken_as_it_is_written(text: str, run: str) -> None:
    assert LINE.read([f"run={text}"])[0].run == run


def test_values_have_the_types_of_the_schema_and_the_last_of_a_key_counts() -> None:
    given = ["run=a", "episodes=2", "episodes=3", "epsilon=1", "games=[1,2]", "window=true", "device='cpu'"]
    assert LINE.read(given)[0] == Options("a", 3, 1.0, "cpu", [1, 2], True)
    assert LINE.read(["run=a", "epsilon=0.5", "epsilon=null"])[0].epsilon is None


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "run: is missing; give run=VALUE, the folder of a run."),
        ("run=", "run=: has no value."),
        ("run=null", "run=null: must be text."),
        ("run=[a", """run=[a: cannot be read; quote it, as in run='"VALUE"'."""),
        ("run=a episodes=0", "episodes=0: must be at least 1."),
        ("run=a episodes=1,2", "episodes=1,2: must be a whole number."),
        ("run=a epsilon=some", "epsilon=some: must be a number or null."),
        ("run=a games=1", "games=1: must be a list, as in [a,b]."),
        ("run=a window=2.5", "window=2.5: must be true or false."),
        ("run=a device=tpu", "device=tpu: choose one of auto, cpu."),
        ("run=a episode=1", "episode=1: is no option (nearest: episodes); give KEY=VALUE, where KEY is one of run, ep"),
        ("a", "a: is no option; give KEY=VALUE, where KEY is one of run, "),
        ("--episodes=1", "--episodes=1: is no option (nearest: episodes); give KEY=VALUE, where KEY is one of run, "),
    ],
)
def test_a_mistake_is_reported_in_one_sentence(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        LINE.read(line.split())
    assert str(raised.value).startswith(sentence)


def test_help_names_every_option_and_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        LINE.read(["episodes=0", "--help"])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["It does.", "", "  python -m it run=FOLDER"]
    assert "  episodes     games to play [5]" in lines and "  device       where it runs (auto, cpu) [auto]" in lines


def test_other_arguments_are_handed_out_in_their_order() -> None:
    line = CommandLine("it", "It does.", Options, "files", lambda argument: not argument.endswith("x"))
    options, others = line.read(["b", "run=a", "env=c", "a"])
    assert options.run == "a" and others == ["b", "env=c", "a"]
    with pytest.raises(ConfigError, match=r"x: is no option; give KEY=VALUE, where KEY is one of .*; or files\.$"):
        line.read(["run=a", "x"])
