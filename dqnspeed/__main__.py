"""``python -m dqnspeed COMMAND ...``, which is ``dqnspeed COMMAND ...``."""

from dqnspeed.cli.front_door import main

if __name__ == "__main__":
    main()
