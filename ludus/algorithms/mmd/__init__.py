"""Magnetic mirror descent and R-NaD: policy gradients regularised for self-play."""

from ludus.algorithms.mmd.config import MMD, RNaD

__all__ = ["MMD", "RNaD"]
