"""A rollout worker: a vector of environments, the policies that play them, and what comes back.

    reset -> observe -> [ act -> append -> step -> observe ]* -> flush

`observe` settles the learner's open decisions with what has ended and what is due, logs finished episodes and draws the next ones'
opponents.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.arrays import addresses, flat_at, kernel, rows_at
from ludus.core.errors import EnvError, ScenarioError
from ludus.core.types import (
    ActionRequests,
    Array,
    EnvSpec,
    FinishedEpisodes,
    PolicyOutput,
    PolicyRef,
    SegmentEnd,
    Timestep,
)
from ludus.envs.base import VectorEnv
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy
from ludus.replay.processing import processed
from ludus.replay.trajectories import Trajectories, select
from ludus.rollout import writer
from ludus.rollout.base import EpisodeResults, PolicyBank, Rollout, RolloutRequest, Shard, whole
from ludus.rollout.bot_players import BotBank, BotPlayers, BotPool
from ludus.rollout.opponents import LEARNER, OpponentSampler
from ludus.rollout.writer import EnvironmentCounters, EnvironmentStates, RecurrentMemory, TrajectoryWriter

_BLOCK = 1 << 12


class UniformStream:
    """A stream of uniforms in [0, 1), float32, drawn in blocks into one buffer: the same numbers as drawn one by one."""

    def __init__(self) -> None:
        self._block = np.empty(_BLOCK, np.float32)
        self._generator: np.random.Generator | None = None
        self._at = _BLOCK

    def restart(self, generator: np.random.Generator) -> None:
        """Go on with another stream."""
        self._generator, self._at = generator, len(self._block)

    def take(self, rows: int, width: int) -> NDArray[np.float32]:
        """Return the next rows × width numbers, float32[rows, width]; valid until the next call."""
        needed = rows * width
        end = self._at + needed
        if end > len(self._block):
            self._refill(needed)
            end = needed
        out = self._block[self._at : end].reshape(rows, width)
        self._at = end
        return out

    def _refill(self, needed: int) -> None:
        left = self._block[self._at :].copy()
        if needed > len(self._block):
            self._block = np.empty(needed, np.float32)
        assert self._generator is not None
        self._block[: len(left)] = left
        self._generator.random(dtype=np.float32, out=self._block[len(left) :])
        self._at = 0


class PerEpisodeUniformStream:
    """Each of the E environments has a stream of its own, which its planned episode's key names."""

    def __init__(self, num_envs: int) -> None:
        self._key = np.zeros(num_envs, np.uint64)
        self._count = np.zeros(num_envs, np.int64)

    def restart(self, keys: NDArray[np.uint64]) -> None:
        """keys: uint64[n] of the first n environments."""
        self._key[: len(keys)] = keys
        self._count.fill(0)

    def take(self, environments: NDArray[np.int32], width: int) -> NDArray[np.float32]:
        """Return the next float32[n, width] of these environments' streams."""
        out = np.empty((len(environments), width), np.float32)
        _fill(environments, self._key, self._count, out)
        return out


@kernel
def _fill(environment, key, count, out):  # type: ignore[no-untyped-def]
    for i in range(len(environment)):
        e = environment[i]
        for w in range(out.shape[1]):
            u = seeding.uniform(
                key[e], np.uint64((count[e] << 16) + w)
            )  # whatever the width is, which others have a part in
            out[i, w] = np.float32(int(u * 16777216.0)) / np.float32(16777216.0)  # 24 bits: rounding cannot give 1
        count[e] += 1


# --------------------------------------------------------------------------------------------------------------------
# The finished episodes of a request.

_EPISODE, _INDEX, _QUOTA, _CLOCK, _SEAT, _ENTRY = range(6)
_RETURNS, _LENGTH, _TERMINATED, _TO_SEAT, _TO_ENTRY, _TO_INDEX = range(6, 12)  # places in the table of `_finish`


class EpisodeLog:
    """Finished episodes in growing columns, given out in order of their index.

    clocks: of the environments, which it moves on. seat int8[E], entry int32[E, F]: of every environment, as drawn. statistics: how many
    names the environment has for them.
    """

    def __init__(
        self,
        clocks: EnvironmentCounters,
        *,
        seat: NDArray[np.int8],
        entry: NDArray[np.int32],
        num_players: int,
        capacity: int,
        statistics: int = 0,
    ) -> None:
        self._clocks, self._drawn = clocks, (seat, entry)
        size, self._factors = max(1, capacity), entry.shape[1]
        self._columns: list[Array] = [
            np.empty((size, num_players)),
            np.empty(size, np.int32),
            np.empty(size, np.bool_),
            np.empty(size, np.int8),
            np.empty((size, self._factors), np.int32),
            np.empty(size, np.int64),
        ]
        self._statistics = np.empty((size, num_players, statistics)) if statistics else None
        self._table = self._addresses()
        self.count = 0

    def add(self, finished: FinishedEpisodes) -> None:
        """Record these episodes; their environments go on to the next."""
        end = self.count + len(finished.environment)
        if end > len(self._columns[0]):
            self._grow(end)
        if self._statistics is not None:
            self._statistics[self.count : end] = finished.statistics
        self._clocks.active -= _finish(*finished[:4], self.count, self._clocks.shard.total, self._factors, self._table)
        self.count = end

    @property
    def steps(self) -> int:
        """Environment steps of all finished episodes."""
        return int(self._columns[1][: self.count].sum())

    def result(self) -> EpisodeResults:
        """Return the episodes so far, sorted by index."""
        order = np.argsort(self._columns[-1][: self.count], kind="stable")
        returns, length, terminated, seat, entry, index = (column.take(order, axis=0) for column in self._columns)
        statistics = None if self._statistics is None else self._statistics.take(order, axis=0)
        return EpisodeResults(returns, length, terminated, seat, entry, index, statistics)

    def _grow(self, needed: int) -> None:
        size = max(needed, 2 * len(self._columns[0]))
        for k, old in enumerate(self._columns):
            self._columns[k] = np.empty((size, *old.shape[1:]), old.dtype)
            self._columns[k][: self.count] = old[: self.count]
        if (held := self._statistics) is not None:
            self._statistics = np.empty((size, *held.shape[1:]))
            self._statistics[: self.count] = held[: self.count]
        self._table = self._addresses()

    def _addresses(self) -> NDArray[np.int64]:
        clocks = self._clocks
        return addresses(clocks.episode, clocks.index, clocks.quota, clocks.clock, *self._drawn, *self._columns)


@kernel
def _finish(environment, returns, terminated, length, at, total, factors, table):  # type: ignore[no-untyped-def]
    """Writes episodes from row `at` on, and send their environments on, to indices that are `total`, the environments of all shards,
    higher. Returns how many environments have played their quota."""
    players, idle = returns.shape[1], 0
    episode, present, quota = (
        flat_at(table, _EPISODE, np.int64),
        flat_at(table, _INDEX, np.int64),
        flat_at(table, _QUOTA, np.int64),
    )
    clock, seat = rows_at(table, _CLOCK, np.int64, 2), flat_at(table, _SEAT, np.int8)
    to_returns, to_length = flat_at(table, _RETURNS, np.float64), flat_at(table, _LENGTH, np.int32)
    to_terminated, to_seat = flat_at(table, _TERMINATED, np.bool_), flat_at(table, _TO_SEAT, np.int8)
    entry, to_entry = flat_at(table, _ENTRY, np.int32), flat_at(table, _TO_ENTRY, np.int32)
    to_index = flat_at(table, _TO_INDEX, np.int64)
    for i in range(len(environment)):
        e, row = environment[i], at + i
        for p in range(players):
            to_returns[row * players + p] = returns[i, p]
        for f in range(factors):
            to_entry[row * factors + f] = entry[e * factors + f]
        to_length[row], to_terminated[row], to_seat[row], to_index[row] = length[i], terminated[i], seat[e], present[e]
        episode[e] += 1
        present[e] += total
        clock[e, writer.TIME] = 0
        idle += episode[e] == quota[e]
    return idle


def endless(env: EnvSpec, steps: int, num_envs: int) -> str:
    """Say that no episode has ended in so many steps of each environment, and what to do."""
    each = f" of each of {num_envs:,} environments" if num_envs > 1 else ""
    return (
        f"no episode of {env.id} has ended in {steps:,} steps{each}, and nobody says that it will. End them by a wrapper "
        "(env.wrappers=[{kind: time_limit, steps: 1000}]), or by an option of the environment."
    )


class EndlessWarning:
    """Warns once that no episode ends. It is no method of the owner of workers, which would then wait for the garbage collector."""

    def __init__(self, warn: Callable[[str], None], spec: EnvSpec, num_envs: int) -> None:
        self._warn, self._spec, self._num_envs = warn, spec, num_envs
        self._done = False

    def __call__(self, unended: int) -> None:
        """unended: steps in which no episode has ended, if they are many."""
        if unended and not self._done:
            self._done = True
            self._warn(endless(self._spec, unended, self._num_envs))


_EPISODES = 1024  # room for so many, to begin with
_LONG = 100_000, 1_000
"""Steps of all environments of a worker, and of each of them, after which it is told that no episode has ended. The second is that of the
longest episodes of most benchmarks; those that are longer mostly say how long they are, and are waited for."""
_ENDLESS = 100  # times as many, after which it is an error
_PATIENCE = 1000  # episodes per environment without a decision of the learner


class RolloutWorker:
    """Owns `env` and `policies`, which evaluates policies. bank: what is asked in the present request; it has bots too, where one of them
    plays. Whoever calls `run` loads the bank before with every policy that the request names."""

    def __init__(
        self,
        env: VectorEnv,
        policies: PolicyBank,
        *,
        shard: Shard | None = None,
        bots: Callable[[], BotPlayers] = BotPool,
        name: Hashable = 0,
    ) -> None:
        """shard: which environments of how many these are; default: all. bots: gives those that are asked; default: in this
        process. name: tells it from other workers that ask them."""
        self.env = env
        self.policies = self.bank = policies
        self.episodes = 0
        """That have ended, of the request that is played. Whoever has it played sets it to 0 before."""
        self._played = env
        self._long = 0 if env.spec.max_decisions is not None else max(_LONG[1], -(-_LONG[0] // env.num_envs))
        self.unended = 0
        """Steps of the present request of whole episodes, once they are many and no episode has ended; else 0."""
        self._bots: BotBank | None = None  # where there are some
        self._players, self._name = bots, name
        self._shard = shard or whole(env.num_envs)
        spec = env.spec
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._clocks = EnvironmentCounters(self._shard)
        self._writer = TrajectoryWriter(spec, self._clocks)
        self._noise = UniformStream()
        self._planned = PerEpisodeUniformStream(env.num_envs)
        self._idle = tuple(_no_actions(spec, p) for p in range(spec.num_players))
        self._place = (self._shard.environments / max(1, self._shard.total - 1)).astype(np.float32)
        self._timestep: Timestep | None = None
        self._sampler: OpponentSampler | None = None

    def play(self, request: RolloutRequest, policies: Sequence[tuple[PolicyRef, Policy]]) -> Rollout:
        """Load the policies that a request names, then run it. Raises as `PolicyBank.load` and `run` do."""
        self._load(request, policies)
        return self.run(request)

    def stepwise(
        self, request: RolloutRequest, policies: Sequence[tuple[PolicyRef, Policy]]
    ) -> Iterator[Rollout | None]:
        """`play`, a step of the environments at a time, for whoever looks at them in between: None before each step, and the rollout in the
        end. Another request may be played instead at any time; this one is then not asked any more."""
        self._load(request, policies)
        yield from self._steps(request)

    def _load(self, request: RolloutRequest, policies: Sequence[tuple[PolicyRef, Policy]]) -> None:
        # One that stands in for a worker that died is asked to carry on, and has nothing to.
        begins = not request.carry_on or self._timestep is None
        if begins:
            self.bank.release()
            self.bank = self._bank(policies)
        self.bank.load(policies, extras=request.extras)
        if begins:
            self._played = self.bank.env if isinstance(self.bank, BotBank) else self.env

    def _bank(self, policies: Sequence[tuple[PolicyRef, Policy]]) -> PolicyBank:
        """Return the one that knows these."""
        if not any(isinstance(policy, BotPolicy) for _, policy in policies):
            return self.policies
        if self._bots is None:
            self._bots = BotBank(self.env, self.policies, self._players(), worker=self._name)
        return self._bots

    @property
    def steps(self) -> int:
        """Of the request that is being played."""
        return self._clocks.step

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def run(self, request: RolloutRequest) -> Rollout:
        """Play a request.

        The same request on an equal worker gives the same rollout. Raises ScenarioError for a request that does not fit the game,
        PolicyError for a policy that is not loaded, EnvError if the environment breaks its contract.
        """
        rollout = deque(self._steps(request), maxlen=1).pop()
        assert rollout is not None
        return rollout

    def _steps(self, request: RolloutRequest) -> Iterator[Rollout | None]:
        """Yield None before each step; the rollout last."""
        shard = self._shard
        self._check_state(request)
        run = _Run(request, self.env, decisions=shard.decisions(request.amount))
        self._noise.restart(shard.noise(request.seed))
        sampler = OpponentSampler(request, shard=shard, num_players=len(self._agents), refs=self.bank.refs)
        whole_episodes = request.unit == "episodes"
        capacity = int(shard.quota(request.amount).sum()) if whole_episodes else max(shard.num_envs, _EPISODES)
        log = EpisodeLog(
            self._clocks,
            seat=sampler.seat,
            entry=sampler.entry,
            num_players=len(self._agents),
            capacity=capacity,
            statistics=len(self.env.spec.statistics),
        )
        begun, self.unended = perf_counter(), 0
        timestep = self._timestep if request.carry_on else None
        if timestep is None:
            timestep = self._start(request, sampler, log, run)
        else:
            self._continue(request, sampler)
        run.environment += perf_counter() - begun
        while not self._done(run, timestep):
            yield None
            actions = self._act(run, sampler, timestep)
            begun = perf_counter()
            timestep = self._played.step(actions)
            now = perf_counter()
            run.environment += now - begun
            self._clocks.step += 1
            if now >= run.until and run.counted is None:
                run.counted = self._clocks.with_present()
            self._observe(sampler, log, run, timestep)
            run.writing += perf_counter() - now
            if self._clocks.step >= self._long > 0 == log.count and whole_episodes:
                self._goes_on()
        self.unended = 0
        self._timestep, self._sampler = timestep, sampler
        yield self._result(run, log, timestep)

    def _goes_on(self) -> None:
        """No episode has ended in many steps. Raises EnvError after very many: nobody who waits for whole episodes will see one."""
        self.unended = self._clocks.step
        if self.unended >= _ENDLESS * self._long:
            raise EnvError(
                f"{endless(self.env.spec, self.unended, self.env.num_envs)} The request was for whole episodes."
            )

    # ------------------------------------------------------------------------------------------------ beginning and end

    def _start(self, request: RolloutRequest, sampler: OpponentSampler, log: EpisodeLog, run: _Run) -> Timestep:
        envs = self.env.num_envs
        quota = self._clocks.restart(request)
        if request.learner is not None:
            recall = self._recall(sampler)
            self._writer.begin(request.learner, sampler.is_learner, extras=request.extras, recall=recall)
        everyone = np.arange(envs, dtype=np.int32)
        sampler.draw(everyone, self._clocks.episode)
        for p, agents in enumerate(self._agents):
            policy = np.where(sampler.is_learner[p], sampler.acting(p, self._clocks.index), sampler.policy[p]).astype(
                np.int32
            )
            self.bank.bind(p, np.arange(envs * agents, dtype=np.int32), np.repeat(policy, agents))
        timestep = self._played.reset(self._seeds(request), episodes=quota)
        self._observe(sampler, log, run, timestep)
        return timestep

    def _seeds(self, request: RolloutRequest) -> NDArray[np.uint64]:
        """Return the seeds of the environments; planned episodes bring those of their players' chance, too."""
        if request.planned is None:
            return self._shard.keys(request.seed, "environment")
        own_environments = slice(self._shard.first, self._shard.first + self._shard.num_envs)
        self._planned.restart(request.planned.noise[own_environments])
        luck = request.planned.luck[own_environments]
        seeds = np.zeros(self._shard.num_envs, np.uint64)
        seeds[: len(luck)] = luck
        return seeds

    def _continue(self, request: RolloutRequest, sampler: OpponentSampler) -> None:
        """Open episodes keep their opponents; the learner's seats are played by the weights of this request."""
        if self._sampler is None or request.learner is None or (self._clocks.quota >= 0).any():
            raise ScenarioError(
                "a request carries on, and the one before it was for whole episodes; give carry_on=False."
            )
        sampler.adopt(self._sampler)
        states = (
            EnvironmentStates.of(self._timestep, self.env.spec.id)
            if request.state and self._timestep is not None
            else None
        )
        recall = self._recall(sampler)
        self._writer.begin(
            request.learner, sampler.is_learner, extras=request.extras, states=states, recall=recall, carry_on=True
        )
        for p in range(len(self._agents)):
            environments = np.flatnonzero(sampler.is_learner[p]).astype(np.int32)
            policy = self._per_agent(p, sampler.acting(p, self._clocks.index[environments]))
            self.bank.bind(p, self._slots(p, environments), policy, keep_memory=True)

    def _recall(self, sampler: OpponentSampler) -> RecurrentMemory | None:
        """Return what the learner's last decisions started from, if anything loaded remembers."""
        bank, learner = self.bank, sampler.learner
        return (lambda player, slots: bank.memory(player, slots, learner)) if bank.recurrent else None

    def _done(self, run: _Run, timestep: Timestep) -> bool:
        if run.request.unit == "decisions":
            if self._writer.complete >= (run.wanted if run.counted is None else 1):
                return True
        elif run.counted is not None and (self._clocks.episode >= run.counted).all():
            return True
        for due in timestep.due:
            if len(due.slot):
                return False
        if run.request.unit == "decisions" or self._clocks.active:
            raise EnvError(
                f"{self.env.spec.id} lists no decision as due before it has played what was asked; a vector environment always has "
                "one, until its quota of episodes is played."
            )
        return True

    def _result(self, run: _Run, log: EpisodeLog, timestep: Timestep) -> Rollout:
        begun = perf_counter()
        trajectories = None
        if run.request.learner is not None:
            trajectories = self._writer.flush(timestep.due)
        if trajectories is not None and run.request.bootstrap_value:
            trajectories = replace(trajectories, bootstrap_value=self._bootstrap_value(trajectories, run))
        episodes = log.result()
        ids = (episodes.index, () if trajectories is None else trajectories.episode)
        highest = max(int(np.max(indices, initial=-1)) for indices in ids)
        counters = run.counters(log, self.env)
        if run.counted is not None and run.request.unit == "episodes":
            episodes, trajectories = self._counted_only(run.counted, run.request, episodes, trajectories)
            counters["episodes"] = len(episodes.index)
            counters["learner_decisions"] = 0 if trajectories is None else trajectories.num_rows
        if trajectories is not None and run.request.processing:
            trajectories = self._processed(trajectories, run.request)
        run.writing += perf_counter() - begun
        return Rollout(trajectories, episodes, counters, run.seconds(self.env), highest + 1)

    def _bootstrap_value(self, rows: Trajectories, run: _Run) -> NDArray[np.float32]:
        """Return what the learner's policy says that the bootstrap observations are worth, float32[S]; 0 where the game was over, and where
        nobody knows what was seen then. Slots are its own as long as the request lasts."""
        name, shard, value = run.request.bootstrap_value, self._shard, np.zeros(rows.num_segments, np.float32)
        needs_value = rows.tail != SegmentEnd.TERMINATED
        if self.env.spec.enumeration is not None:
            needs_value &= rows.bootstrap_observation >= 0
        environment = (rows.episode - self._clocks.index[0]) % shard.total  # counted from the shard's first
        begun = perf_counter()
        for player, agents in enumerate(self._agents):
            segments = np.flatnonzero(needs_value & (rows.seat == player))
            first = sum(self._agents[:player])
            slot = (environment[segments] * agents + rows.agent[segments] - first).astype(np.int32)
            for k in range(0, len(segments), max(1, agents * shard.num_envs)):  # as many as a bank has room for
                part = slice(k, k + agents * shard.num_envs)
                value[segments[part]] = self._worth(player, slot[part], segments[part], rows)[name]
        run.inference += perf_counter() - begun
        return value

    def _worth(
        self, player: int, slot: NDArray[np.int32], segments: NDArray[np.int64], rows: Trajectories
    ) -> Mapping[str, Array]:
        """Return the extras that bootstrap observations of these segments would be answered with."""
        mask, nothing = rows.bootstrap_mask, np.zeros(len(slot), np.float32)
        legal = None if mask is None else mask[segments]
        due = ActionRequests(slot, rows.bootstrap_observation[segments], legal, nothing, np.zeros(len(slot), np.bool_))
        return self.bank.act(player, due, np.zeros((len(slot), self.bank.noise_width), np.float32)).extras

    def _processed(self, trajectories: Trajectories, request: RolloutRequest) -> Trajectories:
        def stream(place: int) -> np.random.Generator:
            return seeding.generator(request.seed, "processing", place, self._shard.index)

        return processed(trajectories, request.processing, env=self.env.spec, stream=stream)

    def _counted_only(
        self,
        counted: NDArray[np.int64],
        request: RolloutRequest,
        episodes: EpisodeResults,
        trajectories: Trajectories | None,
    ) -> tuple[EpisodeResults, Trajectories | None]:
        """Return, of a request that was cut short, each environment's first `counted` int64[E] episodes."""
        shard = self._shard

        def counts(index: NDArray[np.int64]) -> NDArray[np.bool_]:
            number, environment = np.divmod(index - request.first_episode, shard.total)
            out: NDArray[np.bool_] = number < counted[environment - shard.first]
            return out

        is_counted = counts(episodes.index)
        counted_episodes = episodes.take(is_counted)
        segments = np.zeros(0, np.bool_) if trajectories is None else counts(trajectories.episode)
        return counted_episodes, None if trajectories is None or not segments.any() else select(
            trajectories, np.flatnonzero(segments)
        )

    # ------------------------------------------------------------------------------------------------ one step

    def _act(self, run: _Run, sampler: OpponentSampler, timestep: Timestep) -> tuple[Array, ...]:
        actions: list[Array] = []
        learning = sampler.learner != LEARNER
        for p, due in enumerate(timestep.due):
            n = len(due.slot)
            if not n:
                actions.append(self._idle[p])
                continue
            begun = perf_counter()
            act = self.bank.act(p, due, self._uniforms(run.request, sampler, p, due))
            now = perf_counter()
            run.inference += now - begun
            run.decisions += n
            actions.append(act.action)
            if learning:
                self._write(run, sampler, p, due, act)
                run.writing += perf_counter() - now
        return tuple(actions)

    def _uniforms(
        self, request: RolloutRequest, sampler: OpponentSampler, player: int, due: ActionRequests
    ) -> NDArray[np.float32]:
        """Return what the policies of these rows draw their actions with."""
        width = self.bank.noise_width
        if request.planned is not None:
            return self._planned.take(self._environments(player, due), width)
        noise = self._noise.take(len(due.slot), width)
        if request.place and player in sampler.learners:
            environment = self._environments(player, due)
            np.copyto(noise[:, 0], self._place[environment], where=sampler.is_learner[player, environment])
        return noise

    def _environments(self, player: int, due: ActionRequests) -> NDArray[np.int32]:
        agents = self._agents[player]
        return due.slot if agents == 1 else due.slot // agents

    def _write(self, run: _Run, sampler: OpponentSampler, player: int, due: ActionRequests, act: PolicyOutput) -> None:
        """Record the learner's decisions; every environment in which somebody has to act counts this step."""
        if player not in sampler.learners:
            run.env_steps += self._clocks.tick(due.slot, self._agents[player])
            return
        num_rows, ticks = self._writer.append(player, due, act)
        run.learner_decisions += num_rows
        run.env_steps += ticks

    def _check_state(self, request: RolloutRequest) -> None:
        if request.state and self.env.spec.state is None:
            raise ScenarioError(
                f"the request records the environment's state, and {self.env.spec.id} has none. Ask for it "
                "(env.options.state=true), or put the wrapper joint_state around it, whose state is what all agents see."
            )

    def _observe(self, sampler: OpponentSampler, log: EpisodeLog, run: _Run, timestep: Timestep) -> None:
        self._writer.states = EnvironmentStates.of(timestep, self.env.spec.id) if run.request.state else None
        for p in sampler.learners:
            due, ended = timestep.due[p], timestep.ended[p]
            if len(due.slot) or len(ended.slot):
                self._writer.settle(p, ended, due)
        if len(timestep.finished.environment):
            self._finish(sampler, log, timestep.finished)
            if (
                run.request.unit == "decisions"
                and log.count > _PATIENCE * self.env.num_envs
                and not self._writer.complete
            ):
                raise EnvError(
                    f"{log.count} episodes of {self.env.spec.id} passed without a decision of the learner in seats {run.request.seats}."
                )

    def _finish(self, sampler: OpponentSampler, log: EpisodeLog, finished: FinishedEpisodes) -> None:
        environments = finished.environment
        log.add(finished)
        self.episodes = log.count
        if sampler.varies:
            for p in sampler.learners:
                own = environments[sampler.is_learner[p, environments]]
                if len(own):
                    policy = self._per_agent(p, sampler.acting(p, self._clocks.index[own]))
                    self.bank.bind(p, self._slots(p, own), policy)
        if not sampler.others:
            return
        sampler.draw(environments, self._clocks.episode)
        for p in sampler.others:
            others = environments[~sampler.is_learner[p, environments]] if p in sampler.shared else environments
            if len(others):
                self.bank.bind(p, self._slots(p, others), self._per_agent(p, sampler.policy[p].take(others)))

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
    """What one request has used and counted so far. `waited` and `restarts` count in the environment, from before this request on."""

    def __init__(self, request: RolloutRequest, env: VectorEnv, *, decisions: int) -> None:
        self.request, self.wanted = request, decisions
        self.until = math.inf if request.seconds is None else perf_counter() + request.seconds
        self.counted: NDArray[np.int64] | None = (
            None  # once it was cut short: how many episodes of each environment count
        )
        self.env_steps = self.decisions = self.learner_decisions = 0
        self.environment = self.inference = self.writing = 0.0
        self._waited, self._restarts = _counted(env)

    def counters(self, log: EpisodeLog, env: VectorEnv) -> dict[str, int]:
        """Return counts as in `Rollout.counters`."""
        out = {
            "env_steps": self.env_steps if self.request.learner is not None else log.steps,
            "decisions": self.decisions,
            "learner_decisions": self.learner_decisions,
            "episodes": log.count,
        }
        if hasattr(env, "restarts"):
            out["env_restarts"] = _counted(env)[1] - self._restarts
        return out

    def seconds(self, env: VectorEnv) -> dict[str, float]:
        """Return times as in `Rollout.seconds`."""
        waiting = _counted(env)[0] - self._waited
        return {
            "environment": self.environment - waiting,
            "inference": self.inference,
            "writing": self.writing,
            "waiting": waiting,
        }


def _counted(env: VectorEnv) -> tuple[float, int]:
    """Return seconds that an environment says it has waited, and how many of its environments were restarted."""
    return float(getattr(env, "waited", 0.0)), int(getattr(env, "restarts", 0))


def _no_actions(spec: EnvSpec, player: int) -> Array:
    """Return the actions of a player that has nothing to decide, of its kind and shape."""
    agents = spec.agents_of(player)
    space = agents[0].action if agents else Discrete(1)
    dtype = np.float32 if isinstance(space, Box) and space.dtype.kind == "f" else np.int32
    return np.empty((0, *(space.shape or ())), dtype)
