"""Neural fictitious self-play."""

from ludus.algorithms.nfsp.config import NFSP

__all__ = ["NFSP"]
