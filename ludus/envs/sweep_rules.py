"""Games without a compiled tree whose exact sweeps are known: what describes each, and where a vector of environments says so."""

from __future__ import annotations

from typing import TypeAlias

from ludus.envs.hidden_boards import HiddenBoard
from ludus.envs.liars_dice import LiarsDice

SweepRules: TypeAlias = HiddenBoard | LiarsDice


def find_sweep_rules(env: object) -> SweepRules | None:
    """Return the rules of the game that a vector of environments plays; None if there are no sweeps over it."""
    rules = getattr(env, "sweep_rules", None)
    return rules if isinstance(rules, HiddenBoard | LiarsDice) else None
