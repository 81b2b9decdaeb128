"""What stands below everything: the machine, signals, seeding, files that are written whole."""
