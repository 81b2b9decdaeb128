"""Pairs and their intervals, and the processes that take turns."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnspeed.bench import measured_process as subjects
from dqnspeed.bench.measured_process import Program, Speeds, Subject, SubjectError, running, speeds_of
from dqnspeed.bench.pairs import Pace, interval, take_turns

speeds = st.lists(st.floats(0.1, 1e6), min_size=5, max_size=20)


@given(speeds)
@settings(deadline=None, max_examples=8)
def test_an_interval_lies_within_its_values_and_holds_their_median(values: list[float]) -> None:
    found = interval(values)
    assert found is not None and found == interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found.median == statistics.median(values)


@given(speeds, st.floats(0.01, 100))
@settings(deadline=None, max_examples=8)
def test_an_interval_scales_with_its_values(values: list[float], factor: float) -> None:
    found, scaled = interval(values), interval([value * factor for value in values])
    assert found is not None and scaled is not None
    assert scaled.low == pytest.approx(found.low * factor) and scaled.high == pytest.approx(found.high * factor)


def test_an_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(0)
    held = [interval([draw.gauss(1.5, 0.1) for _ in range(8)]) for _ in range(60)]
    assert sum(one is not None and one.holds(1.5) for one in held) >= 50


def test_five_values_have_a_wide_interval_and_fewer_have_none() -> None:
    found = interval([1.0, 1.1, 1.2, 1.3, 1.4])
    assert found is not None and (found.low, found.high) == (1.0, 1.4)
    assert interval([1.0, 1.1, 1.2, 1.3]) is None


class Scripted(Subject):
    """A subject whose speeds are given, in place of a process."""

    def __init__(self, name: str, found: Iterator[float], order: list[str]):
        self.name, self.found, self.order = name, found, order


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    def speeds_of(asked: list[Scripted], settle_s: float, slice_s: float) -> Speeds:
        asked[0].order.append(asked[0].name)
        return {"steps": next(asked[0].found)}

    monkeypatch.setattr("dqnspeed.bench.pairs.speeds_of", speeds_of)


def test_a_machine_that_slows_down_moves_both_of_a_pair(scripted: None) -> None:
    order = list[str]()
    slower = iter([100 * 0.9**i for i in range(40)])  # of whichever is measured next
    both = [Scripted(name, slower, order) for name in "AB"]
    ratios = []
    judged = lambda before, value: ratios.append(value["steps"] / before["steps"]) or 1.0  # noqa: E731
    pairs = list(take_turns([both[0]], [both[1]], Pace(0, 0, min_pairs=8, max_pairs=8), judged))
    assert "".join(order) == "ABBA" * 4 and len(pairs) == 8
    found = interval(ratios)
    assert found is not None and found.holds(1.0)


def test_repeats_end_once_the_interval_is_narrow_and_not_before_the_least(scripted: None) -> None:
    def count(values: list[float]) -> int:
        candidate = Scripted("B", iter(values), [])
        return len(
            list(take_turns([], [candidate], Pace(0, 0, min_pairs=5, max_pairs=9), lambda _, value: value["steps"]))
        )

    assert count([1.0] * 9) == 5
    assert count([1.0, 2.0] * 5) == 9


def program(loop: str, begin: str = "") -> Program:
    """A program that counts ``done`` as often as it can."""
    script = f"""
import os, sys, time
from dqnspeed.bench.counting import Counter
counter, done = Counter(), 0
{begin}
while True:
    time.sleep(0.001)
    done += 1
{textwrap.indent(textwrap.dedent(loop).strip(), "    ")}
"""
    return Program([sys.executable, "-c", script])


def test_speeds_are_counted_from_event_to_event() -> None:
    with running(program("counter.event({'done': done, 'tens': 10 * done})")) as [one]:
        for _ in range(3):
            found = speeds_of([one], 0.01, 0.03)
            assert found["tens"] == pytest.approx(10 * found["done"]) and found["done"] > 0


def test_processes_that_work_at_the_same_time_are_added_up() -> None:
    one, other = (program(f"counter.event({{'{name}': done, 'both': done}})") for name in ("one", "other"))
    with running(one, other) as both:
        found = speeds_of(both, 0.02, 0.2)
    assert found["one"] > 0 < found["other"] and found["both"] == pytest.approx(found["one"] + found["other"])


def test_what_waits_does_nothing_nor_do_its_children() -> None:
    begin = "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])"
    with running(program("counter.event({'done': done})", begin)) as [waiting]:
        [child] = psutil.Process(waiting.pid).children()
        await_status(child, psutil.STATUS_STOPPED)
        waiting.tell(subjects.GO)
        waiting.tell(subjects.COUNT)
        waiting.answer()
        assert child.status() != psutil.STATUS_STOPPED
        waiting.tell(subjects.STOP)
        waiting.answer()
        await_status(child, psutil.STATUS_STOPPED)
        used = [sum(process.cpu_times()[:2]) for process in (child, psutil.Process(waiting.pid))]
        time.sleep(0.2)
        assert used == [sum(process.cpu_times()[:2]) for process in (child, psutil.Process(waiting.pid))]
    assert psutil.wait_procs([child], timeout=20)[1] == []


def await_status(process: psutil.Process, status: str) -> None:
    """Signals take a moment."""
    deadline = time.monotonic() + 20
    while process.status() != status:
        assert time.monotonic() < deadline, process.status()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("loop", "sentence"),
    [
        ("sys.exit(3)", r"exited with 3"),
        ("raise ValueError('the toy broke')", r"exited with 1 \(ValueError: the toy broke\)"),
        ("os.kill(os.getpid(), 9)", r"was killed by SIGKILL"),
        ("counter.fail('env.id=Pnog: is no game'); sys.exit()", r"env.id=Pnog: is no game"),
        ("time.sleep(600)", r"has not answered for 0.5 s"),
    ],
)
def test_a_process_that_fails_says_why_and_is_ended(loop: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "END_S", 0.5 if "sleep" in loop else 10.0)
    begun = program(f"if done < 5:\n    counter.event({{'done': done}})\nelse:\n    {loop}")
    with running(begun) as [failing]:
        pid = failing.pid
        failing.tell(subjects.GO)
        with pytest.raises(SubjectError, match=sentence):
            while True:  # its first loops may answer
                failing.tell(subjects.COUNT)
                failing.answer(0.5 if "sleep" in loop else 20.0)
    assert not psutil.pid_exists(pid)


def test_a_measured_process_ends_with_the_bench_even_if_that_is_killed(tmp_path: Path) -> None:
    begin = "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    bench = f"""
import time
from dqnspeed.bench.measured_process import Program, Subject
subject = Subject(Program({program("counter.event({'done': done})", begin).command!r}))
subject.await_ready()
print(subject.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", bench], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as killed:
        assert killed.stdout is not None
        measured = psutil.Process(int(killed.stdout.readline()))
        processes = [measured, *measured.children()]
        assert len(processes) == 2
        os.kill(killed.pid, signal.SIGKILL)
    assert psutil.wait_procs(processes, timeout=20)[1] == []
