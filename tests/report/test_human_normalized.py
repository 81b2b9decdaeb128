"""Human-normalised scores, protocols that stay apart, and the CSV files of a report."""

from __future__ import annotations

import functools
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
from conftest import Command
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dqnspeed.envs.games import rom_of
from dqnspeed.report import command as report
from dqnspeed.report import statistics
from dqnspeed.report.contents import Report
from dqnspeed.report.human_normalized import MAX_SCORE_DRAWN, human_normalized_score, reference_scores
from dqnspeed.report.page import plotly_figure
from dqnspeed.report.pictures import write_png
from dqnspeed.report.runs import read_run

PONG, BREAKOUT, ATLANTIS = "PongNoFrameskip-v4", "BreakoutNoFrameskip-v4", "AtlantisNoFrameskip-v4"
CUSTOM = "custom (wrappers.stack=2, wrappers.resize=64)"
# Two or more games of one to four runs.
GAMES = st.lists(st.lists(st.floats(-3, 10), min_size=1, max_size=4), min_size=2, max_size=6)


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide matplotlib, because drawing takes seconds."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.fixture
def run_report(run_here: Command) -> Command:
    """Runs the command with these arguments; returns its exit code, tables and complaints."""
    return functools.partial(run_here, report)


def write_run(
    folder: Path, env: str, mean: float | None, seed: int = 0, protocol: str | None = "standard", label: str = "lean",
    bound: float | None = None,
) -> Path:  # fmt: skip
    """A run of 1,000 steps in a minute, whose mean return is ``mean`` from its middle on."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps(
            {"env": {"id": env}, "algo": {"name": "ppo"}, "stop": {"on": "train"}, "wrappers": {"frame_skip": 4}}
        )
    )
    lines = [{"step": step, "time": 0.06 * step, "train/updates": 1} for step in (500, 1000)]
    reports = [line if mean is None else {**line, "episode/return_mean_100": mean} for line in lines]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in reports))
    (folder / "episodes.csv").write_text("episode,begun,return,length,env,agent_step,time,video\n")
    summary = {"label": label, "kind": [], "seed": seed, "env": env, "protocol": protocol, "reward_bound": bound,
               "solved": False, "stopped_by": "max_minutes", "steps_per_second": 16.0, "updates_per_second": 1.0,
               "samples_per_step": 1.0, "return_mean_100": mean, "time_to_solve_s": None, "wall_time_s": 60.0,
               "agent_steps": 1000, "frames": 4000}  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def return_of(game: str, score: float) -> float:
    """The return that has this human-normalised score."""
    random, human = reference_scores()[game]
    return random + score * (human - random)


def read(folder: Path, **options: str) -> Report:
    return report.read_report(report.ReportConfig(**options), [folder])


def rows(shown: str, number: int) -> list[dict[str, str]]:
    """The rows of the Markdown table with this number, by the names of their columns."""
    tables = re.findall(r"(?:^\|.*\n)+", shown, re.MULTILINE)
    head, _, *body = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in tables[number].splitlines()]
    return [dict(zip(head, line, strict=True)) for line in body]


def test_scores_of_57_games_are_shipped_by_the_names_of_their_roms() -> None:
    assert len(reference_scores()) == 57
    assert all(rom_of(game) == game and random < human for game, (random, human) in reference_scores().items())


@pytest.mark.parametrize(
    ("env", "mean", "score"),
    [(PONG, -20.7, 0.0), ("ALE/Pong-v5", 14.6, 1.0), ("pong", 18.0, 38.7 / 35.3), ("breakout", 0.0, -1.7 / 28.8),
     ("adventure", 1.0, None), ("toy_envs:Counter-v0", 1.0, None), (PONG, None, None)],
)  # fmt: skip
def test_random_play_scores_0_and_a_human_player_1(
    env: str, mean: float | None, score: float | None, tmp_path: Path
) -> None:
    found = human_normalized_score(read_run(write_run(tmp_path / "run", env, mean)))
    assert found == (None if score is None else pytest.approx(score))


def test_statistics_over_games_are_those_of_the_paper() -> None:
    games = [np.array([scores]) for scores in ([0.0, 2.0], [1.0], [0.5, 0.5])]
    assert statistics.median_over_games(*games) == [1.0]
    assert statistics.mean_over_games(*games) == pytest.approx([2.5 / 3])
    assert statistics.interquartile_mean_over_games(*games) == pytest.approx([2 / 3]), "of 0.5, 0.5 and 1"
    assert statistics.optimality_gap(*games) == pytest.approx([1 / 3]), "of 0.5, 0 and 0.5"
    assert statistics.share_above(0.5, *games) == pytest.approx([0.5]), "of 0.5, 1 and 0"


@given(GAMES, st.floats(-2, 2))
def test_statistics_over_games_move_with_the_scores_and_not_with_their_order(
    games: list[list[float]], by: float
) -> None:
    arrays, turned, moved = (
        [np.array([scores]) + more for scores in order]
        for order, more in ((games, 0.0), (games[::-1], 0.0), (games, by))
    )
    lowest, highest = min(map(min, games)), max(map(max, games))
    for statistic in (
        statistics.median_over_games, statistics.mean_over_games, statistics.interquartile_mean_over_games,
    ):  # fmt: skip
        (value,) = statistic(*arrays)
        assert lowest - 1e-9 <= value <= highest + 1e-9
        assert statistic(*turned) == pytest.approx(value) and statistic(*moved) == pytest.approx(value + by)
    assert statistics.optimality_gap(*arrays) >= 1 - statistics.mean_over_games(*arrays) - 1e-9
    assert statistics.optimality_gap(*arrays) >= 0


@given(GAMES)
def test_a_profile_falls_from_all_runs_to_none(games: list[list[float]]) -> None:
    arrays = [np.array([scores]) for scores in games]
    shares = [float(statistics.share_above(tau, *arrays)[0]) for tau in np.linspace(-3.5, 10, 28)]
    assert shares[0] == 1 and shares[-1] == 0 and shares == sorted(shares, reverse=True)


def test_a_report_has_a_row_for_each_game_and_one_over_games(tmp_path: Path, run_report: Command) -> None:
    for number, (env, game, score) in enumerate([
        ("pong", "pong", 0.9), ("breakout", "breakout", 0.3), ("breakout", "breakout", 0.5), ("alien", "alien", -0.1),
    ]):  # fmt: skip
        label = "lean" if env == "pong" else f"lean env={env}"
        write_run(tmp_path / str(number), env, return_of(game, score), seed=number, label=label)
    code, shown, errors = run_report(tmp_path, "metric=hns")
    assert (code, errors) == (0, "")
    games, (over_games,) = rows(shown, 0), rows(shown, 1)
    assert [row["game"] for row in games] == ["`alien`", "`breakout`", "`pong`"]
    assert [row["hns"] for row in games] == ["-0.10", "0.40 (0.30, 0.50)", "0.90"]
    assert games[1] == {"game": "`breakout`", "recipe": "lean", "return": "13.2", "hns": "0.40 (0.30, 0.50)",
                        "seeds": "1, 2", "time": "60 s", "steps": "1,000", "protocol": "standard",
                        "remarks": "-"}  # fmt: skip
    assert games[0]["remarks"] == "at or below random play"
    assert over_games == {"recipe": "`lean`", "protocol": "standard", "games": "3", "runs": "4", "median": "0.40",
                          "mean": "0.40", "IQM": "0.40", "optimality gap": "0.60"}  # fmt: skip
    assert "Median human-normalised score over 3 games: 0.40, by lean, protocol=standard." in shown
    assert "At or below random play: alien, by lean, protocol=standard." in shown
    page, text = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    assert '"name":"performance_profiles"' in page and "Human-normalised scores</h2>" in page
    assert rows(text, 0) == games and rows(text, 1) == [over_games] and "## Summary" in text
    _, shown, _ = run_report(tmp_path)
    assert "hns" not in shown and rows(shown, 0)[0]["rung"] == "`lean`"
    assert "Human-normalised scores" not in (tmp_path / "report.html").read_text()


def test_intervals_need_five_seeds_of_every_game(tmp_path: Path) -> None:
    for env, num_seeds in ((PONG, 5), (BREAKOUT, 4)):
        for seed in range(num_seeds):
            write_run(tmp_path / f"{env}{seed}", env, float(seed), seed, label=f"lean env={env}")
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None
    breakout, pong = (row[3] for row in scores.game_table.rows)
    assert re.fullmatch(r"-?\d\.\d\d \[.*\]", pong) and re.fullmatch(r"-?\d\.\d\d \((-?\d\.\d\d(, )?){4}\)", breakout)
    assert "[" not in "".join(scores.recipe_table.rows[0])
    profile, dots = scores.figures
    assert not profile.series[0].low and sum(len(series.y) for series in dots.series) == 9
    write_run(tmp_path / "fifth", BREAKOUT, 4.0, 4, label=f"lean env={BREAKOUT}")
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None and all("[" in cell for cell in scores.recipe_table.rows[0][-4:])
    band = scores.figures[0].series[0]
    assert all(low <= y <= high for low, y, high in zip(band.low, band.y, band.high, strict=True))
    assert len(band.low) == len(band.y) > 0


def test_runs_of_other_protocols_are_never_averaged(tmp_path: Path, run_report: Command) -> None:
    for number, (mean, protocol) in enumerate([
        (10.0, "standard"), (12.0, "standard"), (-20.0, "standard (sticky 0.25)"), (20.0, CUSTOM), (18.0, None),
    ]):  # fmt: skip
        write_run(tmp_path / str(number), PONG, mean, number, protocol)
    _, shown, _ = run_report(tmp_path)
    found = {row["rung"]: (row["mean return"], row["protocol"]) for row in rows(shown, 0)}
    assert found == {
        "`lean, protocol=standard`": ("10.0 to 12.0", "standard"),
        "`lean, protocol=standard (sticky 0.25)`": ("-20.0", "standard (sticky 0.25)"),
        f"`lean, protocol={CUSTOM}`": ("20.0", "custom"),
        "`lean, protocol=unknown`": ("18.0", "-"),
    }
    mixed = f"standard; standard (sticky 0.25); {CUSTOM}; unknown"
    assert f"lean: its runs of Pong have different protocols ({mixed}), a row each, and are never averaged." in shown
    text = (tmp_path / "report.md").read_text()
    assert f"- protocol: {CUSTOM} (1 run)" in text and "- protocol: standard (2 runs)" in text
    _, shown, _ = run_report(tmp_path, "metric=hns")
    assert [row["recipe"] for row in rows(shown, 1)] == list(found)
    assert [row["runs"] for row in rows(shown, 1)] == ["2", "1", "1", "1"]
    _, shown, _ = run_report(tmp_path, "group_by=algo")
    assert [row["rung"] for row in rows(shown, 0)] == [name.replace("lean", "algo=ppo") for name in found]


def test_runs_with_a_goal_are_not_averaged_with_longer_ones(tmp_path: Path) -> None:
    for number, (mean, bound) in enumerate(((17.0, 17.0), (17.1, 17.0), (20.0, None))):
        write_run(tmp_path / str(number), PONG, mean, number, bound=bound)
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None
    assert [recipe.name for recipe in scores.recipes] == ["lean, with a goal", "lean, no goal"]
    write_run(tmp_path / "other", PONG, 18.0, bound=18.0)
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None
    assert {recipe.name for recipe in scores.recipes} == {"lean, goal 17", "lean, goal 18", "lean, no goal"}


def test_games_with_crops_of_their_own_are_of_one_recipe(tmp_path: Path) -> None:
    for env, crop in ((PONG, "[34, 194, 0, 160]"), (BREAKOUT, "[32, 210, 8, 152]")):
        protocol = f"custom (wrappers.frame_skip=8, wrappers.crop={crop})"
        write_run(tmp_path / env, env, 1.0, protocol=protocol, label=f"lean env={env}")
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None and [len(recipe.games) for recipe in scores.recipes] == [2]
    assert scores.recipes[0].protocol == "custom (wrappers.frame_skip=8, wrappers.crop=…)"
    other = "custom (wrappers.frame_skip=8, wrappers.crop=[0, 1, 0, 1])"
    write_run(tmp_path / "other", PONG, 1.0, protocol=other, label=f"lean env={PONG}")
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None, "two crops of one game are apart"
    assert sorted(len(recipe.games) for recipe in scores.recipes) == [1, 1, 1]


def test_different_numbers_of_seeds_are_said(tmp_path: Path) -> None:
    for number, env in enumerate((PONG, PONG, BREAKOUT)):
        write_run(tmp_path / str(number), env, 1.0, number, label=f"lean env={env}")
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None
    assert scores.remarks == ["Games of lean have different numbers of runs; those with more count more in the IQM."]


def test_one_protocol_is_told_once_and_splits_nothing(tmp_path: Path) -> None:
    for number, env in enumerate((PONG, PONG, BREAKOUT)):
        write_run(
            tmp_path / str(number), env, 1.0, number, CUSTOM if env == PONG else "standard", label=f"lean env={env}"
        )
    found = read(tmp_path)
    assert [rung.name for rung in found.rungs] == [f"lean env={PONG}", f"lean env={BREAKOUT}"]
    assert not any("different protocols" in sentence for sentence in found.warnings)


def test_what_all_rungs_share_is_left_out_of_recipes_too(tmp_path: Path) -> None:
    for env in (PONG, BREAKOUT):
        for envs in (8, 16):
            write_run(tmp_path / f"{env}{envs}", env, 1.0, label=f"lean env={env} backend=ale num_envs={envs}")
    scores = read(tmp_path, metric="hns").scores
    assert scores is not None and [recipe.name for recipe in scores.recipes] == ["lean num_envs=8", "lean num_envs=16"]
    assert [len(recipe.games) for recipe in scores.recipes] == [2, 2]


def test_runs_without_a_score_are_named_and_left_out(tmp_path: Path, run_report: Command) -> None:
    write_run(tmp_path / "a", PONG, 14.6)
    write_run(tmp_path / "b", "adventure", 1.0)
    write_run(tmp_path / "c", "CartPole-v1", 200.0, protocol=None)
    write_run(tmp_path / "d", BREAKOUT, None)
    code, shown, errors = run_report(tmp_path, "metric=hns")
    assert (code, errors) == (0, "") and [row["hns"] for row in rows(shown, 0)] == ["1.00"]
    assert (
        "No random and human scores are known of adventure (1 run), CartPole (1 run), left out of human-normalised "
        "scores." in shown
    )
    assert "No mean return yet: 1 run, left out of human-normalised scores." in shown


@pytest.mark.parametrize(
    ("option", "sentence"),
    [("metric=iqm", "metric=iqm: choose one of return, hns."), ("metric=", "metric=: has no value."),
     ("export=json", "export=json: choose one of csv."),
     ("metric=hns", "metric=hns: no run is of a game with random and human scores (CartPole). Leave metric=hns out.")],
)  # fmt: skip
def test_a_metric_or_an_export_that_is_not_to_be_had_gets_one_sentence(
    option: str, sentence: str, tmp_path: Path, run_report: Command
) -> None:
    write_run(tmp_path / "a", "CartPole-v1", 200.0, protocol=None)
    before = sorted(tmp_path.rglob("*"))
    assert run_report(tmp_path, option) == (2, "", f"dqnspeed: {sentence}\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_before_any_game_counts_a_report_shows_the_runs(tmp_path: Path, run_report: Command) -> None:
    write_run(tmp_path / "a", PONG, None)
    code, shown, _ = run_report(tmp_path, "metric=hns")
    assert code == 0 and rows(shown, 0)[0]["rung"] == "`lean`" and "No mean return yet: 1 run" in shown


def test_an_export_has_a_row_a_run_and_a_row_a_report(tmp_path: Path, run_report: Command) -> None:
    write_run(tmp_path / "a", PONG, -20.7, seed=3, label="lean")
    write_run(tmp_path / "b", BREAKOUT, 30.5, seed=3, label="lean env=breakout")
    write_run(tmp_path / "c", "CartPole-v1", 200.0, seed=3, protocol=None, label="lean env=cartpole, with a comma")
    write_run(tmp_path / "d", ATLANTIS, None, protocol=CUSTOM, label="lean env=atlantis")
    out = tmp_path / "out"
    code, shown, errors = run_report(tmp_path, "export=csv", f"out={out}")
    assert (code, errors) == (0, "")
    assert f"{out / 'report.html'}, {out / 'report_runs.csv'}, {out / 'report_curves.csv'}" in shown
    runs, curves = (pandas.read_csv(out / f"report_{name}.csv") for name in ("runs", "curves"))
    assert list(runs.columns) == [
        "run", "rung", "recipe", "algo", "game", "env", "seed", "protocol", "steps", "frames", "seconds", "return",
        "hns",
    ]  # fmt: skip
    assert runs["game"].tolist() == ["pong", "breakout", "CartPole", "atlantis"]
    assert runs["hns"].tolist()[:2] == [0.0, 1.0] and runs["hns"].isna().tolist() == [False, False, True, True]
    assert runs["protocol"].fillna("").tolist() == ["standard", "standard", "", CUSTOM]
    numbers = runs[["steps", "frames", "seconds", "seed"]].iloc[0]
    assert numbers.tolist() == [1000, 4000, 60.0, 3] and set(runs["algo"]) == {"ppo"}
    assert math.isnan(runs["return"].iloc[3]) and runs["rung"].iloc[2] == "lean env=cartpole, with a comma"
    scores = runs.pivot(index=["recipe", "protocol", "seed"], columns="game", values="hns")
    assert scores.loc[("lean", "standard", 3), ["pong", "breakout"]].tolist() == [0.0, 1.0]
    assert list(curves.columns) == ["run", "rung", "game", "seed", "seconds", "steps", "return"]
    pong = curves[curves["run"] == str(tmp_path / "a")]
    assert pong[["seconds", "steps", "return"]].values.tolist() == [[30.0, 500, -20.7], [60.0, 1000, -20.7]]
    assert not set(curves["game"]) & {"atlantis"}


def test_an_export_that_cannot_be_written_is_named(tmp_path: Path, run_report: Command) -> None:
    run = write_run(tmp_path / "a", PONG, 1.0)
    (run / "report_runs.csv").mkdir()
    code, shown, errors = run_report(run, "export=csv")
    assert code == 1 and rows(shown, 0)
    assert errors.startswith(f"dqnspeed: {run / 'report_runs.csv'}: cannot be written (Is a directory). Name another")


def two_recipes(folder: Path) -> Report:
    """A report on three games with two recipes; Atlantis is far above a human player."""
    for name in ("lean", "wide"):
        for env, mean in ((PONG, -22.0), (BREAKOUT, 20.0), (ATLANTIS, 3_000_000.0)):
            write_run(folder / name / env, env, mean, label=f"{name} env={env}")
    return read(folder, metric="hns")


def test_figures_of_recipes_have_a_legend_of_their_own_and_no_checkbox(tmp_path: Path) -> None:
    scores = two_recipes(tmp_path).scores
    assert scores is not None
    for figure in scores.figures:
        drawn = plotly_figure(figure)
        named = [trace["name"] for trace in drawn["data"] if trace["showlegend"]]
        assert drawn["layout"]["showlegend"] and named == ["lean", "wide"]
        assert {trace["meta"] for trace in drawn["data"]} == {None}
    dots = [trace for trace in plotly_figure(scores.figures[1])["data"] if trace["name"] == "lean"]
    beyond, shown = dots
    assert beyond["x"] == [MAX_SCORE_DRAWN] and beyond["text"][0].startswith("atlantis: 184.")
    assert shown["y"] == ["breakout", "pong"] and min(shown["x"]) < 0
    assert {trace["marker"]["color"] for trace in dots} == {"#4269d0"}


def test_figures_of_recipes_are_drawn_as_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # brings matplotlib back
    scores = two_recipes(tmp_path).scores
    assert scores is not None
    for figure in scores.figures:
        write_png(figure, tmp_path / f"{figure.name}.png")
        with Image.open(tmp_path / f"{figure.name}.png") as picture:
            assert picture.width == 960
