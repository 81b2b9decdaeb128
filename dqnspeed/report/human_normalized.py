"""Human-normalised scores: 0 is random play, 1 a human player; of runs, of games, and over games.

Statistics over games follow Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(2021); the games are the strata of the bootstrap.
"""

from __future__ import annotations

import re
import statistics as plain_statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from dqnspeed.config.options import ConfigError
from dqnspeed.envs.games import rom_of
from dqnspeed.report import statistics
from dqnspeed.report.figures import Figure, Kind, Series, rounded, run_text
from dqnspeed.report.rungs import Rung, game_name
from dqnspeed.report.runs import Run, read_csv
from dqnspeed.report.statistics import Estimate, Statistic, estimate
from dqnspeed.report.tables import (
    EMPTY,
    Table,
    format_duration,
    format_estimate,
    format_num_games,
    format_number,
    format_protocol,
    format_remarks,
    format_seeds,
)

SCORES_CSV = Path(__file__).with_name("atari_scores.csv")
SCORE = "human-normalised score"
MAX_SCORE_DRAWN = 4.0  # one game of a hundred times the human score would press all others flat
PROFILE_POINTS = 101
PLACE_OF_CROP = re.compile(r"(wrappers\.crop=)\[[^]]*\]")  # with wrappers.crop=[] each game has its own
# Statistics over games by the columns of their table.
OVER_GAMES: dict[str, Statistic] = {
    "median": statistics.median_over_games,
    "mean": statistics.mean_over_games,
    "IQM": statistics.interquartile_mean_over_games,
    "optimality gap": statistics.optimality_gap,
}
NOTE = (
    "A human-normalised score (hns) is (return − random) / (human − random), with the random and human scores of DQN "
    "Zoo. A run's return is the mean of its last stop.window training games, or with stop.on=eval of its last "
    "evaluation. Median and mean are over the means of the games. IQM is the mean without the lowest and the highest "
    "quarter of all runs. The optimality gap is how far scores are below 1 on average, where a score above 1 counts as "
    "1. Brackets hold 95 % intervals of a stratified bootstrap over the seeds of each game; with fewer than five seeds "
    "of a game there are none, and parentheses hold the scores of all seeds."
)


@cache
def reference_scores() -> dict[str, tuple[float, float]]:
    """Returns of random play and of a human player, by the ROM of the game."""
    return {row["game"]: (float(row["random"]), float(row["human"])) for row in read_csv(SCORES_CSV)}


def normalized(game: str, mean_return: float) -> float:
    """(return - random) / (human - random) of a game with known scores."""
    random, human = reference_scores()[game]
    return (mean_return - random) / (human - random)


def game_of(run: Run) -> str:
    """The ROM of the run's game; the name of another environment."""
    return rom_of(run.env) or game_name(run.env)


def human_normalized_score(run: Run) -> float | None:
    """The score of :attr:`Run.mean_return`; ``None`` without a return, or for a game without known scores."""
    game = game_of(run)
    return None if run.mean_return is None or game not in reference_scores() else normalized(game, run.mean_return)


@dataclass(frozen=True)
class GameScores:
    """Runs of one game, recipe and protocol that have a human-normalised score."""

    game: str
    runs: list[Run]

    @property
    def returns(self) -> list[float]:
        return [run.mean_return for run in self.runs if run.mean_return is not None]

    @cached_property
    def scores(self) -> list[float]:
        return [score for run in self.runs if (score := human_normalized_score(run)) is not None]

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class RecipeScores:
    """Games of one recipe and one protocol.

    Attributes:
        number: position in the report, which decides the colour.
        name: of the recipe, with its protocol and its goal if the report has others of the recipe.
    """

    number: int
    name: str
    protocol: str
    games: list[GameScores]

    def over_games(self, statistic: Statistic) -> Estimate:
        """A statistic of the scores of all games."""
        found = estimate(statistic, *(game.scores for game in self.games))
        assert found is not None, "every game has a score"
        return found


@dataclass(frozen=True)
class HumanNormalizedScores:
    """The human-normalised scores of a report.

    Attributes:
        remarks: sentences on runs without a score, and on games with more runs than others.
        note: how the scores were computed.
    """

    recipes: list[RecipeScores]
    remarks: list[str]
    note: str = NOTE

    @property
    def headlines(self) -> list[str]:
        """The median over the games of each recipe, and the games that were not learnt."""
        found = list[str]()
        for recipe in self.recipes:
            games = f"{len(recipe.games)} games" if len(recipe.games) > 1 else recipe.games[0].game
            median = format_estimate(recipe.over_games(statistics.median_over_games), ".2f")
            by = recipe.name
            by += "" if "protocol=" in by else f", protocol={format_protocol(recipe.protocol)}"
            found.append(f"Median {SCORE} over {games}: {median}, by {by}.")
            if bad := [game.game for game in recipe.games if game.mean <= 0]:
                found.append(f"At or below random play: {', '.join(bad)}, by {by}.")
        return found

    @cached_property
    def game_table(self) -> Table:
        """One row for each game of each recipe."""
        columns = ["game", "recipe", "return", "hns", "seeds", "time", "steps", "protocol", "remarks"]
        pairs = [(game, recipe) for recipe in self.recipes for game in recipe.games]
        rows = []
        for game, recipe in sorted(pairs, key=lambda pair: (pair[0].game, pair[1].number)):
            remarks = [format_remarks(game.runs)] + ["at or below random play"] * (game.mean <= 0)
            row = [
                game.game,
                recipe.name,
                f"{plain_statistics.mean(game.returns):.1f}{format_num_games(game.runs)}",
                _format_scores(game.scores),
                format_seeds(game.runs),
                format_duration(plain_statistics.median(run.seconds for run in game.runs)),
                f"{plain_statistics.median(run.steps for run in game.runs):,.0f}",
                format_protocol(recipe.protocol),
                "; ".join(remark for remark in remarks if remark != EMPTY) or EMPTY,
            ]
            rows.append(row)
        return Table(columns, rows, num_text_columns=2).without_empty_columns()

    @cached_property
    def recipe_table(self) -> Table:
        """Statistics over games, one row a recipe and protocol."""
        rows = []
        for recipe in self.recipes:
            num_runs = sum(len(game.runs) for game in recipe.games)
            over_games = [format_estimate(recipe.over_games(statistic), ".2f") for statistic in OVER_GAMES.values()]
            protocol = format_protocol(recipe.protocol)
            rows.append([recipe.name, protocol, str(len(recipe.games)), str(num_runs), *over_games])
        return Table(["recipe", "protocol", "games", "runs", *OVER_GAMES], rows, num_text_columns=2)

    @cached_property
    def figures(self) -> list[Figure]:
        if not self.recipes:
            return []
        scores = [score for recipe in self.recipes for game in recipe.games for score in game.scores]
        taus = np.linspace(min(0.0, *scores), min(MAX_SCORE_DRAWN, max(1.0, *scores)), PROFILE_POINTS)
        profiles = [_profile(recipe, taus) for recipe in self.recipes]
        dots = sorted((series for recipe in self.recipes for series in _dots(recipe)), key=lambda one: one.kind)
        bands = " Bands are 95 % intervals of a stratified bootstrap." if any(one.low for one in profiles) else ""
        return [
            Figure("performance_profiles", "Performance profiles", f"{SCORE} τ", "share of runs above τ",
                   f"Share of runs whose {SCORE} is above τ; each game counts alike. Higher curves are better.{bands}",
                   profiles, from_zero=True, own_legend=True),
            Figure("human_normalized_scores", "Scores of each game", "", SCORE,
                   f"A dot is a run: 0 is random play, 1 a human player. A triangle is a score above "
                   f"{MAX_SCORE_DRAWN:g}, beyond this axis.",
                   dots, from_zero=True, own_legend=True),
        ]  # fmt: skip


def scores_of(rungs: Sequence[Rung]) -> HumanNormalizedScores:
    """The human-normalised scores of all runs of ``rungs``, by recipe and protocol, then by game.

    Runs with a goal and runs without are apart: a run that ends at its goal has about the goal as its return. So are
    runs of a game with several goals, or crops.

    Raises:
        ConfigError: no run is of a game that has random and human scores.
    """
    found = dict[tuple[str, str, str], dict[str, list[Run]]]()
    unknown, num_waiting, num_failed = Counter[str](), 0, 0
    for rung in rungs:
        protocol, goal = _protocol_and_goal(rung, rungs)
        for run in rung.runs:
            if run.env and game_of(run) not in reference_scores():
                unknown[game_of(run)] += 1
            elif human_normalized_score(run) is None:
                num_failed += not run.env
                num_waiting += bool(run.env)
            else:
                found.setdefault((rung.recipe, protocol, goal), {}).setdefault(game_of(run), []).append(run)
    if not found and not num_waiting and not num_failed:
        raise ConfigError(
            f"metric=hns: no run is of a game with random and human scores ({', '.join(unknown)}). "
            f"Leave metric=hns out."
        )
    remarks = list[str]()
    if unknown:
        games = ", ".join(f"{game} ({n} run{'s' if n > 1 else ''})" for game, n in unknown.items())
        remarks.append(f"No random and human scores are known of {games}, left out of {SCORE}s.")
    for sentence, number in (("No mean return yet", num_waiting), ("Failed before it trained", num_failed)):
        if number:
            remarks.append(f"{sentence}: {number} run{'s' if number > 1 else ''}, left out of {SCORE}s.")
    recipes = list[RecipeScores]()
    for number, ((recipe, protocol, goal), runs_of) in enumerate(found.items()):
        others = [key for key in found if key[0] == recipe]
        name = recipe
        name += f", protocol={protocol}" if len({other[1] for other in others}) > 1 else ""
        name += f", {goal}" if len({other[2] for other in others}) > 1 else ""
        scores = [GameScores(game, runs) for game, runs in sorted(runs_of.items())]
        recipes.append(RecipeScores(number, name, protocol, scores))
        if len({len(game.runs) for game in scores}) > 1:
            remarks.append(f"Games of {name} have different numbers of runs; those with more count more in the IQM.")
    return HumanNormalizedScores(recipes, remarks)


def _protocol_and_goal(rung: Rung, rungs: Sequence[Rung]) -> tuple[str, str]:
    """The protocol and the goal in words, without crop and bound unless rungs of the game and recipe differ there."""
    game = rom_of(rung.task[0])
    alike = [other for other in rungs if (other.recipe, rom_of(other.task[0])) == (rung.recipe, game)]
    exact = {other.protocol or "unknown" for other in alike}
    protocol, bounds = rung.protocol or "unknown", {other.bound for other in alike} - {None}
    masked = PLACE_OF_CROP.sub(r"\1…", protocol)
    if sum(PLACE_OF_CROP.sub(r"\1…", other) == masked for other in exact) == 1:
        protocol = masked
    if rung.bound is None:
        return protocol, "no goal"
    return protocol, "with a goal" if len(bounds) == 1 else f"goal {rung.bound:g}"


def _format_scores(scores: list[float]) -> str:
    """The mean of a game's scores with its interval; of a few seeds with all scores in its place."""
    text = format_estimate(estimate(statistics.mean_over_games, scores), ".2f")
    is_short = 1 < len(scores) < statistics.MIN_RUNS_FOR_INTERVAL
    return f"{text} ({', '.join(format_number(score, '.2f') for score in scores)})" if is_short else text


def _profile(recipe: RecipeScores, taus: np.ndarray) -> Series:
    shares = [recipe.over_games(partial(statistics.share_above, tau)) for tau in taus]
    low, high = (
        [getattr(share, end) for share in shares if getattr(share, end) is not None] for end in ("low", "high")
    )
    y = rounded(share.value for share in shares)
    return Series(recipe.name, "mean", recipe.number, rounded(taus), y, rounded(low), rounded(high))


def _dots(recipe: RecipeScores) -> Iterator[Series]:
    """A dot for each run, highest game first; a triangle at the end of the axis for a score beyond the axis."""
    games = sorted(recipe.games, key=lambda game: -game.mean)
    dots = [(game.game, run, score) for game in games for run, score in zip(game.runs, game.scores, strict=True)]
    kinds: tuple[tuple[Kind, bool], ...] = (("censored", True), ("points", False))
    for kind, is_beyond in kinds:
        if drawn := [dot for dot in dots if (dot[2] > MAX_SCORE_DRAWN) == is_beyond]:
            y = rounded(min(score, MAX_SCORE_DRAWN) for _, _, score in drawn)
            beyond = " (beyond this axis)" if is_beyond else ""
            text = [f"{game}: {score:.2f}{beyond}, {run_text(run)}" for game, run, score in drawn]
            yield Series(recipe.name, kind, recipe.number, [game for game, _, _ in drawn], y, text=text)
