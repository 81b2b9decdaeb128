"""A run in time and on disk: progress, schedules, evaluation, checkpoints, and the lock of its folder."""
