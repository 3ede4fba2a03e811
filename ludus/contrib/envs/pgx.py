"""`pgx/<game>`: Pgx's board and card games, and its MinAtar, compiled by JAX. One player of a game is due in each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import Space, spaces

from ludus.core.errors import ConfigError, UnknownName, nearest
from ludus.envs.adapters.agent_seats import check_limit
from ludus.envs.base import VectorEnv
from ludus.envs.functional.factory import functional_vector
from ludus.envs.functional.game import KEY, Earned, Seen, Value, fit, shown_space

__all__ = ["make", "names"]

_RANGES: Mapping[str, float] = {"backgammon": 3.0, "kuhn_poker": 2.0, "leduc_holdem": 13.0}
"""The most that a player of two can win, where that is not 1."""
_LEFT_OUT = ("bridge_bidding",)  # which wants tables of results that Pgx does not bring


class PgxEnv:
    """`FunctionalEnv` over one of Pgx's games. max_steps: moves after which an episode is truncated, or None."""

    def __init__(self, id: str, game: Any, max_steps: int | None) -> None:
        self.id, self.masked, self.state = id, True, None
        self._game, self._max_steps = game, max_steps
        self._players = int(game.num_players)
        first = jax.eval_shape(game.init, KEY)
        seen = jax.eval_shape(fit, first.observation)
        of_each: tuple[Space[Any], Space[Any]] = (
            shown_space(seen),
            spaces.Discrete(int(first.legal_action_mask.shape[0])),
        )
        self.spaces = {f"player_{p}": of_each for p in range(self._players)}

    def init(self, key: Value) -> tuple[Value, Seen]:
        """See `FunctionalEnv.init`. Who begins is drawn, too."""
        state = self._game.init(key)
        return state, self._seen(state)

    def step(self, state: Value, actions: tuple[Value, ...], key: Value) -> tuple[Value, Seen, Earned]:
        """See `FunctionalEnv.step`."""
        state = self._game.step(state, jnp.stack(actions)[state.current_player], key)
        truncated = state.truncated & ~state.terminated
        if self._max_steps is not None:
            truncated |= (state._step_count >= self._max_steps) & ~state.terminated
        return state, self._seen(state), Earned(state.rewards, state.terminated, truncated)

    def final(self, state: Value, seen: Seen) -> tuple[Value, ...]:
        """See `FunctionalEnv.final`: as each player sees it, who is due or not."""
        if self._max_steps is None:
            return seen.observation
        return tuple(fit(self._game._observe(state, jnp.int32(p))) for p in range(self._players))

    def _seen(self, state: Value) -> Seen:
        """What the one who is due sees stands in the rows of all. What others may do in their turn is not known."""
        due = jnp.arange(self._players) == state.current_player
        observation = (fit(state.observation),) * self._players
        return Seen(observation, tuple(state.legal_action_mask | ~mine for mine in due), due)


def make(name: str, *, num_envs: int, **options: Any) -> VectorEnv:
    """`name` is one of Pgx's games, such as `connect_four`. options: max_steps (default None: until the game ends), and those of
    `ludus.envs.adapters.agent_seats.Sides`. Raises UnknownName, ConfigError for options that are not taken."""
    known = names()
    if name not in known:
        raise UnknownName("game of Pgx", name, known)

    def made(given: Mapping[str, Any]) -> PgxEnv:
        import pgx

        if unknown := sorted(set(given) - {"max_steps"}):
            raise ConfigError(f"unknown option {unknown[0]!r} for pgx/{name}{nearest(unknown[0], ['max_steps'])}")
        most = given.get("max_steps")
        check_limit("max_steps", most, unit="moves")
        return PgxEnv(f"pgx/{name}", pgx.make(name), most)

    return functional_vector(f"pgx/{name}", made, num_envs=num_envs, options=options, defaults=_sides)


def names() -> list[str]:
    """Pgx's games, sorted, but for bridge_bidding."""
    import pgx

    return sorted(set(pgx.available_envs()) - {*_LEFT_OUT})


def _sides(env: Any) -> dict[str, Any]:
    """Who begins is drawn by lot in all games of two, so that their players are alike."""
    if len(env.spaces) != 2:
        return {}
    most = _RANGES.get(env.id.partition("/")[2], 1.0)
    return {"zero_sum": True, "utility_range": (-most, most), "symmetry": ((0, 1),)}
