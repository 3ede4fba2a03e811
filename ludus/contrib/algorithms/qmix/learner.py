"""The learners of value decomposition: the shared base, and one each for feed-forward and recurrent networks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import huber
from ludus.algorithms.common.space_checks import state_width, team_size
from ludus.algorithms.dqn.learner import QLearner, QLossResult, init_network
from ludus.algorithms.dqn.losses import gather_actions, greedy, mixed_priority
from ludus.algorithms.r2d2.learner import SequenceSlots, SequenceWindows, bootstraps, windows
from ludus.backend.device import UpdateCost, resolve_placement, to_device, to_numpy
from ludus.backend.network import multiplications
from ludus.contrib.algorithms.joint_steps import (
    ANEW,
    RewardStatistics,
    TeamRewards,
    bootstrap_masks,
    joint_items,
    left_over,
    left_over_values,
    versions,
    views,
)
from ludus.contrib.algorithms.qmix.cds import (
    Experience,
    NextObservationPrediction,
    Predictors,
    action_divergence,
    mean_of,
    squared_error,
)
from ludus.contrib.algorithms.qmix.mixers import (
    TeamActions,
    central_weights,
    make_central_mixer,
    make_mixer,
    optimistic_weights,
    team_values,
)
from ludus.core import seeding
from ludus.core.types import Array, PolicySpec, State, Weights
from ludus.policies.action_values import ActionValues, TeamValues, make_network
from ludus.policies.bodies import own_stream
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Joint, Trajectories

if TYPE_CHECKING:
    from ludus.contrib.algorithms.qmix.config import VDN

_MIX = 0.9  # of the largest error in the priority of a sequence (Kapturowski et al. 2019)


class TeamModel(nn.Module):
    """Networks of a team.

    Attributes:
        q: Network that all agents share.
        mixer: Mixer of their values.
        central: Networks with an unrestricted mixer, which give the targets of weighted QMIX; None: the model gives its
            own.
        predictors: Predictors of the agents' next observations, from which CDS computes intrinsic rewards; or None.
    """

    def __init__(
        self,
        q: ActionValues | TeamValues,
        mixer: nn.Module,
        *,
        central: TeamModel | None = None,
        predictors: Predictors | None = None,
    ) -> None:
        super().__init__()
        self.q, self.mixer, self.central, self.predictors = q, mixer, central, predictors


@dataclass(frozen=True, slots=True, eq=False)
class TeamContext:
    """State of m items at T moments each: legal bool[m, T, n, A], present bool[m, T, n], state float32[m, T, S] (None:
    no mixer sees it)."""

    legal: Tensor
    present: Tensor
    state: Tensor | None

    def actions(self, q: Tensor, action: Tensor) -> TeamActions:
        """Return the joint actions of m × T teams, with the agents' values q float32[m, T, n, A]: action int64[m, T,
        n]."""
        values, which, present = q.flatten(0, 2), action.flatten(), self.present.flatten(0, 1)
        best = gather_actions(values, greedy(values, self.legal.flatten(0, 2)))
        chosen, best = (team_values(of.view(present.shape), present) for of in (gather_actions(values, which), best))
        state = None if self.state is None else self.state.flatten(0, 1)
        return TeamActions(chosen, best, action.flatten(0, 1), present, state)


@dataclass(frozen=True, slots=True, eq=False)
class TeamBatch:
    """m items of T joint steps: action int64[m, T, n], there bool[m, T]; the present and the next context."""

    action: Tensor
    there: Tensor
    now: TeamContext
    after: TeamContext


class Answers(NamedTuple):
    """Action values float32[m, T, n, A] of a network, present and next, and the features float32[m × T × n, F] of the
    present ones."""

    now: Tensor
    after: Tensor
    features: Tensor


class TeamTargets(NamedTuple):
    """Values and targets of m items of T joint steps.

    Attributes:
        value: float32[m, T], the team's value, with gradients.
        target: float32[m, T].
        there: bool[m, T], which joint steps exist.
        central: float32[m, T], Q*'s value in weighted QMIX, which has the same target, with gradients.
        weight: float32[m, T], weights of the errors of `value`.
        beside: float32[m, T], further losses, with gradients.
    """

    value: Tensor
    target: Tensor
    there: Tensor
    central: Tensor | None = None
    weight: Tensor | None = None
    beside: Tensor | None = None


class TeamLearner(QLearner):
    """Base: a subclass implements its items (`columns`), and their evaluation (`batch`, `answers`). Published weights
    are the agents' network; the mixer, which only learning needs, is part of the learner's state."""

    config: VDN

    def __init__(self, config: VDN, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        self._env, self._seats = context.env, context.seats
        self.team = team_size(context.env, context.seats, algorithm=type(config).__name__)
        network = self._team_model(config, spec, context, start)
        rows = config.batch * self.team * (1 if config.core == "none" else config.burn_in + config.length + 1)
        work = UpdateCost(
            multiplications(network), rows, has_cpu_kernel=False, no_kernel_reason="a team's values are mixed"
        )
        super().__init__(config, context, spec, network=network, placement=resolve_placement(context.device, work))
        self._online, self._target = (
            cast(TeamModel, flat.module) for flat in (self.networks.online, self.networks.target)
        )
        self._rewards = RewardStatistics(config.normalise_rewards, gamma=config.gamma, scale=self._scale)

    def _team_model(self, config: VDN, spec: PolicySpec, context: LearnerContext, start: Weights | None) -> TeamModel:
        def seed(name: str) -> int:
            return seeding.key(context.seed, "qmix", name) % 2**63

        state, central = state_width(context.env, context.seats), None
        if config.weighting != "none":
            judge = make_central_mixer(config, agents=self.team, state=state, seed=seed("central mixer"))
            central = TeamModel(make_network(spec, seed=seed("central")), judge)
        predictors, begun = None, init_network(spec, context, start)
        if config.diversity and self.team > 1:
            observation_size, actions = math.prod(begun.shape) - self.team, int(spec.config["actions"])
            inputs = observation_size + actions + (config.memory if config.core != "none" else 0)
            with own_stream(seed("predictors")):
                predictors = Predictors(inputs, self.team, observation_size, width=config.predictor_width)
        actions = int(spec.config["actions"])
        mixer = make_mixer(config, agents=self.team, actions=actions, state=state, seed=seed("mixer"))
        return TeamModel(begun, mixer, central=central, predictors=predictors)

    @property
    def network(self) -> ActionValues | TeamValues:
        return self._online.q

    @abstractmethod
    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        """Return items, with the team's rewards not normalised. version: int32[T] of each joint step."""

    @abstractmethod
    def batch(self, columns: Mapping[str, Any]) -> Any:
        """Return items, as `local_columns` returns them, as a `TeamBatch`."""

    @abstractmethod
    def answers(self, team: TeamModel, batch: Any, *, now: bool = True, after: bool = True) -> Answers:
        """Return the network's values of a batch, present and next, as requested; anything elsewhere. Only the present
        ones have gradients."""

    @abstractmethod
    def observations(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the agents' present observations and those one joint step later, float32[m × T × n, *shape]."""

    @abstractmethod
    def steps_in(self, columns: Mapping[str, Any]) -> int:
        """Return the number of joint steps in items."""

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return joint steps, or sequences of them, of each seat that was played."""
        out = []
        for rows, view in views(self.rewarded(trajectories), self._env, self._seats):
            out.append(self.table_items(self.columns(view, versions(rows, view))))
            self._rewards.add(view)
        self.count(trajectories)
        return out

    # ------------------------------------------------------------------------------------------ learning

    def _gradient(self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        self.networks.online.zero()
        result, local_columns = QLossResult.nothing(self.device), self.local_columns(columns, rows)
        if len(local_columns["reward"]):
            each = self._weights(weight, rows)
            result = self._backward(self.team_targets(local_columns), each, max(1, self.steps_in(columns)))
        return self._joint(result, rows)

    def team_targets(self, columns: Mapping[str, Any]) -> TeamTargets:
        """Return values and targets of items, as `local_columns` returns them. The target is that of the best actions
        of the agents' network, online (double) or target, by the target mixer; in weighted QMIX, by the target of Q*."""
        batch: TeamBatch = self.batch(columns)
        double, judge = self.config.double, self._target.central
        online = self.answers(self._online, batch, after=double)
        value = _mixed(self._online, batch.now.actions(online.now, batch.action))
        with torch.no_grad():
            legal = batch.after.legal
            if judge is None:
                judge = self._target
                target = chosen = self.answers(judge, batch, now=False)
            else:
                target = self.answers(judge, batch, now=self.config.weighting == "central")
                chosen = target if double else self.answers(self._target, batch, now=False)
            best = _best(online.after if double else chosen.after, legal)
            following = _mixed(judge, batch.after.actions(target.after, best))
            target_values = self.targets(columns, following.view_as(columns["reward"]))
        targets = TeamTargets(value.view_as(batch.there), target_values.view_as(batch.there), batch.there)
        if self.config.individual and self.team > 1:
            targets = self._with_individual(targets, batch, online)
        return (
            targets
            if self._online.central is None
            else self._with_weights(targets, batch, online.now.detach(), target.now)
        )

    def _with_individual(self, targets: TeamTargets, batch: TeamBatch, online: Answers) -> TeamTargets:
        """Add the cost of the agents' own values, the reward for differing, and the predictors' losses."""
        config, agents = self.config, self._agents(self._online)
        m, steps, n, _ = online.now.shape
        present = batch.now.present.flatten()
        size = agents.own_values(online.features).abs().mean(dim=1)
        beside = config.individual_cost * mean_of(size, present, (m, steps, n))
        if self._online.predictors is None or self._target.predictors is None:
            return targets._replace(beside=beside)
        there = self._experience(batch, online)
        lost = sum(squared_error(each, there.following) for each in self._predict(self._online.predictors, there))
        with torch.no_grad():
            paid = self._intrinsic_reward(there, self._predict(self._target.predictors, there), (m, steps, n))
        beside = beside + mean_of(cast(Tensor, lost), there.goes_on, (m, steps, n))
        return targets._replace(beside=beside, target=targets.target + config.diversity * paid)

    def _experience(self, batch: TeamBatch, online: Answers) -> Experience:
        """Return the experience of single agents, without gradients."""
        now, after = (x.flatten(1)[:, : -self.team] for x in self.observations(batch))
        values = online.now.detach().flatten(0, 2)
        done = nn.functional.one_hot(batch.action.flatten(), values.shape[1]).to(values.dtype)
        here, then = batch.now.present.flatten(), batch.after.present.flatten()
        legal = batch.now.legal.flatten(0, 2) | ~here[:, None]
        return Experience(values, online.features.detach(), legal, done, now, after, here, here & then)

    def _predict(self, predictors: Predictors, there: Experience) -> NextObservationPrediction:
        remembered, who = there.features[:, : -self.team], there.features[:, -self.team :]
        parts = [there.observation, there.done, *([remembered] if self.config.core != "none" else [])]
        out: NextObservationPrediction = predictors(torch.cat(parts, dim=1), who)
        return out

    def _intrinsic_reward(
        self, there: Experience, predicted: NextObservationPrediction, shape: tuple[int, int, int]
    ) -> Tensor:
        """Return β₁ log q(o' | τ, a, i) - log p(o' | τ, a) + β₂ KL(π_i ‖ mean of all π_j), in the mean over agents,
        float32[m, T]. (Li et al. 2021, the intrinsic reward.)"""
        config, agents = self.config, self._agents(self._online)
        known, unknown = (
            squared_error(predicted.agent, there.following),
            squared_error(predicted.anyone, there.following),
        )
        observation_term = mean_of(unknown - config.diversity_scale * known, there.goes_on, shape)
        of_all = agents.values_of_all(there.features, there.legal)
        differs = action_divergence(there.values, of_all, there.legal, scale=config.diversity_scale)
        return observation_term + config.diversity_actions * mean_of(differs, there.here, shape)

    def _agents(self, team: TeamModel) -> ActionValues:
        assert isinstance(team.q, ActionValues)
        return team.q

    def _with_weights(self, targets: TeamTargets, batch: TeamBatch, online: Tensor, judged: Tensor) -> TeamTargets:
        """Add Q*, and the weight of each error. online, judged: present values by the agents' network, and by the
        target of Q*'s."""
        central, judge = self._online.central, self._target.central
        assert central is not None
        assert judge is not None
        now, least = batch.now, self.config.least_weight
        own = _mixed(central, now.actions(self.answers(central, batch, after=False).now, batch.action))
        targets = targets._replace(central=own.view_as(targets.there))
        if self.config.weighting == "optimistic":
            return targets._replace(weight=optimistic_weights(targets.value.detach(), targets.target, least=least))
        with torch.no_grad():
            best = _best(online, now.legal)
            of_best = _mixed(judge, now.actions(judged, best)).view_as(targets.there)
            is_best = ((batch.action == best) | ~now.present).all(dim=-1)
        return targets._replace(weight=central_weights(is_best, targets.target, of_best, least=least))

    def _backward(self, targets: TeamTargets, weight: Tensor, steps: int) -> QLossResult:
        """Add to the gradient. steps: of all ranks, by which sums are divided."""

        def errors(value: Tensor) -> tuple[Tensor, Tensor]:
            error = (value - targets.target).masked_fill(~targets.there, 0.0)
            return error, huber(error, delta=self.config.huber_delta) * weight[:, None]

        error, each = errors(targets.value)
        if targets.weight is not None:
            each = each * targets.weight
        if targets.central is not None:
            each = each + errors(targets.central)[1]
        if targets.beside is not None:
            each = each + targets.beside.masked_fill(~targets.there, 0.0) * weight[:, None]
        loss = each.sum() / steps
        torch.autograd.backward(loss)
        error = error.detach()
        priority = mixed_priority(error, targets.there, mix=_MIX)
        value = targets.value.detach().masked_fill(~targets.there, 0.0).sum() / steps
        finite = (targets.target.isfinite() | ~targets.there).all()
        return QLossResult(loss.detach(), value, error.abs().sum() / steps, priority, finite)

    @torch.no_grad()
    def targets(self, columns: Mapping[str, Tensor], value: Tensor) -> Tensor:
        """Return normalised rewards + discount × the target mixer's next value, float32[…]."""
        return self._rewards.normalize(columns["reward"], columns["span"]) + columns["discount"] * value

    # ------------------------------------------------------------------------------------------ state

    def state_dict(self) -> State:
        return {**super().state_dict(), "rewards": self._rewards.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._rewards.load_state_dict(state["rewards"])


def _best(q: Tensor, legal: Tensor) -> Tensor:
    """Return the agents' best legal actions int64[m, T, n], of q float32[m, T, n, A]."""
    return greedy(q.flatten(0, 2), legal.flatten(0, 2)).view(q.shape[:-1])


def _mixed(team: TeamModel, actions: TeamActions) -> Tensor:
    """Return the mixer's team values float32[m × T]."""
    out: Tensor = team.mixer(actions)
    return out


# --------------------------------------------------------------------------------------------------------------------
# Value decomposition of networks without memory: items are joint steps.


@dataclass(frozen=True, slots=True, eq=False)
class _StepBatch(TeamBatch):
    """x and following: the agents' present and next observations, float32[m × n, *shape]."""

    x: Tensor
    following: Tensor


class StepLearner(TeamLearner):
    """m items of n agents go through the network as m × n rows."""

    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        columns = joint_items(view, gamma=self.config.gamma, steps=self.config.n_step)
        return columns | {"version_lo": version}

    def batch(self, columns: Mapping[str, Any]) -> _StepBatch:
        """Return the batch; T is 1."""
        action = columns["action"].long()[:, None]
        there = torch.ones(action.shape[:2], dtype=torch.bool, device=self.device)
        now = self._team_context(columns, "present", "mask", "state")
        after = self._team_context(columns, "next_present", "next_mask", "next_state")
        return _StepBatch(action, there, now, after, self._rows(columns["observation"]), self._rows(columns["next"]))

    def answers(self, team: TeamModel, batch: _StepBatch, *, now: bool = True, after: bool = True) -> Answers:
        nothing = torch.zeros(0, device=self.device)
        before, features = self._values(team, batch.x, batch.now.legal) if now else (nothing, nothing)
        with torch.no_grad():
            following = self._values(team, batch.following, batch.after.legal)[0] if after else nothing
        return Answers(before, following, features)

    def _values(self, team: TeamModel, x: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
        """Return values of every agent, float32[m, 1, n, A], and the features that they are of, which networks of
        single agents do not have."""
        with self.placement.products():
            if isinstance(team.q, TeamValues):
                out: Tensor = team.q(x, legal.flatten(0, 2))[..., 0]
                features = out
            else:
                features = team.q.body(x)
                out = team.q.values(features, legal.flatten(0, 2))
        return out.float().view(legal.shape), features.float()

    def observations(self, batch: _StepBatch) -> tuple[Tensor, Tensor]:
        return batch.x, batch.following

    def _rows(self, observation: Tensor) -> Tensor:
        """Return the agents' observations, float32[m × n, *shape]."""
        return self._network_inputs(observation.flatten(0, 1), self._online.q.shape)

    def _team_context(self, columns: Mapping[str, Any], present: str, mask: str, state: str) -> TeamContext:
        there = to_device(columns[present], self.device)[:, None]
        legal = columns[mask][:, None] if mask in columns else there.new_ones((*there.shape, self._actions))
        return TeamContext(legal, there, columns[state][:, None] if self.config.needs_state else None)

    def steps_in(self, columns: Mapping[str, Any]) -> int:
        return len(columns["reward"])


# --------------------------------------------------------------------------------------------------------------------
# Value decomposition of networks that remember: items are sequences of joint steps.


@dataclass(frozen=True, slots=True, eq=False)
class _SequenceBatch(TeamBatch):
    """m sequences of n agents, T slots for joint steps and one more, B before them.

    Attributes:
        x: float32[B + T + 1, m × n, *shape], observations.
        here: bool[B + T + 1, m × n], presence.
        anew: bool[B + T + 1, m × n], where an agent is back without memory.
        legal: bool[m, T + 1, n, A].
        place: int64[m, T], slot of what follows.
        memory: float32[m × n, M], before the slots.
        central: The same of Q*'s network; or None.
        unbroken: Whether no agent that was absent or gone comes back.
    """

    x: Tensor
    here: Tensor
    anew: Tensor
    legal: Tensor
    place: Tensor
    memory: Tensor
    central: Tensor | None
    unbroken: bool


class SequenceLearner(TeamLearner):
    """Each agent has its own memory, which changes only where the agent is present, and is lost where it was gone."""

    # ------------------------------------------------------------------------------------------ data

    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        config = self.config
        sequences = windows(view.start, length=config.length, period=config.period, burn_in=config.burn_in)
        slots = SequenceSlots.of(sequences, view.start, length=config.length, burn_in=config.burn_in)
        rewards = TeamRewards.of(view)
        reward, discount, place = bootstraps(sequences, slots, rewards, gamma=config.gamma, steps=config.n_step)
        ones = rewards._replace(reward=np.ones(len(view.t)))
        span, _, _ = bootstraps(sequences, slots, ones, gamma=config.gamma, steps=config.n_step)
        columns: dict[str, Array] = {
            "observation": slots.observations(
                view.observation, left_over_values(view, view.bootstrap_observation), sequences, first=0, fill=0
            ),
            "present": slots.observations(view.present, left_over(view), sequences, first=0, fill=False),
            "anew": slots.observations(_anew(view), np.zeros_like(left_over(view)), sequences, first=0, fill=False),
            "action": slots.rows(view.action),
            "reward": reward.astype(np.float32),
            "discount": discount.astype(np.float32),
            "span": span.astype(np.float32),
            "place": place,
            "count": sequences.count.astype(np.int16),
            "memory": self._memory(self._online, view.memory0, view, sequences),
            "version_lo": version[view.start[sequences.segment] + sequences.first],
        }
        if self._online.central is not None:  # workers do not know it: it begins each piece without memory
            columns[_CENTRAL] = self._memory(self._online.central, None, view, sequences)
        own = config.burn_in
        if view.mask is not None:
            columns["mask"] = slots.observations(view.mask, bootstrap_masks(view), sequences, first=own, fill=True)
        if view.state is not None and view.bootstrap_state is not None:
            columns["state"] = slots.observations(view.state, view.bootstrap_state, sequences, first=own, fill=0)
        return columns

    @torch.no_grad()
    def _memory(
        self, team: TeamModel, memory0: Array | None, view: Joint, sequences: SequenceWindows
    ) -> NDArray[np.float32]:
        """Return each agent's memory before a sequence's first used slot, float32[M, n, memory]: that of the piece's
        start (None: zero), unrolled through the steps in between by the present weights, which are those that acted
        unless workers are behind."""
        module = self._agents(team)
        pieces, longest = len(view.tail), int(sequences.warm.max(initial=0))
        if memory0 is None:
            memory0 = np.zeros((pieces, self.team, module.memory), np.float32)
        anew = _anew(view)
        reach = np.zeros(pieces, np.int64)
        np.maximum.at(reach, sequences.segment, sequences.warm)
        alive = np.flatnonzero(reach)
        memory, out = (to_device(of.astype(np.float32), self.device) for of in (memory0, memory0[sequences.segment]))
        for t in range(longest):
            alive = alive[reach[alive] > t]
            rows = view.start[alive] + t
            x = self._network_inputs(view.observation[rows].reshape(-1, *view.observation.shape[2:]), module.shape)
            here, back = (to_device(each[rows].reshape(1, -1), self.device) for each in (view.present, anew))
            place = to_device(alive, self.device)
            after, _ = _remember(module, x[None], here, back, memory[place].flatten(0, 1))
            memory[place] = after.view(len(alive), self.team, -1)
            begun = np.flatnonzero(sequences.warm == t + 1)
            out[to_device(begun, self.device)] = memory[to_device(sequences.segment[begun], self.device)]
        return to_numpy(out)

    # ------------------------------------------------------------------------------------------ learning

    def answers(self, team: TeamModel, batch: _SequenceBatch, *, now: bool = True, after: bool = True) -> Answers:
        """Return the values; all slots are evaluated, whatever is requested."""
        q, states = self._values(team, batch)
        return Answers(q[:, :-1], q.detach()[_at(batch.place)], states[:, :-1].flatten(0, 2))

    def observations(self, batch: _SequenceBatch) -> tuple[Tensor, Tensor]:
        m, steps, n = batch.action.shape
        x = batch.x[self.config.burn_in :].view(steps + 1, m, n, -1).transpose(0, 1)
        return x[:, :-1].flatten(0, 2), x[:, 1:].flatten(0, 2)

    def _values(self, team: TeamModel, batch: _SequenceBatch) -> tuple[Tensor, Tensor]:
        """Return action values float32[m, T + 1, n, A], and the states float32[m, T + 1, n, width] that they are of,
        after the slots before them have refreshed the memory, without gradients."""
        module, before = self._agents(team), self.config.burn_in
        memory = batch.memory if team.central is not None or batch.central is None else batch.central
        with self.placement.products():
            if before:
                with torch.no_grad():
                    memory, _ = _remember(module, batch.x[:before], batch.here[:before], batch.anew[:before], memory)
            if batch.unbroken:
                now = batch.x[before:]
                states = module.unroll(module.body(now.flatten(0, 1)).view(*now.shape[:2], -1), memory)
            else:
                _, states = _remember(module, batch.x[before:], batch.here[before:], batch.anew[before:], memory)
            m, steps, n, actions = batch.legal.shape
            states = states.view(steps, m, n, -1).transpose(0, 1)
            values = module.values(states.flatten(0, 2), batch.legal.flatten(0, 2))
        return values.float().view(m, steps, n, actions), states.float()

    def batch(self, columns: Mapping[str, Any]) -> _SequenceBatch:
        module, own = self._agents(self._online), self.config.burn_in
        m, slots, n = columns["present"].shape
        by_time = columns["observation"].transpose(0, 1).flatten(0, 2)
        here, anew = (np.moveaxis(columns[name], 1, 0).reshape(slots, m * n) for name in ("present", "anew"))
        legal = columns.get("mask")
        if legal is None:
            legal = torch.ones(m, slots - own, n, self._actions, dtype=torch.bool, device=self.device)
        present, place = to_device(columns["present"][:, own:], self.device), columns["place"].long()
        state, after = columns["state"] if self.config.needs_state else None, _at(place)
        central = columns.get(_CENTRAL)
        return _SequenceBatch(
            action=columns["action"].long(),
            there=to_device(np.arange(self.config.length) < columns["count"][:, None], self.device),
            now=TeamContext(legal[:, :-1], present[:, :-1], None if state is None else state[:, :-1]),
            after=TeamContext(legal[after], present[after], None if state is None else state[after]),
            x=self._network_inputs(by_time, module.shape).view(slots, m * n, *module.shape),
            here=to_device(here, self.device),
            anew=to_device(anew, self.device),
            legal=legal,
            place=place,
            memory=columns["memory"].flatten(0, 1),
            central=None if central is None else central.flatten(0, 1),
            unbroken=not ((here[own + 1 :] > here[own:-1]).any() or anew[own:].any()),
        )

    def steps_in(self, columns: Mapping[str, Any]) -> int:
        return int(columns["count"].sum())


_CENTRAL = "central_memory"


def _at(place: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index of slots place int64[m, T] in arrays [m, T + 1, …]."""
    return torch.arange(len(place), device=place.device)[:, None], place


def _anew(view: Joint) -> NDArray[np.bool_]:
    """Return bool[T, n]: where an agent that was gone is back."""
    return view.extras.get(ANEW, np.zeros_like(view.present))


def _remember(module: ActionValues, x: Tensor, here: Tensor, anew: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Return (memory float32[k, M] after T slots, states h float32[T, k, units] after each). x: float32[T, k, *shape];
    memory stays where here bool[T, k] is False, and is zero before the slots where anew bool[T, k] is True."""
    features = module.body(x.flatten(0, 1)).view(*x.shape[:2], -1)
    states = []
    for t in range(len(x)):
        memory = memory.masked_fill(anew[t, :, None], 0.0)
        memory = torch.where(here[t, :, None], module.step(features[t], memory), memory)
        states.append(memory[:, : module.width])
    return memory, torch.stack(states)


def make_learner(config: VDN, context: LearnerContext, start: Weights | None = None) -> StepLearner | SequenceLearner:
    """Make the learner of single joint steps, or of sequences for recurrent networks."""
    return (StepLearner if config.core == "none" else SequenceLearner)(config, context, start)
