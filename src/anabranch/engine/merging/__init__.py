"""Putting in order what several workers give out of order: the mergers of the *Safe* paper, and which to choose."""
