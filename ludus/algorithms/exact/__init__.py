"""Exact best responses on enumerated games."""

from ludus.algorithms.exact.config import ExactBestResponse

__all__ = ["ExactBestResponse"]
