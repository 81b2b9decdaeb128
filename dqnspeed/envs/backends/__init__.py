"""Backends, one module each: gymnasium, ale and atari_warp, and ``auto``, which chooses among them.

The command line imports every module here, so a new backend is one new module.
"""
