"""Consoles with agents: starts, episodes and observations."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from atari_warp import ConsoleBatch, Preprocessing
from atari_warp.console_batch import GPU_PARTS
from atari_warp.console_data import gray_levels
from devices import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_seeds_determine_noops_and_sticky_actions(device: str) -> None:
    options = Preprocessing(repeat_action_probability=0.25, max_num_frames_per_episode=400)
    batches = [ConsoleBatch("breakout", 6, device, options, threads=threads, reset_pool=0) for threads in (1, 3)]
    seeds, frames = [1, 2, 3, 4, 5, 1], list[np.ndarray]()
    for batch in batches:
        batch.reset(seeds)
        first, draws = batch.registers()["frames"], np.random.default_rng(0)
        assert first.min() >= 1 and first.max() <= 29 and len(set(first)) > 2
        for _ in range(120):
            batch.step(draws.integers(0, 4, 1).repeat(6).astype(np.int32))
        frames.append(batch.observations.copy())
    np.testing.assert_array_equal(*frames)
    np.testing.assert_array_equal(frames[0][0], frames[0][5])  # the same seed
    assert len({frame.tobytes() for frame in frames[0]}) > 2


def test_legal_actions_are_the_default() -> None:
    legal = Preprocessing(actions=(0, 2, 3, 4, 5, 6, 7, 8, 9))
    batches = ConsoleBatch("skiing"), ConsoleBatch("skiing", preprocessing=legal)
    versions = [batch.save_state()["version"] for batch in batches]
    assert versions[0] == versions[1] != ConsoleBatch("pong").save_state()["version"]


@pytest.mark.parametrize(("limit", "ends"), [(96, (0, 1)), (97, (1, 1)), (100, (1, 1)), (101, (1, 0))])
def test_a_life_lost_in_the_step_of_the_time_limit_is_terminated(limit: int, ends: tuple[int, int]) -> None:
    """After FIRE and then RIGHT, Breakout takes a life in frame 97, in the step of frames 97 to 100."""
    options = Preprocessing(
        noop_max=0,
        use_fire_reset=False,
        episodic_life=True,
        on_life_loss="continue",
        max_num_frames_per_episode=limit,
        actions=(0, 1, 3, 4),
    )
    batch = ConsoleBatch("breakout", 1, preprocessing=options)
    batch.reset([1])
    for action in [1, *[2] * (24 if limit > 96 else 23)]:
        batch.step(np.array([action]))
    assert (batch.terminated[0], batch.truncated[0]) == ends
    batch.step(np.array([2]))
    assert batch.episode_start[0] and not batch.terminated[0] and not batch.truncated[0]
    assert batch.registers()["frames"][0] < 90, "another game"


def test_rows_outside_the_crop_are_drawn_on_request() -> None:
    crop = (34, 194, 0, 160)
    batches = [
        ConsoleBatch(
            "pong", 2, preprocessing=Preprocessing(crop=crop, img_height=48, img_width=48, render_full_screen=full)
        )
        for full in (False, True)
    ]
    draws = np.random.default_rng(0)
    for batch in batches:
        batch.reset([1, 2])
    for _ in range(100):
        actions = draws.integers(0, 6, 2)
        for batch in batches:
            batch.step(actions)
        np.testing.assert_array_equal(*[batch.observations for batch in batches])
    cropped, full = (batch.rgb() for batch in batches)
    np.testing.assert_array_equal(cropped[:, 34:194], full[:, 34:194])
    assert not cropped[:, :34].any() and not cropped[:, 194:].any()
    assert full[:, :34].any() and full[:, 194:].any()


@pytest.mark.parametrize("grayscale", [True, False])
@pytest.mark.parametrize(
    ("crop", "size"),
    [
        (None, (84, 84)), (None, (10, 10)), ((34, 194, 0, 160), (84, 84)), ((34, 194, 0, 160), (80, 80)),
        ((34, 194, 0, 160), (32, 32)), ((34, 194, 0, 160), (16, 16)), ((30, 180, 5, 155), (25, 25)),
        ((10, 100, 20, 50), (30, 30)), ((0, 200, 7, 107), (50, 50)), ((34, 194, 16, 155), (64, 64)),
        ((0, 210, 63, 143), (8, 8)), ((5, 120, 100, 160), (60, 60)), (None, (105, 80)), (None, (70, 20)),
        (None, (210, 160)), (None, (1, 1)), (None, (210, 40)), (None, (3, 150)), (None, (300, 200)), (None, (250, 160)),
        (None, (84, 161)), (None, (400, 30)), ((34, 94, 10, 50), (84, 84)), ((0, 1, 0, 1), (5, 7)),
    ],
)  # fmt: skip
def test_any_screen_is_resized_as_by_opencv(
    crop: tuple[int, int, int, int] | None, size: tuple[int, int], grayscale: bool
) -> None:
    """Random screens have values halfway between two integers, which screens of games rarely have."""
    options = Preprocessing(
        frameskip=1, noop_max=0, stack_num=1, crop=crop, img_height=size[0], img_width=size[1], grayscale=grayscale
    )
    batch, draws = ConsoleBatch("pong", 1, preprocessing=options), np.random.default_rng(sum(size))
    batch.reset([0])

    observe = batch._observe_launch(slice(0, 1))

    def check() -> None:
        observe.launch()
        pictures = gray_levels()[batch.screen()] if grayscale else batch.rgb()
        top, bottom, left, right = crop or (0, *pictures.shape[1:2], 0, pictures.shape[2])
        expected = cv2.resize(pictures[0, top:bottom, left:right], size[::-1], interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(batch.observations[0].transpose(1, 2, 0).reshape(expected.shape), expected)

    for parts in (1, GPU_PARTS):
        observe.set_dim((1, parts))
        observe.set_param_by_name("parts", parts)
        for colors in (256, 4, 2, 1):
            batch._screens.assign(draws.integers(0, colors, batch._screens.shape, np.uint8))
            check()
        for _ in range(40):  # a few pixels at a time on a screen of one colour
            for _ in range(draws.integers(1, 8)):
                row, column = draws.integers(batch._screens.shape[2]), draws.integers(160)
                batch._screens.numpy()[0, :, row, column : column + draws.integers(1, 20)] = draws.integers(256)
            check()
