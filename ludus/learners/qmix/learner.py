"""The learners of value decomposition: mixers, what both share, and one each for networks without and with memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core import seeding
from ludus.core.device import Work, placed, to_device, to_host
from ludus.core.types import Array, State, Weights
from ludus.learners.base import LearnerContext
from ludus.learners.dqn.learner import QLearner, QLossResult, begin
from ludus.learners.dqn.losses import double_values, greedy, mixed_priority, taken
from ludus.learners.losses import huber
from ludus.learners.network import multiplications
from ludus.learners.r2d2.learner import SequenceSlots, SequenceWindows, bootstraps, windows
from ludus.learners.teams import (
    ANEW,
    RewardStatistics,
    TeamRewards,
    bootstrap_masks,
    joint_items,
    left_over,
    left_over_values,
    state_width,
    team_size,
    versions,
    views,
)
from ludus.policies.action_values import ActionValues, TeamValues
from ludus.policies.bodies import own_stream
from ludus.replay.base import ItemColumns
from ludus.replay.trajectories import Joint, Trajectories

if TYPE_CHECKING:
    from ludus.learners.qmix.options import VDN

# --------------------------------------------------------------------------------------------------------------------
# From the values of a team's agents to the team's: their sum (VDN), or a monotonic network (QMIX).


def monotonic(values: Tensor, first: Tensor, bias: Tensor, second: Tensor, last: Tensor) -> Tensor:
    """elu(Σ_i q_i |w₁ᵢ| + b₁) · |w₂| + b₂, which rises with every agent's value: values float[m, n], first float[m, n, k], bias and second
    float[m, k], last float[m] -> float[m]. (Rashid et al. 2018, §4 and figure 2a.)"""
    hidden = nn.functional.elu((values[:, None] @ first.abs())[:, 0] + bias)
    return (hidden * second.abs()).sum(dim=1) + last


class SumMixer(nn.Module):
    """Sunehag et al. 2018, equation 2."""

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """values float[m, n], 0 of absent agents -> float[m]."""
        return values.sum(dim=1)


class MonotonicMixer(nn.Module):
    """`monotonic`, whose weights are made from the state. hidden: units of what makes the weights; 0: linear, as in the paper. The last
    bias has a hidden layer of `width` units, as there."""

    def __init__(self, agents: int, state: int, *, width: int, hidden: int) -> None:
        super().__init__()
        self._shape = agents, width

        def made(outputs: int) -> nn.Module:
            if not hidden:
                return nn.Linear(state, outputs)
            return nn.Sequential(nn.Linear(state, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

        self.first, self.second = made(agents * width), made(width)
        self.bias = nn.Linear(state, width)
        self.last = nn.Sequential(nn.Linear(state, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, values: Tensor, state: Tensor | None) -> Tensor:
        """values float[m, n], 0 of absent agents; state float[m, S] -> float[m]."""
        assert state is not None
        first = self.first(state).view(-1, *self._shape)
        return monotonic(values, first, self.bias(state), self.second(state), self.last(state)[:, 0])


def team_values(values: Tensor, present: Tensor) -> Tensor:
    """What mixers are given: values float[…], 0 where nobody is."""
    return torch.where(present, values, torch.zeros_like(values))


_MIX = 0.9  # of the largest error in the priority of a sequence (Kapturowski et al. 2019)


class TeamModel(nn.Module):
    """q: the network that all agents share. mixer: of their values."""

    def __init__(self, q: ActionValues | TeamValues, mixer: nn.Module) -> None:
        super().__init__()
        self.q, self.mixer = q, mixer


class TeamTargets(NamedTuple):
    """value float32[m, T] of the team, with gradients; target float32[m, T]; there bool[m, T]: which joint steps exist."""

    value: Tensor
    target: Tensor
    there: Tensor


class TeamLearner(QLearner):
    """A subclass says what an item is (`columns`), and what the team's values and targets are (`compared`). Weights hold the agents'
    network; the mixer, which only learning needs, is part of the learner's state."""

    config: VDN

    def __init__(self, config: VDN, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        self._env, self._seats = context.env, context.seats
        self.team = team_size(context.env, context.seats, algorithm=type(config).__name__)
        seed = seeding.key(context.seed, "qmix", "mixer") % 2**63
        states = state_width(context.env, context.seats)
        mixer = make_mixer(config, agents=self.team, state=states, seed=seed)
        network = TeamModel(begin(spec, context, start), mixer)
        rows = config.batch * self.team * (1 if config.core == "none" else config.burn_in + config.length + 1)
        work = Work(multiplications(network), rows, written=False, because="a team's values are mixed")
        super().__init__(config, context, spec, network=network, placement=placed(context.device, work))
        self._online, self._target = (
            cast(TeamModel, flat.module) for flat in (self.networks.online, self.networks.target)
        )
        self._rewards = RewardStatistics(config.normalise_rewards, gamma=config.gamma, scale=self._scale)

    @property
    def network(self) -> ActionValues | TeamValues:
        """See `QLearner.network`."""
        return self._online.q

    @abstractmethod
    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        """Items, with the team's rewards as they are. version: int32[T] of each joint step."""

    @abstractmethod
    def compared(self, columns: Mapping[str, Any]) -> TeamTargets:
        """What the networks say of items, as `mine` gives them."""

    @abstractmethod
    def steps_in(self, columns: Mapping[str, Any]) -> int:
        """Joint steps in items."""

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Joint steps, or sequences of them, of each seat that was played."""
        out = []
        for rows, view in views(self.rewarded(trajectories), self._env, self._seats):
            out.append(self.kept(self.columns(view, versions(rows, view))))
            self._rewards.add(view)
        self.count(trajectories)
        return out

    # ------------------------------------------------------------------------------------------ learning

    def _gradient(self, columns: Mapping[str, Any], rows: int, weight: NDArray[np.float64] | None) -> QLossResult:
        self.networks.online.zero()
        found, mine = QLossResult.nothing(self.device), self.mine(columns, rows)
        if len(mine["reward"]):
            each = self._weights(weight, rows)
            found = self._found_in(self.compared(mine), each, max(1, self.steps_in(columns)))
        return self._joint(found, rows)

    def _found_in(self, seen: TeamTargets, weight: Tensor, steps: int) -> QLossResult:
        """Adds to the gradient. steps: of all ranks, by which sums are divided."""
        error = (seen.value - seen.target).masked_fill(~seen.there, 0.0)
        loss = (huber(error, delta=self.config.huber_delta) * weight[:, None]).sum() / steps
        torch.autograd.backward(loss)
        error = error.detach()
        priority = mixed_priority(error, seen.there, mix=_MIX)
        value = seen.value.detach().masked_fill(~seen.there, 0.0).sum() / steps
        finite = (seen.target.isfinite() | ~seen.there).all()
        return QLossResult(loss.detach(), value, error.abs().sum() / steps, priority, finite)

    @torch.no_grad()
    def targets(self, columns: Mapping[str, Tensor], value: Tensor) -> Tensor:
        """Normalised rewards + discount × the target mixer's value of what comes next, float32[…]."""
        return self._rewards.normalised(columns["reward"], columns["span"]) + columns["discount"] * value

    # ------------------------------------------------------------------------------------------ state

    def state_dict(self) -> State:
        return {**super().state_dict(), "rewards": self._rewards.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._rewards.load_state_dict(state["rewards"])


def make_mixer(config: VDN, *, agents: int, state: int, seed: int) -> nn.Module:
    """A fresh mixer, initialised from the seed alone, as torch initialises linear layers."""
    if config.mixer == "sum":
        return SumMixer()
    with own_stream(seed):
        return MonotonicMixer(agents, state, width=config.mixing_width, hidden=config.mixing_hidden)


# --------------------------------------------------------------------------------------------------------------------
# Value decomposition of networks without memory: items are joint steps.


class StepLearner(TeamLearner):
    """m items of n agents go through the network as m × n rows."""

    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        """See `TeamLearner.columns`."""
        columns = joint_items(view, gamma=self.config.gamma, steps=self.config.n_step)
        return columns | {"version_lo": version}

    def compared(self, columns: Mapping[str, Any]) -> TeamTargets:
        """See `TeamLearner.compared`; T is 1."""
        action = columns["action"].long().flatten()
        chosen = taken(self._values(self._online, *self._rows(columns, "observation", "mask")), action)
        value = self._mixed(self._online, chosen, columns, "present", "state")
        target = self.targets(columns, self._next_values(columns))
        return TeamTargets(value[:, None], target[:, None], torch.ones_like(value, dtype=torch.bool)[:, None])

    @torch.no_grad()
    def _next_values(self, columns: Mapping[str, Tensor]) -> Tensor:
        """The team's value of what comes next, float32[m]: each agent's best action by the online network (double) or the target's."""
        rows, legal = self._rows(columns, "next", "next_mask")
        online_values = target_values = self._values(self._target, rows, legal)
        if self.config.double:
            online_values = self._values(self._online, rows, legal)
        every = torch.ones_like(target_values, dtype=torch.bool) if legal is None else legal
        best = double_values(online_values, target_values, every)
        return self._mixed(self._target, best, columns, "next_present", "next_state")

    def _values(self, team: TeamModel, rows: Tensor, legal: Tensor | None) -> Tensor:
        """Of every agent, float32[m × n, A]."""
        with self.placement.products():
            out: Tensor = team.q(rows, legal)
        return out[..., 0].float()

    def _rows(self, columns: Mapping[str, Tensor], seen: str, mask: str) -> tuple[Tensor, Tensor | None]:
        """(what every agent sees float32[m × n, *shape], legal bool[m × n, A] where there are masks)."""
        observation = columns[seen]
        legal = columns[mask].flatten(0, 1) if mask in columns else None
        return self._seen(observation.flatten(0, 1), self._online.q.shape), legal

    def _mixed(self, team: TeamModel, values: Tensor, columns: Mapping[str, Any], present: str, state: str) -> Tensor:
        """float32[m × n] -> float32[m]."""
        there, seen = to_device(columns[present], self.device), columns[state] if self.config.needs_state else None
        out: Tensor = team.mixer(team_values(values.view_as(there), there), seen)
        return out

    def steps_in(self, columns: Mapping[str, Any]) -> int:
        """See `TeamLearner.steps_in`."""
        return len(columns["reward"])


# --------------------------------------------------------------------------------------------------------------------
# Value decomposition of networks that remember: items are sequences of joint steps.


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """m sequences of n agents, T slots for joint steps and one more, B before them: x float32[B + T + 1, m × n, *shape] and here
    bool[B + T + 1, m × n], and anew, where one of them is back and remembers nothing; memory float32[m × n, M]; legal
    bool[m, T + 1, n, A], present bool[m, T + 1, n], state float32[m, T + 1, S] or None; action int64[m, T, n]; place int64[m, T], there
    bool[m, T]. unbroken: nobody who was absent or gone comes back."""

    x: Tensor
    here: Tensor
    anew: Tensor
    memory: Tensor
    unbroken: bool
    legal: Tensor
    present: Tensor
    state: Tensor | None
    action: Tensor
    place: Tensor
    there: Tensor


class SequenceLearner(TeamLearner):
    """Each agent has a memory of its own, which changes only where the agent is present, and is lost where it was gone."""

    # ------------------------------------------------------------------------------------------ data

    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        """See `TeamLearner.columns`."""
        config = self.config
        found = windows(view.start, length=config.length, period=config.period, burn_in=config.burn_in)
        slots = SequenceSlots.of(found, view.start, length=config.length, burn_in=config.burn_in)
        rewards = TeamRewards.of(view)
        reward, discount, place = bootstraps(found, slots, rewards, gamma=config.gamma, steps=config.n_step)
        ones = rewards._replace(reward=np.ones(len(view.t)))
        span, _, _ = bootstraps(found, slots, ones, gamma=config.gamma, steps=config.n_step)
        columns: dict[str, Array] = {
            "observation": slots.observations(
                view.observation, left_over_values(view, view.bootstrap_observation), found, first=0, fill=0
            ),
            "present": slots.observations(view.present, left_over(view), found, first=0, fill=False),
            "anew": slots.observations(_anew(view), np.zeros_like(left_over(view)), found, first=0, fill=False),
            "action": slots.rows(view.action),
            "reward": reward.astype(np.float32),
            "discount": discount.astype(np.float32),
            "span": span.astype(np.float32),
            "place": place,
            "count": found.count.astype(np.int16),
            "memory": self._memory(view, found),
            "version_lo": version[view.start[found.segment] + found.first],
        }
        own = config.burn_in
        if view.mask is not None:
            columns["mask"] = slots.observations(view.mask, bootstrap_masks(view), found, first=own, fill=True)
        if view.state is not None and view.bootstrap_state is not None:
            columns["state"] = slots.observations(view.state, view.bootstrap_state, found, first=own, fill=0)
        return columns

    @torch.no_grad()
    def _memory(self, view: Joint, found: SequenceWindows) -> NDArray[np.float32]:
        """What each agent remembers when a sequence's first used slot comes, float32[M, n, memory]: that of the piece's beginning, taken
        through the steps in between by the weights of now, which are those that acted unless workers are behind."""
        module = self._agents(self._online)
        pieces, longest = len(view.tail), int(found.warm.max(initial=0))
        memory0 = view.memory0
        if memory0 is None:
            memory0 = np.zeros((pieces, self.team, module.memory), np.float32)
        anew = _anew(view)
        reach = np.zeros(pieces, np.int64)
        np.maximum.at(reach, found.segment, found.warm)
        alive = np.flatnonzero(reach)
        memory, out = (to_device(of.astype(np.float32), self.device) for of in (memory0, memory0[found.segment]))
        for t in range(longest):
            alive = alive[reach[alive] > t]
            rows = view.start[alive] + t
            x = self._seen(view.observation[rows].reshape(-1, *view.observation.shape[2:]), module.shape)
            here, back = (to_device(each[rows].reshape(1, -1), self.device) for each in (view.present, anew))
            place = to_device(alive, self.device)
            after, _ = _remember(module, x[None], here, back, memory[place].flatten(0, 1))
            memory[place] = after.view(len(alive), self.team, -1)
            begun = np.flatnonzero(found.warm == t + 1)
            out[to_device(begun, self.device)] = memory[to_device(found.segment[begun], self.device)]
        return to_host(out)

    # ------------------------------------------------------------------------------------------ learning

    def compared(self, columns: Mapping[str, Any]) -> TeamTargets:
        """See `TeamLearner.compared`."""
        batch = self._batch(columns)
        q = self._values(self._online, batch)
        chosen = taken(q[:, :-1].flatten(0, 2), batch.action.flatten()).view_as(batch.action)
        steps = torch.arange(batch.place.shape[1], device=self.device).expand_as(batch.place)
        value = self._mixed(self._online, chosen, batch, steps)
        with torch.no_grad():
            target_values = self._values(self._target, batch)
            at = torch.arange(len(q), device=self.device)[:, None], batch.place
            online_values = q.detach() if self.config.double else target_values
            best = greedy(online_values[at].flatten(0, 2), batch.legal[at].flatten(0, 2))
            after = taken(target_values[at].flatten(0, 2), best).view_as(batch.action)
            target = self.targets(columns, self._mixed(self._target, after, batch, batch.place))
        return TeamTargets(value, target, batch.there)

    def _mixed(self, team: TeamModel, values: Tensor, batch: _Batch, place: Tensor) -> Tensor:
        """The team's values float32[m, T] of agents' values [m, T, n] at `place` int64[m, T]."""
        at = torch.arange(len(place), device=self.device)[:, None], place
        state = None if batch.state is None else batch.state[at].flatten(0, 1)
        out: Tensor = team.mixer(team_values(values, batch.present[at]).flatten(0, 1), state)
        return out.view_as(place)

    def _values(self, team: TeamModel, batch: _Batch) -> Tensor:
        """Action values float32[m, T + 1, n, A], after the slots before them have refreshed the memory, without gradients."""
        module, before = self._agents(team), self.config.burn_in
        memory = batch.memory
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
        return values.float().view(m, steps, n, actions)

    def _batch(self, columns: Mapping[str, Any]) -> _Batch:
        module, own = self._agents(self._online), self.config.burn_in
        observation, present = columns["observation"], columns["present"]
        m, slots, n = present.shape
        by_time = observation.transpose(0, 1).flatten(0, 2)
        here, anew = (np.moveaxis(each, 1, 0).reshape(slots, m * n) for each in (present, columns["anew"]))
        legal = columns.get("mask")
        if legal is None:
            legal = torch.ones(m, slots - own, n, self._actions, dtype=torch.bool, device=self.device)
        return _Batch(
            x=self._seen(by_time, module.shape).view(slots, m * n, *module.shape),
            here=to_device(here, self.device),
            anew=to_device(anew, self.device),
            memory=columns["memory"].flatten(0, 1),
            unbroken=not ((here[own + 1 :] > here[own:-1]).any() or anew[own:].any()),
            legal=legal,
            present=to_device(present[:, own:], self.device),
            state=columns["state"] if self.config.needs_state else None,
            action=columns["action"].long(),
            place=columns["place"].long(),
            there=to_device(np.arange(self.config.length) < columns["count"][:, None], self.device),
        )

    def _agents(self, team: TeamModel) -> ActionValues:
        assert isinstance(team.q, ActionValues)
        return team.q

    def steps_in(self, columns: Mapping[str, Any]) -> int:
        """See `TeamLearner.steps_in`."""
        return int(columns["count"].sum())


def _anew(view: Joint) -> NDArray[np.bool_]:
    """bool[T, n]: where an agent that was gone is back."""
    return view.extras.get(ANEW, np.zeros_like(view.present))


def _remember(module: ActionValues, x: Tensor, here: Tensor, anew: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """(memory float32[k, M] after T slots, states h float32[T, k, units] after each): x float32[T, k, *shape]; memory stays as it is
    where here bool[T, k] is False, and is zero before the slots where anew bool[T, k] is True."""
    features = module.body(x.flatten(0, 1)).view(*x.shape[:2], -1)
    states = []
    for t in range(len(x)):
        memory = memory.masked_fill(anew[t, :, None], 0.0)
        memory = torch.where(here[t, :, None], module.step(features[t], memory), memory)
        states.append(memory[:, : module.width])
    return memory, torch.stack(states)
