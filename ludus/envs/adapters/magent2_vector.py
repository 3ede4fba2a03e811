"""A vector of MAgent2's grid worlds, read group by group: hundreds of agents a call, no dictionaries.

Observations and rewards are written by the engine into the rows of the timestep. What comes out is what `parallel_env` would give, but for
the first step of an episode: there `parallel_env` (MAgent2 0.3.4) gives every group the actions of the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.envs.adapters.magent2_engine import Group, Rows, Scratch, engine
from ludus.envs.adapters.magent2_kernels import hand_out, tally
from ludus.envs.publisher_kernels import episode_seed
from ludus.errors import EnvError
from ludus.types import Array, Due, Ended, EnvSpec, Finished, Timestep


class MAgentVectorEnv:
    """`VectorEnv` over `envs`, which are MAgent2's `parallel_env`s, not yet played. legal[p]: int32[agents], actions of each agent."""

    def __init__(self, envs: Sequence[Any], spec: EnvSpec, groups: Sequence[Group], legal: Sequence[Array]) -> None:
        self.spec = spec
        self.num_envs = len(envs)
        self._envs = list(envs)
        self._games = [env.env.game.value for env in envs]
        self._most = int(envs[0].max_cycles)
        self._lib = engine()
        self._groups = groups
        self._legal = legal
        self._masks = [None if (n == n.max()).all() else np.arange(n.max()) < n[:, None] for n in legal]
        self._agents = [len(n) for n in legal]
        slots = [self.num_envs * n for n in self._agents]
        shapes = [spec.agents_of(p)[0].observation.shape or () for p in range(len(slots))]
        self._sides = [[Rows(n, shape) for n, shape in zip(slots, shapes, strict=True)] for _ in range(2)]
        self._actions = [Scratch(n, np.int32) for n in slots]
        self._never = [np.zeros(n, np.bool_) for n in slots]
        most = max(group.count for group in groups)
        self._alive = Scratch(most, np.bool_)
        self._view = Scratch(most * max(int(np.prod(group.view)) for group in groups), np.float32)
        self._features = Scratch(most * max(group.features for group in groups), np.float32)
        self._targets = Scratch(2, np.uintp)  # where the engine writes views and features
        self._targets.array[1] = self._features.address
        self._done = Scratch(1, np.int32)
        self._slots: list[list[NDArray[np.int32]]] = [[np.empty(0, np.int32)] * len(groups) for _ in envs]
        self._frames = [0] * self.num_envs
        self._returns = np.zeros((self.num_envs, len(slots)))
        self._episode = np.zeros(self.num_envs, np.int64)
        self._quota = np.full(self.num_envs, -1, np.int64)
        self._seeds = np.zeros(self.num_envs, np.uint64)
        self._playing: list[int] = []
        self._began: list[int] = []
        self._changed = True
        self._due: list[tuple[Array, Array | None]] = []
        self._last: Timestep | None = None

    # ------------------------------------------------------------------------------------------ the contract

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        """See `VectorEnv.reset`."""
        if len(seeds) != self.num_envs:
            raise EnvError(f"{len(seeds)} seeds were given for {self.num_envs} environments; one each is needed.")
        self._seeds[:] = seeds
        self._quota[:] = -1 if episodes is None else episodes
        self._episode[:] = 0
        for e in range(self.num_envs):
            self._slots[e] = [np.empty(0, np.int32)] * len(self._groups)
        side = self._turn()
        for e in np.flatnonzero(self._quota != 0).tolist():
            self._begin(e, side)
        return self._publish(side, [])

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        """See `VectorEnv.step`. Raises EnvError on an illegal action, before anything is stepped."""
        if self._last is None:
            raise EnvError("step was called before reset; reset the environment first.")
        for p, due in enumerate(self._last.due):
            self._take(p, np.asarray(actions[p]), due)
        side = self._turn()
        reading = [actions.address for actions in self._actions]
        finished = []
        for e in self._playing:
            game, slots = self._games[e], self._slots[e]
            for group, of in zip(self._groups, slots, strict=True):
                self._lib.env_set_action(game, group.handle, reading[group.player])
                reading[group.player] += 4 * len(of)
            self._lib.env_step(game, self._done.address)
            self._frames[e] += 1
            done = bool(self._done.array[0])
            over = done or self._frames[e] >= self._most
            for g, group in enumerate(self._groups):
                self._read(e, g, side[group.player], done=done, over=over)
            self._lib.gridworld_clear_dead(game)
            if over:
                finished.append((e, self._returns[e].copy(), done, self._frames[e]))
                self._episode[e] += 1
                if self._episode[e] != self._quota[e]:
                    self._begin(e, side)
        return self._publish(side, finished)

    def snapshot(self) -> bytes | None:
        """None: the engine cannot be saved."""
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        """Raises EnvError: there are no snapshots."""
        raise EnvError(f"{self.spec.id} cannot be resumed inside an episode; there is no snapshot to restore.")

    def render(self, environment: int) -> NDArray[np.uint8]:
        """See `Renders.render`."""
        env = self._envs[environment]
        env.render_mode = "rgb_array"
        image: NDArray[np.uint8] = env.render()
        return image

    def close(self) -> None:
        """Close the environments; the engines go with them."""
        self._last = None
        for env in self._envs:
            env.close()
        self._envs, self._games = [], []

    # ------------------------------------------------------------------------------------------ one environment

    def _begin(self, e: int, side: list[Rows]) -> None:
        """Reset one environment and put all of its agents into the rows."""
        env = self._envs[e]
        seed = int(episode_seed(self._seeds[e], np.uint64(self._episode[e])) & np.uint64(0x7FFFFFFF))
        env.seed(seed)
        env.env.reset()
        env.generate_map()
        self._frames[e] = 0
        self._returns[e] = 0
        self._began.append(e)
        self._changed = True
        for g, group in enumerate(self._groups):
            handle = env.handles[g]
            if env.env.get_num(handle) != group.count:
                raise EnvError(
                    f"{self.spec.id} placed {env.env.get_num(handle)} of {group.count} agents of {group.name}; environment {e} of "
                    f"{self.num_envs}, seed {self._seeds[e]}, episode {self._episode[e]}, step 0. Give it a larger map."
                )
            base = e * self._agents[group.player] + group.base
            self._slots[e][g] = np.arange(base, base + group.count, dtype=np.int32)
            rows = side[group.player]
            self._observe(e, group, rows, group.count)
            rows.reward[rows.at : rows.at + group.count] = 0
            rows.at += group.count

    def _read(self, e: int, g: int, rows: Rows, *, done: bool, over: bool) -> None:
        """Take in what a step brought to one group: rows for those who live, final ones for the others."""
        group, slots = self._groups[g], self._slots[e][g]
        game, n, at = self._games[e], len(slots), rows.at
        self._lib.env_get_reward(game, group.handle, rows.next_reward)
        self._lib.env_get_info(game, group.handle, b"alive", self._alive.address)
        self._observe(e, group, rows, n)
        alive, reward = self._alive.array[:n], rows.reward[at : at + n]
        living, total = tally(alive, reward)
        self._returns[e, group.player] += total
        if living == n and not over:
            rows.at += n
            return
        self._changed = True
        observation = rows.observation[at : at + n]
        leaves = np.ones(n, np.bool_) if over else ~alive
        terminated = leaves if done else ~alive
        rows.ended.append((slots[leaves], reward[leaves], terminated[leaves], observation[leaves]))
        stays = ~leaves
        self._slots[e][g] = slots[stays]
        living = 0 if over else living
        observation[:living] = observation[stays]
        reward[:living] = reward[stays]
        rows.at += living

    def _observe(self, e: int, group: Group, rows: Rows, n: int) -> None:
        """Have the engine write the observations of a group's n agents into the next rows."""
        plain = group.tail == 0
        self._targets.array[0] = rows.next_observation if plain else self._view.address
        self._lib.env_get_observation(self._games[e], group.handle, self._targets.address)
        if not plain:
            target = rows.observation[rows.at : rows.at + n]
            channels = group.view[2]
            target[..., :channels] = self._view.array[: n * int(np.prod(group.view))].reshape(n, *group.view)
            features = self._features.array[: n * group.features].reshape(n, group.features)
            tail = group.features if group.tail is None else group.tail
            target[..., channels:] = features[:, None, None, group.features - tail :]

    # ------------------------------------------------------------------------------------------ the vector

    def _take(self, player: int, given: Array, due: Due) -> None:
        n = len(due.slot)
        if given.shape != (n,) or (n and given.dtype.kind not in "iu"):
            raise EnvError(
                f"player {player} of {self.spec.id} was given actions {given.dtype}{list(given.shape)} for {n} due decisions; expected "
                "one whole number each."
            )
        if n and (row := hand_out(given, due.slot, self._legal[player], self._actions[player].array)) >= 0:
            agent = self.spec.agents_of(player)[due.slot[row] % self._agents[player]]
            count = self._legal[player][due.slot[row] % self._agents[player]]
            raise EnvError(
                f"player {player} of {self.spec.id} chose the illegal action {given[row]} in row {row}, for agent {agent.name!r}; legal: "
                f"0 to {count - 1}."
            )

    def _turn(self) -> list[Rows]:
        """The side that is filled now, empty."""
        self._sides.reverse()
        side = self._sides[0]
        for rows in side:
            rows.clear()
        self._began = []
        return side

    def _publish(self, side: list[Rows], finished: list[tuple[int, Array, bool, int]]) -> Timestep:
        if self._changed:
            self._recount()
        due, ended = [], []
        for p, (rows, (slot, mask)) in enumerate(zip(side, self._due, strict=True)):
            n = rows.at
            first = self._never[p][:n]
            if self._began:
                first = np.isin(slot // self._agents[p], self._began)
            due.append(Due(slot, rows.observation[:n], mask, rows.reward[:n], first))
            ended.append(self._ended(p, rows))
        over = Finished(
            np.array([e for e, *_ in finished], np.int32),
            np.array([returns for _, returns, *_ in finished]).reshape(-1, len(side)),
            np.array([terminated for *_, terminated, _ in finished], np.bool_),
            np.array([length for *_, length in finished], np.int32),
        )
        self._last = Timestep(tuple(due), tuple(ended), over)
        return self._last

    def _recount(self) -> None:
        """Somebody left or came: the slots and masks of the rows anew. Arrays of earlier timesteps are left alone."""
        self._playing = [e for e, slots in enumerate(self._slots) if any(len(of) for of in slots)]
        self._due = []
        for p, agents in enumerate(self._agents):
            mine = [g for g, group in enumerate(self._groups) if group.player == p]
            slot = np.concatenate([self._slots[e][g] for e in range(self.num_envs) for g in mine])
            table = self._masks[p]
            self._due.append((slot, None if table is None else table[slot % agents]))
        self._changed = False

    def _ended(self, player: int, rows: Rows) -> Ended:
        table = self._masks[player]
        if not rows.ended:
            none = np.empty(0, np.int32)
            return Ended(
                none,
                rows.reward[:0],
                none.astype(np.bool_),
                rows.observation[:0],
                None if table is None else table[:0],
            )
        slot, reward, terminated, observation = (np.concatenate(column) for column in zip(*rows.ended, strict=True))
        mask = None if table is None else table[slot % self._agents[player]]
        return Ended(slot, reward, terminated, observation, mask)
