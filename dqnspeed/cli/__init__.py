"""What the commands share: KEY=VALUE, composition, checks before a run, errors as one sentence."""
