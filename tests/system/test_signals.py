"""A signal between two trainings is not lost."""

from __future__ import annotations

import signal

from dqnspeed.system.signals import Remembering, StopSignals


def test_a_signal_that_came_before_a_training_ends_it() -> None:
    heard = Remembering()
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
