"""Value decomposition of networks that remember: items are sequences of joint steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus import seeding
from ludus.algorithms.dqn.targets import greedy, taken
from ludus.algorithms.qmix.learner import Compared, Team, TeamLearner
from ludus.algorithms.qmix.mixers import team_values
from ludus.algorithms.r2d2.sequences import Slots, Windows, bootstraps, windows
from ludus.algorithms.teams import ANEW, Rewards, left_over, tail_masks, tails
from ludus.data.base import Columns
from ludus.data.joint import Joint
from ludus.policies.q_module import rows_of
from ludus.policies.q_recurrent import QRecurrent, make_recurrent
from ludus.types import Array, PolicySpec


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

    def fresh(self, spec: PolicySpec, seed: int) -> nn.Module:
        """See `TeamLearner.fresh`."""
        return make_recurrent(spec, seed=seeding.key(seed, "qmix", "weights") % 2**63)

    # ------------------------------------------------------------------------------------------ data

    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        """See `TeamLearner.columns`."""
        config = self.config
        found = windows(view.start, length=config.length, period=config.period, burn_in=config.burn_in)
        slots = Slots.of(found, view.start, length=config.length, burn_in=config.burn_in)
        rewards = Rewards.of(view)
        reward, discount, place = bootstraps(found, slots, rewards, gamma=config.gamma, steps=config.n_step)
        ones = rewards._replace(reward=np.ones(len(view.t)))
        span, _, _ = bootstraps(found, slots, ones, gamma=config.gamma, steps=config.n_step)
        columns: dict[str, Array] = {
            "observation": slots.observations(
                view.observation, tails(view, view.tail_observation), found, first=0, fill=0
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
            columns["mask"] = slots.observations(view.mask, tail_masks(view), found, first=own, fill=True)
        if view.state is not None and view.tail_state is not None:
            columns["state"] = slots.observations(view.state, view.tail_state, found, first=own, fill=0)
        return columns

    @torch.no_grad()
    def _memory(self, view: Joint, found: Windows) -> NDArray[np.float32]:
        """What each agent remembers when a sequence's first used slot comes, float32[M, n, memory]: that of the piece's beginning, taken
        through the steps in between by the weights of now, which are those that acted unless workers are behind."""
        module = self._agents(self._module)
        pieces, longest = len(view.tail), int(found.warm.max(initial=0))
        memory0 = view.memory0
        if memory0 is None:
            memory0 = np.zeros((pieces, self.team, module.memory_size), np.float32)
        out, anew = memory0[found.segment].astype(np.float32), _anew(view)
        reach = np.zeros(pieces, np.int64)
        np.maximum.at(reach, found.segment, found.warm)
        alive, memory = np.flatnonzero(reach), torch.from_numpy(memory0.astype(np.float32))
        for t in range(longest):
            alive = alive[reach[alive] > t]
            rows = view.start[alive] + t
            x = rows_of(view.observation[rows].reshape(-1, *view.observation.shape[2:]), module.shape)
            here, back = (torch.from_numpy(each[rows].reshape(1, -1)) for each in (view.present, anew))
            after, _ = _remember(module, x[None], here, back, memory[alive].flatten(0, 1))
            memory[alive] = after.view(len(alive), self.team, -1)
            begun = np.flatnonzero(found.warm == t + 1)
            out[begun] = memory[found.segment[begun]].numpy()
        return out

    # ------------------------------------------------------------------------------------------ learning

    def compared(self, columns: Columns) -> Compared:
        """See `TeamLearner.compared`."""
        batch = self._batch(columns)
        q = self._values(self._module, batch)
        chosen = taken(q[:, :-1].flatten(0, 2), batch.action.flatten()).view_as(batch.action)
        steps = torch.arange(batch.place.shape[1]).expand_as(batch.place)
        value = self._mixed(self._module, chosen, batch, steps)
        with torch.no_grad():
            judge = self._values(self._judge, batch)
            at = torch.arange(len(q))[:, None], batch.place
            chooser = q.detach() if self.config.double else judge
            best = greedy(chooser[at].flatten(0, 2), batch.legal[at].flatten(0, 2))
            after = taken(judge[at].flatten(0, 2), best).view_as(batch.action)
            target = self.targets(columns, self._mixed(self._judge, after, batch, batch.place))
        return Compared(value, target, batch.there)

    def _mixed(self, team: Team, values: Tensor, batch: _Batch, place: Tensor) -> Tensor:
        """The team's values float32[m, T] of agents' values [m, T, n] at `place` int64[m, T]."""
        at = torch.arange(len(place))[:, None], place
        state = None if batch.state is None else batch.state[at].flatten(0, 1)
        out: Tensor = team.mixer(team_values(values, batch.present[at]).flatten(0, 1), state)
        return out.view_as(place)

    def _values(self, team: Team, batch: _Batch) -> Tensor:
        """Action values float32[m, T + 1, n, A], after the slots before them have refreshed the memory, without gradients."""
        module, before = self._agents(team), self.config.burn_in
        memory = batch.memory
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
        return module.values(states.flatten(0, 2), batch.legal.flatten(0, 2)).view(m, steps, n, actions)

    def _batch(self, columns: Columns) -> _Batch:
        module, own = self._agents(self._module), self.config.burn_in
        observation, present = columns["observation"], columns["present"]
        m, slots, n = present.shape
        by_time = np.moveaxis(observation, 1, 0).reshape(slots * m * n, *observation.shape[3:])
        here, anew = (np.moveaxis(each, 1, 0).reshape(slots, m * n) for each in (present, columns["anew"]))
        legal = columns.get("mask")
        if legal is None:
            legal = np.ones((m, slots - own, n, self._actions), np.bool_)
        numbers = {name: torch.from_numpy(columns[name].astype(np.int64)) for name in ("action", "place")}
        return _Batch(
            x=rows_of(by_time, module.shape).view(slots, m * n, *module.shape),
            here=torch.from_numpy(here),
            anew=torch.from_numpy(anew),
            memory=torch.from_numpy(columns["memory"]).flatten(0, 1),
            unbroken=not ((here[own + 1 :] > here[own:-1]).any() or anew[own:].any()),
            legal=torch.from_numpy(legal),
            present=torch.from_numpy(present[:, own:]),
            state=torch.from_numpy(columns["state"]) if self.config.needs_state else None,
            there=torch.from_numpy(np.arange(self.config.length) < columns["count"][:, None]),
            **numbers,
        )

    def _agents(self, team: Team) -> QRecurrent:
        assert isinstance(team.q, QRecurrent)
        return team.q

    def steps_in(self, columns: Columns) -> int:
        """See `TeamLearner.steps_in`."""
        return int(columns["count"].sum())


def _anew(view: Joint) -> NDArray[np.bool_]:
    """bool[T, n]: where an agent that was gone is back."""
    return view.extras.get(ANEW, np.zeros_like(view.present))


def _remember(module: QRecurrent, x: Tensor, here: Tensor, anew: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """(memory float32[k, M] after T slots, states h float32[T, k, units] after each): x float32[T, k, *shape]; memory stays as it is
    where here bool[T, k] is False, and is zero before the slots where anew bool[T, k] is True."""
    features = module.body(x.flatten(0, 1)).view(*x.shape[:2], -1)
    states = []
    for t in range(len(x)):
        memory = memory.masked_fill(anew[t, :, None], 0.0)
        memory = torch.where(here[t, :, None], module.step(features[t], memory), memory)
        states.append(memory[:, : module.units])
    return memory, torch.stack(states)
