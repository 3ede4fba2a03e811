"""`pgx/<game>`: Pgx's board and card games, and its MinAtar, compiled by JAX. One player of a game is due in each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import Space, spaces

from ludus.contrib.envs.functional.factory import functional_vector
from ludus.contrib.envs.functional.game import KEY, AgentViews, StepOutcome, Value, fit, unbounded_box
from ludus.core.errors import ConfigError, UnknownName, nearest
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.base import VectorEnv

__all__ = ["make", "names"]

_RANGES: Mapping[str, float] = {"backgammon": 3.0, "kuhn_poker": 2.0, "leduc_holdem": 13.0}
"""The most that a player of two can win, where that is not 1."""
_LEFT_OUT = ("bridge_bidding",)  # which wants tables of results that Pgx does not bring
_FAULTS: Mapping[str, str] = {
    "sparrow_mahjong": "pgx/sparrow_mahjong: from its second draw on only the last seat can win by self-draw (pgx 2.6.0), so the seats "
    "are not equal; envpool/SparrowMahjong-v1 has the rules for all three."
}


class PgxEnv:
    """`FunctionalEnv` over one of Pgx's games. max_steps: moves after which an episode is truncated, or None."""

    def __init__(self, id: str, game: Any, max_steps: int | None) -> None:
        self.id, self.masked, self.state = id, True, None
        self._game, self._max_steps = game, max_steps
        self._players = int(game.num_players)
        first = jax.eval_shape(game.init, KEY)
        observation = jax.eval_shape(fit, first.observation)
        of_each: tuple[Space[Any], Space[Any]] = (
            unbounded_box(observation),
            spaces.Discrete(int(first.legal_action_mask.shape[0])),
        )
        self.spaces = {f"player_{p}": of_each for p in range(self._players)}

    def init(self, key: Value) -> tuple[Value, AgentViews]:
        """Begin an episode as `FunctionalEnv.init` describes. The first player is random, too."""
        state = self._game.init(key)
        return state, self._views(state)

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, AgentViews, StepOutcome]:
        """Step as `FunctionalEnv.step` describes."""
        state = self._game.step(state, jnp.stack(actions)[state.current_player], key)
        truncated = state.truncated & ~state.terminated
        if self._max_steps is not None:
            truncated |= (state._step_count >= self._max_steps) & ~state.terminated
        return state, self._views(state), StepOutcome(state.rewards, state.terminated, truncated)

    def final(self, state: Value, views: AgentViews) -> tuple[Value, ...]:
        """Return the final observations as `FunctionalEnv.final` describes: as each player sees it, who is due or not."""
        if self._max_steps is None:
            return views.observation
        return tuple(fit(self._game._observe(state, jnp.int32(p))) for p in range(self._players))

    def _views(self, state: Value) -> AgentViews:
        """Return the views: the observation of the player that is due is in the rows of all. The legal actions of others in their turn
        are not known."""
        due = jnp.arange(self._players) == state.current_player
        observation = (fit(state.observation),) * self._players
        return AgentViews(observation, tuple(state.legal_action_mask | ~is_due for is_due in due), due)


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """Make the vector of a game of Pgx's.

    Args:
        name: Such as `connect_four`.
        num_envs: Number of environments.
        options: max_steps (default None: until the game ends), and those of `ludus.envs.adapters.agent_seats.Sides`.

    Returns:
        The vector.

    Raises:
        UnknownName: There is no such game.
        ConfigError: An option is not taken.
    """
    known = names()
    if name not in known:
        raise UnknownName("game of Pgx", name, known)

    def make_one(arguments: Mapping[str, Any]) -> PgxEnv:
        import pgx

        if unknown := sorted(set(arguments) - {"max_steps"}):
            raise ConfigError(f"unknown option {unknown[0]!r} for pgx/{name}{nearest(unknown[0], ['max_steps'])}")
        most = arguments.get("max_steps")
        check_limit("max_steps", most, unit="moves")
        return PgxEnv(f"pgx/{name}", pgx.make(name), most)

    return functional_vector(f"pgx/{name}", make_one, num_envs=num_envs, options=options, defaults=_sides)


def names() -> list[str]:
    """Return Pgx's games, sorted, except bridge_bidding."""
    import pgx

    return sorted(set(pgx.available_envs()) - {*_LEFT_OUT})


def faults(name: str, _options: Mapping[str, Any]) -> list[str]:
    """Return what Pgx gets wrong in a game and its results would hide."""
    return [_FAULTS[name]] if name in _FAULTS else []


def _sides(env: Any) -> dict[str, Any]:
    """Return the sides of games of two, in which the first player is random, so that players are interchangeable."""
    if len(env.spaces) != 2:
        return {}
    most = _RANGES.get(env.id.partition("/")[2], 1.0)
    return {"zero_sum": True, "utility_range": (-most, most), "symmetry": ((0, 1),)}
