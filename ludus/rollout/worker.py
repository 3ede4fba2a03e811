"""A rollout worker: a vector of environments, the policies that play them, and what comes back.

    reset -> observe -> [ act -> append -> step -> observe ]* -> flush

`observe` settles the learner's open decisions with what has ended and what is due, logs finished episodes and draws the next ones'
opponents.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.envs.base import VectorEnv
from ludus.errors import EnvError, ScenarioError
from ludus.policies.base import Policy
from ludus.rollout.base import PolicyBank, Rollout, RolloutOrder
from ludus.rollout.clocks import Clocks
from ludus.rollout.draws import LEARNER, Draws
from ludus.rollout.episodes import EpisodeLog
from ludus.rollout.noise import Uniforms
from ludus.rollout.shards import Shard, whole
from ludus.rollout.states import States
from ludus.rollout.writer import TrajectoryWriter
from ludus.types import Act, Array, Due, EnvSpec, Finished, PolicyRef, Timestep

_EPISODES = 1024  # room for so many, to begin with
_PATIENCE = 1000  # episodes per environment without a decision of the learner


class RolloutWorker:
    """Owns `env` and `bank`; the driver loads the bank with every policy that an order names, then runs the order."""

    def __init__(self, env: VectorEnv, bank: PolicyBank, *, shard: Shard | None = None) -> None:
        """shard: which environments of how many these are; default: all."""
        self.env = env
        self.bank = bank
        self._shard = shard or whole(env.num_envs)
        spec = env.spec
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._clocks = Clocks(self._shard)
        self._writer = TrajectoryWriter(spec, self._clocks)
        self._noise = Uniforms()
        self._idle = tuple(_no_actions(spec, p) for p in range(spec.num_players))
        self._timestep: Timestep | None = None
        self._draws: Draws | None = None

    def play(self, order: RolloutOrder, policies: Sequence[tuple[PolicyRef, Policy]]) -> Rollout:
        """Load the policies that an order names, then run it. Raises as `PolicyBank.load` and `run` do."""
        if not order.carry_on:
            self.bank.release()
        self.bank.load(policies, extras=order.extras)
        return self.run(order)

    @property
    def steps(self) -> int:
        """Of the order that is being played."""
        return self._clocks.step

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def run(self, order: RolloutOrder) -> Rollout:
        """Play an order.

        The same order on an equal worker gives the same rollout. Raises ScenarioError for an order that does not fit the game, PolicyError
        for a policy that is not loaded, EnvError if the environment breaks its contract.
        """
        shard = self._shard
        self._check_state(order)
        run = _Run(order, self.env, decisions=shard.decisions(order.amount))
        self._noise.restart(shard.noise(order.seed))
        draws = Draws(order, shard=shard, num_players=len(self._agents), refs=self.bank.refs)
        whole_episodes = order.unit == "episodes"
        capacity = int(shard.quota(order.amount).sum()) if whole_episodes else max(shard.num_envs, _EPISODES)
        log = EpisodeLog(
            self._clocks, seat=draws.seat, entry=draws.entry, num_players=len(self._agents), capacity=capacity
        )
        begun = perf_counter()
        timestep = self._timestep if order.carry_on else None
        if timestep is None:
            timestep = self._start(order, draws, log, run)
        else:
            self._continue(order, draws)
        run.environment += perf_counter() - begun
        while not self._done(run, timestep):
            actions = self._act(run, draws, timestep)
            begun = perf_counter()
            timestep = self.env.step(actions)
            now = perf_counter()
            run.environment += now - begun
            self._clocks.step += 1
            self._observe(draws, log, run, timestep)
            run.writing += perf_counter() - now
        self._timestep, self._draws = timestep, draws
        return self._result(run, log, timestep)

    # ------------------------------------------------------------------------------------------------ beginning and end

    def _start(self, order: RolloutOrder, draws: Draws, log: EpisodeLog, run: _Run) -> Timestep:
        envs = self.env.num_envs
        quota = self._clocks.restart(order)
        if order.learner is not None:
            self._writer.begin(order.learner, draws.mine, extras=order.extras)
        everyone = np.arange(envs, dtype=np.int32)
        draws.draw(everyone, self._clocks.episode)
        for p, agents in enumerate(self._agents):
            policy = np.where(draws.mine[p], draws.acting(p, self._clocks.index), draws.policy[:, p]).astype(np.int32)
            self.bank.bind(p, np.arange(envs * agents, dtype=np.int32), np.repeat(policy, agents))
        timestep = self.env.reset(self._shard.keys(order.seed, "environment"), episodes=quota)
        self._observe(draws, log, run, timestep)
        return timestep

    def _continue(self, order: RolloutOrder, draws: Draws) -> None:
        """Open episodes keep their opponents; the learner's seats are played by the weights of this order."""
        if self._draws is None or order.learner is None or (self._clocks.quota >= 0).any():
            raise ScenarioError(
                "an order carries on, and the one before it was for whole episodes; give carry_on=False."
            )
        draws.adopt(self._draws)
        states = States.of(self._timestep, self.env.spec.id) if order.state and self._timestep is not None else None
        self._writer.begin(order.learner, draws.mine, extras=order.extras, states=states, carry_on=True)
        for p in range(len(self._agents)):
            environments = np.flatnonzero(draws.mine[p]).astype(np.int32)
            policy = self._per_agent(p, draws.acting(p, self._clocks.index[environments]))
            self.bank.bind(p, self._slots(p, environments), policy, keep_memory=True)

    def _done(self, run: _Run, timestep: Timestep) -> bool:
        if run.order.unit == "decisions" and self._writer.complete >= run.wanted:
            return True
        for due in timestep.due:
            if len(due.slot):
                return False
        if run.order.unit == "decisions" or self._clocks.active:
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
        run.writing += perf_counter() - begun
        ids = (episodes.index, () if trajectories is None else trajectories.episode)
        highest = max(int(np.max(some, initial=-1)) for some in ids)
        return Rollout(trajectories, episodes, run.counters(log, self.env), run.seconds(self.env), highest + 1)

    # ------------------------------------------------------------------------------------------------ one step

    def _act(self, run: _Run, draws: Draws, timestep: Timestep) -> tuple[Array, ...]:
        actions: list[Array] = []
        learning = draws.learner != LEARNER
        for p, due in enumerate(timestep.due):
            n = len(due.slot)
            if not n:
                actions.append(self._idle[p])
                continue
            begun = perf_counter()
            memory = None
            if learning and self.bank.recurrent:
                memory = self.bank.memory(p, due.slot, draws.learner)
                if memory is not None:
                    memory[due.first] = 0
            act = self.bank.act(p, due, self._noise.take(n, self.bank.noise_width))
            now = perf_counter()
            run.inference += now - begun
            run.decisions += n
            actions.append(act.action)
            if learning:
                self._write(run, draws, p, due, act, memory)
                run.writing += perf_counter() - now
        return tuple(actions)

    def _write(
        self, run: _Run, draws: Draws, player: int, due: Due, act: Act, memory: NDArray[np.float32] | None
    ) -> None:
        """Record the learner's decisions; every environment in which somebody has to act counts this step."""
        if player not in draws.learners:
            run.env_steps += self._clocks.tick(due.slot, self._agents[player])
            return
        taken, ticks = self._writer.append(player, due, act, memory=memory)
        run.learner_decisions += taken
        run.env_steps += ticks

    def _check_state(self, order: RolloutOrder) -> None:
        if order.state and self.env.spec.state is None:
            raise ScenarioError(
                f"the order records the environment's state, and {self.env.spec.id} has none. Ask for it (option state=true), or put the "
                "wrapper joint_state around it, whose state is what all agents see."
            )

    def _observe(self, draws: Draws, log: EpisodeLog, run: _Run, timestep: Timestep) -> None:
        self._writer.states = States.of(timestep, self.env.spec.id) if run.order.state else None
        for p in draws.learners:
            due, ended = timestep.due[p], timestep.ended[p]
            if len(due.slot) or len(ended.slot):
                self._writer.settle(p, ended, due)
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

    def _finish(self, draws: Draws, log: EpisodeLog, finished: Finished) -> None:
        environments = finished.environment
        log.add(finished)
        if draws.varies:
            for p in draws.learners:
                own = environments[draws.mine[p, environments]]
                if len(own):
                    policy = self._per_agent(p, draws.acting(p, self._clocks.index[own]))
                    self.bank.bind(p, self._slots(p, own), policy)
        if not draws.others:
            return
        draws.draw(environments, self._clocks.episode)
        for p in draws.others:
            others = environments[~draws.mine[p, environments]] if p in draws.shared else environments
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
    """What one order has used and counted so far. `waited` and `restarts` count in the environment, from before this order on."""

    def __init__(self, order: RolloutOrder, env: VectorEnv, *, decisions: int) -> None:
        self.order, self.wanted = order, decisions
        self.env_steps = self.decisions = self.learner_decisions = 0
        self.environment = self.inference = self.writing = 0.0
        self._waited, self._restarts = _counted(env)

    def counters(self, log: EpisodeLog, env: VectorEnv) -> dict[str, int]:
        """As `Rollout.counters`."""
        out = {
            "env_steps": self.env_steps if self.order.learner is not None else log.steps,
            "decisions": self.decisions,
            "learner_decisions": self.learner_decisions,
            "episodes": log.count,
        }
        if hasattr(env, "restarts"):
            out["env_restarts"] = _counted(env)[1] - self._restarts
        return out

    def seconds(self, env: VectorEnv) -> dict[str, float]:
        """As `Rollout.seconds`."""
        waiting = _counted(env)[0] - self._waited
        return {
            "environment": self.environment - waiting,
            "inference": self.inference,
            "writing": self.writing,
            "waiting": waiting,
        }


def _counted(env: VectorEnv) -> tuple[float, int]:
    """Seconds that an environment says it has waited, and how many of its environments were restarted."""
    return float(getattr(env, "waited", 0.0)), int(getattr(env, "restarts", 0))


def _no_actions(spec: EnvSpec, player: int) -> Array:
    """The actions of a player that has nothing to decide, of its kind and shape."""
    agents = spec.agents_of(player)
    space = agents[0].action if agents else Discrete(1)
    dtype = np.float32 if isinstance(space, Box) and space.dtype.kind == "f" else np.int32
    return np.empty((0, *(space.shape or ())), dtype)
