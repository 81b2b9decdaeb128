"""``python -m dqnspeed.play``."""
