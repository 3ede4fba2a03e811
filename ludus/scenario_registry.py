"""The kinds of scenarios by name."""

from __future__ import annotations

from typing import Final

SCENARIOS: Final[dict[str, str]] = {
    "anytime_psro": "ludus.scenarios.anytime_psro:AnytimePSRO",
    "efficient_psro": "ludus.scenarios.efficient_psro:EfficientPSRO",
    "fictitious_self_play": "ludus.scenarios.self_play:FictitiousSelfPlay",
    "fixed_opponents": "ludus.scenarios.fixed_opponents:FixedOpponents",
    "league": "ludus.scenarios.league:League",
    "pbt": "ludus.scenarios.pbt:PBT",
    "pfsp": "ludus.scenarios.self_play:PFSP",
    "pipeline_psro": "ludus.scenarios.pipeline_psro:PipelinePSRO",
    "psro": "ludus.scenarios.psro:PSRO",
    "self_play": "ludus.scenarios.self_play:SelfPlay",
    "self_play_psro": "ludus.scenarios.anytime_psro:SelfPlayPSRO",
}
"""name -> `module:Class`; each class is a `Scenario`, and its fields are the keys of the file."""


def name_of(kind: type) -> str:
    """How a scenario of this class names its kind in a file."""
    target = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, known in SCENARIOS.items() if known == target), target)
