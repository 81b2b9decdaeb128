"""ALE, asked what its rules of a game make of a memory: which reward, which lives, and whether the game is over."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from atari_warp.rules import EARLIER, KEEP, LIVES, OVER, SCORE, Rules, say_set
from atari_warp.verify import ale_action, ale_of

PURPOSES = {SCORE: "score", LIVES: "lives", OVER: "over", KEEP: "lives"}  # that `derive` finds
Image = np.ndarray  # a console's memory, (128,) uint8


def idle_rom(number: int = 0) -> bytes:
    """4 KiB that draw frames and leave the memory alone, except while SELECT or the stick is pressed: then they
    fill it with other numbers in each frame, which ``number`` chooses. ALE starts some games by pressing SELECT until
    the memory says that the right mode is there, so that every cartridge has to come to it some day."""
    code = bytearray.fromhex("78 D8 A2 FF 9A")  # SEI; CLD; LDX #255; TXS
    frame = 0xF000 + len(code)
    code += bytes.fromhex("A9 02 85 02 85 00 85 02 85 02 85 02 A9 00 85 00")  # three lines of VSYNC
    code += bytes.fromhex("AD 82 02 29 02 09 FD 2D 80 02 C9 FF F0 11")  # nothing pressed: to the lines
    code += bytes.fromhex("A2 7F B5 80 2A 55 81 6D 84 02 69") + bytes([number])  # each byte, its neighbour, the timer
    code += bytes.fromhex("95 80 CA 10 F1")
    code += bytes.fromhex("A2 C8 85 02 CA D0 FB 4C") + frame.to_bytes(2, "little")  # 200 lines
    return bytes(code.ljust(0xFFC, b"\xea")) + bytes.fromhex("00F000F0")


class Oracle:
    """What ALE's rules of a game make of a memory, after they have seen others.

    Args:
        game: its name.
        first: the memory at the start of a real game, which the rules see first.
    """

    def __init__(self, game: str, first: Image):
        with tempfile.TemporaryDirectory() as folder:
            rom = Path(folder) / f"{game}.bin"
            for number in range(256):
                rom.write_bytes(idle_rom(number))
                try:
                    self._ale = ale_of(game, rom)
                    break
                except RuntimeError:  # ALE gave up pressing SELECT before the mode was there
                    if number == 255:
                        raise
        self._noop, self._now = ale_action(0), self._ale.getRAM()
        for _ in range(2_000):  # until the memory that the start leaves is no end of the game
            self._set(first)
            self._ale.reset_game()
            if not self._ale.game_over():
                break
            self._now = self._ale.getRAM()
        self._now = self._ale.getRAM()
        self._fresh, self._fresh_ram = self._ale.cloneState(), self._ale.getRAM()
        self.first = first
        self.after(first)

    def after(self, *images: Image) -> bool:
        """From now on answers follow these memories; whether the game goes on after them."""
        self._ale.restoreState(self._fresh)
        self._now = self._fresh_ram.copy()
        for image in (self.first, *images):
            self._set(image)
            self._ale.act(self._noop)
        self.state = self._ale.cloneState(), self._now.copy()
        return not self._ale.game_over()

    def ask(self, image: Image) -> tuple[int, int, bool]:
        """Reward, lives and end, after what is now ``state``."""
        saved, self._now = self.state
        self._ale.restoreState(saved)
        self._set(image)
        reward = self._ale.act(self._noop)
        return reward, self._ale.lives(), self._ale.game_over()

    def _set(self, image: Image) -> None:
        for byte in np.flatnonzero(self._now != image):
            self._ale.setRAM(int(byte), int(image[byte]))
        self._now = np.array(image)


@dataclass(frozen=True)
class Play:
    """A real game, or several: memories ``(N, 128) uint8`` before and after each frame, and what ALE made of them."""

    before: np.ndarray
    after: np.ndarray
    rewards: np.ndarray
    lives: np.ndarray
    over: np.ndarray

    @classmethod
    def of(cls, game: str, frames: int, seed: int) -> Play:
        """Play at random, for ten seconds at a time with one action more often than the others, and actions that last
        for a moment or for longer; from half of the frames on with foresight: of eight ways to play the next two
        seconds the one is played that ends no game, keeps most lives and makes most points."""
        ale, draws = ale_of(game), random.Random(seed)
        actions, rows = list(ale.getMinimalActionSet()), list[tuple[Any, ...]]()
        turn = 0
        while len(rows) < frames:
            if turn % 5 == 0:
                liked, longest = draws.choice([None, *actions]), draws.choice((4, 15, 40, 90))
            begin, ways = ale.cloneState(), list[tuple[Any, ...]]()
            for way in range(1 if len(rows) < frames / 2 else 8):
                ale.restoreState(begin)
                played, until = list[tuple[Any, ...]](), 0
                while len(played) < 120 and not (played and ale.game_over()):
                    if len(played) == until:
                        action = liked if liked is not None and draws.random() < 0.6 else draws.choice(actions)
                        until += draws.randint(4, longest)
                    before, reward = ale.getRAM(), ale.act(action)
                    played.append((before, ale.getRAM(), reward, ale.lives(), ale.game_over()))
                points = sum(reward for _, _, reward, _, _ in played)
                ways.append((not ale.game_over(), ale.lives(), points, way, played, ale.cloneState()))
            *_, played, end = max(ways)
            ale.restoreState(end)
            rows += played
            turn += 1
            if ale.game_over():
                ale.reset_game()
        return cls(*map(np.array, zip(*rows[:frames], strict=True)))


class Pool:
    """Memories to ask about: real ones, ends among them, and such with bytes of other ones or at random."""

    def __init__(self, play: Play, draws: np.random.Generator):
        self.live, self.ends, self._draws = play.after[~play.over], play.after[play.over], draws

    def __call__(self) -> Image:
        draws = self._draws
        image = self.real()
        kind, count = draws.integers(5), 2 ** int(draws.integers(8))
        if kind == 0:
            return image
        at = draws.integers(128, size=count)
        if kind == 1:
            image[at] = draws.integers(256, size=count)
        elif kind == 2:
            image[at] = draws.choice([0, 1, 2, 127, 128, 129, 254, 255], size=count)
        elif kind == 3:
            image[at] = self.real()[at]
        else:
            image = draws.integers(256, size=128).astype(np.uint8)
        return image

    def real(self) -> Image:
        from_ends = len(self.ends) and self._draws.random() < 0.5
        return np.array(self._draws.choice(self.ends if from_ends else self.live))


def relevant(what: Callable[[Image], Any], pool: Pool, patience: int = 1500) -> dict[int, list[Image]]:
    """The bytes that ``what`` depends on, each with memories at which a change of it matters.

    Two memories that are equal in all bytes known so far, and are not the same to ``what``, differ in one that is not
    known; halving what they differ in finds it.
    """
    found = dict[int, list[Image]]()
    since = 0
    while since < patience:
        left, right = pool(), pool()
        if len(found) and since % 4:  # else: what is known may differ, for more memories at which it matters
            right[list(found)] = left[list(found)]
        said, other = what(left), what(right)
        since += 1
        if said == other:
            continue
        bytes_ = list(np.flatnonzero(left != right))
        if not bytes_:
            continue  # two answers to one memory: what is asked depends on more
        while len(bytes_) > 1:
            half = bytes_[: len(bytes_) // 2]
            middle = left.copy()
            middle[half] = right[half]
            if what(middle) == said:
                left, bytes_ = middle, bytes_[len(bytes_) // 2 :]
            else:
                right, bytes_ = middle, half
                other = what(middle)
        byte = int(bytes_[0])
        if byte not in found:
            found[byte], since = [], 0
        if len(found[byte]) < 12:
            found[byte].append(left)
    return found


def swept(what: Callable[[Image], Any], image: Image, byte: int) -> list[Any]:
    """What is said of a memory with each of the 256 values of a byte."""
    image, said = image.copy(), []
    for value in range(256):
        image[byte] = value
        said.append(what(image))
    return said


def ways_of(
    what: Callable[[Image], bool | None], found: Mapping[int, Sequence[Image]], first: Image
) -> tuple[list[dict[int, Any]], str]:
    """Sets of values of bytes that make ``what`` true, as few as cover all of its cases; and what was not understood.
    Of memories of which it says ``None`` it does not matter.

    Values of a byte that do the same in all memories tried are one class; each combination of classes is asked for,
    and the true ones are put together, byte by byte.
    """
    classes = dict[int, list[set[int]]]()
    for byte, images in sorted(found.items()):
        says = list(zip(*(swept(what, image, byte) for image in images), strict=True))
        classes[byte] = [{v for v in range(256) if says[v] == said} for said in dict.fromkeys(says)]
    if np.prod([len(each) for each in classes.values()]) > 20_000:
        return [], f"many bytes together: {', '.join(f'{byte} ({len(each)})' for byte, each in classes.items())}"
    image, true, free = first.copy(), set[tuple[int, ...]](), set[tuple[int, ...]]()
    for cell in itertools.product(*(range(len(each)) for each in classes.values())):
        for (byte, each), k in zip(classes.items(), cell, strict=True):
            image[byte] = min(each[k])
        said = what(image)
        true |= {cell} if said else set()
        free |= {cell} if said is None else set()
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
        chosen = zip(classes.items(), box, strict=True)
        ways.append({b: say_set(set.union(*(each[k] for k in ks))) for (b, each), ks in chosen if len(ks) < len(each)})
    return ways, ""


@dataclass(frozen=True)
class Agreed:
    """How many comparisons of a kind agreed with ALE."""

    what: str
    right: int
    of: int

    def line(self) -> str:
        return f"| {self.what} | {self.right:,} of {self.of:,} |"


def tested(
    rules: Rules, oracle: Oracle, pool: Pool, play: Play, images: int, draws: np.random.Generator
) -> list[Agreed]:
    """Compare rules with ALE on memories that were not used to find them."""
    counts = dict[str, list[int]]()

    def count(what: str, right: Any) -> None:
        counts.setdefault(what, [0, 0])
        counts[what][0] += int(np.sum(right))
        counts[what][1] += np.size(right)

    def compare(before: Image, asked: np.ndarray, names: Mapping[int, str]) -> None:
        """Of memories that each follow the same one."""
        lived = oracle.ask(before)[1]
        earlier = np.tile(before, (len(asked), 1))
        (scores, lives, over), (was, _, _) = rules.of(asked, earlier, lived), rules.of(earlier)
        said = [oracle.ask(image) for image in asked]
        theirs = [np.array(each) for each in zip(*said, strict=True)]
        live = ~theirs[2]
        for purpose, name in names.items():
            ours = (rules.points(was, scores), lives, over)[purpose]
            among = live | over if purpose == OVER else live
            count(name, (ours == theirs[purpose])[among])

    for term in rules.terms:
        name = f"{PURPOSES[term.purpose]}, byte {rules.watched if term.byte == EARLIER else term.byte}"
        for _ in range(max(1, images // 256)):
            before = np.array(draws.choice(play.after[~play.over]))
            if oracle.after(before):
                asked = np.tile(before, (256, 1))
                asked[:, rules.watched if term.byte == EARLIER else term.byte] = np.arange(256)
                compare(before, asked, {{KEEP: LIVES}.get(term.purpose, term.purpose): name})
    for _ in range(images // 20):
        before = pool()
        if not oracle.after(before):
            oracle.after(before := oracle.first)
        compare(
            before, np.array([pool() for _ in range(20)]), {k: f"{PURPOSES[k]}, memories at random" for k in range(3)}
        )
    start = np.append(True, play.over[:-1])  # the memory before the first frame of a game is of another
    lived = np.where(start, rules.first, np.append(0, play.lives[:-1]))
    (scores, lives, over), (was, _, _) = rules.of(play.after, play.before, lived), rules.of(play.before)
    right = rules.points(was, scores) == play.rewards
    count("score, real play", right[~start])
    count("score, frames with points", right[~start & (play.rewards != 0)])
    count("lives, real play", (lives == play.lives)[~play.over & ~start])
    count("over, real play", (over == play.over)[~start])
    count("over, ends", over[play.over & ~start])
    return [Agreed(what, *numbers) for what, numbers in counts.items()]
