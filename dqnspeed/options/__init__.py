"""``python -m dqnspeed.options``: the reference of all options."""
