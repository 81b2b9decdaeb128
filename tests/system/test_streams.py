"""Output that nobody reads, or that a full disk refuses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dqnspeed.cli.app import run_app
from dqnspeed.system.streams import output_error, tolerate_output_errors

# It is closed here without an error.


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = open("/dev/full", "w")  # noqa: SIM115  closed below
    monkeypatch.setattr(sys, "stderr", full)
    tolerate_output_errors()
    print("waits", file=sys.stderr, end="")
    assert not sys.stderr.isatty() and sys.stderr.encoding == full.encoding
    sys.stderr.flush()  # as Python does at its own end
    full.close()  # nothing waits to be written, with which Python would end with an error


def test_every_command_goes_on_without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    done = list[int]()
    with os.fdopen(write, "w") as broken:
        monkeypatch.setattr(sys, "stdout", broken)
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # which it sets for this whole process
        run_app(lambda: (print("lost", flush=True), done.append(1)))
    assert done == [1]


def test_a_stream_that_is_closed_from_the_start_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    tolerate_output_errors()
    print("lost", flush=True)
    sys.stderr.write("lost")
    assert output_error() == "it is closed"
    for stream in (sys.stdout, sys.stderr):
        stream.close()
