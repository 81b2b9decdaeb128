"""``python -m dqnspeed.train``."""

from dqnspeed.cli.train import main

if __name__ == "__main__":
    main()
