"""AlphaZero's learner: replayed positions, with the search's results there and the game's outcome; and what it shares
with MuZero's."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.losses import masked_log_softmax
from ludus.algorithms.common.replay_learner import NetworkEnsemble, ReplayLearner, ReplaySettings
from ludus.algorithms.common.returns import lambda_returns
from ludus.backend.device import UpdateCost, resolve_placement, to_device
from ludus.backend.network import multiplications
from ludus.core import seeding
from ludus.core.errors import DataError
from ludus.core.types import Array, Metrics, SegmentEnd, State, Weights
from ludus.envs.rules import build_rules
from ludus.policies.actor_critic import arrays_of, load_arrays, make_network
from ludus.policies.registry import build_policy
from ludus.policies.search.policy import Searches
from ludus.policies.specs import SEARCH_POLICY, SEARCH_VALUE, joined, part_of, spec_of
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.table import to_host_columns
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.algorithms.alphazero.config import AlphaZero


def policy_loss(logits: Tensor, policy: Tensor, mask: Tensor) -> Tensor:
    """Return -Σ_a π(a) log p(a) of each row [n]. (Silver et al. 2018, equation 1, the second term.)

    Args:
        logits: float[n, A], of p.
        policy: float[n, A], π of the search.
        mask: bool[n, A], legal actions.
    """
    logp = masked_log_softmax(logits, mask)
    return -(policy * torch.where(mask, logp, torch.zeros_like(logp))).sum(1)


def value_loss(value: Tensor, target: Tensor) -> Tensor:
    """Return (z - v)² of each row [n]. (Silver et al. 2018, equation 1, the first term.)"""
    return (target - value).square()


def weight_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Return ‖θ‖², the sum of all weights' squares. (Silver et al. 2018, equation 1, the third term.)"""
    return torch.stack([p.square().sum() for p in parameters]).sum()


class SearchLearnerSettings(ReplaySettings, Protocol):
    """Options of an algorithm that `SearchLearner` reads."""

    @property
    def reanalyse(self) -> float: ...

    @property
    def average(self) -> float: ...

    @property
    def max_gradient_norm(self) -> float: ...


class SearchLearner(ReplayLearner):
    """Base of learners that learn from searches: one step of Adam per batch, by autograd, on any device. Published is
    the network, or its slow average."""

    config: SearchLearnerSettings
    networks: NetworkEnsemble

    @abstractmethod
    def weights(self) -> Weights:
        """Return the weights that searches use; see `Learner`."""

    def search_results(self, rows: Trajectories) -> tuple[Array, NDArray[np.float64]]:
        """Return (policy [N, A], value float64[N]) of the searches. Raise DataError for rows without them."""
        missing = [name for name in (SEARCH_POLICY, SEARCH_VALUE) if name not in rows.extras]
        if missing:
            raise DataError(
                f"{type(self.config).__name__} learns from what searches found, and these trajectories have no "
                f"{' and no '.join(missing)}. Play them in the mode self_play, and record both as extras, as `collect()` says."
            )
        return rows.extras[SEARCH_POLICY], rows.extras[SEARCH_VALUE].astype(np.float64)

    def learned_rewards(self, rows: Trajectories, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rewards float64[N] as they are learned. Where a game was cut, the value of the last search stands for
        its last move's reward and the rest."""
        out = rows.reward.astype(np.float64) * self._scale
        last = rows.start[1:] - 1
        out[last] = np.where(rows.tail == SegmentEnd.TERMINATED, out[last], value[last])
        return out

    def observations_and_masks(self, rows: Trajectories) -> tuple[Array, NDArray[np.bool_] | None]:
        """Return (observations [N, inputs], masks bool[N, A] or None) of rows; decoded from ids in an enumerated game."""
        observation, mask, enumeration = rows.observation, rows.mask, self._context.env.enumeration
        if enumeration is not None:
            observation, mask = enumeration.observation[observation], enumeration.mask[observation]
        return observation.reshape(rows.num_rows, -1), mask

    def reanalyzed_policy(self, policy: Tensor, observation: Any, mask: Any, share: slice) -> Tensor:
        """Return this rank's part `share` of a batch's policies float32[n, …, A], where the first `reanalyse` of the
        whole batch are replaced by results of new searches with the newest weights. (Schrittwieser et al. 2020,
        appendix H.)

        Args:
            policy: float32[n, …, A], this rank's.
            observation: [B, …, inputs], of the batch, on any device.
            mask: bool[B, …, A].
            share: This rank's rows.
        """
        steps, rows = math.prod(mask.shape[1:-1]), len(mask)
        count = int(self.config.reanalyse * rows)
        here = slice(min(share.start, count), min(share.stop, count))
        if here.start == here.stop:
            return policy
        name = type(self.config).__name__.lower()
        noise = seeding.generator(self._seed, name, "reanalyse", self.updates).random((count * steps, 2), np.float32)
        there = to_host_columns({"seen": observation[here], "legal": mask[here]})
        legal = there["legal"].reshape(-1, mask.shape[-1])
        searcher = build_policy(self.spec, self.weights())
        assert isinstance(searcher, Searches)
        search_policy = searcher.search(
            there["seen"].reshape(len(legal), -1), legal, noise[here.start * steps : here.stop * steps]
        ).policy
        fresh = to_device(search_policy.astype(np.float32), self.device).reshape(-1, *policy.shape[1:])
        return torch.cat([fresh, policy[len(fresh) :]])

    def gradient_step(self, loss: Tensor, by_policy: Tensor, by_value: Tensor) -> Metrics:
        """Take one step on a loss, two parts of which are reported. Return the metrics."""
        config = self.config
        sums, gradient = self.networks.descend(
            loss,
            (by_policy, by_value),
            rate=self.rate(config.learning_rate),
            max_norm=config.max_gradient_norm,
            guard=self.guard,
        )
        self.networks.update_target(config.average)
        return self.read({"loss": sums[0], "policy_loss": sums[1], "value_loss": sums[2], "gradient_norm": gradient})

    # ------------------------------------------------------------------------------------------ state

    def state_dict(self) -> State:
        return {**super().state_dict(), "networks": self.networks.state_dict(), "told": dict(self._metrics)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.networks.load_state_dict(state["networks"])
        self._metrics = {name: float(x) for name, x in state["told"].items()}


class AlphaZeroLearner(SearchLearner):
    """One step of Adam per batch on

    (z - v)² + cross-entropy(π, p) + l2 ‖θ‖².
    """

    config: AlphaZero

    def __init__(self, config: AlphaZero, context: LearnerContext, start: Weights | None = None) -> None:
        super().__init__(config, context, config.policy(context.env, context.seats))
        network = spec_of(self.spec, "network")
        seed = seeding.key(context.seed, "alphazero", "weights") % 2**63
        module = make_network(network, seed=seed)
        if start is not None:
            build_policy(self.spec, start)  # raises PolicyError where they do not fit
            load_arrays(module, part_of(start, "network"))
        why = "autograd learns from searches"
        self.settle(
            resolve_placement(
                context.device,
                UpdateCost(multiplications(module), config.batch, has_cpu_kernel=False, no_kernel_reason=why),
            )
        )
        self.networks = NetworkEnsemble(module, ranks=self.ranks, placement=self.placement, layouts=())
        self._rules = build_rules(self.spec.config["rules"])
        self._ways = [to_device(ways.astype(np.int64), self.device) for ways in self._rules.symmetries]
        self._shape = tuple(network.config["shape"])

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return every decision that was searched. z is the λ-return of rewards and of the values of later searches;
        where a game did not end, that of its last search. Raise DataError for rows without searches, and for games
        whose rewards differ from the rules'."""
        rows = trajectories
        self.count(rows)
        policy, value = self.search_results(rows)
        coming, nothing = self.learned_rewards(rows, value), np.zeros(len(rows.tail))
        target = lambda_returns(rows.start, coming, value, nothing, 1.0, self.config.value_lambda)
        observation, mask = self.observations_and_masks(rows)
        self._require_pay(rows, observation)
        columns = {
            "observation": observation,
            "mask": self._rules.legal(self._rules.positions(observation)) if mask is None else mask,
            "policy": policy,
            "value": target.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start)),
        }
        return [self.table_items(columns)]

    def _require_pay(self, rows: Trajectories, observation: Array) -> None:
        """Raise DataError if the reward of a move that ended a game differs from the rules': each game has one such
        move, of either player."""
        length, played = np.diff(rows.start), True if rows.added is None else ~rows.added
        segment = np.flatnonzero((rows.tail == SegmentEnd.TERMINATED) & (length > 0) & played)
        last = rows.start[segment + 1] - 1
        moved = self._rules.step(self._rules.positions(observation[last]), rows.action[last].astype(np.int32))
        paid = rows.reward[last] * self._scale
        wrong = np.flatnonzero((moved.discount == 0.0) & (np.abs(paid - moved.reward) > 1e-3))
        if len(wrong):
            first = wrong[0]
            raise DataError(
                f"AlphaZero's search plays for what its rules pay, and in {self._context.env.id} games pay something else: who made "
                f"the last move of episode {rows.episode[segment[first]]} got {paid[first]:g}, as it is learned, where the rules say "
                f"{moved.reward[first]:g}. Leave out wrappers and processing that change rewards, give scale_rewards=true for rewards that "
                "are only larger or smaller, or give rules={kind: module:Class} that pay what this game does."
            )

    # ------------------------------------------------------------------------------------------ learning

    def learn(self, batch: Sample) -> Metrics:
        """Take one gradient step; see `ReplayLearner.learn`."""
        config, rows = self.config, len(batch.index)
        share = self.ranks.share(rows)
        x, policy, mask, target = (
            to_device(batch.columns[name][share], self.device) for name in ("observation", "policy", "mask", "value")
        )
        if config.reanalyse:
            policy = self.reanalyzed_policy(policy, batch.columns["observation"], batch.columns["mask"], share)
        if config.symmetries:
            rng = seeding.generator(self._seed, "alphazero", "symmetries", self.updates)
            way = to_device(rng.integers(len(self._ways[0]), size=rows)[share], self.device)
            observation_index, action_index = (ways[way] for ways in self._ways)
            x, policy, mask = (
                x.gather(1, observation_index),
                policy.gather(1, action_index),
                mask.gather(1, action_index),
            )
        with self.placement.products():
            out, value, _ = self.networks.online.module(x.float().reshape(-1, *self._shape))
        assert value is not None
        by_policy = policy_loss(out.float(), policy, mask).sum() / rows
        by_value = value_loss(value.float(), target).sum() / rows
        norm = weight_norm(self.networks.online.module.parameters()) / self.ranks.size
        loss = by_policy + config.value_coefficient * by_value + config.l2 * norm
        return self.gradient_step(loss, by_policy, by_value)

    def weights(self) -> Weights:
        return joined({"network": arrays_of(self.networks.target.module)})
