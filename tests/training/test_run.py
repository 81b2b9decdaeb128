"""Device of a run's experience."""

from __future__ import annotations

import logging

import pytest
import torch
from conftest import make_run

from dqnspeed.envs import describe
from dqnspeed.system import machine
from dqnspeed.training.run import place_of_experience


def test_the_log_says_what_experience_takes_of_a_gpu_or_why_it_is_on_the_host(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def said(*overrides: str) -> tuple[torch.device | None, str]:
        caplog.clear()
        run = make_run(*overrides)
        return place_of_experience(run, describe(run)), " ".join(caplog.messages)

    with caplog.at_level(logging.INFO):
        assert said("device=cpu") == (None, "")
        monkeypatch.setattr(machine, "pick_device", lambda name: torch.device("cuda"))
        monkeypatch.setattr(machine, "free_gpu_memory", lambda device: 2 * 10**9)
        where, message = said("replay.buffer_size=10000")
        assert where == torch.device("cuda") and message == "experience takes 70.7 MB of the memory of cuda"
        where, message = said("replay.buffer_size=1000000")
        assert where is None and message.startswith("experience takes 7.")
        assert message.endswith("GB, too much for the 2.0 GB that are free on cuda: the host keeps it")
        assert said("replay.device=cpu") == (None, "")
