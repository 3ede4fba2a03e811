"""EnvPool's board and card games (Pgx): two or more players who move in turn, all environments stepped together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.envs.adapters import native_kernels as kernels
from ludus.envs.adapters.batches import batch_writer
from ludus.envs.publisher import GOES_ON, TERMINATED, TRUNCATED, Publisher
from ludus.envs.spaces import observation_space
from ludus.errors import EnvError
from ludus.types import AgentSpec, Array, EnvSpec, Timestep

Start = Callable[[NDArray[np.uint64]], tuple[Any, Any, Mapping[str, Any]]]
"""seeds uint64[E] -> the pool, its first observations and info."""


def board_spec(id: str, observation: Space[Any], action: Discrete, players: int) -> EnvSpec:
    """One agent per player. Who begins is drawn, but players are not taken for interchangeable. All of these games are zero-sum."""
    seen, _ = observation_space(observation, what=id)
    return EnvSpec(
        id=id,
        agents=tuple(AgentSpec(f"player_{p}", p, seen, action) for p in range(players)),
        utility_range=((float("-inf"), float("inf")),) * players,
        symmetry=tuple((p,) for p in range(players)),
        zero_sum=True,
    )


class BoardVectorEnv:
    """`VectorEnv` over a pool of games. Each player sees its own observation; only whoever is to move is due. Ended games rest for a
    step. `info` of the pool holds env_id int[E], current_player int[E] and legal_action_mask bool[E, A] of that player."""

    def __init__(self, spec: EnvSpec, num_envs: int, *, observation: Space[Any], start: Start) -> None:
        self.spec = spec
        self.num_envs = num_envs
        self._start = start
        self._pool: Any = None
        self._pub = Publisher(spec, num_envs, masked=(True,) * spec.num_players)
        self._write = batch_writer(observation, what=spec.id)
        self._resting = np.zeros(num_envs, np.bool_)
        self._actions = np.zeros(num_envs, np.int32)
        count = int(spec.agents[0].action.n)  # type: ignore[attr-defined]
        self._legal, self._mover = np.zeros((num_envs, count), np.bool_), np.zeros(num_envs, np.int32)
        self._bounds = np.array([0, count], np.int64)
        self._last: Timestep | None = None

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`. Makes a new pool, whose seeds are fixed."""
        self._pub.reset(seeds, episodes)
        self._resting.fill(False)
        self._pool, seen, info = self._start(self._pub.seeds)
        self._see(seen, info)
        return self._publish()

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError for illegal actions and whatever the pool raises."""
        self._hand_out(actions)
        if self._advance():
            more, pub = self._pub.begin_next(), self._pub
            alone = len(more) and not any(due.any() for due in pub.due)
            for p in range(self.spec.num_players):
                pub.final[p] = pub.observation[p].copy() if alone else pub.observation[p]
                final_mask = pub.final_mask[p]
                assert final_mask is not None
                final_mask[...] = self._legal | (self._mover != p)[:, None]  # of the others, nothing is known
            if alone:  # somebody must have something due
                self._advance()
        return self._publish()

    def snapshot(self) -> bytes | None:
        """None: what goes on inside the pool cannot be saved."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raises EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} cannot be resumed inside an episode; there is no snapshot to restore.")

    def render(self, environment: int) -> NDArray[np.uint8]:
        """See `Renders.render`. Raises EnvError if it was not made to render, or was not reset."""
        if self._pool is None or not self._pool.render_mode:
            raise EnvError(f"{self.spec.id} has nothing to show; make it with render=True and reset it.")
        image: NDArray[np.uint8] = self._pool.render(env_ids=environment)[0]
        return image

    def close(self) -> None:
        """Close the pool."""
        pool, self._pool, self._last = self._pool, None, None
        if pool is not None:
            pool.close()

    def _hand_out(self, actions: tuple[Array, ...]) -> None:
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        for p, (due, given) in enumerate(zip(self._last.due, map(np.asarray, actions), strict=True)):
            if given.shape != due.slot.shape or (len(given) and given.dtype.kind not in "iu"):
                raise EnvError(
                    f"player {p} of {self.spec.id} was given actions {given.dtype}{list(given.shape)} for {len(due.slot)} due decisions; "
                    "expected one integer each."
                )
            row = kernels.hand_out_masked(given, due.slot, self._actions, self._bounds, due.mask) if len(given) else -1
            if row >= 0:
                assert due.mask is not None
                legal = np.flatnonzero(due.mask[row]).tolist()
                raise self._pub.error(
                    int(due.slot[row]), f"was given player {p}'s illegal action {given[row]}; legal: {legal}"
                )

    def _advance(self) -> bool:
        """One step of the pool. Whether a game ended."""
        pub = self._pub
        try:
            seen, reward, terminated, truncated, info = self._pool.step(self._actions)
        except Exception as error:
            raise pub.error(0, f"raised {type(error).__name__}: {error}") from error
        order = info["env_id"]
        playing = ~self._resting & ~pub.idle
        for p in range(self.spec.num_players):
            pub.reward[p][order] += reward[p :: self.spec.num_players] * playing[order]
        how = np.empty(self.num_envs, np.uint8)
        how[order] = np.where(terminated, TERMINATED, np.where(truncated, TRUNCATED, GOES_ON))
        how *= playing
        pub.over[how != GOES_ON] = how[how != GOES_ON]
        np.not_equal(how, GOES_ON, out=self._resting)
        self._see(seen, info)
        return bool(self._resting.any())

    def _see(self, seen: Array, info: Mapping[str, Any]) -> None:
        """What each player sees, and who is to move. The pool lists games in the order in which its threads finish them."""
        pub, players, order = self._pub, self.spec.num_players, info["env_id"]
        ordered = bool((order[1:] > order[:-1]).all())
        self._legal[order] = info["legal_action_mask"]
        self._mover[order] = info["current_player"]
        acting = ~self._resting & ~pub.idle
        for p in range(players):
            own = seen[p::players]
            self._write(own if ordered else own[np.argsort(order)], pub.observation[p])
            np.logical_and(acting, self._mover == p, out=pub.due[p])
            mask = pub.mask[p]
            assert mask is not None
            mask[...] = self._legal
        self._actions[:] = self._legal.argmax(axis=1)  # of those that nobody decides for

    def _publish(self) -> Timestep:
        self._last = self._pub.publish()
        return self._last
