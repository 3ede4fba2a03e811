"""A game of your own: Nim, as a vector of environments, checked and then trained on.

    python examples/own_environment.py
    PYTHONPATH=examples ludus train my.yaml     # with `env: own_environment:Nim`

Two players take one to three stones from a heap in turn; whoever takes the last one wins. Heap and starter are drawn per episode.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

import ludus
from ludus.core import seeding
from ludus.core.errors import EnvError
from ludus.core.types import ActionRequests, AgentSpec, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.testing.env import check_env

MOST = 3  # stones that may be taken at once


class Nim:
    """Keeps the contract of `ludus.envs.base.VectorEnv` with arrays over all environments: no loop over environments."""

    def __init__(self, *, num_envs: int, heap: int = 12) -> None:
        seen = Box(0.0, 1.0, (heap + 1,), np.float32)  # one-hot: how many stones are left
        self.spec = EnvSpec(
            id="nim",
            agents=tuple(AgentSpec(f"player_{p}", p, seen, Discrete(MOST)) for p in range(2)),
            utility_range=((-1.0, 1.0), (-1.0, 1.0)),
            symmetry=((0, 1),),  # the starter is drawn, so the players are interchangeable and share a population
            zero_sum=True,
        )
        self.num_envs = num_envs
        self._one_hot = np.eye(heap + 1, dtype=np.float32)
        self._heap = heap

    def reset(self, seeds, *, episodes=None):
        """Start anew; `episodes` is how many each environment plays before it falls idle (None: for ever)."""
        self._seeds = np.asarray(seeds, np.uint64)
        self._quota = np.broadcast_to(-1 if episodes is None else episodes, self.num_envs)
        self._episode = np.zeros(self.num_envs, np.int64)
        self._stones = np.zeros(self.num_envs, np.int64)
        self._mover = np.zeros(self.num_envs, np.int64)
        self._length = np.zeros(self.num_envs, np.int32)
        self._moved = np.zeros((2, self.num_envs), np.bool_)  # who has an open decision
        self._begin(np.arange(self.num_envs))
        return self._timestep(over=np.zeros(0, np.int64))

    def step(self, actions):
        """actions[p]: one per row of the last `due[p]`, in its order."""
        taken = np.zeros(self.num_envs, np.int64)
        for due, action in zip(self._due, actions, strict=True):
            given = np.asarray(action, np.int64)
            wrong = (given < 0) | (given >= MOST) | (given >= self._stones[due.slot])
            if wrong.any():
                raise EnvError(f"nim: {int(given[wrong][0]) + 1} stones cannot be taken; see the mask for what can.")
            taken[due.slot] = given + 1
        moved = np.flatnonzero(taken)
        self._stones -= taken
        self._length[moved] += 1
        self._moved[self._mover[moved], moved] = True
        self._mover[moved] = 1 - self._mover[moved]
        return self._timestep(over=moved[self._stones[moved] == 0])

    def snapshot(self) -> bytes | None:
        """None: it cannot be resumed inside an episode."""
        return None

    def restore(self, snapshot):
        raise EnvError("nim makes no snapshots.")

    def close(self):
        """Nothing to give back."""

    def _begin(self, environments):
        """The next episodes of these environments. All randomness of episode k comes from (seed, k)."""
        going = environments[self._episode[environments] != self._quota[environments]]
        counter = 2 * self._episode[going].astype(np.uint64)
        self._stones[going] = 1 + (self._heap * seeding.uniforms(self._seeds[going], counter)).astype(np.int64)
        self._mover[going] = seeding.uniforms(self._seeds[going], counter + np.uint64(1)) < 0.5
        self._length[environments] = 0
        self._moved[:, environments] = False

    def _timestep(self, *, over):
        """What ended, then what is due; an ended environment begins its next episode in between."""
        won = np.stack([1 - self._mover[over], self._mover[over]]) == 0  # the last mover won; the turn has passed on
        returns = np.where(won, 1.0, -1.0)
        ended = tuple(self._ended(p, over, returns[p]) for p in range(2))
        finished = FinishedEpisodes(
            environment=over.astype(np.int32),
            returns=returns.T,
            terminated=np.ones(len(over), np.bool_),
            length=self._length[over],
        )
        self._episode[over] += 1
        self._begin(over)
        self._due = tuple(self._due_of(p) for p in range(2))
        return Timestep(self._due, ended, finished)

    def _ended(self, player, over, returns):
        """Every open decision of the player closes, also if the other one made the last move."""
        mine = self._moved[player, over]
        slot = over[mine].astype(np.int32)  # one agent per player: slot = environment
        nothing_left = np.broadcast_to(self._one_hot[0], (len(slot), self._heap + 1))
        return ClosedDecisions(slot, returns[mine].astype(np.float32), np.ones(len(slot), np.bool_), nothing_left)

    def _due_of(self, player):
        slot = np.flatnonzero((self._stones > 0) & (self._mover == player)).astype(np.int32)
        stones = self._stones[slot]
        return ActionRequests(
            slot=slot,
            observation=self._one_hot[stones],
            mask=np.arange(MOST) < stones[:, None],
            reward=np.zeros(len(slot), np.float32),
            first=~self._moved[player, slot],
        )


def main(generations: int = 4, episodes: int = 4_000) -> None:
    check_env(lambda num_envs: Nim(num_envs=num_envs, heap=12))
    scenario = ludus.PSRO(
        env={"id": "own_environment:Nim", "num_envs": 256, "options": {"heap": 12}},
        algorithm=ludus.PPO(batch=500),
        meta_solver="nash",
        generations=generations,
        response={"episodes": episodes},
        evaluation={"episodes": 500},  # no game tree here, so payoffs are played
    )
    result = ludus.run(scenario)
    match = ludus.evaluate_run(result.run_dir, episodes=2_000, policies=["@newest", "@0/0-0"]).matches[1]
    print(f"{match.policies[0]} against {match.policies[1]}: {match.mean[0]:+.3f} ± {match.half_width[0]:.3f} per game")


if __name__ == "__main__":
    main()
