"""Keep ``records/runs.csv``, a row for each run behind a published figure, and the tables made from it.

python tools/records.py add TABLE FOLDER...   add runs to a table, such as pong, atari26, speedrun or tried
python tools/records.py tables                write the tables into RECORDS.md

``processor=TEXT`` and ``notes=TEXT`` say more than a run knows, such as "AMD EPYC (Zen 4), 2 cores". In speedrun,
ablation and small the notes are the name of the recipe.
"""

from __future__ import annotations

import csv
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from dqnspeed.cli.app import run_app
from dqnspeed.config.options import ConfigError
from dqnspeed.envs.games import rom_of
from dqnspeed.report.human_normalized import normalized, reference_scores
from dqnspeed.report.runs import Run, read_csv, read_run, runs_below
from dqnspeed.system import atomic

ROOT = Path(__file__).resolve().parents[1]
RUNS, PAGE, PEERS = ROOT / "records" / "runs.csv", ROOT / "RECORDS.md", ROOT / "records" / "cleanrl_ppo.csv"
COLUMNS = "table", "date", "commit", "processor", "command", "game", "seed", "result", "seconds", "steps", "notes"
TUNING_GAMES = "pong", "breakout", "space_invaders", "beam_rider", "enduro"
WITHOUT_TABLE = "tuning", "tried", "ladder", "one_core", "other"
THAT_DATE = "the experiment of that date"  # in notes: the command makes another recipe today
NEWEST = "Zen 5", "Zen 4", "Zen 3"  # processors
MAX_WORDS = 3  # of a command that is shown whole in the table of retired recipes
# Columns of the table of other games, by a word of the command.
RECIPES = {
    "experiment=speedrun": "speedrun",
    "experiment=baseline": "baseline",
    "experiment=tweaked_process": "tweaked_process",
    "examples/sb3.py": "Stable-Baselines3 PPO",
}
Row = Mapping[str, str]


def main(arguments: Sequence[str]) -> None:
    """Run the command of ``arguments``."""
    given = dict(argument.split("=", 1) for argument in arguments if argument.startswith(("processor=", "notes=")))
    words = [argument for argument in arguments if argument.partition("=")[0] not in given]
    if words == ["tables"]:
        atomic.write_text(PAGE, with_tables(PAGE.read_text(encoding="utf-8"), read_csv(RUNS)))
    elif len(words) > 2 and words[0] == "add" and words[1] in {*TABLES, *WITHOUT_TABLE}:
        added = new_rows([read_run(folder) for folder in runs_below(map(Path, words[2:]))], words[1], given)
        with RUNS.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerows(added)
    else:
        sys.exit(__doc__)


def new_rows(runs: Sequence[Run], table: str, given: Row) -> list[Row]:
    """The rows of ``runs`` for ``table``.

    Raises:
        ConfigError: there is no run, a run has not ended, or its row is in the file.
    """
    if not runs:
        raise ConfigError("add: the folders hold no run. Name folders of runs.")
    known = {row_key(row) for row in read_csv(RUNS)}
    found = list[Row]()
    for run in runs:
        row = row_of(run, table, given)
        if run.is_unfinished:
            raise ConfigError(f"{run.folder}: has not ended. Add it later.")
        if row_key(row) in known:
            raise ConfigError(f"{run.folder}: is in {RUNS.name} already. Leave it out.")
        found.append(row)
    return found


def row_key(row: Row) -> tuple[str, ...]:
    """Cells that tell runs apart."""
    return tuple(row[column] for column in ("table", "date", "commit", "command", "seed", "seconds", "steps"))


def row_of(run: Run, table: str, given: Row) -> Row:
    """The row of a run: its mean return of the last games that count, its seconds and agent steps.

    ``given`` may name the processor, and notes.
    """
    summary, machine = run.summary, run.summary.get("machine") or {}
    few = "" if run.num_games is None else f"mean of {run.num_games} games"
    words = ["solved" if run.solved else "", "" if summary.get("busy") is None else "busy machine", few]
    words += [remark for remark in run.remarks if remark != "shared machine"] + [given.get("notes", "")]
    return {
        "table": table,
        "date": datetime.fromtimestamp(run.span[0], timezone.utc).strftime("%Y-%m-%d"),
        "commit": str(summary.get("git_commit"))[:7],
        "processor": given.get("processor") or f"{machine.get('cpu')}, {machine.get('cores')} cores",
        "command": run.command,
        "game": rom_of(run.env) or run.env,
        "seed": str(run.seed),
        "result": f"{run.mean_return:.1f}" if run.mean_return is not None else "",
        "seconds": f"{run.time_to_solve[0]:.0f}",
        "steps": str(run.steps),
        "notes": "; ".join(filter(None, words)),
    }


def with_tables(page: str, found: Sequence[Row]) -> str:
    """``page`` with each table between its marks replaced by the newest."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        table = "\n".join(make([row for row in found if row["table"] == name]))
        shown = f"\n{table}\n\n" if table else ""
        page = f"{before}{begin}{shown}{end}{rest.partition(end)[2]}"
    return page


def score_of(row: Row) -> float:
    """Human-normalised score of a row."""
    return normalized(row["game"], float(row["result"]))


def grouped(found: Sequence[Row], key: Callable[[Row], tuple[str, ...]]) -> dict[tuple[str, ...], list[Row]]:
    """Rows by ``key``, in the order of their first rows."""
    groups = dict[tuple[str, ...], list[Row]]()
    for row in found:
        groups.setdefault(key(row), []).append(row)
    return groups


def recipe(row: Row) -> str:
    """Command of a row without its seed."""
    return " ".join(word for word in row["command"].split() if not word.startswith("seed="))


def time_to_solve(row: Row) -> float:
    """Seconds, infinite if the game was not solved."""
    return float(row["seconds"]) if row["notes"].startswith("solved") else math.inf


def shown(row: Row) -> str:
    """Seconds to solve, or the limit."""
    return row["seconds"] if row["notes"].startswith("solved") else f"not in {row['seconds']}"


def processor_of(row: Row) -> str:
    """Processor of a row, which says if its generation was not noted."""
    return row["processor"].replace("AMD EPYC,", "AMD EPYC (not noted),")


def name_of(row: Row) -> str:
    """Name of the recipe of a row, which its notes end with."""
    name = row["notes"].rpartition("; ")[2]
    return f"{name} (recipe of that date)" if THAT_DATE in row["notes"] else name


def has_no_goal(row: Row) -> bool:
    """Whether no mean return could end the run: ``experiment=own_env`` has no goal of its own."""
    return "experiment=own_env" in row["command"].split() and "reward_bound=" not in row["command"]


def pong(found: Sequence[Row]) -> Iterable[str]:
    """Times to solve Pong, a row for each processor and command."""
    yield "| dates | processor | command | seeds | seconds | median |"
    yield "|---|---|---|---|---|---:|"
    for (processor, command), group in grouped(found, lambda row: (processor_of(row), recipe(row))).items():
        group.sort(key=lambda row: int(row["seed"]))
        median = statistics.median(map(time_to_solve, group))
        seeds = ", ".join(row["seed"] for row in group)
        dates = " to ".join(sorted({min(row["date"] for row in group), max(row["date"] for row in group)}))
        yield f"| {dates} | {processor} | `{command}` | {seeds} | {', '.join(map(shown, group))} | {median:.0f} |"


def times(found: Sequence[Row], short: bool = False) -> Iterable[str]:
    """Medians and ranges of times to solve, a row for each recipe, processor and command.

    Args:
        short: of a command of many options, show the first.
    """
    yield "| what | processor | seeds | median, s | range, s | command |"
    yield "|---|---|---:|---:|---|---|"
    groups = grouped(found, lambda row: (name_of(row), processor_of(row), recipe(row)))
    for (name, processor, command), group in groups.items():
        group.sort(key=time_to_solve)
        median = statistics.median(map(time_to_solve, group))
        middle = f"{median:.0f}" if median < math.inf else "not reached"
        ends = " to ".join(dict.fromkeys([shown(group[0]), shown(group[-1])]))
        if has_no_goal(group[0]):
            middle, ends = ", ".join(row["result"] for row in group) + ", no goal", "-"
        first, *others = command.removeprefix("python -m dqnspeed.train ").split()
        shortened = short and len(others) >= MAX_WORDS
        options = f"`{first}` and {len(others)} more" if shortened else f"`{' '.join([first, *others])}`"
        yield f"| {name} | {processor} | {len(group)} | {middle} | {ends} | {options} |"


def older(found: Sequence[Row]) -> Iterable[str]:
    """Times of today's recipes, on the newest processor first, and times of retired recipes below a heading."""
    retired = [row for row in found if THAT_DATE in row["notes"] or "experiment=ladder/" in row["command"]]
    yield from times(sorted((row for row in found if row not in retired), key=age_of_processor))
    yield from ("", "### Retired recipes", "")
    yield from times(retired, short=True)


def age_of_processor(row: Row) -> int:
    """Place of the row's processor in :data:`NEWEST`, or after its end."""
    return next((place for place, name in enumerate(NEWEST) if name in row["processor"]), len(NEWEST))


def games(found: Sequence[Row]) -> Iterable[str]:
    """Mean returns of each recipe in each game, by seed, with random and human scores; * marks fewer than 100 games."""
    yield f"| game | {' | '.join(RECIPES.values())} | random | human |"
    yield f"|---|{'---:|' * (len(RECIPES) + 2)}"
    for (game,), group in grouped(found, lambda row: (row["game"],)).items():
        shown_of = {word: [row for row in group if word in row["command"].split()] for word in RECIPES}
        returns = [
            "; ".join(f"{float(row['result']):,.1f}{'*' * ('mean of ' in row['notes'])}" for row in of_recipe)
            for of_recipe in shown_of.values()
        ]
        random, human = reference_scores()[game]
        yield f"| {game} | {' | '.join(returns)} | {random:,.1f} | {human:,.1f} |"


def atari5(found: Sequence[Row]) -> Iterable[str]:
    """Mean returns, and the returns of CleanRL's PPO; nothing before the first game."""
    if not found:
        return
    peers = {row["game"]: float(row["return"]) for row in read_csv(PEERS)}
    yield "| game | mean return | CleanRL's PPO, 10 M steps | human-normalised | steps | processor |"
    yield "|---|---:|---:|---:|---:|---|"
    for row in found:
        yield (
            f"| {row['game']} | {float(row['result']):,.1f} | {peers[row['game']]:,.1f} | {score_of(row):.2f} | "
            f"{int(row['steps']):,} | {row['processor']} |"
        )


def atari26(found: Sequence[Row]) -> Iterable[str]:
    """Mean returns and human-normalised scores, highest first, with their median."""
    scored = [(score_of(row), row) for row in found]
    yield "| game | mean return | human-normalised | steps | remark |"
    yield "|---|---:|---:|---:|---|"
    for score, row in sorted(scored, key=lambda pair: -pair[0]):
        applies = {
            "tuned on": row["game"] in TUNING_GAMES,
            "at or below random": score <= 0,
            "busy machine": "busy machine" in row["notes"],
        }
        remarks = [remark for remark, true in applies.items() if true]
        steps = f"{int(row['steps']):,}"
        yield f"| {row['game']} | {float(row['result']):,.1f} | {score:.2f} | {steps} | {', '.join(remarks)} |"
    if scored:
        yield f"| median of {len(scored)} games | | {statistics.median(score for score, _ in scored):.2f} | | |"


TABLES: dict[str, Callable[[Sequence[Row]], Iterable[str]]] = {
    "pong": pong,
    "atari5": atari5,
    "atari26": atari26,
    "speedrun": times,
    "speedrun_older": older,
    "ablation": times,
    "games": games,
    "small": times,
}


if __name__ == "__main__":
    run_app(lambda: main(sys.argv[1:]))
