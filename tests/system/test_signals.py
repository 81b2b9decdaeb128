"""Signals that end a training; one between two is not lost."""

from __future__ import annotations

import signal
import time

import pytest

from dqnspeed.system.signals import REPEAT_S, SignalRecorder, StopSignals


@pytest.mark.parametrize("nohup", [False, True])
def test_a_closed_terminal_ends_a_training_but_for_nohup(nohup: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGHUP)
        assert signals.received is (None if nohup else signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_came_before_a_training_ends_it() -> None:
    heard = SignalRecorder()
    before = signal.signal(signal.SIGTERM, heard)
    try:
        with StopSignals() as signals:
            assert signals.received is None
        signal.raise_signal(signal.SIGTERM)
        with StopSignals() as signals:
            assert signals.received is signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is heard
    finally:
        signal.signal(signal.SIGTERM, before)


def test_two_that_come_together_are_one_and_a_later_one_ends_at_once() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            assert signals.received is signal.SIGINT
            time.sleep(2 * REPEAT_S)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
