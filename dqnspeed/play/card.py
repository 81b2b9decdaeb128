"""The score on the card of a published agent, beside games played here; and the table of the zoo."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dqnspeed.tracking.published import ADDRESS, folder_at, read_evaluation, zoo
from dqnspeed.tracking.run_folder import BEGUN, read_summary

SETTINGS = ("epsilon", "deterministic", "noop_max")  # of play, on which the mean return depends


def beside_card(result: Mapping[str, Any], card: Mapping[str, Any]) -> str:
    """The mean return of ``card`` in words, and whether the one of ``result`` lies outside two standard errors.

    The standard error is of the difference of two means, with the spread of the card, which has more games.
    """
    there, here = len(card["games"]), len(result["games"])
    line = f"the card says {card['return_mean']:.2f} ± {card['return_std']:.2f} over {there} games"
    differing = [name for name in SETTINGS if result[name] != card[name]]
    if differing:
        return f"{line}, played with another {' and '.join(differing)}"
    two_errors = 2 * card["return_std"] * math.sqrt(1 / there + 1 / here)
    place = "outside" if abs(result["return_mean"] - card["return_mean"]) > two_errors else "within"
    return f"{line}; the mean here lies {place} two standard errors ({two_errors:.2f}) of it"


def zoo_table() -> Iterator[str]:
    """Lines of a table: game, mean return, spread, games and protocol of every agent that ships with this package."""
    if not (games := zoo()):
        yield "The zoo of this version is empty."
        return
    yield f"{'agent':<24} {'mean return':>12} {'± std':>10} {'games':>6}  protocol"
    for game in games:
        folder = folder_at(f"{ADDRESS}{game}")
        card = read_evaluation(folder) or {}
        protocol = read_summary(folder, BEGUN)["protocol"]
        mean, std = card["return_mean"], card["return_std"]
        yield f"{ADDRESS + game:<24} {mean:>12,.2f} {std:>10,.2f} {len(card['games']):>6}  {protocol}"
