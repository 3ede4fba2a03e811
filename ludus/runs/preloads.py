"""What processes that are forked load before: names alone, so that a command can ask for them before it loads anything large itself."""

from __future__ import annotations

PLAYING = ("ludus.rollout.preload",)
"""Modules of processes in which policies play."""
LEARNING = ("ludus.policies.actor_critic_policy",)
"""Modules of processes whose policies are networks: torch above all, which takes a second and a half of a core and 200 MB."""
