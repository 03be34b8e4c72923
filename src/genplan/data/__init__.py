"""Demonstrations: episodes as Minari datasets, transforms of them, and windows for training."""
