"""Options of algorithms, networks and exploration that are refused, each with a message that names the option."""

from __future__ import annotations

import re

import pytest
from conftest import make_run

from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError

BAD = {
    "algo=c51 algo.value_min=5 algo.value_max=5": "algo.value_min=5.0: must be less than algo.value_max=5.0.",
    "algo=rainbow algo.atoms=1": "algo.atoms=1: must be at least 2.",
    "algo=sac_discrete model.dueling=true": "model.dueling=true: algo=sac_discrete ",
    "model=impala model.channels=[]": "model.channels=",
    "model=impala model.channels=[4,0]": "model.channels=",
    "algo=q_learning env=frozen_lake exploration=noisy": "exploration=noisy: ",
}


@pytest.mark.parametrize("line", BAD)
def test_options_that_do_not_fit_are_refused(line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(BAD[line])}"):
        check(make_run(*line.split()))
