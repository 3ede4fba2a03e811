"""A rollout worker: a vector of environments, the policies that play them, and what comes back.

    reset -> observe -> [ act -> append -> step -> observe ]* -> flush

`observe` closes ended decisions, logs finished episodes and draws the next ones' opponents, and pays due slots' last decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ludus import seeding
from ludus.envs.base import VectorEnv
from ludus.errors import EnvError, ScenarioError
from ludus.policies.base import Policy
from ludus.rollout.base import PolicyBank, Rollout, RolloutOrder
from ludus.rollout.draws import LEARNER, Draws
from ludus.rollout.episodes import EpisodeLog
from ludus.rollout.writer import TrajectoryWriter
from ludus.types import Array, Finished, PolicyRef, Timestep

_PATIENCE = 1000  # episodes per environment without a decision of the learner


class RolloutWorker:
    """Owns `env` and `bank`; the driver loads the bank with every policy that an order names, then runs the order."""

    def __init__(self, env: VectorEnv, bank: PolicyBank) -> None:
        self.env = env
        self.bank = bank
        spec = env.spec
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._writer = TrajectoryWriter(spec, env.num_envs)
        self._episode = np.zeros(env.num_envs, np.int64)  # how many episodes each environment has finished
        self._began = np.zeros(env.num_envs, np.int64)  # global step at which its present one began
        self._quota = np.zeros(env.num_envs, np.int64)
        self._index = np.zeros(env.num_envs, np.int64)  # indices of the present episodes
        self._noise = np.empty(0, np.float32)
        self._idle = tuple(np.empty(0, np.int32) for _ in self._agents)
        self._step = self._first_episode = self._active = 0
        self._timestep: Timestep | None = None
        self._draws: Draws | None = None

    def play(self, order: RolloutOrder, policies: Sequence[tuple[PolicyRef, Policy]]) -> Rollout:
        """Load the policies that an order names, then run it. Raises as `PolicyBank.load` and `run` do."""
        if not order.carry_on:
            self.bank.release()
        self.bank.load(policies, extras=order.extras)
        return self.run(order)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def run(self, order: RolloutOrder) -> Rollout:
        """Play an order.

        The same order on an equal worker gives the same rollout. Raises ScenarioError for an order that does not fit the game, PolicyError
        for a policy that is not loaded, EnvError if the environment breaks its contract.
        """
        run = _Run(order)
        draws = Draws(order, num_envs=self.env.num_envs, num_players=len(self._agents), refs=self.bank.refs)
        log = EpisodeLog(
            num_players=len(self._agents),
            num_factors=draws.entry.shape[1],
            capacity=order.amount if order.unit == "episodes" else self.env.num_envs,
        )
        begun = perf_counter()
        timestep = self._timestep if order.carry_on else None
        if timestep is None:
            timestep = self._start(order, draws, log, run)
        else:
            self._continue(order, draws)
        run.seconds["environment"] += perf_counter() - begun
        while not self._done(run, timestep):
            actions = self._act(run, draws, timestep)
            begun = perf_counter()
            timestep = self.env.step(actions)
            now = perf_counter()
            run.seconds["environment"] += now - begun
            self._step += 1
            self._observe(draws, log, run, timestep)
            run.seconds["writing"] += perf_counter() - now
        self._timestep, self._draws = timestep, draws
        return self._result(run, log, timestep)

    # ------------------------------------------------------------------------------------------------ beginning and end

    def _start(self, order: RolloutOrder, draws: Draws, log: EpisodeLog, run: _Run) -> Timestep:
        envs = self.env.num_envs
        self._episode.fill(0)
        self._began.fill(0)
        self._step, self._first_episode = 0, order.first_episode
        self._index[:] = order.first_episode + np.arange(envs)
        quota: int | NDArray[np.int64] | None = None
        self._quota.fill(-1)
        if order.unit == "episodes":
            self._quota[:] = order.amount // envs + (np.arange(envs) < order.amount % envs)
            quota = int(self._quota[0]) if order.amount % envs == 0 else self._quota.copy()
        self._active = int(np.count_nonzero(self._quota))
        if order.learner is not None:
            self._writer.begin(order.learner, draws.mine, extras=order.extras)
        everyone = np.arange(envs, dtype=np.int32)
        draws.draw(everyone, self._episode)
        for p, agents in enumerate(self._agents):
            policy = np.where(draws.mine[p], draws.learner, draws.policy[:, p]).astype(np.int32)
            self.bank.bind(p, np.arange(envs * agents, dtype=np.int32), np.repeat(policy, agents))
        timestep = self.env.reset(seeding.keys(order.seed, "environment", count=envs), episodes=quota)
        self._observe(draws, log, run, timestep)
        return timestep

    def _continue(self, order: RolloutOrder, draws: Draws) -> None:
        """Open episodes keep their opponents; the learner's seats are played by the weights of this order."""
        if self._draws is None or order.learner is None or (self._quota >= 0).any():
            raise ScenarioError(
                "an order carries on, and the one before it was for whole episodes; give carry_on=False."
            )
        draws.adopt(self._draws)
        self._writer.begin(order.learner, draws.mine, extras=order.extras, carry_on=True)
        for p in range(len(self._agents)):
            slots = self._slots(p, np.flatnonzero(draws.mine[p]).astype(np.int32))
            self.bank.bind(p, slots, np.full(len(slots), draws.learner, np.int32), keep_memory=True)

    def _done(self, run: _Run, timestep: Timestep) -> bool:
        if run.order.unit == "decisions" and self._writer.complete >= run.order.amount:
            return True
        if any(len(due.slot) for due in timestep.due):
            return False
        if run.order.unit == "decisions" or self._active:
            raise EnvError(
                f"{self.env.spec.id} lists no decision as due before it has played what was asked; a vector environment always has "
                "one, until its quota of episodes is played."
            )
        return True

    def _result(self, run: _Run, log: EpisodeLog, timestep: Timestep) -> Rollout:
        begun = perf_counter()
        trajectories = None
        if run.order.learner is not None:
            trajectories = self._writer.flush(timestep.due)
        episodes = log.result()
        run.counters["episodes"] = log.count
        run.seconds["writing"] += perf_counter() - begun
        return Rollout(trajectories, episodes, run.counters, run.seconds)

    # ------------------------------------------------------------------------------------------------ one step

    def _act(self, run: _Run, draws: Draws, timestep: Timestep) -> tuple[Array, ...]:
        actions: list[Array] = []
        for p, due in enumerate(timestep.due):
            n = len(due.slot)
            if not n:
                actions.append(self._idle[p])
                continue
            begun = perf_counter()
            memory = None
            if draws.learner != LEARNER and self.bank.recurrent:
                memory = self.bank.memory(p, due.slot, draws.learner)
                if memory is not None:
                    memory[due.first] = 0
            act = self.bank.act(p, due, self._uniforms(run, n))
            now = perf_counter()
            run.seconds["inference"] += now - begun
            run.counters["decisions"] += n
            actions.append(act.action)
            if draws.learner != LEARNER:
                run.counters["learner_decisions"] += self._writer.append(
                    p, due, act, began=self._began, step=self._step, episode=self._index, memory=memory
                )
                run.seconds["writing"] += perf_counter() - now
        run.counters["env_steps"] += self._active
        return tuple(actions)

    def _uniforms(self, run: _Run, rows: int) -> NDArray[np.float32]:
        width = self.bank.noise_width
        if rows * width > len(self._noise):
            self._noise = np.empty(rows * width, np.float32)
        out = self._noise[: rows * width]
        run.noise.random(dtype=np.float32, out=out)
        return out.reshape((rows, width))

    def _observe(self, draws: Draws, log: EpisodeLog, run: _Run, timestep: Timestep) -> None:
        if run.order.learner is not None:
            for p, ended in enumerate(timestep.ended):
                self._writer.close(p, ended)
        if len(timestep.finished.environment):
            self._finish(draws, log, timestep.finished)
            if (
                run.order.unit == "decisions"
                and log.count > _PATIENCE * self.env.num_envs
                and not self._writer.complete
            ):
                raise EnvError(
                    f"{log.count} episodes of {self.env.spec.id} passed without a decision of the learner in seats {run.order.seats}."
                )
        if run.order.learner is not None:
            for p, due in enumerate(timestep.due):
                self._writer.credit(p, due)

    def _finish(self, draws: Draws, log: EpisodeLog, finished: Finished) -> None:
        environments = finished.environment
        index = np.empty(len(environments), np.int64)
        self._active -= _advance(
            environments, self._episode, self._began, self._index, self._quota, self._step, self._first_episode, index
        )
        log.add(finished, seat=draws.seat, entry=draws.entry, index=index)
        draws.draw(environments, self._episode)
        for p in range(len(self._agents)):
            if draws.shared[p]:
                others = environments[~draws.mine[p, environments]]
            else:
                others = environments[:0] if draws.mine[p, 0] else environments
            if len(others):
                self.bank.bind(p, self._slots(p, others), self._per_agent(p, draws.policy[others, p]))

    def _per_agent(self, player: int, values: NDArray[np.int32]) -> NDArray[np.int32]:
        return values if self._agents[player] == 1 else np.repeat(values, self._agents[player])

    def _slots(self, player: int, environments: NDArray[np.int32]) -> NDArray[np.int32]:
        agents = self._agents[player]
        if agents == 1:
            return environments
        slots: NDArray[np.int32] = np.repeat(environments * agents, agents)
        slots += np.tile(np.arange(agents, dtype=np.int32), len(environments))
        return slots


class _Run:
    """What one order has used and counted so far."""

    def __init__(self, order: RolloutOrder) -> None:
        self.order = order
        self.noise = seeding.generator(order.seed, "noise")
        self.counters = {"env_steps": 0, "decisions": 0, "learner_decisions": 0, "episodes": 0}
        self.seconds = {"environment": 0.0, "inference": 0.0, "writing": 0.0}


@njit(cache=True)
def _advance(environments, episode, began, index, quota, step, first, finished):  # type: ignore[no-untyped-def]
    """Each given environment goes on to its next episode; `finished` gets the indices of those that ended. Returns how many
    environments have played their quota."""
    idle = 0
    for i in range(len(environments)):
        e = environments[i]
        finished[i] = index[e]
        episode[e] += 1
        index[e] = first + episode[e] * len(episode) + e
        began[e] = step
        if episode[e] == quota[e]:
            idle += 1
    return idle
