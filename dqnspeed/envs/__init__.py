"""Environments: wrappers, their stacks, and vectors of them behind one interface."""

from dqnspeed.envs.backends.base import ActorError, AnyArray
from dqnspeed.envs.build import make_env, make_registered, make_vector_env
from dqnspeed.envs.crop import find_crop
from dqnspeed.envs.frame_stack import FrameStack
from dqnspeed.envs.probe import Watchdog
from dqnspeed.envs.spec import EnvSpec, describe, probe
from dqnspeed.envs.vector import Episode, Step, VectorEnv

__all__ = [
    "ActorError",
    "AnyArray",
    "EnvSpec",
    "Episode",
    "FrameStack",
    "Step",
    "VectorEnv",
    "Watchdog",
    "describe",
    "find_crop",
    "make_env",
    "make_registered",
    "make_vector_env",
    "probe",
]
