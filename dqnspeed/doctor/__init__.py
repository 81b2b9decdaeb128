"""``python -m dqnspeed.doctor``."""
