"""Videos: mp4 files, and recordings of training games from the buffer."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import subprocess
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from dqnspeed.buffers import Buffer
from dqnspeed.config.options import ConfigError
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs import EnvSpec, Episode
from dqnspeed.envs.games import atari_game
from dqnspeed.system import atomic
from dqnspeed.tracking.run_folder import VIDEOS

log = logging.getLogger(__name__)

CONSOLE_FPS, OTHER_FPS = 60, 30  # frames per second of Atari games, and of environments without render_fps
PENDING = 4  # videos that may be waiting for the encoder
WIDTH = 320  # least pixels of a video of observations
_FILMS = itertools.count()  # numbers of the films of this process
# A colour for each channel of boards and symbolic images; of several channels in one place the last shows.
PALETTE = np.array(
    [(230, 230, 230), (76, 175, 80), (33, 150, 243), (255, 152, 0), (233, 30, 99), (156, 39, 176), (255, 235, 59),
     (0, 188, 212), (121, 85, 72), (96, 125, 139)],
    np.uint8,
)  # fmt: skip


def check_video(run: RunConfig, spec: EnvSpec) -> None:
    """Raise :class:`ConfigError` if ``tracking.video_every`` is set and videos cannot be made."""
    if not run.tracking.video_every:
        return
    if len(spec.frame_shape) != 3:
        raise ConfigError(
            f"tracking.video_every={run.tracking.video_every}: records what the agent sees, and {run.env.id} shows it "
            f"no images; record games with python -m dqnspeed.play record=true instead."
        )
    check_encoder(f"tracking.video_every={run.tracking.video_every}")


def check_encoder(option: str) -> None:
    """Raise :class:`ConfigError` if the encoder of mp4 files is not installed."""
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except ImportError as error:
        raise ConfigError(f"{option}: needs an encoder; pip install 'dqnspeed[play]' brings it.") from error
    except RuntimeError as error:
        raise ConfigError(f"{option}: needs ffmpeg ({str(error).partition(chr(10))[0].rstrip('.')}).") from error


def frame_rate(run: RunConfig, spec: EnvSpec) -> float:
    """Agent steps in a second of video, by the console's speed or the environment's ``render_fps``."""
    frames = CONSOLE_FPS if atari_game(run.env) else spec.render_fps or OTHER_FPS
    return frames / run.wrappers.frame_skip


def write_mp4(path: Path, frames: Iterable[np.ndarray], fps: float) -> None:
    """Write ``frames`` as a :class:`Film`, or no file if there are none."""
    with contextlib.closing(Film(path.parent, fps)) as film:
        for frame in frames:
            film.add(frame)
        film.end(path)


class Film:
    """An H.264 film in ``folder``, which is encoded while frames are added, and gets its name at the end."""

    def __init__(self, folder: Path, fps: float):
        self._folder, self._fps = folder, fps
        self._partial = folder / f"film_{os.getpid()}_{next(_FILMS)}{atomic.PARTIAL}"
        self._ffmpeg: subprocess.Popen[bytes] | None = None
        self._shape: tuple[int, ...] | None = None  # of the first frame

    def add(self, frame: np.ndarray) -> None:
        """Add a frame ``(H, W, 3) uint8``; odd sides lose their last row or column.

        Raises:
            OSError: the frame cannot be written, or differs in size from the first frame.
        """
        import imageio_ffmpeg

        if self._shape not in (None, frame.shape):
            raise OSError(errno.EINVAL, f"a picture is {frame.shape[1]}x{frame.shape[0]}, unlike the first")
        self._shape = frame.shape
        even = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]
        if self._ffmpeg is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._partial.unlink(missing_ok=True)
            frames = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{even.shape[1]}x{even.shape[0]}"]
            film = ["-pix_fmt", "yuv420p", "-crf", "15", "-preset", "veryfast", "-f", "mp4"]
            self._ffmpeg = subprocess.Popen(
                [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "fatal", *frames, "-r", f"{self._fps}", "-i", "-", *film,
                 str(self._partial)],
                stdin=subprocess.PIPE, start_new_session=True,  # so that Ctrl-C does not come to it
            )  # fmt: skip
        assert self._ffmpeg.stdin is not None
        self._ffmpeg.stdin.write(even.tobytes())

    def end(self, path: Path) -> None:
        """Write the rest, and name the film ``path``; a film without frames makes no file.

        Raises:
            OSError: the film could not be written.
        """
        if self._ffmpeg is None:
            return
        self._ffmpeg.communicate()
        if self._ffmpeg.returncode or not self._partial.stat().st_size:
            raise OSError(errno.EIO, "ffmpeg did not write the whole film; is there room on the disk?")
        atomic.flush(self._partial)
        os.replace(self._partial, path)

    def close(self) -> None:
        """Delete a film that has no name yet."""
        if self._ffmpeg is not None:
            self._ffmpeg.kill()
            self._ffmpeg.communicate()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)


def picture(frame: np.ndarray, largest: float) -> np.ndarray:
    """A frame ``(C, H, W)`` with values up to ``largest`` as ``(H, W, 3) uint8``."""
    if frame.shape[0] not in (1, 3):
        image = np.zeros((*frame.shape[1:], 3), np.uint8)
        for channel, mask in enumerate(frame > 0):
            image[mask] = PALETTE[channel % len(PALETTE)]
        return image
    scaled = np.clip(frame * (255 / largest), 0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(scaled.transpose(1, 2, 0), (*frame.shape[1:], 3)))


def enlarge(image: np.ndarray, width: int) -> np.ndarray:
    """``image`` with every pixel repeated until the width is at least ``width``, and the height at least 2."""
    times = max(1, -(-width // image.shape[1]), -(-2 // image.shape[0]))
    return image.repeat(times, axis=0).repeat(times, axis=1)


class EpisodeVideos:
    """Records every ``tracking.video_every``-th training game, as the agent saw it.

    Frames come from the buffer, so recording does not slow acting down and works with every parallelism and backend. A
    game that is longer than its ring lacks the start. A thread encodes.
    """

    def __init__(self, folder: Path, run: RunConfig, spec: EnvSpec):
        self._folder, self._every = folder, run.tracking.video_every
        self._fps, self._largest = frame_rate(run, spec), spec.largest
        self._encoder = ThreadPoolExecutor(1, "video")
        self._pending: deque[Future[None]] = deque()

    def record(self, number: int, episode: Episode, buffer: Buffer) -> str:
        """Path, within the run's folder, of the video of the ``number``-th game; empty if the game is not recorded."""
        if not self._every or number % self._every:
            return ""
        while len(self._pending) >= PENDING:
            self._pending.popleft().exception()  # waiting games take memory
        frames = list(buffer.storage.frames_of(episode.env, episode.end_row - episode.length, episode.end_row))
        if not frames:
            return ""  # overwritten
        if episode.last_frame is not None:
            frames.append(episode.last_frame)
        name = f"{VIDEOS}/{video_name(number, episode)}"
        job = self._encoder.submit(
            write_mp4, self._folder / name, (enlarge(picture(f, self._largest), WIDTH) for f in frames), self._fps
        )
        job.add_done_callback(_warn)
        self._pending.append(job)
        return name

    def finish(self) -> None:
        """Wait until every video so far is on disk."""
        wait(self._pending)
        self._pending.clear()

    def close(self) -> None:
        """Stop the encoder; waiting videos are not written."""
        self._encoder.shutdown(wait=True, cancel_futures=True)


def video_name(number: int, episode: Episode) -> str:
    """File name of a game's video: its number and its return."""
    return f"episode_{number:06d}_return_{episode.episode_return:.12g}.mp4"


def _warn(job: Future[None]) -> None:
    if not job.cancelled() and (error := job.exception()) is not None:
        log.warning("a video could not be written: %s", error)
