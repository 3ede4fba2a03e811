"""The rules by name."""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, str]] = {
    "hedge": "ludus.opponents.no_regret:Hedge",
    "pfsp": "ludus.opponents.priority:PFSP",
    "quality": "ludus.opponents.priority:Quality",
    "regret_matching_plus": "ludus.opponents.no_regret:RegretMatchingPlus",
}
"""name -> `module:Class`; each class's fields are its options."""
