"""Behaviour cloning: a policy that does what recorded ones did (`ludus clone`)."""

from ludus.algorithms.bc.checks import check_environment
from ludus.algorithms.bc.clone import Clone, Scores, clone
from ludus.algorithms.bc.config import Cloning

__all__ = ["Clone", "Cloning", "Scores", "check_environment", "clone"]
