"""Actions that the environment would take and that are not to be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError
from ludus.core.parts import resolve_name
from ludus.core.types import ActionRequests, Array, ClosedDecisions, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.python_vector import check_actions
from ludus.envs.spaces import Choices
from ludus.envs.wrappers.base import Wrapper, apart, chosen, refuse_enumerated

MaskFunction: TypeAlias = Callable[[Array], NDArray[np.bool_]]
"""Observations [n, *shape] -> bool[n, A], which actions are legal; A as in `Choices`."""


def mask_actions(
    env: VectorEnv, allowed: Sequence[int] | str | MaskFunction, *, players: Sequence[int] | None = None
) -> VectorEnv:
    """Mask legal actions that are not to be chosen. Choosing one raises EnvError, as does an observation that leaves no legal action.

    Args:
        env: The vector.
        allowed: A list of actions (of Discrete ones), or a function of observations [n, *shape] that returns bool[n, A], A as in
            `Choices`; it may be named `module:function`.
        players: Whose actions are masked; None: all players'.

    Returns:
        The wrapped vector.

    Raises:
        ConfigError: The game is compiled, its actions have no masks (see `Choices`), or `allowed` is not valid.
    """
    refuse_enumerated(env, "mask_actions")
    choices = {p: _choices(env, p) for p in chosen(env, players, "mask_actions")}
    if isinstance(allowed, str):
        allowed = resolve_name("mask function", allowed, {}, expected=(), functions=True)
    if callable(allowed):
        function: MaskFunction = allowed
        functions = {
            p: _with_checks(function, choice.width, f"player {p} of {env.spec.id}") for p, choice in choices.items()
        }
        return _MaskActions(env, functions, choices)
    return _MaskActions(env, {p: _constant(allowed, choice) for p, choice in choices.items()}, choices)


def _choices(env: VectorEnv, player: int) -> Choices:
    space = env.spec.agents_of(player)[0].action
    if (choices := Choices.of(space)) is None:
        raise ConfigError(
            f"mask_actions takes Discrete, MultiDiscrete and MultiBinary actions; player {player} of {env.spec.id} has {space}."
        )
    return choices


def _constant(allowed: object, choices: Choices) -> MaskFunction:
    actions, count = list(allowed) if isinstance(allowed, Sequence) else [], choices.width
    if len(choices.counts) > 1:
        raise ConfigError(
            f"mask_actions: allowed={allowed!r} was given for actions of {len(choices.counts)} numbers; a function of the observations "
            f"that gives bool[n, {count}], the values of each number concatenated, is needed."
        )
    if not actions or not all(isinstance(a, int) and 0 <= a < count for a in actions):
        raise ConfigError(
            f"mask_actions: allowed={allowed!r} was given; a list of actions from 0 to {count - 1}, or a function, is needed."
        )
    row = np.zeros(count, np.bool_)
    row[actions] = True
    return lambda observation: np.broadcast_to(row, (len(observation), count))


def _with_checks(function: MaskFunction, count: int, what: str) -> MaskFunction:
    """Return the function with checks of its results."""
    name = getattr(function, "__name__", type(function).__name__)

    def mask(observation: Array) -> NDArray[np.bool_]:
        try:
            result: Array = np.asarray(function(observation))
        except Exception as error:
            raise EnvError(f"mask_actions: {name} raised {type(error).__name__} for {what}: {error}") from error
        if result.shape != (len(observation), count) or result.dtype != np.bool_:
            raise EnvError(
                f"mask_actions: {name} gave {result.dtype}{list(result.shape)} for {what}; bool[{len(observation)}, {count}] is needed."
            )
        return result

    return mask


class _MaskActions(Wrapper):
    def __init__(self, env: VectorEnv, functions: Mapping[int, MaskFunction], choices: Mapping[int, Choices]) -> None:
        super().__init__(env, apart(env.spec, functions))
        self._functions, self._choices = functions, choices
        rows = {p: env.num_envs * len(env.spec.agents_of(p)) for p in functions}
        self._sides = [
            {p: np.empty((rows[p], choice.width), np.bool_) for p, choice in choices.items()} for _ in range(2)
        ]
        self._now = 0
        self._masks: dict[int, NDArray[np.bool_]] = {}

    def _before(self, actions: tuple[Array, ...]) -> tuple[Array, ...]:
        for p, mask in self._masks.items():
            space = self.spec.agents_of(p)[0].action
            rows = np.asarray(actions[p])
            if len(rows) == len(mask):  # otherwise the inner vector says it
                check_actions(space, rows, mask=mask, what=f"player {p} of {self.spec.id}")
        return actions

    def _see(self, timestep: Timestep) -> Timestep:
        due, ended = list(timestep.due), list(timestep.ended)
        side = self._sides[self._now]
        self._now ^= 1
        for p, function in self._functions.items():
            self._masks[p] = self._narrow(p, due[p], function, side[p][: len(due[p].slot)])
            d, c = due[p], ended[p]
            due[p] = ActionRequests(d.slot, d.observation, self._masks[p], d.reward, d.first)
            ended[p] = ClosedDecisions(c.slot, c.reward, c.terminated, c.observation, self._final(p, c, side[p]))
        return Timestep(tuple(due), tuple(ended), timestep.finished, timestep.state, timestep.final_state)

    def _narrow(self, p: int, due: ActionRequests, function: MaskFunction, out: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if not len(out):
            return out
        if due.mask is None:
            out[:] = function(due.observation)
        else:
            np.logical_and(function(due.observation), due.mask, out=out)
        possible = self._choices[p].possible(out)
        if not possible.all():
            slot = int(due.slot[np.argmin(possible)])
            agent = self.spec.agents_of(p)[slot % len(self.spec.agents_of(p))].name
            raise EnvError(
                f"mask_actions leaves agent {agent!r} of {self.spec.id} without a legal action in environment "
                f"{slot // len(self.spec.agents_of(p))}; allow at least one that the environment allows too."
            )
        return out

    def _final(self, p: int, ended: ClosedDecisions, like: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the masks of final observations; all actions where none is left, since no action follows."""
        if not len(ended.slot):
            return like[:0]
        mask = np.array(self._functions[p](ended.observation))
        if ended.mask is not None:
            mask &= ended.mask
        mask[~self._choices[p].possible(mask)] = True
        return mask
