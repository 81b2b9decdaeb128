"""Backends, one module each: gymnasium, ale and atari_warp, and ``auto``, which chooses among them."""
