"""Trained agents: loading and playing them, and showing what they look at."""
