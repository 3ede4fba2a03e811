"""Football sides that do not learn, as policies: one by rules (`ludus.contrib.football.script`), and the engine's own."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.script import Tactics, play
from ludus.contrib.football.sights import views
from ludus.contrib.football.view import Action
from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.base import check_mode

__all__ = ["FootballBuiltIn", "FootballScript"]


class _Side:
    """A policy that does not learn: without weights, and the same in both modes."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 1
    memory_shape: tuple[int, ...] | None = None
    takes_ids = False
    spec: PolicySpec

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return None: football is not enumerated."""
        return None

    def weights(self) -> Weights:
        return {}


class FootballScript(_Side):
    """Kind `football_script`: a side by rules, for either side of any scenario of `football/…`, and any number of its bodies.

    Config: numbers for fields of `ludus.contrib.football.script.Tactics`. It has no weights, is the same in both modes, and each agent
    decides by itself, from its own observation, which has to be `features`.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        """Raise PolicyError for a config that `Tactics` has no place for."""
        del weights  # it has none
        self.spec = spec
        known = [field.name for field in fields(Tactics)]
        for key, value in spec.config.items():
            if key not in known or isinstance(value, bool) or not isinstance(value, int | float):
                raise PolicyError(
                    f"football_script: {key}={value!r} was given; expected numbers for some of {', '.join(known)}."
                )
        self._tactics = Tactics(**spec.config)

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Act as `Policy.act` describes; observation float32[n, F]. Log-probabilities are 0. Raises PolicyError for another observation."""
        check_mode(self, mode)
        action = np.empty(len(observation), np.int32)
        try:
            for row, view in enumerate(views(observation)):
                action[row] = play(view, self._tactics)[0]
        except ValueError as error:
            raise PolicyError(f"football_script: {error}.") from error
        return PolicyOutput(action if mask is None else _allowed(action, mask), np.zeros(len(action), np.float32))


class FootballBuiltIn(_Side):
    """Kind `football_built_in`: leaves its side to the engine, which plays it as it plays sides without agents.

    Config `level`: which of the difficulties of the environment's option `built_in`, counted from 0 (default). Weights, modes: as
    `FootballScript`. Raises PolicyError where there is no such difficulty.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        """Raise PolicyError for other options than a level."""
        del weights  # it has none
        self.spec = spec
        level = spec.config.get("level", 0)
        if not set(spec.config) <= {"level"} or isinstance(level, bool) or not isinstance(level, int) or level < 0:
            raise PolicyError(f"football_built_in: {dict(spec.config)} was given; expected level=0, 1, …, or nothing.")
        self._action = len(Action) + level

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Act as `Policy.act` describes. Log-probabilities are 0."""
        check_mode(self, mode)
        if mask is None or mask.shape[1] <= self._action or not mask[:, self._action].all():
            raise PolicyError(
                f"football_built_in was asked for level {self._action - len(Action)}, and the environment has fewer difficulties; "
                "name them in its options: built_in: [0.05, 0.6]."
            )
        return PolicyOutput(np.full(len(observation), self._action, np.int32), np.zeros(len(observation), np.float32))


_KICKS = (Action.LONG_PASS, Action.HIGH_PASS, Action.SHORT_PASS, Action.SHOT)


def _allowed(action: NDArray[np.int32], mask: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Replace illegal actions: a kick by a short pass, or by a shot where only that is legal, other actions by IDLE."""
    wrong = np.flatnonzero(~mask[np.arange(len(action)), action])
    kicks = wrong[np.isin(action[wrong], _KICKS)]
    action[wrong] = Action.IDLE
    for kick in (Action.SHOT, Action.SHORT_PASS):
        action[kicks[mask[kicks, kick]]] = kick
    return action
