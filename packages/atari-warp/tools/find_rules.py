"""Search for the rules of a game: which bytes of the memory have score, lives and game over, and in which form."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from ale_probe import AleProbe, Image, Play, Pool, relevant, sweep
from atari_warp.rules import BOUND, KINDS, Rules
from rule_evaluation import evaluate, points_between
from rule_words import set_words, table_words

ORIGINS = 28  # random values from which a byte is changed
SIGN_ONLY = 3  # number of different rewards up to which a reward tells the sign of the points only
MAX_CLASSES = 20_000  # combinations of values that are asked about
SAMPLES = 200  # memories that decide whether numbers add up
EXAMPLE_ENDS = 3  # unexplained game overs that are examined


def find_score(probe: AleProbe, pool: Pool, draws: np.random.Generator) -> tuple[dict[int, Any], dict[str, int], str]:
    """Return the words for ``score``, those for its limits, and a note about steps that they do not explain."""

    def reward(image: Image) -> int:
        return probe.ask(image)[0]

    words = dict[int, Any]()
    steps = list[tuple[int, int, int, int]]()  # byte, its values before and after, and the reward
    for byte in sorted(relevant(reward, pool)):
        by_origin = dict[int, list[int]]()
        for origin in sorted({0, int(probe.first[byte]), 0xAA, 0xFF, *map(int, draws.integers(256, size=ORIGINS))}):
            image = probe.first.copy()
            image[byte] = origin
            if probe.after(image):
                results = sweep(probe.ask, image, byte)
                by_origin[origin] = [points for points, _, _ in results]
                live = {points for points, _, over in results if not over}
                steps += [(byte, origin, value, results[value][0]) for value in range(256) if len(live) > 1]
        if not any(step[0] == byte for step in steps):  # the byte ends the game, and the last frame scores nothing
            continue
        words[byte] = _score_words(by_origin)
    probe.after(probe.first)
    limits, odd = _score_limits(words, steps)
    return words, limits, f"{odd:,} of {len(steps):,} steps of its bytes" if odd else ""


def _score_words(by_origin: Mapping[int, list[int]]) -> Any:
    """Words for a byte of the score.

    Args:
        by_origin: rewards of a change to each of the 256 values, by the value before.
    """
    rewards = sorted({number for table in by_origin.values() for number in table})
    if len(rewards) <= SIGN_ONLY:
        fits = Counter[str]()
        for (kind, of), sign in itertools.product(KINDS.items(), (1, -1)):
            way = f"{'-1 ' if sign < 0 else ''}{kind}"
            for origin, table in by_origin.items():
                for value in range(256):
                    gained = sign * (of(value) - of(origin))
                    fits[way] += min(max(gained, rewards[0]), rewards[-1]) == table[value]
        return fits.most_common(1)[0][0]
    drops = rewards[0] < 0  # otherwise a lower score cannot be seen
    tables = [[n if n or drops else None for n in table] for table in by_origin.values() if drops or any(table)]
    found = [table_words(table, free=True) for table in tables]
    votes = Counter(map(repr, found))  # some origins mislead, where ALE counts a lower score in another way
    return max(found, key=lambda each: (votes[repr(each)], -len(repr(each))))


def _score_limits(words: Mapping[int, Any], steps: Sequence[tuple[int, int, int, int]]) -> tuple[dict[str, int], int]:
    """Words for the limits of the points, and the number of steps that are not explained with them."""
    tables = {term.byte: term.table for term in Rules.read(words).terms}
    surplus = Counter(number - tables[byte][value] + tables[byte][origin] for byte, origin, value, number in steps)
    rewards = sorted({number for *_, number in steps})
    limits = {"wrap": max(surplus)} if len(surplus) == 2 and min(surplus) == 0 and len(rewards) > SIGN_ONLY else {}
    if not limits and len(surplus) > 1:
        limits = {"least": rewards[0], **({"most": rewards[-1]} if len(rewards) <= SIGN_ONLY else {})}
    rules, odd = Rules.read(words, **limits), 0  # type: ignore[arg-type]
    for byte, origin, value, number in steps:
        scores = np.array([(tables[byte][at], 0, BOUND, 0) for at in (origin, value)])
        odd += int(points_between(rules, *scores)) != number
    return limits, odd


def find_lives(probe: AleProbe, pool: Pool, play: Play) -> tuple[dict[Any, Any], str]:
    """Return the words for ``lives``, and a note about memories that they do not explain."""
    first, same_game = probe.ask(probe.first)[1], ~np.append(True, play.over[:-1])
    if (byte := _falling_byte(probe, play, same_game)) is not None:
        return {"first": first, "falling": byte}, ""

    # Some rules update the lives in some frames only, and keep the previous number in others.
    states = {first: probe.state}
    for image in pool.live[np.unique(play.lives[~play.over], return_index=True)[1]]:
        if probe.after(image):
            states.setdefault(probe.ask(image)[1], probe.state)

    def kept(image: Image) -> bool | None:
        result = None
        for lives, state in states.items():
            probe.state = state
            _, now, over = probe.ask(image)
            if not over and now != lives:
                return False
            result = result if over else True
        return result

    def updated(image: Image) -> int | None:
        if ways and kept(image):
            return None
        _, lives, over = probe.ask(image)
        return None if over else lives

    ways, note = list[dict[int, Any]](), ""
    if len(states) > 1:
        ways, note = value_sets(kept, relevant(kept, pool), probe.first)
        if len(ways) > 1:
            note = f"lives that are kept in {len(ways)} ways"
    probe.state = states[first]
    words: dict[Any, Any] = {"first": first} if ways else {}
    tables = dict[int, list[int | None]]()
    images_of_games = itertools.chain([probe.first], pool.live)
    base = next((image for image in images_of_games if updated(image) is not None), probe.first)
    alone = dict[int, list[int | None]]()
    for byte, images in relevant(updated, pool).items():
        for image in [base, *images]:
            results = sweep(updated, image, byte)
            if len({number for number in results if number is not None}) > 1:
                tables.setdefault(byte, results if image is base else [updated(base)] * 256)
                before = alone.get(byte, results)
                alone[byte] = [new if old is None else old for old, new in zip(before, results, strict=True)]
    if len(tables) == 1:
        tables = alone
    for byte in sorted(tables):  # the first byte has the sum, the others have their differences from it
        more = 0 if byte == min(tables) else updated(base) or 0
        words[byte] = table_words([n if n is None else n - more for n in tables[byte]], free=bool(more))
    if not tables and first:
        words[0] = f"0 binary + {first}"
    if ways:
        words["keep"] = ways[0]
    elif len(tables) > 1 and not _explains_lives(words, probe, pool):  # one byte may suffice in real games
        for byte in tables:
            single = {byte: table_words(alone[byte], free=False)}
            lives = evaluate(Rules.read({}, single), play.after[same_game])[1]
            if np.array_equal(lives[~play.over[same_game]], play.lives[same_game & ~play.over]):
                others = ", ".join(str(other) for other in tables if other != byte)
                return single, f"memories where byte {others} changes them, too"
        note = f"bytes {', '.join(map(str, tables))} together"
    return words, note


def _falling_byte(probe: AleProbe, play: Play, same_game: np.ndarray) -> int | None:
    """Byte whose falls by one are the losses of lives, if there is one."""
    change = np.append(0, np.diff(play.lives)) * same_game * ~play.over
    if change.any() and change.max() == 0:
        for byte in range(128):
            falls = (play.before[:, byte] - play.after[:, byte] == 1) & same_game & ~play.over
            if np.array_equal(change < 0, falls) and sum(_takes_a_life(probe, byte, k) for k in range(256)) > 250:
                return byte
    return None


def _takes_a_life(probe: AleProbe, byte: int, value: int) -> bool:
    """Whether a life is lost when the byte falls by one from this value, and none when it grows by one."""
    image, fresh = probe.first.copy(), probe.state
    image[byte] = value
    if not probe.after(image):
        probe.state = fresh
        return True
    first = probe.ask(image)[1]
    image[byte] = value - 1 & 255
    _, fallen, over = probe.ask(image)
    image[byte] = value + 1 & 255
    _, grown, ended = probe.ask(image)
    probe.state = fresh
    return (over or fallen == first - 1) and (ended or grown == first)


def _explains_lives(lives: Mapping[Any, Any], probe: AleProbe, pool: Pool) -> bool:
    rules = Rules.read({}, lives)
    for image in (pool() for _ in range(SAMPLES)):
        _, theirs, over = probe.ask(image)
        if not over and evaluate(rules, image[None])[1][0] != theirs:
            return False
    return True


def find_end(probe: AleProbe, pool: Pool, play: Play) -> tuple[list[dict[Any, Any]], str]:
    """Return the words for ``over``, and a note about game overs that they do not explain."""

    def over(image: Image) -> bool:
        return probe.ask(image)[2]

    ways, note = value_sets(over, relevant(over, pool), probe.first)
    missed = ~evaluate(Rules.read({}, {}, ways), play.after)[2] & play.over
    if missed.any():  # an end may depend on the memory one frame earlier
        fresh, extra = probe.state, list[dict[Any, Any]]()
        for at in np.flatnonzero(missed)[:EXAMPLE_ENDS]:
            for byte in range(128) if not extra else ():
                if not probe.after(play.before[at]) or not over(play.after[at]):
                    break
                if all(sweep(over, play.after[at], byte)) or _ends_from(probe, play, at, byte, play.after[at][byte]):
                    continue
                extra = _changes_that_end(probe, play, at, byte, ways)
        probe.state = fresh
        ways = [*ways, *extra]
        missed = ~evaluate(Rules.read({}, {}, ways), play.after, play.before)[2] & play.over
    if not note and missed.any():
        note = f"{int(missed.sum())} of {int(play.over.sum())} ends of the real game"
    return ways, note or ("" if ways else "nothing was found that ends the game")


def _ends_from(probe: AleProbe, play: Play, at: int, byte: int, value: int) -> bool:
    """Whether frame ``at`` still ends the game if the byte had this value before it."""
    before = play.before[at].copy()
    before[byte] = value
    return probe.after(before) and probe.ask(play.after[at])[2]


def _changes_that_end(probe: AleProbe, play: Play, at: int, byte: int, ways: Sequence[Any]) -> list[dict[Any, Any]]:
    """Unknown ways to end that depend on a byte's values before and after frame ``at``."""
    before, known, origins = play.before[at].copy(), Rules.read({}, {}, ways), dict[frozenset[int], set[int]]()
    after = np.tile(play.after[at], (256, 1))
    after[:, byte] = np.arange(256)
    explained = evaluate(known, after)[2]
    for value in range(256):
        before[byte] = value
        if probe.after(before):
            ends = frozenset(k for k in range(256) if not explained[k] and probe.ask(after[k])[2])
            origins.setdefault(ends, set()).add(value)
    return [{byte: set_words(ends), f"before {byte}": set_words(values)} for ends, values in origins.items() if ends]


def value_sets(
    function: Callable[[Image], bool | None], found: Mapping[int, Sequence[Image]], first: Image
) -> tuple[list[dict[int, Any]], str]:
    """Find few sets of values of bytes that make a function true.

    Values with equal results in all examples form a class. Each combination of classes is asked about, and true
    combinations are merged byte by byte.

    Args:
        function: ``None`` as its result leaves a memory to either side.
        found: examples of each relevant byte, see :func:`relevant`.

    Returns:
        Words for the sets, and a note if there are too many combinations.
    """
    classes = dict[int, list[set[int]]]()
    for byte, images in sorted(found.items()):
        results = list(zip(*(sweep(function, image, byte) for image in images), strict=True))
        classes[byte] = [{v for v in range(256) if results[v] == result} for result in dict.fromkeys(results)]
    if np.prod([len(each) for each in classes.values()]) > MAX_CLASSES:
        return [], f"many bytes together: {', '.join(f'{byte} ({len(each)})' for byte, each in classes.items())}"
    image, true, free = first.copy(), set[tuple[int, ...]](), set[tuple[int, ...]]()
    for cell in itertools.product(*(range(len(each)) for each in classes.values())):
        for (byte, each), k in zip(classes.items(), cell, strict=True):
            image[byte] = min(each[k])
        result = function(image)
        true |= {cell} if result else set()
        free |= {cell} if result is None else set()
    ways, covered = list[dict[int, Any]](), set[tuple[int, ...]]()
    for cell in sorted(true) if classes else ():
        if cell in covered:
            continue
        box = [{k} for k in cell]
        for axis, each in sorted(enumerate(classes.values()), key=lambda pair: -len(pair[1])):
            for k in range(len(each)):
                grown = [{k} if other == axis else box[other] for other in range(len(box))]
                if set(itertools.product(*grown)) <= true | free:
                    box[axis].add(k)
        covered |= set(itertools.product(*box))
        chosen = [(byte, each, ks) for (byte, each), ks in zip(classes.items(), box, strict=True)]
        limited = [(byte, set.union(*(each[k] for k in ks))) for byte, each, ks in chosen if len(ks) < len(each)]
        ways.append({byte: set_words(values) for byte, values in limited})
    return ways, ""
