"""Preprocessing of frames, actions and episodes, as ALE's ``AtariVectorEnv`` and Gymnasium's wrappers do it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from atari_warp.consoles import WIDTH
from atari_warp.games import ACTIONS, EmulatorError

StackPadding = Literal["zero", "repeat"]
StartOrder = Literal["fire_then_noops", "noops_then_fire"]
OnLifeLoss = Literal["restart", "continue"]
FinalFrame = Literal["previous", "newest"]

LIMITS = {
    "frameskip": (1, 2**20), "noop_max": (0, 2**20), "max_num_frames_per_episode": (1, 2**29), "img_height": (1, 2**12),
    "img_width": (1, 2**12), "stack_num": (1, 2**10),
}  # fmt: skip
CHOICES = {
    "stack_padding": StackPadding,
    "start_order": StartOrder,
    "on_life_loss": OnLifeLoss,
    "final_frame": FinalFrame,
}
SWITCHES = (
    "maxpool", "grayscale", "use_fire_reset", "episodic_life", "life_loss_info", "reward_clipping",
    "count_start_frames", "render_full_screen",
)  # fmt: skip
NEGLIGIBLE = 1e-3  # part of a pixel that OpenCV leaves out
ONE = 2048  # fixed-point 1 of OpenCV's interpolation
KEEP, SHRINK, ENLARGE = range(3)  # ways to resize, in the order of native/pixels.h


@dataclass(frozen=True)
class Preprocessing:
    """Environment that is made of a game (Machado et al. 2018).

    Attributes:
        frameskip: frames that an action lasts.
        tap_frames: adds a second set of actions, without NOOP, that are released after this number of frames; 0 adds
            none.
        maxpool: pixel-wise maximum of the last two frames, if ``frameskip`` is above 1.
        final_frame: newest frame of the observation with which an episode ends, without ``maxpool``: the ``"previous"``
            one or the ``"newest"``.
        grayscale: one channel of gray instead of red, green and blue.
        crop: part of a picture that is resized: top, bottom, left, right, without the row ``bottom`` and the column
            ``right``; ``None`` takes the whole picture.
        img_height, img_width: sides of the observation, resized by area as OpenCV does it; ``None`` for both keeps the
            picture's rows and 160 columns.
        noop_max: no-ops at the start of a game, see ``start_order``; 0 plays none.
        use_fire_reset: press FIRE for one frame at the start.
        start_order: ``"fire_then_noops"`` plays 0 to ``noop_max - 1`` frames, drawn uniformly, of which FIRE is the
            first, and at least FIRE; their points are dropped. ``"noops_then_fire"`` plays 1 to ``noop_max`` no-ops and
            then FIRE; their points belong to the first step.
        stack_num: frames in an observation, oldest first.
        stack_padding: frames before an episode's first: black ones (``"zero"``) or copies of the first (``"repeat"``).
        episodic_life: a lost life ends the episode.
        on_life_loss: with ``episodic_life``, ``"restart"`` starts another game, and the step ends with the frame in
            which the life was lost. ``"continue"`` starts another episode of the same game, and the action of its first
            step is replaced by FIRE with ``use_fire_reset`` and by NOOP without.
        life_loss_info: a lost life terminates the episode, but nothing is reset.
        reward_clipping: rewards are the sign of the points.
        repeat_action_probability: probability that a frame repeats the action of the previous frame; frames of a start
            are exempt.
        max_num_frames_per_episode: time limit of a game; then it is truncated.
        count_start_frames: the limit counts the frames of the start that ALE counts; otherwise it counts from the
            first step.
        actions: ALE numbers of the agent's actions; ``None`` takes all legal actions of the game.
        render_full_screen: also draw rows outside ``crop``, for :meth:`ConsoleBatch.rgb`.
    """

    frameskip: int = 4
    tap_frames: int = 0
    maxpool: bool = True
    final_frame: FinalFrame = "previous"
    grayscale: bool = True
    crop: tuple[int, int, int, int] | None = None
    img_height: int | None = 84
    img_width: int | None = 84
    noop_max: int = 30
    use_fire_reset: bool = True
    start_order: StartOrder = "fire_then_noops"
    stack_num: int = 4
    stack_padding: StackPadding = "zero"
    episodic_life: bool = False
    on_life_loss: OnLifeLoss = "restart"
    life_loss_info: bool = False
    reward_clipping: bool = True
    repeat_action_probability: float = 0.0
    max_num_frames_per_episode: int = 108_000
    count_start_frames: bool = False
    actions: tuple[int, ...] | None = None
    render_full_screen: bool = False

    def __post_init__(self) -> None:
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            kept = name.startswith("img_") and value is None and self.img_height is self.img_width is None
            if not kept and not (_is_integer(value) and least <= value <= most):
                raise EmulatorError(f"{name}={value}: must be an integer from {least:,} to {most:,}.")
        for name in SWITCHES:
            if not isinstance(getattr(self, name), (bool, int, np.bool_)):
                raise EmulatorError(f"{name}={getattr(self, name)}: must be True or False.")
        for name, kind in CHOICES.items():
            if getattr(self, name) not in get_args(kind):
                raise EmulatorError(f"{name}={getattr(self, name)}: must be {' or '.join(get_args(kind))}.")
        if not _is_integer(self.tap_frames) or self.tap_frames not in range(self.frameskip):
            raise EmulatorError(f"tap_frames={self.tap_frames}: must be an integer from 0 to {self.frameskip - 1}.")
        if self.crop is not None:
            self._check_crop(self.crop)
        chosen = (0,) if self.actions is None else self.actions
        known = [_is_integer(action) and 0 <= action < len(ACTIONS) for action in chosen]
        if not known or not all(known):
            raise EmulatorError(f"actions={self.actions}: must be action numbers from 0 to {len(ACTIONS) - 1}.")
        chance = self.repeat_action_probability
        if not isinstance(chance, (int, float, np.number)) or not 0 <= chance <= 1:
            raise EmulatorError(f"repeat_action_probability={self.repeat_action_probability}: must be from 0 to 1.")
        self._normalize()

    def _check_crop(self, crop: tuple[int, ...]) -> None:
        integers = [number for number in np.ravel(crop).tolist() if _is_integer(number)]
        top, bottom, left, right = integers if len(integers) == np.size(crop) == 4 else (0, 0, 0, 0)
        if self.img_height is None or not (0 <= top < bottom and 0 <= left < right <= WIDTH):
            raise EmulatorError(
                f"crop={crop}: must be top, bottom, left, right with top < bottom and left < right <= {WIDTH}, "
                f"together with img_height and img_width."
            )

    def _normalize(self) -> None:
        """Convert NumPy numbers, which would overflow, and write equal values alike: saved states compare them."""
        for name in (*LIMITS, "tap_frames"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, int(getattr(self, name)))
        for name in SWITCHES:
            object.__setattr__(self, name, bool(getattr(self, name)))
        object.__setattr__(self, "repeat_action_probability", float(self.repeat_action_probability))
        for name in ("crop", "actions"):
            numbers = getattr(self, name)
            object.__setattr__(self, name, None if numbers is None else tuple(map(int, numbers)))

    @property
    def settings(self) -> list[int]:
        """Numbers for the native code, in the order of ``native/agent.h``."""
        assert self.actions is not None
        pool = self.maxpool and self.frameskip > 1
        sticky = min(int(self.repeat_action_probability * 2**31), 2**31 - 1)
        taps = [action for action in self.actions if action] if self.tap_frames else []
        rows = (0, 2**30) if self.crop is None or self.render_full_screen else self.crop[:2]
        lost_life = 2 + (self.on_life_loss == "continue") if self.episodic_life else int(self.life_loss_info)
        settings = [
            self.frameskip, pool, self.noop_max, self.use_fire_reset, self.start_order == "fire_then_noops", sticky,
            self.max_num_frames_per_episode, self.count_start_frames, self.tap_frames, *rows, lost_life,
            self.final_frame == "previous", self.reward_clipping, len(self.actions), len(self.actions) + len(taps),
        ]  # fmt: skip
        return [*map(int, settings), *self.actions, *taps]

    def picture_shape(self, rows: int) -> tuple[int, int]:
        """Height and width of an observation, of a game whose pictures have ``rows`` rows."""
        if self.img_height is None or self.img_width is None:
            return rows, WIDTH
        return self.img_height, self.img_width


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer))


def area_weights(size: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of a resize by area, as OpenCV's ``INTER_AREA`` has them.

    Args:
        size: pixels before.
        to: pixels after, at most ``size``.

    Returns:
        Indices ``(to, terms) int32`` of the pixels in each new pixel, and weights ``(to, terms) float32``, padded with
        weights of 0.
    """
    scale = size / to
    rows: list[list[tuple[int, float]]] = []
    for k in range(to):
        begin, end = k * scale, (k + 1) * scale
        width = min(scale, size - begin)
        last = min(int(np.floor(end)), size - 1)
        first = min(int(np.ceil(begin)), last)
        terms = [(first - 1, (first - begin) / width)] if first - begin > NEGLIGIBLE else []
        terms += [(pixel, 1.0 / width) for pixel in range(first, last)]
        if end - last > NEGLIGIBLE:
            terms.append((last, min(end - last, 1.0, width) / width))
        rows.append(terms)
    most = max(map(len, rows))
    table = np.array([terms + [(terms[-1][0], 0.0)] * (most - len(terms)) for terms in rows])
    return table[..., 0].astype(np.int32), table[..., 1].astype(np.float32)


def interpolation_weights(size: int, to: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights of OpenCV's ``INTER_AREA`` where a picture grows in one direction at least.

    Returns:
        Indices ``(to, 2) int32`` of the two pixels between which each new pixel lies, and whole weights
        ``(to, 2) float32`` with a sum of 2048.
    """
    pixels, inverse = np.arange(to), to / size
    first = np.floor(pixels * (1 / inverse)).astype(np.int32)
    part = ((pixels + 1) - (first + 1) * inverse).astype(np.float32)
    part = np.where(part <= 0, np.float32(0), part - np.floor(part))
    part[first >= size - 1] = 0
    weights = np.stack([np.rint((1 - part) * ONE), np.rint(part * ONE)], axis=1).astype(np.float32)
    return np.minimum(np.stack([first, first + 1], axis=1), size - 1).astype(np.int32), weights
