"""Pairs, their intervals, and measured processes."""

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

from dqnspeed.bench import counting, measured_process
from dqnspeed.bench.measured_process import (
    MeasuredProcess,
    ProcessError,
    Program,
    Speeds,
    measure_speeds,
    running,
)
from dqnspeed.bench.pairs import SamplingPlan, interval, take_turns

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
    assert sum(one is not None and one.contains(1.5) for one in held) >= 50


def test_five_values_have_a_wide_interval_and_fewer_have_none() -> None:
    found = interval([1.0, 1.1, 1.2, 1.3, 1.4])
    assert found is not None and (found.low, found.high) == (1.0, 1.4)
    assert interval([1.0, 1.1, 1.2, 1.3]) is None


class ScriptedProcess(MeasuredProcess):
    """A process with given speeds."""

    def __init__(self, name: str, speeds: Iterator[float], order: list[str]):
        self.name, self.speeds, self.order = name, speeds, order


def test_a_machine_that_slows_down_moves_both_of_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure_speeds(processes: list[ScriptedProcess], settle_s: float, slice_s: float) -> Speeds:
        [process] = processes
        process.order.append(process.name)
        return {"steps": next(process.speeds)}

    monkeypatch.setattr("dqnspeed.bench.pairs.measure_speeds", measure_speeds)
    order = list[str]()
    falling = iter([100 * 0.9**i for i in range(40)])  # of whichever process is next
    both = [ScriptedProcess(name, falling, order) for name in "AB"]
    pairs = take_turns([both[0]], [both[1]], SamplingPlan(0, 0, num_pairs=8))
    assert "".join(order) == "ABBA" * 4 and len(pairs) == 8
    found = interval([value["steps"] / before["steps"] for before, value in pairs])
    assert found is not None and found.contains(1.0)
    assert take_turns([], [both[1]], SamplingPlan(0, 0, num_pairs=3))[0][0] == {}


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


def test_speeds_of_processes_that_work_at_the_same_time_are_added_up() -> None:
    programs = [program(f"counter.event({{'{name}': done, 'tens': 10 * done}})") for name in ("one", "other")]
    with running(programs) as both:
        found = measure_speeds(both, 0.02, 0.2)
    assert found["one"] > 0 < found["other"] and found["tens"] == pytest.approx(10 * (found["one"] + found["other"]))


def test_a_paused_process_does_nothing_nor_do_its_children() -> None:
    begin = "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'while True: pass'])"
    with running([program("counter.event({'done': done})", begin)]) as [paused]:
        process = psutil.Process(paused.pid)
        [child] = process.children()
        await_status(child, psutil.STATUS_STOPPED)
        paused.resume()
        paused.request(counting.COUNT)
        paused.answer()
        assert child.status() != psutil.STATUS_STOPPED
        measure_speeds([paused], 0.0, 0.0)
        await_status(child, psutil.STATUS_STOPPED)
        await_status(process, psutil.STATUS_STOPPED)
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
        ("raise ValueError('the toy broke')", r"exited with 1 \(ValueError: the toy broke\)"),
        ("os.kill(os.getpid(), 9)", r"was killed by SIGKILL"),
        ("counter.fail('env.id=Pnog: is no game'); sys.exit()", r"env.id=Pnog: is no game"),
        ("time.sleep(600)", r"has not answered for 0.5 s"),
    ],
)
def test_a_process_that_fails_says_why_and_is_ended(loop: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_process, "EXIT_S", 0.5 if "sleep" in loop else 10.0)
    begun = program(f"if done < 5:\n    counter.event({{'done': done}})\nelse:\n    {loop}")
    with running([begun]) as [failing]:
        pid = failing.pid
        failing.resume()
        with pytest.raises(ProcessError, match=sentence):
            while True:  # the first loops may answer
                failing.request(counting.COUNT)
                failing.answer(0.5 if "sleep" in loop else 20.0)
    assert not psutil.pid_exists(pid)


def test_a_measured_process_ends_with_the_bench_even_if_that_is_killed(tmp_path: Path) -> None:
    begin = "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    bench = f"""
import time
from dqnspeed.bench.measured_process import MeasuredProcess, Program
process = MeasuredProcess(Program({program("counter.event({'done': done})", begin).command!r}))
process.await_ready()
print(process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", bench], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as killed:
        assert killed.stdout is not None
        measured = psutil.Process(int(killed.stdout.readline()))
        processes = [measured, *measured.children()]
        assert len(processes) == 2
        while any(process.status() != psutil.STATUS_STOPPED for process in processes):
            time.sleep(0.01)  # the kernel takes a moment to stop them
        os.kill(killed.pid, signal.SIGKILL)
    assert psutil.wait_procs(processes, timeout=20)[1] == []
