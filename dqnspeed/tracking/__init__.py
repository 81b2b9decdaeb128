"""Recording of a run: its files, the terminal, TensorBoard and W&B."""

from dqnspeed.tracking.callbacks import Callback, CallbackError, Callbacks, TrainingState
from dqnspeed.tracking.trackers import make_trackers, register_tracker

__all__ = ["Callback", "CallbackError", "Callbacks", "TrainingState", "make_trackers", "register_tracker"]
