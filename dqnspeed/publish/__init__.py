"""``python -m dqnspeed.publish``."""
