"""Networks that learned a model of their moves, and policies that search in it: MuZero's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.backend.device import to_device, to_numpy
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.action_values import rescale, unscale
from ludus.policies.actor_critic import load_arrays, shapes_of
from ludus.policies.base import check_mode, entry, integer, integers, validate_weights
from ludus.policies.bodies import orthogonal, own_stream
from ludus.policies.categorical import masked_softmax, one_hot_best, sample
from ludus.policies.search.policy import Searches
from ludus.policies.search.search import Expanded


def two_hot(x: Tensor, support: int, *, most: float | None = None) -> Tensor:
    """Return […] as probabilities […, 2 support + 1] of the whole numbers -support … support whose mean is h(x), on the
    two nearest. most: the largest x, if it is known: then the mean is x support / most."""
    y = (rescale(x) if most is None else x * (support / most)).clamp(-support, support)
    low = y.floor()
    high = (y - low)[..., None]
    place = (low.nan_to_num() + support).long()[..., None]  # NaN shows in the other part
    out = torch.zeros(*y.shape, 2 * support + 1, device=y.device)
    out.scatter_(-1, place, 1.0 - high)
    return out.scatter_add_(-1, (place + 1).clamp(max=2 * support), high)


def scalar(logits: Tensor, *, most: float | None = None) -> Tensor:
    """Return […] of logits […, 2 support + 1]: h⁻¹ of the mean of the whole numbers; or, if the largest value `most` is
    known, the mean × most / support."""
    support = logits.shape[-1] // 2
    numbers = torch.arange(-support, support + 1, dtype=logits.dtype, device=logits.device)
    mean = (logits.softmax(-1) * numbers).sum(-1)
    return unscale(mean) if most is None else mean * (most / support)


class LatentPrediction(NamedTuple):
    """Predictions for n latent states [n, L]: reward of the move that led there and value, as logits [n, 2 support +
    1], and the policy's logits [n, A]. reward: None at the root."""

    state: Tensor
    reward: Tensor | None
    policy: Tensor
    value: Tensor


class MuZeroNetwork(nn.Module):
    """The three functions of a `muzero` spec: representation h(o) = s, dynamics g(s, a) = (s', r) and prediction f(s) =
    (p, v), perceptrons of `hidden` widths. most: largest reward or value, or None. Latent states are scaled to [0, 1].
    temperature: of moves in self-play, a buffer."""

    temperature: Tensor

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        self.inputs, self.actions = integer(spec, "inputs"), integer(spec, "actions")
        self.support, latent, hidden = integer(spec, "support"), integer(spec, "latent"), integers(spec, "hidden")
        most = spec.config.get("most")  # earlier versions did not store it
        self.most = None if most is None else float(most)
        bins = 2 * self.support + 1
        self.representation = _perceptron(self.inputs, hidden, latent)
        self.dynamics = _perceptron(latent + self.actions, hidden, latent)
        self.reward = _perceptron(latent, hidden, bins)
        self.policy = _perceptron(latent, hidden, self.actions)
        self.value = _perceptron(latent, hidden, bins)
        self.register_buffer("temperature", torch.ones(1))

    def represented(self, x: Tensor) -> Tensor:
        """Return latent states [n, L] of observations float[n, inputs]."""
        return _scaled(self.representation(x))

    def moved(self, state: Tensor, action: Tensor) -> Tensor:
        """Return latent states [n, L] after actions int64[n]. They keep part of those before (a residual)."""
        played = nn.functional.one_hot(action, self.actions).to(state.dtype)
        return _scaled(state + self.dynamics(torch.cat([state, played], 1)))

    def initial(self, x: Tensor) -> LatentPrediction:
        """Return predictions from observations float[n, inputs]."""
        state = self.represented(x)
        return LatentPrediction(state, None, self.policy(state), self.value(state))

    def recurrent(self, state: Tensor, action: Tensor) -> LatentPrediction:
        """Return predictions from latent states [n, L] after actions int64[n]."""
        after = self.moved(state, action)
        return LatentPrediction(after, self.reward(after), self.policy(after), self.value(after))


def _perceptron(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def _scaled(state: Tensor) -> Tensor:
    """Return states scaled to [0, 1] by the minimum and maximum of each row. (Schrittwieser et al. 2020, appendix G.)"""
    low, high = state.amin(1, keepdim=True), state.amax(1, keepdim=True)
    return (state - low) / (high - low).clamp(min=1e-5)


def make_muzero(spec: PolicySpec, *, seed: int = 0) -> MuZeroNetwork:
    """Return a fresh network: orthogonal; rewards, values and policies start nearly even."""
    with own_stream(seed):
        network = MuZeroNetwork(spec)
        orthogonal(network)
        for head in (network.reward, network.policy, network.value):
            last = head[-1]
            assert isinstance(last, nn.Linear)
            nn.init.orthogonal_(last.weight, 0.01)
    return network.eval()


class LearnedModel:
    """A `Model` of searches by a learned network. discount: of the next value for the mover, negative where the
    opponent is next."""

    def __init__(self, network: MuZeroNetwork, *, discount: float, device: torch.device | str = "cpu") -> None:
        self._network, self._discount, self._device = network, discount, torch.device(device)

    @torch.no_grad()
    def roots(self, observation: Array, mask: NDArray[np.bool_] | None) -> Expanded:
        """Return the roots of observations [n, …]."""
        x = np.ascontiguousarray(observation.reshape(len(observation), self._network.inputs), np.float32)
        return self._expanded(self._network.initial(to_device(x, self._device)), mask)

    @torch.no_grad()
    def expand(self, states: Array, action: NDArray[np.int32]) -> Expanded:
        """Implement `Model.expand`. Everything is legal there, and nothing ends: the network has learned the value of
        that."""
        at, moves = to_device(states, self._device), to_device(action.astype(np.int64), self._device)
        return self._expanded(self._network.recurrent(at, moves), None)

    def _expanded(self, latent: LatentPrediction, mask: NDArray[np.bool_] | None) -> Expanded:
        n, actions = latent.policy.shape
        most = self._network.most
        reward = np.zeros(n) if latent.reward is None else to_numpy(scalar(latent.reward, most=most)).astype(np.float64)
        legal = np.ones((n, actions), np.bool_) if mask is None else mask
        state, policy, value = (
            to_numpy(part) for part in (latent.state, latent.policy, scalar(latent.value, most=most))
        )
        return Expanded(state, reward, np.full(n, self._discount), policy, legal, value)


class MuZeroPolicy(Searches):
    """Kind `muzero`. Config: inputs, actions, hidden, latent and support of the network; discount, below 0 where opponents move in turn;
    search, play, and noise: concentration and share."""

    model: LearnedModel

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        super().__init__(spec)
        with own_stream():
            self.network = MuZeroNetwork(spec)
        self._weights: Mapping[str, Array] = validate_weights(spec, weights, shapes_of(self.network))
        load_arrays(self.network, self._weights)
        self.network.requires_grad_(False).eval()
        self.actions = self.network.actions
        self.model = LearnedModel(self.network, discount=float(entry(spec, "discount")))

    def roots(self, observation: Array, mask: NDArray[np.bool_] | None) -> Expanded:
        return self.model.roots(observation, mask)

    def alone(
        self, observation: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, mode: str
    ) -> PolicyOutput:
        logits = self.model.roots(observation, mask).logits
        return PolicyOutput(*sample(logits, mask, noise, actions=self.actions, greedy=mode == "greedy"))

    def temperature(self, observation: Array) -> NDArray[np.float64]:
        """Implement `Searches.temperature`: the learner's, when it published."""
        return np.full(len(observation), float(self._weights["temperature"][0]))

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `Policy.tabulate`; None in self-play, where its search has noise."""
        check_mode(self, mode)
        if mode not in ("explore", "greedy"):
            return self.searched(enumeration, player, mode=mode)
        ids = enumeration.ids(player)
        mask = np.ascontiguousarray(enumeration.mask[ids])
        logits = self.model.roots(enumeration.observation[ids], mask).logits
        return (one_hot_best if mode == "greedy" else masked_softmax)(logits, mask)

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}
