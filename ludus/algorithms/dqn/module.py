"""DQN of any body and head, by autograd."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.dqn.flat import FlatModule
from ludus.algorithms.dqn.kinds import Candidates, Categorical, Kind, Mean, Quantiles
from ludus.algorithms.dqn.learner import DQNLearner
from ludus.algorithms.dqn.targets import double_values, midpoints, munchausen_bonus, soft_policy, taken
from ludus.algorithms.dqn.updates import SUMS, Found
from ludus.data.base import Columns
from ludus.policies.q_module import QModule, QTeam, arrays_of, loaded, make_module, rows_of
from ludus.types import Array, Weights


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """n transitions as tensors: x and after float32[n, *shape], legal and legal_after bool[n, A], action int64[n], reward, discount and
    weight float32[n]; levels float32[3, n, K] for quantile functions: of the online network, the target, and who chooses; noise
    float32[3, …] likewise."""

    x: Tensor
    after: Tensor
    legal: Tensor
    legal_after: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    weight: Tensor
    levels: Tensor | None
    noise: Tensor | None


_ONLINE, _TARGET, _CHOOSER = range(3)


class ModuleLearner(DQNLearner):
    """The networks are `QModule`s; what they need of chance is drawn from a stream of the update's own."""

    def __init__(self, config: DQN, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        seed = seeding.key(context.seed, "dqn", "weights") % 2**63
        self._module, self._judge = make_module(spec, seed=seed), make_module(spec)
        if start is not None:
            loaded(self._module, spec, start)
        self._judge.requires_grad_(False)
        online, target = FlatModule(self._module, sums=SUMS), FlatModule(self._judge)
        super().__init__(config, context, spec, online=online, target=target)
        self._kind = kind_of(config, self._module)

    def _gradient(self, columns: Columns, rows: int, weight: NDArray[np.float64] | None) -> Found:
        mine = self._rows(columns, rows, weight)
        self._online.joint.fill(0.0)
        target = self._targets(mine)
        out = self._module(mine.x, mine.legal, _pick(mine.noise, _ONLINE), _pick(mine.levels, _ONLINE))
        chosen = taken(out, mine.action)
        losses, errors = self._kind.compare(chosen, target, _pick(mine.levels, _ONLINE))
        loss = (losses * mine.weight).sum() / max(1, rows)
        if len(mine.action):
            loss.backward()  # type: ignore[no-untyped-call]
        value = float(self._module.head.means(chosen.detach()[:, None]).sum()) / max(1, rows)
        each: NDArray[np.float64] = errors.numpy().astype(np.float64)
        found = Found(
            float(loss.detach()), value, float(each.sum()) / max(1, rows), each, bool(target.isfinite().all())
        )
        return self._joint(found, rows) if self._ranks.size > 1 else found

    @torch.no_grad()
    def _targets(self, rows: Rows) -> Tensor:
        """What the online network's answers are compared with."""
        config, judge, head = self.config, self._judge, self._module.head
        noise, levels = _pick(rows.noise, _TARGET), _pick(rows.levels, _TARGET)
        after = judge(rows.after, rows.legal_after, noise, levels)
        if config.munchausen:
            policy, log_policy = soft_policy(head.means(after), rows.legal_after, config.munchausen_temperature)
            now = head.means(judge(rows.x, rows.legal, noise, levels))
            _, log_now = soft_policy(now, rows.legal, config.munchausen_temperature)
            bonus = munchausen_bonus(
                log_now, rows.action, weight=config.munchausen_weight, least=config.munchausen_least
            )
            return self._kind.target(rows.reward + bonus, rows.discount, Candidates(after, policy, log_policy))
        values = head.means(after)
        if config.double:
            chooser = self._module(
                rows.after, rows.legal_after, _pick(rows.noise, _CHOOSER), _pick(rows.levels, _CHOOSER)
            )
            values = head.means(chooser)
        best = double_values(values, after, rows.legal_after)[:, None]
        one = torch.ones(len(best), 1)
        return self._kind.target(rows.reward, rows.discount, Candidates(best, one, torch.zeros_like(one)))

    def _rows(self, columns: Columns, rows: int, weight: NDArray[np.float64] | None) -> Rows:
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        x, legal = self._seen(mine["observation"], mine.get("mask"))
        after, legal_after = self._seen(mine["next"], mine.get("next_mask"))
        weight = np.ones(rows) if weight is None else weight
        levels, noise = self._chance(rows)
        return Rows(
            x=x,
            after=after,
            legal=legal,
            legal_after=legal_after,
            action=torch.from_numpy(mine["action"].astype(np.int64)),
            reward=torch.from_numpy(mine["reward"]),
            discount=torch.from_numpy(mine["discount"]),
            weight=torch.from_numpy(weight[share].astype(np.float32)),
            levels=None if levels is None else levels[:, share],
            noise=noise,
        )

    def _seen(self, observation: Array, mask: NDArray[np.bool_] | None) -> tuple[Tensor, Tensor]:
        """(inputs float32[n, *shape], legal bool[n, A]); of ids that are unknown, those of some state, whose discount is 0."""
        if self._states is None:
            legal = np.ones((len(observation), self._actions), np.bool_) if mask is None else mask
            return rows_of(observation, self._module.shape), torch.from_numpy(legal)
        ids = np.maximum(observation - self._states.base, 0).astype(np.int64)
        x = self._states.x[torch.from_numpy(ids)].view(-1, *self._module.shape)
        return x, torch.from_numpy(self._states.mask[ids])

    def _chance(self, rows: int) -> tuple[Tensor | None, Tensor | None]:
        """(levels float32[3, rows, K], noise float32[3, size]) of this update, where the head wants them; the same on all ranks."""
        head, levels, noise = self._module.head, None, None
        if head.noise_size or head.cosine is not None:
            rng = seeding.generator(self._seed, "dqn", "update", self._updates)
            if head.cosine is not None:
                levels = torch.from_numpy(rng.random((3, rows, head.head.atoms), np.float32))
                levels[_CHOOSER] = midpoints(head.head.atoms)
            if head.noise_size:
                normal = torch.from_numpy(rng.standard_normal((3, head.noise_size), np.float32))
                noise = normal.sign() * normal.abs().sqrt()
        return levels, noise

    def _network_weights(self) -> Weights:
        return arrays_of(self._module)


def _pick(of: Tensor | None, which: int) -> Tensor | None:
    return None if of is None else of[which]


def kind_of(config: DQN, module: QModule | QTeam) -> Kind:
    """How the answers of this module are learned."""
    if config.distribution == "none":
        return Mean(config.huber_delta)
    if config.distribution == "c51":
        support = module.head.support
        assert isinstance(support, Tensor)
        return Categorical(support)
    return Quantiles(config.huber_delta)
