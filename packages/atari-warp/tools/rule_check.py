"""Comparison of derived rules with ALE, on memories that were not used to derive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from ale_probe import AleProbe, Image, Play, Pool
from atari_warp.rules import EARLIER, KEEP, LIVES, OVER, SCORE, Rules
from rule_evaluation import evaluate, points_between

PURPOSES = {SCORE: "score", LIVES: "lives", OVER: "over", KEEP: "lives"}  # of terms that are derived
BATCH = 20  # memories that follow the same one


@dataclass(frozen=True)
class Agreement:
    """Number of comparisons of one kind that agree with ALE."""

    what: str
    agreed: int
    of: int

    def line(self) -> str:
        """Row of a table."""
        return f"| {self.what} | {self.agreed:,} of {self.of:,} |"


def compare_rules(
    rules: Rules, probe: AleProbe, pool: Pool, play: Play, images: int, draws: np.random.Generator
) -> list[Agreement]:
    """Compare rules with ALE on ``images`` memories of each kind, and on real games."""
    counts = dict[str, list[int]]()

    def count(what: str, agrees: Any) -> None:
        counts.setdefault(what, [0, 0])
        counts[what][0] += int(np.sum(agrees))
        counts[what][1] += np.size(agrees)

    def compare(before: Image, asked: np.ndarray, names: Mapping[int, str]) -> None:
        lives_before = probe.ask(before)[1]
        earlier = np.tile(before, (len(asked), 1))
        scores, lives, over = evaluate(rules, asked, earlier, lives_before)
        scores_before, _, _ = evaluate(rules, earlier)
        theirs = [np.array(each) for each in zip(*(probe.ask(image) for image in asked), strict=True)]
        live = ~theirs[2]
        for purpose, name in names.items():
            ours = (points_between(rules, scores_before, scores), lives, over)[purpose]
            among = live | over if purpose == OVER else live
            count(name, (ours == theirs[purpose])[among])

    for term in rules.terms:
        byte = rules.watched if term.byte == EARLIER else term.byte
        for _ in range(max(1, images // 256)):
            before = np.array(draws.choice(play.after[~play.over]))
            if probe.after(before):
                asked = np.tile(before, (256, 1))
                asked[:, byte] = np.arange(256)
                purpose = {KEEP: LIVES}.get(term.purpose, term.purpose)
                compare(before, asked, {purpose: f"{PURPOSES[term.purpose]}, byte {byte}"})
    for _ in range(images // BATCH):
        before = pool()
        if not probe.after(before):
            probe.after(before := probe.first)
        names = {purpose: f"{PURPOSES[purpose]}, random memories" for purpose in range(3)}
        compare(before, np.array([pool() for _ in range(BATCH)]), names)
    start = np.append(True, play.over[:-1])  # the memory before a game's first frame belongs to another game
    lives_before = np.where(start, rules.first, np.append(0, play.lives[:-1]))
    scores, lives, over = evaluate(rules, play.after, play.before, lives_before)
    scores_before, _, _ = evaluate(rules, play.before)
    right = points_between(rules, scores_before, scores) == play.rewards
    count("score, real games", right[~start])
    count("score, frames with points", right[~start & (play.rewards != 0)])
    count("lives, real games", (lives == play.lives)[~play.over & ~start])
    count("over, real games", (over == play.over)[~start])
    count("over, ends", over[play.over & ~start])
    return [Agreement(what, *numbers) for what, numbers in counts.items()]
