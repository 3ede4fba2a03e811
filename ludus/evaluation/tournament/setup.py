"""What a process is sent that plays a tournament's episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ludus.bots.cast import Named
from ludus.evaluation.tournament.arena import Arena, Player
from ludus.evaluation.tournament.process import Asked
from ludus.policies.registry import build_policy
from ludus.scenario import Environment
from ludus.types import PolicySpec, Weights


@dataclass(frozen=True, slots=True)
class _Sent:
    """A player on its way to another process."""

    name: str
    spec: PolicySpec | None
    weights: Weights | None
    mode: str
    bot: Named | None


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process plays: the game, in `num_envs` environments, and all who may."""

    settings: Environment
    num_envs: int
    players: tuple[_Sent, ...]

    @property
    def names(self) -> list[str]:
        """Of the players."""
        return [player.name for player in self.players]

    def begin(self, asked: Asked) -> Callable[..., Any]:
        """In the process: what answers as `Arena.play`."""
        players = [
            Player(
                sent.name,
                None if sent.spec is None else build_policy(sent.spec, sent.weights or {}),
                sent.mode,
                sent.bot,
            )
            for sent in self.players
        ]
        return Arena(self.settings.make(num_envs=self.num_envs), players, tell=asked).play


def setup_of(settings: Environment, num_envs: int, players: tuple[Player, ...]) -> Setup:
    """The parts that travel."""
    sent = tuple(
        _Sent(
            player.name,
            None if player.policy is None else player.policy.spec,
            None if player.policy is None else dict(player.policy.weights()),
            player.mode,
            player.bot,
        )
        for player in players
    )
    return Setup(settings, num_envs, sent)
