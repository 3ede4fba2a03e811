"""Behaviour cloning: a policy that does what recorded ones did (`ludus clone`)."""

from ludus.algorithms.bc.clone import Clone, Scores, clone
from ludus.algorithms.bc.config import Cloning

__all__ = ["Clone", "Cloning", "Scores", "clone"]
