"""Exploration: how actions are chosen during training."""
