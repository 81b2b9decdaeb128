"""What the commands share: composition, checks before anything is made, errors as one sentence."""
