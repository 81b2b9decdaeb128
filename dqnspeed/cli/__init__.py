"""What the commands share: KEY=VALUE, composition, checks before anything is made, errors as one sentence."""
