"""``python -m dqnspeed.report``."""
