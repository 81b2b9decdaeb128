"""Compare what short seeded trainings compute at two commits, to the last bit.

A change that only moves code must change no number. Each case trains for about 200 updates on one thread in float32,
once in a worktree of each commit. Losses, returns and weights are compared. The differences of a case are named, and
the exit code is 1.

    python tools/same_numbers.py COMMIT            the working tree against COMMIT
    python tools/same_numbers.py COMMIT OTHER      two commits
    python tools/same_numbers.py COMMIT --only dqn only the cases whose name contains dqn
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[1]
COMPARED = "train/"  # other metrics contain times

COMMON = (
    "seed=7", "device=cpu", "execution=eager", "execution.threads=1", "tracking=local", "tracking.progress=off",
    "tracking.report_every_s=100000", "checkpoint.every_minutes=0", "stop.reward_bound=null",
)  # fmt: skip
CARTPOLE = ("env=cartpole", "wrappers=none", "model=mlp", "model.hidden=[32]")
PONG = ("env=pong", "wrappers.resize=32", "wrappers.stack=2", "model=tiny", "model.hidden=[32]")
REPLAY = (
    "algo.learning_starts=200", "algo.batch_size=16", "algo.steps_per_update=2", "algo.target_update_every=50",
    "num_envs=2", "replay.buffer_size=2000", "stop.max_steps=600",
)  # fmt: skip
ALGORITHMS = {
    "dqn": ("algo=dqn", *REPLAY),
    "dqn n-step prioritized": ("algo=dqn", "replay=prioritized", "algo.double=true", "algo.n_step=3", *REPLAY),
    "rainbow": ("algo=rainbow", *REPLAY),
    "c51": ("algo=c51", *REPLAY),
    "iqn": ("algo=iqn", *REPLAY),
    "munchausen": ("algo=munchausen", *REPLAY),
    "sac_discrete": ("algo=sac_discrete", *(option for option in REPLAY if "target_update_every" not in option)),
    "a2c": ("algo=a2c", "num_envs=4", "algo.batch_size=16", "stop.max_steps=3200"),
    "ppo": ("algo=ppo", "num_envs=4", "algo.num_steps=16", "algo.batch_size=16", "stop.max_steps=800"),
    "pqn": ("algo=pqn", "num_envs=4", "algo.num_steps=16", "algo.batch_size=16", "stop.max_steps=1600"),
}
CASES = {
    f"{name}, {game}, {parallelism}": (*COMMON, *options, *algorithm, f"parallelism={parallelism}")
    for name, algorithm in ALGORITHMS.items()
    for game, options in (("cartpole", CARTPOLE), ("pong", PONG))
    for parallelism in ("serial", "overlap")
}
CASES["q_learning, frozen_lake, serial"] = (
    *COMMON, "experiment=q_learning", "eval.every_steps=100", "stop.max_steps=200",
)  # fmt: skip
# A3C's actors are processes, so no two runs are equal: three updates on one fixed batch instead.
A3C = """
import dataclasses, hashlib, json, numpy as np, torch
import dqnspeed
from dqnspeed.algorithms import make_learner, make_buffer
from dqnspeed.envs.spec import describe

torch.manual_seed(0)
torch.set_num_threads(1)
run = dqnspeed.compose(["algo=a3c", "env=cartpole", "wrappers=none", "model=mlp", "algo.batch_size=32", "device=cpu"])
spec = describe(run)
learner, random = make_learner(run, spec, torch.device("cpu")), np.random.default_rng(0)
batch = make_buffer(run, spec, None).blank(32)
for field in dataclasses.fields(batch):
    value = getattr(batch, field.name)
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        value.copy_(torch.from_numpy(random.normal(size=value.shape)))
    elif isinstance(value, torch.Tensor):
        value.copy_(torch.from_numpy(random.integers(0, 2, size=value.shape)))
for _ in range(3):
    learner.update(batch)
weights = [tensor.detach().numpy().tobytes() for tensor in learner.network.state_dict().values()]
print(json.dumps({**learner.stats(), "weights": hashlib.sha256(b"".join(weights)).hexdigest()}))
"""


def numbers_of(tree: Path, options: tuple[str, ...]) -> dict[str, Any]:
    """Train with the code of ``tree``; returns the metrics, the returns and a hash of the weights."""
    with tempfile.TemporaryDirectory(prefix="numbers-") as folder:
        overrides = [*options, f"hydra.run.dir={folder}/run"]
        python(tree, "-m", "dqnspeed.train", *overrides)
        return recorded(Path(folder, "run"))


def python(tree: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'packages' / 'atari-warp'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{tree}: {' '.join(arguments)} failed.\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def recorded(folder: Path) -> dict[str, Any]:
    """Metrics without times, returns, and a hash of the weights of a run."""
    found: dict[str, Any] = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        for name, value in json.loads(line).items():
            if name.startswith(COMPARED) and value is not None and not math.isnan(value):
                found.setdefault(name, []).append(value)
    with (folder / "episodes.csv").open(newline="") as file:
        found["returns"] = [(row["return"], row["length"], row["agent_step"]) for row in csv.DictReader(file)]
    with safe_open(folder / "checkpoints" / "final.safetensors", framework="np") as file:
        weights = [name for name in file.keys() if name.startswith("learner/network/")]  # noqa: SIM118
        found["weights"] = digest(sorted(digest([file.get_tensor(name).tobytes()]) for name in weights))
    return found


def digest(parts: list[Any]) -> str:
    """A hash of bytes or texts in their order."""
    encoded = [part if isinstance(part, bytes) else part.encode() for part in parts]
    return hashlib.sha256(b"".join(encoded)).hexdigest()


def compare(case: str, trees: tuple[Path, Path]) -> tuple[str, list[str]]:
    """The number of updates and games of a case, and the names of the differing numbers."""
    if case == "a3c, one batch":
        first, second = (json.loads(python(tree, "-c", A3C)) for tree in trees)
    else:
        first, second = (numbers_of(tree, CASES[case]) for tree in trees)
    differing = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    updates = first.get("train/updates", [3])[-1]
    return f"{updates:g} updates, {len(first.get('returns', []))} games", differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("other", nargs="?", help="default: the working tree")
    parser.add_argument("--only", default="", help="part of a case's name")
    options = parser.parse_args()
    cases = [name for name in [*CASES, "a3c, one batch"] if options.only in name]
    with tempfile.TemporaryDirectory(prefix="trees-") as folder:
        trees = [Path(folder, "first"), ROOT if options.other is None else Path(folder, "second")]
        for tree, commit in zip(trees, (options.commit, options.other), strict=True):
            if commit is not None:
                command = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
                subprocess.run(command, cwd=ROOT, check=True)
        try:
            return report(cases, (trees[0], trees[1]))
        finally:
            for tree in trees:
                if tree != ROOT:
                    subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)


def report(cases: list[str], trees: tuple[Path, Path]) -> int:
    """Compare the cases, one on each core, and print a line for each; returns the exit code."""
    unequal = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, (done, differing) in zip(cases, pool.map(lambda case: compare(case, trees), cases), strict=True):
            unequal += bool(differing)
            print(f"{case:45} {done:25} {'DIFFERS: ' + ', '.join(differing) if differing else 'equal'}", flush=True)
    print(f"{len(cases) - unequal} of {len(cases)} cases are equal to the last bit.")
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
