"""The model card of a published agent: Markdown with the metadata of Hugging Face's Hub."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from dqnspeed.tracking.hub import HUB
from dqnspeed.tracking.published import CURVE, CURVE_IMAGE, EVALUATION
from dqnspeed.tracking.run_folder import BEST, CONFIG

PYTHON = ("python", "-m")
UNKNOWN = "unknown, since the run wrote no summary"


def card(name: str, facts: Mapping[str, Any], evaluation: Mapping[str, Any], images: Sequence[str]) -> str:
    """The text of the card.

    Args:
        facts: summary of the run, its configuration, and ``checkpoint_steps`` and ``half`` of the stored weights.
        evaluation: result of playing the stored weights.
        images: names of the files with the curve and the film.
    """
    algo, env = facts["config"]["algo"]["name"], facts["config"]["env"]["id"]
    metadata = yaml.safe_dump(_metadata(name, algo, env, evaluation), sort_keys=False, allow_unicode=True)
    rows = "\n".join(f"| {key} | {_cell(value)} |" for key, value in _rows(facts, evaluation).items())
    shown = "".join(
        f"\n![Learning curve]({CURVE_IMAGE})\n" if one == CURVE_IMAGE else f"\n[A game]({one})\n" for one in images
    )
    limits = "\n".join(f"- {limit}" for limit in _limits(facts, evaluation))
    play, tune = shlex.join([*PYTHON, "dqnspeed.play", f"run={name}"]), _training(facts, f"init={name}")
    return f"""---
{metadata}---

# {algo} in {env}

Mean return **{_score(evaluation)}** over {len(evaluation["games"])} games.

| | |
|---|---|
{rows}
{shown}
## Use

The commands need dqnspeed, with its extra `hub` for an agent on the Hub.

```bash
{play}
{tune}
```

`dqnspeed.load("{name}")` gives the agent to Python. `{CONFIG}` has every option of the training, `{CURVE}` the mean
returns during it, `{EVALUATION}` every game of the evaluation. No file is unpickled.

## Limits

{limits}
"""


def renamed(text: str, name: str) -> str:
    """The text of a card whose commands play the agent ``name`` of the Hub."""
    found = re.search(r"dqnspeed\.play (?:'run=([^'\n]+)'|run=(\S+))", text)
    if found is None:
        return text  # somebody has edited it
    old = found[1] or found[2]
    for key in ("run", "init"):
        text = re.sub(rf"'{key}={re.escape(old)}'|\b{key}={re.escape(old)}(?!\S)", f"{key}={name}", text)
    return text.replace(f'load("{old}")', f'load("{name}")')


def _metadata(name: str, algo: str, env: str, evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of the card, in the form that Stable-Baselines3 and CleanRL write for agents."""
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    metric = {"type": "mean_reward", "value": _score(evaluation, "+/-"), "name": "mean_reward", "verified": False}
    result = {"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}
    return {
        "library_name": "dqnspeed",
        "pipeline_tag": "reinforcement-learning",
        "tags": [env, algo, "reinforcement-learning", "deep-reinforcement-learning", "dqnspeed"],
        "model-index": [{"name": name.removeprefix(HUB), "results": [result]}],
    }


def _rows(facts: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, str]:
    machine, config, noops = facts.get("machine") or {}, facts["config"], _noops(facts, evaluation)
    parts = [machine.get("cpu"), f"{machine.get('cores')} cores", machine.get("gpu")]
    actions = "the most likely or best action" if evaluation["deterministic"] else "actions drawn from the policy"
    trained = f"{facts['checkpoint_steps']:,} agent steps until these weights"
    if "wall_time_s" in facts:
        trained += f", {facts['agent_steps']:,} in {facts['wall_time_s']:,.0f} s in all"
    return {
        "protocol": facts.get("protocol") or "none, since it is not a game of ALE",
        "evaluation": f"{actions}{f', up to {noops} no-ops at the start' if noops else ''}, seed {evaluation['seed']}",
        "command": f"`{_training(facts)}`",
        "training": f"{trained}, seed {config['seed']}",
        "processor": ", ".join(part for part in parts if part) if machine else UNKNOWN,
        "versions": ", ".join(f"{key} {value}" for key, value in facts.get("versions", {}).items()) or UNKNOWN,
        "weights": f"`{BEST}`, floats of {16 if facts['half'] else 32} bits",
    }


def _training(facts: Mapping[str, Any], *more: str) -> str:
    """The command of the training, with ``more`` overrides."""
    return shlex.join([*PYTHON, "dqnspeed.train", *facts.get("overrides", []), *more])


def _limits(facts: Mapping[str, Any], evaluation: Mapping[str, Any]) -> Iterator[str]:
    yield "One training with one seed: another seed may learn less or more."
    if _noops(facts, evaluation):
        yield "The score is of games that start with random no-ops, and says nothing of other rules of the game."
    if str(facts.get("protocol")).startswith("custom"):
        yield "The protocol is not the standard one, so the score cannot be compared with scores of the literature."
    if (found := evaluation["distinct_games"]) < (count := len(evaluation["games"])):
        yield f"Only {found} of the {count} games differ, so the spread says no more than those {found}."
    if init := facts["config"].get("init"):
        yield f"The training did not start from random weights but from `{init}`."
    if "wall_time_s" not in facts:
        yield "The run was not ended in the ordinary way, and wrote no summary."


def _noops(facts: Mapping[str, Any], evaluation: Mapping[str, Any]) -> int:
    """The most no-ops at the start of the games of an evaluation; 0 for an environment that is not a game of ALE."""
    most: int = evaluation["noop_max"] or facts["config"]["wrappers"]["noop_max"]
    return most if facts["protocol"] else 0


def _score(evaluation: Mapping[str, Any], sign: str = "±") -> str:
    return f"{evaluation['return_mean']:.2f} {sign} {evaluation['return_std']:.2f}"


def _cell(text: str) -> str:
    """``text`` for a cell of a table, whose columns are divided by ``|``."""
    return text.replace("|", "\\|").replace("\n", " ")
