"""MAPPO's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from ludus.algorithms.base import About
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.schedule import Schedule, Scheduled


class MAPPO(PPO):
    """PPO for a player of several agents, whose critic sees the environment's state (Yu et al. 2022); see the README beside this file.

    Defaults are those of the paper's code for particle environments, but for `batch`: theirs are 3,200 environment steps. An environment
    without a state is refused."""

    about: ClassVar[About] = replace(PPO.about, paper="Yu et al. 2022")
    for_teams: ClassVar[bool] = True  # of little use to single agents

    value_network: Literal["central"] = "central"
    team_rewards: bool = True
    batch: int = Field(default=3200, ge=1)
    batch_unit: Literal["episodes", "decisions"] = "decisions"
    epochs: int = Field(default=10, ge=1)
    learning_rate: Scheduled = Schedule(start=7e-4)
    entropy: Scheduled = Schedule(start=0.01)
    gamma: float = Field(default=0.99, ge=0, le=1)
    clip: float = Field(default=0.2, gt=0)
    max_gradient_norm: float = Field(default=10.0, ge=0)  # 0: not clipped
    normalise_returns: bool = True
