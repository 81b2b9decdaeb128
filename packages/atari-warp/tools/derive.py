"""Where are a game's score, lives and end? ``python packages/atari-warp/tools/derive.py game=pong``.

ALE is asked, as a black box: a cartridge that leaves the memory alone is given the game's name, memories are written
into it, and ALE says which reward, lives and end it reads from them. What it says is put into the words of
``games.yaml``, and tested on memories that were not used for it: at random, and of the real game as it is played.

Options: ``game`` a name of ALE's, several with commas, or ``all``; ``frames`` of the real game that are played (12000);
``images``: memories of each kind that the rules are tested on (500); ``seed`` (1); ``seconds`` until a game is given
up (120).

Prints a record for each game and what of it agreed, and exits with 1 if something was not found.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from ale_probe import Agreed, Image, Oracle, Play, Pool, relevant, swept, tested, ways_of
from atari_warp.games import EmulatorError, check, find
from atari_warp.rules import BOUND, KINDS, OVER, SCORE, Rules, say_set, say_table
from atari_warp.verify import ends, names_of, options_of

OPTIONS: dict[str, str | int] = {"game": "pong", "frames": 12_000, "images": 500, "seed": 1, "seconds": 120}


def score_of(oracle: Oracle, pool: Pool, draws: np.random.Generator) -> tuple[dict[int, Any], dict[str, int], str]:
    """The words for ``score``, those for its limits, and what was not understood."""

    def reward(image: Image) -> int:
        return oracle.ask(image)[0]

    words = dict[int, Any]()
    steps = list[tuple[int, int, int, int]]()  # byte, its values before and after, and the reward
    for byte in sorted(relevant(reward, pool)):
        by_origin = dict[int, list[int]]()
        for origin in sorted({0, int(oracle.first[byte]), 0xAA, 0xFF, *map(int, draws.integers(256, size=28))}):
            image = oracle.first.copy()
            image[byte] = origin
            if oracle.after(image):
                said = swept(oracle.ask, image, byte)
                by_origin[origin] = [points for points, _, _ in said]
                live = {points for points, _, over in said if not over}
                steps += [(byte, origin, value, said[value][0]) for value in range(256) if len(live) > 1]
        if not any(step[0] == byte for step in steps):  # it ends the game, and its last frame brings nothing
            continue
        rewards = sorted({number for table in by_origin.values() for number in table})
        if len(rewards) <= 3:  # no reward is more than another
            fits = Counter[str]()
            for (kind, of), sign in itertools.product(KINDS.items(), (1, -1)):
                way = f"{'-1 ' if sign < 0 else ''}{kind}"
                for origin, table in by_origin.items():
                    for value in range(256):
                        gained = sign * (of(value) - of(origin))
                        fits[way] += min(max(gained, rewards[0]), rewards[-1]) == table[value]
            words[byte] = fits.most_common(1)[0][0]
        else:  # from most values the same is found; from others a score that falls is counted as something else
            drops = rewards[0] < 0  # else what a lower score is cannot be seen
            shown = [[n if n or drops else None for n in table] for table in by_origin.values() if drops or any(table)]
            said = [say_table(table, free=True) for table in shown]
            votes = Counter(map(repr, said))
            words[byte] = max(said, key=lambda each: (votes[repr(each)], -len(repr(each))))
    oracle.after(oracle.first)
    rules = Rules.read(words)
    tables = {term.byte: term.table for term in rules.terms}
    falls = Counter(number - tables[byte][value] + tables[byte][origin] for byte, origin, value, number in steps)
    rewards = sorted({number for *_, number in steps})
    limits = {"wrap": max(falls)} if len(falls) == 2 and min(falls) == 0 and len(rewards) > 3 else {}
    if not limits and len(falls) > 1:
        limits = {"least": rewards[0], **({"most": rewards[-1]} if len(rewards) <= 3 else {})}
    rules = Rules.read(words, **limits)  # type: ignore[arg-type]
    odd = 0
    for byte, origin, value, number in steps:
        scores = np.array([(tables[byte][at], 0, BOUND, 0) for at in (origin, value)])
        odd += int(rules.points(*scores)) != number
    return words, limits, f"{odd:,} of {len(steps):,} steps of its bytes" if odd else ""


def lives_of(oracle: Oracle, pool: Pool, play: Play) -> tuple[dict[Any, Any], str]:
    """The words for ``lives``, and what was not understood."""
    usual, again = oracle.ask(oracle.first)[1], ~np.append(True, play.over[:-1])
    fell = np.append(0, np.diff(play.lives)) * again * ~play.over
    if fell.any() and fell.max() == 0:
        for byte in range(128):
            falls = (play.before[:, byte] - play.after[:, byte] == 1) & again & ~play.over
            if np.array_equal(fell < 0, falls) and sum(_fall(oracle, byte, value) for value in range(256)) > 250:
                return {"first": usual, "falling": byte}, ""

    # Some rules do not look at the lives at each frame. Then they are those before, whatever these were.
    states = {usual: oracle.state}
    for image in pool.live[np.unique(play.lives[~play.over], return_index=True)[1]]:
        if oracle.after(image):
            states.setdefault(oracle.ask(image)[1], oracle.state)

    def kept(image: Image) -> bool | None:
        said = None
        for lives, state in states.items():
            oracle.state = state
            _, now, over = oracle.ask(image)
            if not over and now != lives:
                return False
            said = said if over else True
        return said

    def lives(image: Image) -> int | None:
        _, lives, over = oracle.ask(image)
        return None if over else lives

    def told(image: Image) -> int | None:
        return None if ways and kept(image) else lives(image)

    ways, note = list[dict[int, Any]](), ""
    if len(states) > 1:
        ways, note = ways_of(kept, relevant(kept, pool), oracle.first)
        if len(ways) > 1:
            note = f"lives that are kept in {len(ways)} ways"
    oracle.state = states[usual]
    words: dict[Any, Any] = {"first": usual} if ways else {}
    tables = dict[int, list[int | None]]()
    base = next(
        (image for image in itertools.chain([oracle.first], pool.live) if told(image) is not None), oracle.first
    )
    alone = dict[int, list[int | None]]()
    for byte, images in relevant(told, pool).items():
        for image in [base, *images]:
            said = swept(told, image, byte)
            if len({number for number in said if number is not None}) > 1:
                tables.setdefault(byte, said if image is base else [told(base)] * 256)
                before = alone.get(byte, said)
                alone[byte] = [new if old is None else old for old, new in zip(before, said, strict=True)]
    if len(tables) == 1:
        tables = alone
    for byte in sorted(tables):  # the first tells the sum, the others tell what they change of it
        more = 0 if byte == min(tables) else told(base) or 0
        words[byte] = say_table([n if n is None else n - more for n in tables[byte]], free=bool(more))
    if not tables and usual:
        words[0] = f"0 binary + {usual}"
    if ways:
        words["keep"] = ways[0]
    elif len(tables) > 1 and not _agrees(words, oracle, pool, 200):  # no sum; one byte may do in all real games
        for byte in tables:
            single = {byte: say_table(alone[byte], free=False)}
            if np.array_equal(
                Rules.read({}, single).of(play.after[again])[1][~play.over[again]], play.lives[again & ~play.over]
            ):
                return single, f"memories where byte {', '.join(str(b) for b in tables if b != byte)} changes them, too"
        note = f"bytes {', '.join(map(str, tables))} together"
    return words, note


def _agrees(lives: Mapping[Any, Any], oracle: Oracle, pool: Pool, images: int) -> bool:
    rules = Rules.read({}, lives)
    for image in (pool() for _ in range(images)):
        _, theirs, over = oracle.ask(image)
        if not over and rules.of(image[None])[1][0] != theirs:
            return False
    return True


def _fall(oracle: Oracle, byte: int, value: int) -> bool:
    """Whether a fall of the byte from this value takes a life, and a rise none."""
    image, fresh = oracle.first.copy(), oracle.state
    image[byte] = value
    if not oracle.after(image):
        oracle.state = fresh
        return True
    usual = oracle.ask(image)[1]
    image[byte] = value - 1 & 255
    _, fallen, over = oracle.ask(image)
    image[byte] = value + 1 & 255
    _, risen, ended = oracle.ask(image)
    oracle.state = fresh
    return (over or fallen == usual - 1) and (ended or risen == usual)


def over_of(oracle: Oracle, pool: Pool, play: Play) -> tuple[list[dict[Any, Any]], str]:
    """The words for ``over``, and what was not understood."""

    def over(image: Image) -> bool:
        return oracle.ask(image)[2]

    ways, note = ways_of(over, relevant(over, pool), oracle.first)
    missed = ~Rules.read({}, {}, ways).of(play.after)[2] & play.over
    if missed.any():  # what was there a frame ago may matter
        fresh, extra = oracle.state, list[dict[Any, Any]]()
        for at in np.flatnonzero(missed)[:3]:
            for byte in range(128) if not extra else ():
                if not oracle.after(play.before[at]) or not over(play.after[at]):
                    break
                if all(swept(over, play.after[at], byte)) or _begun(oracle, play, at, byte, play.after[at][byte]):
                    continue
                extra = _pairs(oracle, play, at, byte, ways)
        oracle.state = fresh
        ways = [*ways, *extra]
        missed = ~Rules.read({}, {}, ways).of(play.after, play.before)[2] & play.over
    if not note and missed.any():
        note = f"{int(missed.sum())} of {int(play.over.sum())} ends of the real game"
    return ways, note or ("" if ways else "nothing was found that ends the game")


def _begun(oracle: Oracle, play: Play, at: int, byte: int, value: int) -> bool:
    """Whether the game ends after this memory, had the byte been of this value before; not, if it was over by then."""
    before = play.before[at].copy()
    before[byte] = value
    return oracle.after(before) and oracle.ask(play.after[at])[2]


def _pairs(oracle: Oracle, play: Play, at: int, byte: int, ways: Sequence[Any]) -> list[dict[Any, Any]]:
    """Ends that a byte tells by what it is and what it was, beside those known."""
    before, known, begins = play.before[at].copy(), Rules.read({}, {}, ways), dict[frozenset[int], set[int]]()
    after = np.tile(play.after[at], (256, 1))
    after[:, byte] = np.arange(256)
    told = known.of(after)[2]
    for value in range(256):
        before[byte] = value
        if oracle.after(before):
            ends = frozenset(k for k in range(256) if not told[k] and oracle.ask(after[k])[2])
            begins.setdefault(ends, set()).add(value)
    return [{byte: say_set(ends), f"before {byte}": say_set(values)} for ends, values in begins.items() if ends]


@dataclass(frozen=True)
class Found:
    """What was found of a game: a record for ``games.yaml``, what is not in it, and how it fared in tests."""

    game: str
    record: dict[str, Any]
    notes: tuple[str, ...]
    agreed: tuple[Agreed, ...]

    def text(self) -> str:
        lines = [
            f"{self.game}: rules: {_flow(self.record)}",
            *(f"{self.game}: no rule for {note}" for note in self.notes),
        ]
        same = _meant(find(self.game).rules) == _meant(Rules.read(**self.record))
        lines.append(f"{self.game}: games.yaml has {'the same' if same else 'other words for it'}")
        lines += ["| of the record | agreed with ALE |", "|---|---:|", *(agreed.line() for agreed in self.agreed)]
        return "\n".join(lines)


def derive(game: str, frames: int, images: int, seed: int, say: Callable[[str], object] = lambda _: None) -> Found:
    """Find the rules of a game, and test them; ``say`` is told what is being done."""
    draws = np.random.default_rng(seed)
    say(f"plays {frames:,} frames")
    play = Play.of(game, frames, seed)
    pool, oracle = Pool(play, draws), Oracle(game, play.before[0])
    say("asks for the score")
    score, limits, score_note = score_of(oracle, pool, draws)
    say("asks for the lives")
    lives, lives_note = lives_of(oracle, pool, play)
    say("asks for the end")
    over, over_note = over_of(oracle, pool, play)
    record: dict[str, Any] = {"score": score, **({"lives": lives} if lives else {}), "over": over, **limits}
    say("tests it")
    other = Play.of(game, frames, seed + 1)
    agreed = tested(Rules.read(**record), oracle, Pool(other, draws), other, images, draws)
    notes = (("score", score_note), ("lives", lives_note), ("over", over_note))
    return Found(game, record, tuple(f"{what}: {note}" for what, note in notes if note), tuple(agreed))


def _meant(rules: Rules) -> Any:
    """The same for rules that say the same in other words or in another order."""
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
    said = functools.partial(print, f"{game}:", file=sys.stderr, flush=True)
    try:
        pipe.send(derive(game, frames, images, seed, said))
    except RuntimeError as error:  # of ALE: the cartridge that leaves the memory alone does not start as this game
        pipe.send(str(error))


def in_time(game: str, frames: int, images: int, seed: int, seconds: float) -> Found | str:
    """:func:`derive` in a process of its own, as ALE never returns from some games' loading; else why not."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, game, frames, images, seed), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(seconds) else f"no rules found in {seconds:g} seconds"
    except EOFError:
        return "no rules found, as its process broke off"
    finally:
        process.kill()
        process.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    try:
        options = options_of(arguments, OPTIONS, __doc__)
        names = names_of(options)
        for name in names:
            check(name)
    except EmulatorError as error:
        print(error, file=sys.stderr)
        return 2
    numbers = [int(options[name]) for name in ("frames", "images", "seed", "seconds")]
    missing = 0
    for name in names:
        found = in_time(name, *numbers)
        print(f"{name}: {found}" if isinstance(found, str) else found.text(), flush=True)
        missing += isinstance(found, str) or bool(found.notes)
    return min(missing, 1)


if __name__ == "__main__":
    ends(main)
