"""Shared parts of the commands: KEY=VALUE, composition, checks before a run, and errors as one sentence."""
