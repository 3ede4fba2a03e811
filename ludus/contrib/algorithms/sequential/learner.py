"""Learners of teams: turns, one agent after another; or all agents together, each step given the updates of the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.returns import normalize_advantages
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.learner import OnPolicyLearner, explained_variance
from ludus.backend.device import scalars_to_host, to_device
from ludus.contrib.algorithms.sequential.losses import compound_ratios, others_of, preceding_advantages
from ludus.contrib.algorithms.sequential.team_rows import TeamRows, TurnExperience
from ludus.core import seeding
from ludus.core.types import Metrics

if TYPE_CHECKING:
    from ludus.contrib.algorithms.sequential.config import CoPPO, SequentialUpdateConfig
    from ludus.contrib.algorithms.sequential.models import SequentialUpdateModel, TrustRegionModel


class TeamLearner(OnPolicyLearner):
    """Base of both kinds: an update knows the agent of each row."""

    makes_items = TurnExperience
    _team: TeamRows  # of the update that is being made

    def on_device_unsupported_reason(self) -> str:
        return "its agents learn by what becomes of each other, which is found in the rows of a table"

    def _batch(self, columns: Mapping[str, Any]) -> Batch:
        self._team = TeamRows.of(columns, memory=bool(self.model.memory))
        return super()._batch(columns)


# --------------------------------------------------------------------------------------------------------------------
# One agent after the other.


@dataclass(slots=True, eq=False)
class Team:
    """An update's rows, and log_ratio float64[n] of each action since the update began."""

    batch: Batch
    rows: TeamRows
    log_ratio: Tensor
    step: Tensor

    @staticmethod
    def of(batch: Batch, rows: TeamRows) -> Team:
        nothing = torch.zeros(len(batch), dtype=torch.float64, device=batch.x.device)
        return Team(batch, rows, nothing, to_device(rows.step, batch.x.device))

    def others(self) -> Tensor:
        """Return the product of the ratios of each row's teammates, float32[n]."""
        return others_of(self.log_ratio, self.step, steps=self.rows.steps)

    def trace(self) -> Tensor:
        """Return the trace float64[n] that `preceding_advantages` takes."""
        joint = compound_ratios(self.log_ratio, self.step, steps=self.rows.steps)
        return joint.clamp(max=0.0).cumsum(0)[self.step]


class SequentialUpdateLearner(TeamLearner):
    """Gives every agent a turn in each update: its epochs, from its own rows, whose surrogate is given the ratios of
    its teammates."""

    config: SequentialUpdateConfig
    model: SequentialUpdateModel

    def __init__(self, config: SequentialUpdateConfig, model: SequentialUpdateModel, context: LearnerContext) -> None:
        super().__init__(config, model, context)
        self._agents = max(len(context.env.agents_of(seat)) for seat in context.seats)
        self._place = 0  # of the turn that is being taken

    @property
    def _stream(self) -> tuple[int, ...]:
        return (self._updates, self._place)

    def _weighted(self, batch: Batch, traced: dict[str, Tensor]) -> Batch:
        """Return the batch as it is: advantages are normalised in the turns, since those of an agent may be corrected
        until then."""
        return batch

    def _learn(self, batch: Batch, rate: float) -> Metrics:
        team, turns = Team.of(batch, self._team), list[Metrics]()
        waiting = [agent for agent in range(self._agents) if len(self._team.rows_of(agent))]
        agents = len(waiting)
        while waiting:
            self._place = agents - len(waiting)
            agent = self._next(waiting, team)
            waiting.remove(agent)
            turns.append(self._turn(agent, team, rate, agents))
        self._place = 0
        means = {name: float(np.mean([each[name] for each in turns])) for name in turns[0]} if turns else {}
        return {**means, **explained_variance(batch, self.model)}

    def _next(self, waiting: list[int], team: Team) -> int:
        """Return the agent whose turn is next."""
        order = self.config.order
        if order == "fixed" or len(waiting) == 1:
            return waiting[0]
        if order == "random" or (order == "semi_greedy" and self._place % 2):
            rng = seeding.generator(self._seed, "sequential", "order", *self._stream)
            return waiting[int(rng.integers(len(waiting)))]
        advantages = self._advantages(team)
        sizes = [advantages[self._index(team.rows.rows_of(agent))].abs().mean() for agent in waiting]
        return waiting[int(np.argmax(scalars_to_host(sizes)))]

    def _index(self, rows: NDArray[np.int64]) -> Tensor:
        return to_device(rows, self.placement.torch)

    def _advantages(self, team: Team) -> Tensor:
        """Return the advantages float64[n] before the next turn."""
        advantage, config = team.batch.advantage.double(), self.config
        if not config.corrects:
            return advantage
        steps = team.rows.gaps if config.discount == "step" else np.ones(len(advantage))
        columns = (config.gae_lambda * config.gamma**steps, team.rows.ends)
        decay, ends = (to_device(array, advantage.device) for array in columns)
        return preceding_advantages(advantage, team.trace(), ends, decay=decay, longest=team.rows.longest)

    def _turn(self, agent: int, team: Team, rate: float, agents: int) -> Metrics:
        with self.model.turn(agent):
            batch = self._turn_batch(agent, team, agents)
            metrics = self._run_turn(batch, rate)
            with torch.no_grad():
                if not self.model.shared:
                    change = self.model.log_prob(batch).double() - batch.logp.double()
                    team.log_ratio[self._index(team.rows.rows_of(agent))] = change
        if self.model.shared:
            with torch.no_grad():
                team.log_ratio = self.model.log_prob(team.batch).double() - team.batch.logp.double()
        return metrics

    def _turn_batch(self, agent: int, team: Team, agents: int) -> Batch:
        """Return the batch that an agent learns from in its turn."""
        config, rows = self.config, self._index(team.rows.rows_of(agent))
        advantage = self._advantages(team)[rows]
        batch = team.batch.part(team.rows.units_of(agent))
        if config.corrects:  # as what is learned of the actor, what its critic learns
            batch = replace(batch, target=(advantage + batch.value.double()).float())
        if config.normalise_advantages:
            advantage = normalize_advantages(advantage)
        clip = config.clip_at(self._place + 1, agents)
        return replace(
            batch,
            advantage=advantage.float(),
            others=team.others()[rows],
            clip=None if clip is None else torch.full_like(batch.logp, clip),
        )

    def _run_turn(self, batch: Batch, rate: float) -> Metrics:
        return self._run_epochs(batch, rate)


class TrustRegionLearner(SequentialUpdateLearner):
    """Turns in which an actor takes one step within its trust region; then its critic learns."""

    model: TrustRegionModel

    def _run_turn(self, batch: Batch, rate: float) -> Metrics:
        step, entropy = self.model.improve(batch, self._progress)
        before = torch.zeros_like(entropy) if batch.others is None else batch.others.mean()
        gain, divergence, promised, share, others, spread, wrong = scalars_to_host(
            [step.gain, step.divergence, step.promised, step.share, before, entropy, step.wrong]
        )
        if wrong:
            raise self._error("the surrogate or its gradient", "in a trust-region step")
        metrics = {"policy_loss": -gain, "kl": divergence, "promised_gain": promised, "step": share}
        return {**metrics, "entropy": spread, "others": others, **self._run_epochs(batch, rate)}


# --------------------------------------------------------------------------------------------------------------------
# All agents at once.


class CoordinatedLearner(TeamLearner):
    """One step moves all agents. The teammates' ratios are computed before each: minibatches are of whole joint steps;
    with a memory, of a team's whole episodes."""

    config: CoPPO

    def _epochs(self, rows: Any, units: int) -> Iterator[tuple[int, Iterable[Any]]]:
        rng = self.shuffler()
        for _ in range(self.config.epochs):
            yield 1, self._parts(rows, self._team.lots(self.config.minibatches, rng))

    def _parts(self, batch: Batch, lots: Iterable[NDArray[np.int64]]) -> Iterator[Any]:
        """Yield the prepared lots, each computed when it is reached."""
        for lot in lots:
            part = batch.part(lot)
            keys, step = np.unique(self._team.step[self._team.rows_in(lot)], return_inverse=True)
            with torch.no_grad():
                change = self.model.log_prob(part).double() - part.logp.double()
            there = to_device(step.reshape(-1), change.device)
            yield from self.model.prepare(replace(part, others=others_of(change, there, steps=len(keys))), None)
