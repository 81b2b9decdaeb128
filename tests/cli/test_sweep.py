"""A sweep runs to its end whatever becomes of a job, and what ended it takes nothing from it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from conftest import TESTS, TOY, Cli, command, composed, environment, has_reported, make_run, make_toy
from forked import Forked
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import RunMode
from omegaconf import OmegaConf

from dqnspeed import envs
from dqnspeed.cli import compose, dry_run, optuna_search, preflight
from dqnspeed.cli import resume as resuming
from dqnspeed.cli import sweep as sweeps
from dqnspeed.cli.errors import RunError
from dqnspeed.cli.sweep import Sweep, take_options
from dqnspeed.cli.sweep_record import Job, Line, Record, outcome
from dqnspeed.config.options import ConfigError
from dqnspeed.envs.games import atari_game
from dqnspeed.report.runs import read_run, runs_below
from dqnspeed.report.study import search_figures
from dqnspeed.system import machine
from dqnspeed.system.signals import EXIT_CODES
from dqnspeed.training.folder_lock import locked_folder

FEW = [*TOY, "stop.max_steps=150", "tracking.report_every_s=0.05"]
SEARCH = [
    "-m", "hydra/sweeper=optuna", "optimizer.lr=tag(log,interval(1e-4,1e-1))", "algo.double=choice(true,false)",
    "hydra.sweeper.n_trials=3", "hydra.sweeper.prune_every_s=0.02",
]  # fmt: skip
ALL_PRUNED = [
    "hydra.sweeper.pruner._target_=optuna.pruners.ThresholdPruner", "~hydra.sweeper.pruner.n_startup_trials",
    "+hydra.sweeper.pruner.upper=-1000",
]  # fmt: skip


def summaries(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("*/summary.json"))}


def kill_once(until: Callable[[], object], *arguments: str, cwd: Path) -> None:
    """Start a training and kill it once ``until()`` is true."""
    with Forked("dqnspeed.train", *arguments, cwd=cwd, env=environment()) as run:
        run.wait_for(until)
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


@pytest.mark.integration
def test_a_sweep_that_is_killed_again_and_again_ends_with_the_same_summaries(cli: Cli, tmp_path: Path) -> None:
    folder, limit = tmp_path / "sweep", "stop.max_steps=400"
    line = ["-m", *FEW, limit, "seed=3,4,5", "hydra.sweep.dir=sweep"]
    kill_once((folder / "sweep.json").exists, *line, cwd=tmp_path)  # before the first job
    kill_once(has_reported(folder / "1", 2), "sweep.resume=sweep", cwd=tmp_path)  # in the middle
    kept = (folder / "0" / "summary.json").read_bytes()
    (folder / "2" / ".hydra").mkdir(parents=True, exist_ok=True)
    (folder / "2" / ".hydra" / "config.yaml").write_text("")  # as if it had been composed just then
    done = cli(*line)  # the same line
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert {name: (one["seed"], one["agent_steps"]) for name, one in summaries(folder).items()} == {
        "0": (3, 400), "1": (4, 400), "2": (5, 400)
    }  # fmt: skip
    assert kept == (folder / "0" / "summary.json").read_bytes()
    rows = [row.split()[:2] for row in done.stdout.splitlines()[-3:]]
    assert rows == [["0", "seed=3"], ["1", "seed=4"], ["2", "seed=5"]]


def test_a_job_that_cannot_even_begin_ends_no_other_and_is_tried_again(cli: Cli, tmp_path: Path) -> None:
    blocker = tmp_path / "sweep" / "0"
    blocker.parent.mkdir()
    blocker.write_text("no folder")
    result = cli("-m", *FEW, "num_envs=1,2", "hydra.sweep.dir=sweep")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    blocker.unlink()
    assert summaries(tmp_path / "sweep")["1"]["stopped_by"] == "max_steps", "the others go on"
    again = cli("sweep.resume=sweep")
    assert again.returncode == 0, again.stderr
    assert [one["stopped_by"] for one in summaries(tmp_path / "sweep").values()] == ["max_steps"] * 2


def test_a_job_that_a_rule_counts_environments_for_goes_on_with_as_many(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sweep" / "0"
    begun = cli("-m", *FEW, "num_envs=0", "execution.precision=auto", "hydra.sweep.dir=sweep")
    assert begun.returncode == 0, begun.stderr
    count = json.loads((folder / "config.json").read_text())["num_envs"]
    assert count > 0
    monkeypatch.setattr(machine, "cores", lambda: count + 1)  # as on another machine
    assert compose.from_hydra(resuming.load_run(folder)).num_envs == count
    resumed = cli("resume=sweep/0", "stop.max_steps=300")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((folder / "config.json").read_text())["num_envs"] == count


def test_an_early_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    hydra_config = OmegaConf.create({"overrides": {"task": ["seed=4", "num_envs=0"]}})
    monkeypatch.setattr(sweeps.HydraConfig, "get", lambda: hydra_config)
    cfg = OmegaConf.create({"experiment": {"name": "baseline"}, "seed": 4})
    sweeps.record_failure(tmp_path / "7", ConfigError("num_envs=0: must be at least 1.\nmore"), cfg)
    found = outcome(tmp_path / "7")
    assert (found.state, found.why, found.summary["seed"]) == ("failed", "num_envs=0: must be at least 1.", 4)
    assert found.summary["label"] == "baseline num_envs=0"
    assert "num_envs=0" in capsys.readouterr().err


class Launched(BasicLauncher):
    """Remembers the numbers of the jobs that it is given; each ends the one after it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.numbers = folder, list[int]()

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        self.numbers.append(initial_job_idx)
        after = self.folder / str(initial_job_idx + 1)
        after.mkdir()
        (after / "summary.json").write_text('{"stopped_by": "max_steps"}')
        return [JobReturn(_return_value=None, status=JobStatus.COMPLETED)]


def test_a_job_of_another_process_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launcher, own = Launched(tmp_path), Sweep()
    own.begin(tmp_path, Line([]), [Job(name, []) for name in "01234"])
    (tmp_path / "4").mkdir()
    locked, ended = threading.Event(), threading.Event()

    def run_another() -> None:
        with locked_folder(tmp_path / "4", resumed=True):
            locked.set()
            ended.wait(60)

    other = threading.Thread(target=run_another)
    other.start()
    assert locked.wait(60)
    own.launch(launcher, own.jobs)
    ended.set()
    other.join()
    assert launcher.numbers == [0, 2] and not (tmp_path / "4" / "summary.json").exists()
    assert (
        capsys.readouterr().err
        == f"dqnspeed: {tmp_path / '4'}: another process still writes there. Wait for it, or end it.\n"
    )
    sweeps.record_failure(tmp_path / "1", ConfigError("it is finished."))
    assert outcome(tmp_path / "1").state == "at its limit"
    sweeps.record_failure(tmp_path / "1", RunError("its last checkpoint could not be written."))
    assert outcome(tmp_path / "1").state == "failed"


def test_the_mean_of_a_job_is_of_what_says_if_it_is_solved(tmp_path: Path) -> None:
    means = {"return_mean_100": 1.0, "eval_return_mean": 2.0}
    (tmp_path / "summary.json").write_text(json.dumps({"stopped_by": "max_steps", "solved": False, **means}))
    assert outcome(tmp_path).mean == 1
    for on, mean in (("train", 1), ("eval", 2)):
        (tmp_path / "config.json").write_text(json.dumps({"stop": {"on": on, "max_minutes": 3}}))
        job = outcome(tmp_path)
        assert (job.mean, optuna_search._value("return", job), optuna_search._value("time_to_solve", job)) == (
            mean,
            mean,
            2 * 60 * 3,
        )
    (tmp_path / "config.json").write_text('{"stop":')
    assert optuna_search._value("time_to_solve", outcome(tmp_path)) is None


def test_a_search_may_be_in_a_folder_of_any_name(tmp_path: Path) -> None:
    import optuna

    folder = tmp_path / "a%20b {c}"
    folder.mkdir()
    optuna.create_study(study_name=optuna_search.NAME, storage=optuna_search._storage(folder))
    assert (folder / "study.db").is_file() and optuna_search.open_study(folder).trials == []


@pytest.mark.parametrize(
    ("summary", "metrics", "state"),
    [
        (None, False, "not run"), (None, True, "killed"), ('{"stopped_by"', True, "killed"), ("[]", True, "killed"),
        ('{"stopped_by": "SIGTERM"}', True, "ended"), ('{"stopped_by": "error", "error": "why"}', False, "failed"),
        ('{"stopped_by": "pruned"}', True, "pruned"), ('{"stopped_by": "reward_bound"}', True, "solved"),
    ],
)  # fmt: skip
def test_the_state_of_a_job_is_in_its_folder(summary: str | None, metrics: bool, state: str, tmp_path: Path) -> None:
    if summary is not None:
        (tmp_path / "summary.json").write_text(summary)
    if metrics:
        (tmp_path / "metrics.jsonl").touch()
    assert outcome(tmp_path).state == state


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert Record.read(tmp_path) is None
    line, jobs = Line(["seed=range(2)"], "mine"), [Job("0", ["seed=0"]), Job("1", ["seed=1"])]
    Sweep().begin(tmp_path, line, jobs)
    assert (record := Record.read(tmp_path)) == Record(line, jobs)
    assert record.line.arguments(Path("it's")) == [
        "-m", "--config-dir", "mine", "seed=range(2)", "hydra.sweep.dir='it\\'s'"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sweep.resme=x"], r"sweep.resme=x: is no option \(nearest: resume\)"),
        (["sweep.resume=x", "num_envs=2"], "num_envs=2: does not go with sweep.resume="),
        (["sweep.resume=x"], "x: holds no sweep"),
        (["sweep.resume=cut"], "cut/sweep.json: is damaged"),
    ],
)
def test_sweep_mistakes(arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cut").mkdir()
    Path("cut/sweep.json").write_text('{"line": {"over')
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        take_options(arguments)


def test_another_sweep_is_refused_in_the_folder_of_one(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    Sweep().begin(tmp_path / "sweep", Line(["seed=0,1"]), [Job("0", ["seed=0"])])
    before = {path: path.read_bytes() for path in (tmp_path / "sweep").iterdir()}
    result = cli("-m", *FEW, "seed=2,3", "hydra.sweep.dir=sweep")
    assert result.returncode == 2 and "holds another sweep already; name a new folder." in result.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "sweep").iterdir()} == before


def of_sweep(*overrides: str) -> list[list[str]]:
    """The overrides of each job."""
    with composed(*overrides) as (cfg, loader):
        return list(sweeps.sweep_jobs(cfg, loader))


CHAPTER = {"num_envs": 18, "ladder": 7, "wrappers": 6, "backend": 6, "seeds": 6, "games": 24, "speedrun": 16,
           "atari5": 5, "atari26": 26}  # fmt: skip


@pytest.mark.parametrize(("name", "jobs"), CHAPTER.items())
def test_a_sweep_of_the_chapter_is_one_word(name: str, jobs: int) -> None:
    overrides = of_sweep(f"sweep={name}")
    assert len(overrides) == len(set(map(tuple, overrides))) == jobs
    assert make_run(*overrides[-1]).stop.max_minutes is not None
    if name.startswith("atari"):
        assert all(atari_game(make_run(*job).env) for job in overrides)


def test_wandbs_agents_do_the_same_jobs() -> None:
    node = yaml.safe_load((TESTS.parent / "examples" / "wandb_sweep.yaml").read_text())
    assert (node["method"], node["program"]) == ("grid", "dqnspeed.train")
    before, given = node["command"][:4], node["command"][4:-1]
    assert (before, node["command"][-1]) == (["${env}", "${interpreter}", "-m", "${program}"], "${args_no_hyphens}")
    values = ([f"{key}={value}" for value in one["values"]] for key, one in node["parameters"].items())
    agents = [list(job) for job in itertools.product(*values)]
    ours = [[text for text in job if not text.startswith("sweep=")] for job in of_sweep("sweep=num_envs")]
    assert agents == ours
    run = make_run(*given, *agents[-1])
    assert run.tracking.wandb == "online"
    assert dataclasses.replace(run, tracking=make_run().tracking) == make_run("sweep=num_envs", *ours[-1])


@pytest.mark.parametrize(
    ("line", "jobs"),
    [
        ([], "1 job: at most 2.0 min"),
        (["sweep=seeds", "seed=1,2"], "2 jobs, one after another: at most 4.0 min"),
        ([*SEARCH, "hydra.sweeper.n_trials=7"], "7 jobs, one after another: at most 14.0 min"),
    ],
)
def test_a_dry_run_tells_the_jobs_and_writes_nothing(line: list[str], jobs: str, cli: Cli, tmp_path: Path) -> None:
    result = cli(*line, *TOY, "stop.max_minutes=2", "sweep.dry_run=true")
    assert result.returncode == 0 and list(tmp_path.iterdir()) == [], result.stderr
    assert result.stdout.splitlines()[-1] == f"{jobs}, without start-up"


def test_the_time_of_a_job_that_only_steps_limit_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_toy(f"stop.max_{limit}") for limit in ("steps=9", "minutes=90")]
    dry_run.print_plan([(Job(str(i), []), run, envs.describe(run)) for i, run in enumerate(runs)], last=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines if "time: " in line] == ["time: not known", "time: at most 90.0 min"]
    assert lines[-1] == "3 jobs, one after another: at most 180.0 min, and 1 without a time limit, without start-up"


@pytest.mark.integration
def test_a_search_is_gone_on_with_after_a_kill_and_prunes(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "search"
    line = [*SEARCH, *FEW, "hydra.sweep.dir=search"]
    kill_once(has_reported(folder / "1", 2), *line, *ALL_PRUNED, "stop.max_steps=100000", cwd=tmp_path)
    done = cli("sweep.resume=search")
    assert done.returncode == 0, done.stderr
    assert [one["stopped_by"] for one in summaries(folder).values()] == ["pruned"] * 3
    trials = optuna_search.open_study(folder).trials
    assert [trial.state.name for trial in trials] == ["PRUNED"] * 3
    for number, trial in enumerate(trials):
        chosen = OmegaConf.load(folder / str(number) / ".hydra" / "config.yaml")
        assert chosen.optimizer.lr == trial.params["optimizer.lr"]
        assert str(chosen.algo.double) == trial.params["algo.double"]


def test_a_search_ends_with_its_best_trial_and_names_what_it_chose(cli: Cli, tmp_path: Path) -> None:
    line = ["-m", "hydra/sweeper=optuna", *FEW, "num_envs=choice(1,2)", "optimizer.lr=tag(log,interval(1e-4,1e-1))",
            "hydra.sweeper.n_trials=3", "hydra.sweep.dir=search"]  # fmt: skip
    done = cli(*line)
    assert done.returncode == 0, done.stderr
    best, again = done.stdout.splitlines()[-2:]
    found = summaries(tmp_path / "search")
    number = max(found, key=lambda name: found[name]["return_mean_100"])
    trial = optuna_search.open_study(tmp_path / "search").trials[int(number)]
    chosen = f"num_envs={trial.params['num_envs']} optimizer.lr={trial.params['optimizer.lr']}"
    assert best == f"Best: trial {number}, mean return {found[number]['return_mean_100']:.2f}: {chosen}"
    assert all(re.search(r" num_envs=[12] optimizer.lr=", one["label"]) for one in found.values()), "the default, too"
    words = shlex.split(again.partition(": ")[2])
    assert words[1:3] == ["-m", "dqnspeed.train"]
    trained = cli(*words[3:], "hydra.run.dir=again")
    assert trained.returncode == 0, trained.stderr
    configs = [(tmp_path / name / "config.json").read_text() for name in (f"search/{number}", "again")]
    assert json.loads(configs[0]) == json.loads(configs[1])
    runs = [read_run(folder) for folder in runs_below([tmp_path / "search"])]
    figures = {figure.name: figure for figure in search_figures(runs, [])}
    by_envs, by_lr = figures["search_return_by_num_envs"], figures["search_return_by_optimizer_lr"]
    assert (by_envs.x, by_envs.log_x, by_lr.x, by_lr.log_x) == ("num_envs", False, "optimizer.lr", True)
    trials = optuna_search.open_study(tmp_path / "search").trials
    assert by_lr.series[0].x == [one.params["optimizer.lr"] for one in trials]
    assert by_lr.series[0].y == [one.value for one in trials]


def test_a_finished_search_is_shown_by_optunas_plots(cli: Cli, tmp_path: Path) -> None:
    done = cli(*SEARCH, *FEW, "hydra.sweeper.objective=[return,time_to_solve]", "stop.max_minutes=5",
               "hydra.sweeper.n_trials=4", "seed=range(50)", "hydra.sweep.dir=search")  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = list[str]()
    runs = [read_run(folder) for folder in runs_below([tmp_path])]
    found = {figure.name: figure for figure in search_figures(runs, said)}
    assert {"search_return", "search_time_to_solve", "importance_return"} <= set(found) and said == []
    best, trials = found["search_return"].series
    assert trials.y == pytest.approx([one["return_mean_100"] for one in summaries(tmp_path / "search").values()])
    assert best.y == list(itertools.accumulate(trials.y, max)) and trials.x == [0, 1, 2, 3]
    assert sum(found["importance_return"].series[0].y) == pytest.approx(1)
    (tmp_path / "search" / "study.db").write_bytes(b"no database")
    assert search_figures(runs, said) == []
    assert len(said) == 1 and "study.db: cannot be read" in said[0]


@pytest.mark.parametrize(
    ("override", "ends"),
    {
        "algo.batch_size=int(interval(8,32))": (8, 32),
        "optimizer.lr=tag(log,interval(1e-4,1e-1))": (1e-4, 1e-1),
        "algo.gamma=range(0.5,1.0,0.25)": (0.5, 0.75),
        "optimizer.lr=choice(1e-4,a,inf)": (0.0001, "inf"),
        "wrappers=standard,tweaked": ("standard", "tweaked"),
        "seed=3": ("3", "3"),
    }.items(),
)
def test_what_is_searched_is_what_hydras_grammar_says(override: str, ends: tuple[Any, Any]) -> None:
    from optuna.trial import FixedTrial  # here, since every worker imports this file

    suggest = optuna_search._dimension(OverridesParser.create().parse_override(override))
    key = override.partition("=")[0]
    found = [suggest(FixedTrial({key: end})) for end in ends]
    assert found == list(ends) and [*map(type, found)] == [*map(type, ends)]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["num_envs=2"], "hydra/sweeper=optuna: nothing to search"),
        (["optimizer.lr=interval(2,1)"], "optimizer.lr=interval(2,1): give a lower bound"),
        (["num_envs=1,2", "hydra.sweeper.objective=[speed]"], "hydra.sweeper.objective=speed: choose one of"),
        (["num_envs=1,2", "hydra.sweeper.n_trials=0"], "hydra.sweeper.n_trials=0: must be at least 1."),
        (["num_envs=1,2", "hydra.sweeper.objective=return"], "hydra.sweeper.objective=return: must be a list"),
        (["num_envs=1,2", "+hydra.sweeper.trials=9"], "hydra.sweeper.trials: there is no such option (nearest: n_tri"),
        (["num_envs=1,2", "~hydra.sweeper.pruner"], "hydra.sweeper.pruner: is missing; give pruner=VALUE"),
    ],
)
def test_mistakes_of_a_search_get_one_sentence(overrides: list[str], sentence: str) -> None:
    with composed("hydra/sweeper=optuna", *overrides) as (cfg, loader), pytest.raises(ConfigError) as error:
        optuna_search.check_options(cfg)
        optuna_search.any_trial(cfg, loader)
        optuna_search.check_objective(cfg, cfg)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("line", "sweeps", "said"),
    [
        ("hydra/launcher=ray", False, "hydra/launcher=ray: is for sweeps; add -m on the command line."),
        ("hydra.sweep.dir=s", False, "hydra.sweep.dir=s: is for sweeps; add -m on the command line."),
        ("hydra.run.dir=x", True, "hydra.run.dir=x: is for a single run; the folder of a sweep is hydra.sweep.dir."),
        ("env=[pong,breakout]", False, "env=[pong,breakout]: takes one option; several are a sweep, -m env=pong,break"),
        ("hydra.job.chdir=true", True, "hydra.job.chdir=true: a run writes into its own folder"),
        ("hydra.sweep.dir=s", True, ""),
    ],
)
def test_what_hydra_passes_over_is_named(line: str, sweeps: bool, said: str) -> None:
    mode = RunMode.MULTIRUN if sweeps else RunMode.RUN
    with compose.own_hydra():
        cfg = GlobalHydra.instance().config_loader().load_configuration("config", [line], mode)
        with pytest.raises(ConfigError) if said else contextlib.nullcontext() as error:
            preflight.check_line(cfg, sweeps)
    assert not said or str(error.value).startswith(said)  # type: ignore[union-attr]


def test_jobs_of_one_sweep_have_one_folder(cli: Cli, tmp_path: Path) -> None:
    result = cli("-m", "env=pong,breakout", "hydra.sweep.dir=sweeps/${env.id}")
    assert result.returncode == 2 and "must be the same for all jobs; hydra.sweep.subdir may" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_values_are_shown_as_they_were_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with composed("env.id=choice(a:B,'c d')", "seed=1") as (config, loader):
        first, _ = sweeps.sweep_jobs(config, loader)
    assert first == ["env.id=a\\:B", "seed=1"]  # Hydra's own quoting
    run = make_toy()
    dry_run.print_plan([(Job("0", first), run, envs.describe(run))])
    assert capsys.readouterr().out.startswith("0: env.id=a:B seed=1\n")


@pytest.mark.integration  # joblib's processes import everything
def test_jobs_side_by_side_are_no_benchmark_and_save_at_ctrl_c(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    line = ["-m", *TOY, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1,2", "hydra.sweep.dir=sweep"]
    with subprocess.Popen(command(*line), cwd=tmp_path, env=environment(), start_new_session=True) as run:
        deadline = time.monotonic() + 120
        try:
            while not (has_reported(folder / "0")() and has_reported(folder / "1")()):
                assert run.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            os.killpg(run.pid, signal.SIGINT)
            assert run.wait(timeout=120) == 128 + signal.SIGINT
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    found = summaries(folder)
    assert set(found) == {"0", "1"}
    assert all(one["stopped_by"] in EXIT_CODES and one["benchmark"] is False for one in found.values())


def test_a_terminal_that_says_twice_that_it_is_closed_waits_for_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil.Process, "children", lambda process: [])
    waited = list[bool]()
    with pytest.raises(SystemExit) as ended, Sweep()._waiting():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        waited.append(True)
    assert ended.value.code == 143 and waited
    with pytest.raises(KeyboardInterrupt), Sweep()._waiting():
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        queued = Sweep()
        queued.is_queued = True  # by Slurm, whose jobs need no process here
        with queued._waiting():
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("still waits")
    assert ended.value.code == 143
