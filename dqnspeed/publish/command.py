"""``python -m dqnspeed.publish``: a folder with a trained agent to give away."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path

from safetensors import SafetensorError

from dqnspeed.agents.agent import BEST_CHECKPOINT, DEVICES, folder_of
from dqnspeed.cli.app import fail, run_app
from dqnspeed.cli.key_value import CommandLine
from dqnspeed.config.options import ConfigError, option
from dqnspeed.envs import ActorError
from dqnspeed.play.options import PlayConfig
from dqnspeed.publish.card import renamed
from dqnspeed.publish.contents import write_agent, write_card, write_evaluation, write_film
from dqnspeed.system import atomic, machine, messages
from dqnspeed.system.signals import interrupt_on_signals
from dqnspeed.tracking.hub import HUB, check_upload, upload
from dqnspeed.tracking.published import CARD, copy_published, is_published, write_index
from dqnspeed.tracking.run_folder import RUNS
from dqnspeed.tracking.video import check_encoder


@dataclass(frozen=True)
class PublishConfig:
    run: str = option("folder of the run; for an upload also of a published agent")
    to: str = option("new folder to give away; or hub:USER/NAME, which uploads it to the Hugging Face Hub")
    checkpoint: str = option("best, final, or the name of another file in checkpoints/", default=BEST_CHECKPOINT)
    episodes: int = option("games of the evaluation", ge=2, default=100)
    num_envs: int = option("games of the evaluation that are played at once", ge=1, le=4096, default=8)
    seed: int = option("seed of these games", ge=0, lt=2**31, default=0)
    half: bool = option("store the weights in 16 bits, and evaluate them so", default=False)
    video: bool = option("film a game", default=True)
    trust: bool = option("import an environment named by files of the run that were not written here", default=False)
    device: str = option("device of the network", choices=DEVICES, default="auto")


COMMAND_LINE = CommandLine(
    "python -m dqnspeed.publish run=FOLDER to=FOLDER2|hub:USER/NAME [KEY=VALUE...]",
    "Make a folder to give away: a trained agent, its evaluation, its learning curve, a film, and a model card.",
    PublishConfig,
)


def publish(options: PublishConfig) -> Path:
    """Make the folder ``options.to`` and return its path; a process that is killed leaves no half of it there.

    Raises:
        ConfigError: ``to`` exists, the run has no checkpoint or cannot be played, or a file cannot be written.
    """
    to, folder = Path(options.to).absolute(), folder_of(options.run)
    if os.path.lexists(to):
        what = "a published agent" if is_published(to) else "something else"
        raise ConfigError(f"to={options.to}: {what} is there already. Name a new folder.")
    if is_published(folder):
        raise ConfigError(f"run={options.run}: is published already. Copy its folder.")
    _make(to, folder, options, to.name)
    return to


def publish_on_hub(options: PublishConfig) -> str:
    """Make a folder of the agent, or copy a published one, upload it, and return the address of its page.

    Raises:
        ConfigError: as :func:`publish`; or the Hub does not take it or does not answer.
    """
    check_upload(options.to)
    folder = folder_of(options.run)
    name = options.to.removeprefix(HUB).replace("/", "_")
    made = Path(RUNS[0], "publish", f"{name}_{datetime.now():%Y-%m-%d_%H-%M-%S}_{os.getpid()}")
    if is_published(folder):
        _check_unused(options)
        with _partial_folder(made) as partial:
            copy_published(folder, partial)
            with contextlib.suppress(FileNotFoundError):
                card = (partial / CARD).read_text(encoding="utf-8", errors="replace")
                atomic.write_text(partial / CARD, renamed(card, options.to))
            write_index(partial)
    else:
        _make(made, folder, options, options.to)
    print(f"uploads {made}", flush=True)
    try:
        page = upload(made, options.to)
    except ConfigError as error:
        again = messages.command("publish", f"run={made}", f"to={options.to}")
        raise ConfigError(f"{error} The folder is kept: {again}") from error
    shutil.rmtree(made, ignore_errors=True)
    return page


def _check_unused(options: PublishConfig) -> None:
    """Raise :class:`ConfigError` if an option is set that makes a folder, which is there already."""
    for each in fields(options):
        if each.name not in ("run", "to") and (value := getattr(options, each.name)) != each.default:
            shown = str(value).lower() if isinstance(value, bool) else value
            raise ConfigError(f"{each.name}={shown}: is for a run, and {options.run} is published. Leave it out.")


def _make(to: Path, folder: Path, options: PublishConfig, name: str) -> None:
    """Make the folder ``to`` of the agent in ``folder``, whose card calls it ``name``."""
    if options.video:
        check_encoder("video=true")
    with _partial_folder(to) as partial:
        facts = write_agent(partial, folder, options.run, options.checkpoint, options.trust, options.half)
        # The weights are played as they are stored; the code that they need was checked with the run.
        played = PlayConfig(str(partial), trust=True, seed=options.seed, screen="none", device=options.device)
        if options.video:
            write_film(partial, played)
        evaluation = write_evaluation(partial, played, options.episodes, options.num_envs)
        write_card(partial, name, facts, evaluation)
        write_index(partial)


@contextlib.contextmanager
def _partial_folder(to: Path) -> Iterator[Path]:
    """A folder beside ``to``, which is renamed to ``to`` if the block ends without an error, else deleted."""
    partial = to.with_name(f"{to.name}.{os.getpid()}{atomic.PARTIAL}")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # of a killed process with the same number
        partial.mkdir(parents=True)
        yield partial
        partial.rename(to)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"to={to}: cannot be written ({getattr(error, 'strerror', None) or error}).") from error
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(partial), str(to))) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _main() -> None:
    options, _ = COMMAND_LINE.read(sys.argv[1:])
    try:
        if options.to.startswith(HUB):
            print(f"{publish_on_hub(options)}\nplay it: {messages.command('play', f'run={options.to}')}")
            return
        to = publish(options)
    except ActorError as error:
        fail(str(error), code=1)
    size = sum(path.stat().st_size for path in to.rglob("*") if path.is_file())
    print(f"{options.to}: {machine.format_bytes(size)}\nplay it: {messages.command('play', f'run={options.to}')}")


def main() -> None:
    """Console entry point; SIGTERM and a closed terminal end it as Ctrl-C does, which deletes the unfinished folder."""
    interrupt_on_signals()
    run_app(_main)
