"""Exploration: how actions are chosen during training.

The command line imports every module here, so a new exploration is one new module and its option file.
"""
