"""The machine, signals, seeding and atomic files."""
