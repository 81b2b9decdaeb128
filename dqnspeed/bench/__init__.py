"""``python -m dqnspeed.bench``: measure which speed-ups pay on this machine."""
