"""A whole bench: measured, interrupted, and refused."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import TESTS, TOY, Command, environment
from example_result import make_result
from forked import Forked
from plans import toy

from dqnspeed.bench import command, recommend, suites
from dqnspeed.bench.pairs import SamplingPlan
from dqnspeed.bench.plan import Piece, Plan
from dqnspeed.bench.recommend import ANY_ALGORITHM, SAME_LEARNING, train
from dqnspeed.bench.result import Interval, Measurement
from dqnspeed.bench.session import BenchProgress, BenchSession
from dqnspeed.bench.suites import Suite, bottleneck
from dqnspeed.cli.errors import RunError
from dqnspeed.system import noise

LARGE, TINY = "model.hidden=[512,512,512]", "model.hidden=[8]"  # the second one is surely faster

pytestmark = pytest.mark.slow


class FewPieces(Plan):
    """No limits, a choice that is faster, one that fails, and one part."""

    def limits(self) -> Iterator[Piece]:
        yield from ()

    def choices(self) -> dict[str, list[tuple[str, ...]]]:
        return {"execution": [(TINY,), ("backend=ale",)], "num_envs": [], "threads": []}

    def parts(self) -> Iterator[Piece]:
        yield next(piece for piece in super().parts() if piece.group == "replay")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Suite:
    """A quick suite of few pieces with short slices."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setattr(noise, "WATCH_S", 0.1)
    monkeypatch.setattr(suites, "Plan", FewPieces)
    for name in ("PART_SAMPLING", "TRAINING_SAMPLING", "CHECK_SAMPLING"):
        monkeypatch.setattr(suites, name, SamplingPlan(settle_s=0.02, slice_s=0.05, num_pairs=5))
    monkeypatch.setattr(recommend, "train", lambda lines, *_: 300.0 if TINY in lines else 100.0)  # tested below
    return Suite("quick", [one for one in TOY if "hidden" not in one] + [LARGE])


@pytest.mark.integration
def test_a_bench_ends_with_a_command_that_it_has_checked(quick: Suite, tmp_path: Path) -> None:
    with BenchSession(quick.plan, "quick", tmp_path, 10) as session:
        quick.run(session, ANY_ALGORITHM)
    result = session.result
    assert json.loads((tmp_path / "bench.json").read_text()) == dataclasses.asdict(result) and result.ended
    found = result.recommendation
    assert found is not None and found.overrides == [TINY] and found.expected.low > 1
    assert found.measured == Interval(3.0, 3.0, 3.0)
    assert found.sentence.startswith("Whole trainings, end to end, gained 3.00×")
    failed = {row.name: row.error for row in result.measurements if row.error}
    problem = "backend=ale: needs an ALE game, and toy_envs:Counter-v0 is not one. Use backend=auto."
    assert failed == {"backend=ale": problem}
    checks = [row for row in result.measurements if row.group == "check"]
    assert [len(row.pairs) for row in checks] == [5, suites.WHOLE_TRAININGS] and all(row.ratio for row in checks)
    training = result.find("trainings", TINY)
    assert checks[0].name == f"{TINY}, measured again"
    assert training is not None and training.ratio is not None and training.kind == "changes the algorithm"
    assert [sentence.partition(": ")[0] for sentence in result.bottlenecks] == [
        "the baseline", "the recommended command"
    ]  # fmt: skip


class ScriptedSession(BenchSession):
    """A session whose measurements are given by name."""

    rows: dict[str, Measurement]

    def measure(self, piece: Piece, sampling: SamplingPlan) -> Measurement:
        return self.rows[piece.name.removesuffix(", measured again")]


def test_a_candidate_must_hold_and_train_faster(quick: Suite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def row(name: str, median: float, group: str = "trainings", error: str | None = None) -> Measurement:
        ratio = None if error else Interval(median, median - 0.03, median + 0.03)
        return Measurement(group, name, "agent steps/s", overrides=name.split(), ratio=ratio, error=error)

    first, second = "execution.precision=bf16", "execution.channels_last=true"

    def recommended(again: dict[str, Measurement], speed: float) -> Any:
        session = ScriptedSession(quick.plan, "quick", tmp_path, 10)
        session.rows = again
        session.update(measurements=[row(first, 1.4), row(second, 1.2)])
        monkeypatch.setattr(recommend, "train", lambda lines, *_: speed if second in lines else 100.0)
        quick.recommend(session, SAME_LEARNING)
        return session.result.recommendation

    again = {first: row(first, 1.01, "check"), second: row(second, 1.2, "check")}
    found = recommended(again, 150.0)
    assert found.overrides == [second] and found.sentence.startswith("Whole trainings")
    found = recommended(again, 50.0)
    assert found.overrides == [] and found.sentence.startswith(f"{second} looked faster, but: ")
    broken = {name: row(name, 0, "check", error="it broke.") for name in again}
    assert "measured again: it broke." in recommended(broken, 50.0).sentence


@pytest.mark.integration
def test_a_whole_training_gives_its_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    assert train(toy().equal_work_overrides(), seconds=0.5, limit_s=120) > 0


def test_a_whole_training_without_a_speed_says_why() -> None:
    with pytest.raises(RunError, match=r"a training left no result \(.*env.id=Pnog: no ALE game"):
        train(["env.id=Pnog"], seconds=0.5, limit_s=120)
    with pytest.raises(RunError, match=r"a training of 0\.5 s had not ended after 0\.01 s"):
        train(toy().equal_work_overrides(), seconds=0.5, limit_s=0.01)


def test_a_bench_that_is_ended_leaves_a_valid_result_and_no_process(tmp_path: Path) -> None:
    path = tmp_path / "found" / "bench.json"
    with Forked("dqnspeed.bench", "suite=micro", "out=found", *TOY, cwd=tmp_path, env=environment()) as bench:
        bench.wait_for(lambda: path.exists() and '"value"' in path.read_text())
        bench.wait_for(lambda: psutil.Process(bench.pid).children(recursive=True))
        started = psutil.Process(bench.pid).children(recursive=True)
        os.kill(bench.pid, signal.SIGTERM)
        out, errors = bench.communicate()
        assert psutil.wait_procs(started, timeout=30)[1] == []
        assert bench.returncode == 128 + signal.SIGTERM and "partial" in out and "Traceback" not in errors
    result = json.loads(path.read_text())
    assert result["ended"] is None and result["suite"] == "micro" and result["measurements"][0]["value"]
    assert (path.parent / "bench.md").exists()


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("suite=fast", "suite=fast: choose one of quick, full, micro"),
        ("env.id=ALE/Pnog-v5", "env.id=ALE/Pnog-v5: no ALE game"),
        ("sweep=num_envs", "sweep=num_envs: a sweep needs the command line of dqnspeed.train."),
        ("out=taken", "out=taken: cannot be made (File exists). Name a new folder."),
        ("out=link/new", "out=link/new: cannot be made (link is a link to nowhere, which does not exist"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_made(
    argument: str, sentence: str, tmp_path: Path, run_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    code, _, errors = run_here(command, argument, *(toy().overrides if "out" in argument else []))
    assert code == 2 and errors.startswith(f"dqnspeed: {sentence}") and errors.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_each_piece_is_a_line_with_the_share_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    progress = BenchProgress(10)
    progress.start("first")
    progress.advance(2.5)
    progress.start("second")
    assert capsys.readouterr().err.splitlines() == ["  0%: first", " 25%: second"]


def test_the_bottleneck_is_the_part_that_takes_most_of_the_time() -> None:
    row = make_result().find("trainings", "baseline")
    assert row is not None
    row = dataclasses.replace(row, parts={"updating": 0.71, "sampling": 0.02, "acting": 0.1, "stepping": 0.17})
    assert bottleneck("the baseline", row) == "the baseline: the learner's updates take 71% of the host's time."
    row = dataclasses.replace(row, parts={**row.parts, "stepping": 0.8})
    assert bottleneck("the command", row) == "the command: stepping the games takes 80% of the host's time."


def test_disturbances_of_the_machine_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "WATCH_S", 0.1)
    cgroups = tmp_path / "cgroup"
    cgroups.mkdir()
    (cgroups / "cpu.max").write_text("50000 100000\n")
    found = noise.disturbances(cgroups)
    assert any(sentence.startswith("the container may use 0.5 cores' time of the ") for sentence in found)
