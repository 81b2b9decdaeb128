"""Derive the rules of a game from ALE: ``python packages/atari-warp/tools/derive.py game=pong``.

ALE is a black box. A ROM that leaves the memory alone gets the game's name, memories are written into it, and ALE's
rewards, lives and game overs are recorded. The rules that explain them are put into the words of ``games.yaml``, and
are compared with ALE on other memories, random ones and real ones.

Options, with their defaults:
  game=pong     one of ALE's games, several with commas, or all.
  frames=12000  frames of real games that are played.
  images=500    memories of each kind that the rules are compared on.
  seed=1        seed of the search.
  seconds=120   time limit of a game.

Prints the record of each game and a table of the comparisons. The exit status is 1 if something was not found.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from ale_probe import AleProbe, Play, Pool
from atari_warp.command_line import chosen_games, exit_with, parse_options
from atari_warp.games import EmulatorError, check_playable, find_game
from atari_warp.rules import OVER, SCORE, Rules
from find_rules import find_end, find_lives, find_score
from rule_check import Agreement, compare_rules

OPTIONS: dict[str, str | int] = {"game": "pong", "frames": 12_000, "images": 500, "seed": 1, "seconds": 120}


@dataclass(frozen=True)
class Derivation:
    """Rules that were found for a game.

    Attributes:
        record: words for ``games.yaml``.
        notes: aspects that the record does not explain.
        agreements: comparisons with ALE.
    """

    game: str
    record: dict[str, Any]
    notes: tuple[str, ...]
    agreements: tuple[Agreement, ...]

    def text(self) -> str:
        """Report of several lines."""
        lines = [
            f"{self.game}: rules: {_flow(self.record)}",
            *(f"{self.game}: no rule for {note}" for note in self.notes),
        ]
        same = _meaning(find_game(self.game).rules) == _meaning(Rules.read(**self.record))
        lines.append(f"{self.game}: games.yaml has {'the same rules' if same else 'other rules'}")
        lines += ["| of the record | agreed with ALE |", "|---|---:|", *(each.line() for each in self.agreements)]
        return "\n".join(lines)


def derive(
    game: str, frames: int, images: int, seed: int, report: Callable[[str], object] = lambda _: None
) -> Derivation:
    """Find the rules of a game and compare them with ALE.

    Args:
        report: receives a line before each stage.
    """
    draws = np.random.default_rng(seed)
    report(f"plays {frames:,} frames")
    play = Play.of(game, frames, seed)
    pool, probe = Pool(play, draws), AleProbe(game, play.before[0])
    report("searches for the score")
    score, limits, score_note = find_score(probe, pool, draws)
    report("searches for the lives")
    lives, lives_note = find_lives(probe, pool, play)
    report("searches for the end")
    over, over_note = find_end(probe, pool, play)
    record: dict[str, Any] = {"score": score, **({"lives": lives} if lives else {}), "over": over, **limits}
    report("compares the rules")
    other = Play.of(game, frames, seed + 1)
    agreements = compare_rules(Rules.read(**record), probe, Pool(other, draws), other, images, draws)
    notes = (("score", score_note), ("lives", lives_note), ("over", over_note))
    return Derivation(game, record, tuple(f"{what}: {note}" for what, note in notes if note), tuple(agreements))


def _meaning(rules: Rules) -> Any:
    """Value that is equal for rules with other words or another order, but the same results."""
    ways = dict[int, set[tuple[int, tuple[int, ...]]]]()
    sums = set[tuple[int, int, tuple[int, ...]]]()
    for term in rules.terms:
        if term.purpose == OVER:
            ways.setdefault(term.way, set()).add((term.byte, term.table))
        else:
            least = min(term.table) if term.purpose == SCORE else 0
            sums.add((term.purpose, term.byte, tuple(number - least for number in term.table)))
    return sums, {frozenset(way) for way in ways.values()}, rules.wrap, rules.least, rules.most, rules.lasting


def _flow(record: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(dict(record), default_flow_style=True, sort_keys=False, width=10**6)).strip()


def _answer(pipe: Any, game: str, frames: int, images: int, seed: int) -> None:
    report = functools.partial(print, f"{game}:", file=sys.stderr, flush=True)
    try:
        pipe.send(derive(game, frames, images, seed, report))
    except RuntimeError as error:  # ALE cannot start the ROM that leaves the memory alone as this game
        pipe.send(str(error))


def derive_in_time(game: str, frames: int, images: int, seed: int, seconds: float) -> Derivation | str:
    """Call :func:`derive` in a process of its own, as ALE hangs while it loads some games.

    Returns:
        The result, or the reason why there is none.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, game, frames, images, seed), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(seconds) else f"no rules found in {seconds:g} seconds"
    except EOFError:
        return "no rules found, as the process ended early"
    finally:
        process.kill()
        process.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    try:
        options = parse_options(arguments, OPTIONS, __doc__)
        names = chosen_games(options)
        for name in names:
            check_playable(name)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    numbers = [int(options[name]) for name in ("frames", "images", "seed", "seconds")]
    missing = 0
    for name in names:
        found = derive_in_time(name, *numbers)
        print(f"{name}: {found}" if isinstance(found, str) else found.text(), flush=True)
        missing += isinstance(found, str) or bool(found.notes)
    return min(missing, 1)


if __name__ == "__main__":
    exit_with(main)
