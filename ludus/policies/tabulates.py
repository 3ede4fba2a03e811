"""Whether policies can be written as tables, from their specs alone: so that a scenario is refused before anything is trained."""

from __future__ import annotations

from ludus.types import PolicySpec

_PARTS = {"nfsp": "best_response", "averaged": "newest"}  # the part that is a mode of its own; else the average plays


def tabulates(spec: PolicySpec, *, mode: str) -> bool:
    """Whether `Policy.tabulate` gives a table in this mode: what it plays depends on the information state alone, and is one of a number
    of actions. True of kinds that are not known here."""
    config = spec.config
    if spec.kind == "actor_critic":
        return bool(config["core"] == "none" and config["action"]["kind"] == "categorical")
    if spec.kind == "q_module":
        return mode != "explore" or not config["head"]["noisy"]
    if spec.kind in _PARTS:
        part = config[mode if mode == _PARTS[spec.kind] else "average"]
        return tabulates(PolicySpec(part["kind"], part["config"]), mode="greedy" if mode == "greedy" else "explore")
    return spec.kind not in ("q_recurrent", "deterministic", "squashed_gaussian", "actor_critic_team")
