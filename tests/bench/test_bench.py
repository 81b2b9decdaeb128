"""A whole bench: measured, interrupted, killed and resumed; and what it refuses at once."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import forked
import psutil
import pytest
from conftest import TESTS, TOY, environment
from forked import Forked
from made import make_result
from plans import toy

from dqnspeed.bench import command, measured_process, suites
from dqnspeed.bench.measuring import Measuring
from dqnspeed.bench.pairs import Pace
from dqnspeed.bench.plan import Piece, Plan
from dqnspeed.bench.progress import Bar, Remaining
from dqnspeed.bench.recommend import SAFE, WIDER, TrainingError, train
from dqnspeed.bench.result import Interval, Measurement, Result
from dqnspeed.bench.suites import Suite, wall
from dqnspeed.config.options import ConfigError
from dqnspeed.system import noise
from dqnspeed.system.noise import Watch

LARGE, TINY = "model.hidden=[1024,1024,1024]", "model.hidden=[8]"  # the second is faster for sure

pytestmark = pytest.mark.slow


class FewPieces(Plan):
    """No floor, a choice that pays, one that fails, and one part."""

    def floors(self) -> Iterator[Piece]:
        yield from ()

    def axes(self) -> dict[str, list[tuple[str, ...]]]:
        return {"execution": [(TINY,), ("backend=ale",)]}

    def pieces(self) -> Iterator[tuple[Piece, Piece | None]]:
        yield next(one for one in super().pieces() if one[0].group == "replay")


def empty(**changes: object) -> Result:
    return dataclasses.replace(make_result(), measurements=[], recommendation=None, walls=[], ended=None, **changes)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A quick suite of few pieces with short slices."""
    if forked.FORKS:
        monkeypatch.setattr(measured_process, "subprocess", forked.PIECES)
    short = Pace(settle_s=0.02, slice_s=0.05, min_pairs=5, max_pairs=5)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setattr(noise, "LOOK_S", 0.1)
    monkeypatch.setattr(suites, "Plan", FewPieces)
    monkeypatch.setattr(suites, "PIECES", short)
    monkeypatch.setattr(suites, "FRESH", short)
    monkeypatch.setattr(suites, "RUNGS", short)
    monkeypatch.setattr(suites, "train", lambda lines, *_: 300.0 if TINY in lines else 100.0)  # tried below
    return Suite("quick", [one for one in TOY if "hidden" not in one] + [LARGE])


def test_a_bench_ends_with_a_line_that_it_has_checked(quick: Suite, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    with Bar(10) as bar, Measuring(empty(), path, bar) as measuring:
        quick.run(measuring, WIDER)
    result = measuring.result
    assert json.loads(path.read_text()) == dataclasses.asdict(result) and result.ended
    line = result.recommendation
    assert line is not None and line.overrides == [TINY] and line.expected.low > 1
    assert line.measured == Interval(3.0, 3.0, 3.0)
    assert line.sentence.startswith("Whole trainings, end to end, gained 3.00×")
    failed = {one.name: one.error for one in result.measurements if one.error}
    assert failed == {
        "backend=ale": "backend=ale: needs an ALE game, and toy_envs:Counter-v0 is not one. Use backend=auto."
    }
    checks = [one for one in result.measurements if one.group == "check"]
    assert [len(one.pairs) for one in checks] == [5, suites.CHECKS] and all(one.ratio for one in checks)
    rung = result.find("rungs", TINY)
    assert rung is not None and checks[0].name == f"{TINY}, once more"
    assert rung is not None and rung.ratio is not None and rung.kind == "changes the algorithm"
    assert result.walls[0].startswith("the baseline: ") and result.walls[1].startswith("the line: ")


def test_a_line_that_does_not_hold_gives_way_and_one_that_trains_slower_is_none(
    quick: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(name: str, median: float, group: str = "rungs", error: str | None = None) -> Measurement:
        ratio = None if error else Interval(median, median - 0.03, median + 0.03)
        return Measurement(group, name, "agent steps/s", overrides=name.split(), ratio=ratio, error=error)

    first, second = "execution.precision=bf16", "execution.channels_last=true"
    again = {first: row(first, 1.01, "check"), second: row(second, 1.2, "check")}

    def measure(piece: Piece, *_: object) -> Measurement:
        return again[piece.name.removesuffix(", once more")]

    for speed, overrides, said in ((150.0, [second], "Whole trainings"), (50.0, [], f"{second} looked faster, but: ")):
        measuring = SimpleNamespace(
            result=empty(), measure=measure, end_reference=lambda: None, add=lambda _: None, bar=Bar(10)
        )
        measuring.result = dataclasses.replace(measuring.result, measurements=[row(first, 1.4), row(second, 1.2)])

        def change(measuring: Any = measuring, **changes: Any) -> None:
            measuring.result = dataclasses.replace(measuring.result, **changes)

        measuring.change = change
        monkeypatch.setattr(suites, "train", lambda lines, *_, speed=speed: speed if second in lines else 100.0)
        quick._recommend(cast("Any", measuring), quick.plan.baseline(), SAFE)
        found = measuring.result.recommendation
        assert found.overrides == overrides and found.sentence.startswith(said)
    again[first] = row(first, 0, "check", error="it broke.")
    again[second] = again[first]
    quick._recommend(cast("Any", measuring), quick.plan.baseline(), SAFE)
    assert "could not be measured once more: it broke." in measuring.result.recommendation.sentence


def test_a_whole_training_gives_its_speed_or_says_why_it_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    assert train(toy().lines(), seconds=0.5, limit_s=120) > 0
    with pytest.raises(TrainingError, match=r"a training left no result \(.*env.id=Pnog: no ALE game"):
        train(["env.id=Pnog"], seconds=0.5, limit_s=120)
    with pytest.raises(TrainingError, match=r"a training of 0\.5 s had not ended after 0\.01 s"):
        train(toy().lines(), seconds=0.5, limit_s=0.01)


def test_a_bench_that_is_ended_leaves_a_valid_result_and_no_process(tmp_path: Path) -> None:
    path = tmp_path / "found" / "bench.json"
    with Forked("dqnspeed.bench", "suite=micro", "out=found", *TOY, cwd=tmp_path, env=environment()) as bench:
        deadline = time.monotonic() + 120
        while not path.exists() or '"value"' not in path.read_text():
            assert bench.poll() is None and time.monotonic() < deadline, bench.communicate()
            time.sleep(0.05)
        while not (started := psutil.Process(bench.pid).children(recursive=True)):
            time.sleep(0.02)
        os.kill(bench.pid, signal.SIGTERM)
        out, errors = bench.communicate()
        assert psutil.wait_procs(started, timeout=30)[1] == []
        assert bench.returncode == 130 and "partial" in out and "Traceback" not in errors
    result = json.loads(path.read_text())
    assert result["ended"] is None and result["suite"] == "micro" and result["measurements"][0]["value"]
    assert (path.parent / "bench.md").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["suite=fast"], "suite=fast: choose one of quick, full, micro"),
        (["env.id=ALE/Pnog-v5"], "env.id=ALE/Pnog-v5: no ALE game"),
        (["out=taken"], "out=taken: is there already; name a new folder"),
        (["out=file/new"], "out=file/new: cannot be made"),
        (["out=link/new"], r"out=link/new: cannot be made \(link is a link to nowhere, which does not exist"),
        (["allow=all"], "allow=all: choose one of algorithm"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_made(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", *arguments])
    if arguments[0].startswith("out"):
        sys.argv += toy().overrides
    with pytest.raises(ConfigError, match=sentence):
        command._main()
    assert sorted(tmp_path.rglob("*")) == before


def test_time_left_is_corrected_by_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    remaining = Remaining(100)
    assert remaining.left() == 100
    now[0] += 50
    remaining.advance(25)
    assert remaining.left() == 150 and remaining.share == 0.25


def test_a_signal_that_python_drops_ends_the_bench_at_its_next_piece() -> None:
    bar = Bar(10)
    with pytest.raises(KeyboardInterrupt):
        bar.interrupt(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        bar.begin("the next")


def test_the_wall_is_what_takes_most_of_the_time() -> None:
    row = make_result().find("rungs", "baseline")
    assert row is not None and row.floor is not None
    row = dataclasses.replace(row, parts={"updating": 0.71, "sampling": 0.02, "acting": 0.1, "stepping": 0.17})
    sentence = wall("the baseline", row)
    assert sentence == (
        f"the baseline: the learner's updates take 71% of the time, in which they reach "
        f"{row.floor.share / 0.71:.0%} of the matrix product in fp32."
    )
    row = dataclasses.replace(row, parts={**row.parts, "stepping": 0.8})
    assert wall("the line", row) == "the line: stepping the games takes 80% of the time."


def test_the_machine_says_what_will_spoil_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "LOOK_S", 0.1)
    cpus, cgroups = tmp_path / "cpu", tmp_path / "cgroup"
    (cpus / "cpu0" / "cpufreq").mkdir(parents=True)
    (cpus / "cpu0" / "thermal_throttle").mkdir()
    (cpus / "cpu0" / "cpufreq" / "scaling_governor").write_text("powersave\n")
    count = cpus / "cpu0" / "thermal_throttle" / "core_throttle_count"
    count.write_text("7\n")
    cgroups.mkdir()
    (cgroups / "cpu.max").write_text("50000 100000\n")
    (cgroups / "cpu.stat").write_text("usage_usec 5\nnr_throttled 3\n")
    watch = Watch(cpus, cgroups)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    before = watch.before()
    assert "OMP_WAIT_POLICY=active has threads spin while they wait for work: unset it." in before
    assert "the processor's governor is powersave: its clock follows the load." in before
    assert any(sentence.startswith("the container may use 0.5 cores' time of the ") for sentence in before)
    assert not any("slowed down" in sentence or "held back" in sentence for sentence in before)
    count.write_text("9\n")
    (cgroups / "cpu.stat").write_text("usage_usec 5\nnr_throttled 8\n")
    after = watch.after()
    assert "the processor was slowed down 2 times because it was hot." in after
    assert "the container was held back 5 times at its quota of CPU time." in after
    assert Watch(tmp_path / "none", tmp_path / "none")._counters()["hot"] == 0
