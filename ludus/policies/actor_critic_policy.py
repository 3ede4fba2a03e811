"""Policies of any action space, with or without memory, for images or vectors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.backend.device import Placement, multiplications
from ludus.backend.mlp import ACTIVATIONS, Layout, Perceptron, Perceptrons, by_policy, dense_from, flatten, tanh
from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.actor_critic import (
    CLIP,
    ActorCritic,
    NetworkDescription,
    Tower,
    agents_in,
    agents_of,
    describe_network,
    load_arrays,
    member_spec,
)
from ludus.policies.base import Values, check_mode, one_spec, validate_weights
from ludus.policies.bodies import OwnBody, Scale, own_stream
from ludus.policies.categorical import CategoricalPolicy, masked_softmax, one_hot_best
from ludus.policies.heads import Categorical
from ludus.policies.stacks import Architecture, CarriedWeights, DeviceStack, Memory, make_architecture

# --------------------------------------------------------------------------------------------------------------------
# Recurrent cores compiled for acting: a batch, of one network or of many, in one compiled call. Each network is
# flat float32[size]: into the gates from what is seen [F, G × H] and its bias, and from what is remembered [H, G ×
# H] and its bias, then the head [H, outputs] and its bias. Gates lie side by side, in torch's order.

Rows = NDArray[np.float32]


class Recurrent:
    """K networks of one shape: a perceptron body, a GRU or an LSTM, and a head. Row i goes through network index[i]."""

    def __init__(self, parts: Sequence[tuple[Sequence[nn.Module], nn.RNNBase, Sequence[nn.Linear]]]) -> None:
        """parts: The body's layers, the core, and linear layers that form one head, of each network."""
        body, core, head = parts[0]
        kinds = {type(part) for part in body}
        self._activation = ACTIVATIONS.index("relu" if nn.ReLU in kinds else "tanh")
        self._hidden, self._lstm = core.hidden_size, isinstance(core, nn.LSTM)
        self._outputs = sum(part.out_features for part in head)
        self.memory = self._hidden * (2 if self._lstm else 1)
        self._flats = np.stack([_flat(core, head) for _, core, head in parts])
        bodies = [_body(body, self._activation) for body, _, _ in parts]
        self._bodies = Perceptrons([body for body in bodies if body is not None]) if bodies[0] is not None else None

    def step(self, x: Rows, memory: Rows, index: NDArray[np.int32]) -> tuple[Rows, Rows]:
        """Run one step: x float32[n, inputs], memory float32[n, M] -> (outputs float32[n, outputs], the memory after)."""
        if self._bodies is not None:
            x = self._bodies.outputs(x, index)
            _activate(x, self._activation)
        order, start = by_policy(index, len(self._flats))
        out, after = np.empty((len(x), self._outputs), np.float32), np.empty((len(x), self.memory), np.float32)
        _cells(self._flats, x, memory, self._hidden, self._lstm, order, start, out, after)
        return out, after


def _body(layers: Sequence[nn.Module], activation: int) -> Perceptron | None:
    """Return linear layers as one perceptron, without the last activation; None if there are none."""
    linear = [part for part in layers if isinstance(part, nn.Linear)]
    if not linear:
        return None
    widths = (linear[0].in_features, *(part.out_features for part in linear))
    flat = torch.cat([piece for part in linear for piece in (part.weight.reshape(-1), part.bias)]).detach().numpy()
    return Perceptron(Layout(widths, ACTIVATIONS[activation]), flat)


def _flat(core: nn.RNNBase, head: Sequence[nn.Linear]) -> Rows:
    weight_x, weight_h, bias, more = (cast(torch.Tensor, p) for p in core.parameters())
    pieces = [weight_x.T, bias, weight_h.T, more]
    pieces += [torch.cat([part.weight for part in head]).T, torch.cat([part.bias for part in head])]
    out: Rows = torch.cat([piece.reshape(-1) for piece in pieces]).detach().numpy()
    return out


@kernel(fastmath={"contract", "nsz"})
def _activate(x, activation):  # type: ignore[no-untyped-def]
    """Apply an activation in place, by its index in `ACTIVATIONS`."""
    for i in range(len(x)):
        row = x[i]
        if activation == 0:
            for j in range(len(row)):
                row[j] = tanh(row[j])
        else:
            for j in range(len(row)):
                row[j] = np.float32(0.0) if row[j] < np.float32(0.0) else row[j]


@kernel
def _cells(flats, x, h, hidden, lstm, order, start, out, after):  # type: ignore[no-untyped-def]
    """Run row order[i] of x [n, F] and h [n, M] through the network whose rows include i, into out [n, outputs] and
    after [n, M]."""
    for k in range(len(flats)):
        rows = order[start[k] : start[k + 1]]
        if len(rows):
            answer, state = _cell(flats[k], x[rows], h[rows], hidden, lstm, out.shape[1])
            for r in range(len(rows)):  # number by number: an assignment of arrays would take long to compile
                for j in range(answer.shape[1]):
                    out[rows[r], j] = answer[r, j]
                for j in range(state.shape[1]):
                    after[rows[r], j] = state[r, j]


@kernel(fastmath={"contract"})
def _cell(flat, x, h, hidden, lstm, outputs):  # type: ignore[no-untyped-def]
    """Run a GRU (Cho et al. 2014, as in torch): r = σ(x_r + h_r), z = σ(x_z + h_z), c = tanh(x_c + r h_c), h' = (1 - z)
    c + z h; or an LSTM (Hochreiter and Schmidhuber 1997, with Gers's forget gate): c' = σ(f) c + σ(i) tanh(g), h' =
    σ(o) tanh(c'); memory is h, then c."""
    n, gates = len(x), 4 if lstm else 3
    gates_x, gates_h = np.empty((n, gates * hidden), np.float32), np.empty((n, gates * hidden), np.float32)
    at = dense_from(flat, 0, x, -1, gates_x)
    at = dense_from(flat, at, np.ascontiguousarray(h[:, :hidden]), -1, gates_h)
    state, h_new = np.empty(h.shape, np.float32), np.empty((n, hidden), np.float32)
    half, one = np.float32(0.5), np.float32(1.0)
    for i in range(n):
        s, k = gates_x[i], gates_h[i]
        for j in range(hidden):  # σ(v) = (1 + tanh(v / 2)) / 2
            first = half + half * tanh(half * (s[j] + k[j]))
            second = half + half * tanh(half * (s[hidden + j] + k[hidden + j]))
            if lstm:
                new = tanh(s[2 * hidden + j] + k[2 * hidden + j])
                last = half + half * tanh(half * (s[3 * hidden + j] + k[3 * hidden + j]))
                cell = second * h[i, hidden + j] + first * new
                state[i, hidden + j] = cell
                h_new[i, j] = last * tanh(cell)
            else:
                new = tanh(s[2 * hidden + j] + first * k[2 * hidden + j])
                h_new[i, j] = (one - second) * new + second * h[i, j]
            state[i, j] = h_new[i, j]
    out = np.empty((n, outputs), np.float32)
    dense_from(flat, at, h_new, -1, out)
    return out, state


# --------------------------------------------------------------------------------------------------------------------
# Convolutional bodies, for acting: the same numbers as torch's modules, from images as environments give them.


class Convolutions:
    """A body of convolutions and one linear layer (`make_body`), for images [n, C, H, W] of numbers of any type.

    The scale is multiplied into the first weights, so that images are copied once, into a buffer that is kept, with the
    channels last: torch's fastest layout for convolutions. The linear layer is one more of them.
    """

    def __init__(self, body: nn.Sequential, shape: tuple[int, ...]) -> None:
        """Raise PolicyError if the body is another."""
        parts = list(body.children())
        scaling = parts.pop(0) if isinstance(parts[0], Scale) else Scale(1.0)
        assert isinstance(scaling, Scale)
        convolutions, linear = parts[0], next((part for part in parts if isinstance(part, nn.Linear)), None)
        if not isinstance(convolutions, nn.Sequential) or linear is None:
            raise PolicyError(f"a body of {[type(part).__name__ for part in parts]} is not one of convolutions.")
        start = convolutions[0]
        assert isinstance(start, nn.Conv2d)
        self._start, self._shape = start, shape
        self._rest = convolutions[1:].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._first = _last(start.weight * scaling.factor)
        with torch.no_grad():
            features = convolutions(torch.zeros(1, *shape)).shape[1:]
        self._weight, self._bias = _last(linear.weight.view(-1, *features)), linear.bias
        self._images = np.empty((0, *shape[1:], shape[0]), np.float32)

    def features(self, images: Array) -> Rows:
        """Return the features: [n, C, H, W] -> float32[n, features]."""
        functional, start = nn.functional, self._start
        with torch.no_grad():
            x = torch.from_numpy(self._channels_last(images)).permute(0, 3, 1, 2)
            x = self._rest(functional.conv2d(x, self._first, start.bias, start.stride, start.padding))
            out: Rows = torch.relu_(functional.conv2d(x, self._weight, self._bias)).flatten(1).numpy()
        return out

    def _channels_last(self, images: Array) -> Rows:
        """Return float32[n, H, W, C], in a buffer that is kept."""
        n, (channels, height, width) = len(images), self._shape
        if n > len(self._images):
            self._images = np.empty((n, height, width, channels), np.float32)
        out, pixels = self._images[:n], height * width
        _move(np.ascontiguousarray(images).reshape(n, channels, pixels), out.reshape(n, pixels, channels))
        return out


def _last(weight: torch.Tensor) -> torch.Tensor:
    return weight.detach().contiguous(memory_format=torch.channels_last)


@kernel
def _move(images, out):  # type: ignore[no-untyped-def]
    """Write out[n, pixels, C] = images[n, C, pixels], as float32."""
    n, channels, pixels = images.shape
    for i in range(n):
        for c in range(channels):
            for j in range(pixels):
                out[i, j, c] = np.float32(images[i, c, j])


class ActorCriticAnswer(NamedTuple):
    """Outputs for n rows: the head's float32[n, >= outputs], value float32[n] or None, memory float32[n, M] or None."""

    out: Rows
    value: Rows | None
    memory: Rows | None


Evaluated: TypeAlias = tuple[Rows, Rows | None, Any]
"""The same without names, which take as long to make as a row takes to evaluate. Memory may be a tensor on a device."""


class ActingNetwork:
    """One network for acting: compiled if it is a perceptron, with or without memory, or has that after convolutions;
    else the module.

    Attributes:
        plain: What is compiled of a network without memory.
        cores: What is compiled of one with memory.
        sight: Convolutions before them.
        module: The module, unless the perceptron is all there is.
        moments: Mean and variance of normalised observations.
        free: Outputs that do not depend on observations.
    """

    def __init__(self, spec: PolicySpec, description: NetworkDescription, weights: Mapping[str, Rows]) -> None:
        """spec: Of one agent, with its description; weights fit it."""
        self.spec, self.description, self.arrays = spec, description, weights
        self.free = np.concatenate([weights[name] for name in description.free]) if description.free else None
        self.moments = (weights["normaliser.mean"], weights["normaliser.var"]) if "normaliser.mean" in weights else None
        self._outputs = description.head.outputs - description.head.free
        self.plainest: Perceptron | None = None  # of observations as they are, and all that the head wants
        self.plain: Perceptron | None = None
        self.cores: Cores | None = None
        self.sight: tuple[Convolutions, ...] = ()
        self.module: ActorCritic | None = None
        if description.layouts:
            self.plain = Perceptron(description.layouts["policy"], flatten(weights, description.names))
            self._valued = description.layouts["policy"].widths[-1] > self._outputs
            if self.moments is None and self.free is None and description.scale == 1.0:
                self.plainest = self.plain
            return
        with own_stream():
            self.module = ActorCritic(spec)
        load_arrays(self.module, weights)
        self.module.requires_grad_(False).eval()
        self.sight = sight_of(self.module)
        if not self.sight and description.body != "mlp":
            return
        if self.module.memory:
            self.cores = Cores([self.module])
        else:
            self.plain = head_behind(self.module)

    @cached_property
    def carried(self) -> CarriedWeights:
        """The weights, for stacks on devices."""
        return CarriedWeights(self.arrays)

    def evaluate(self, observation: Array, memory: Array | None = None) -> Evaluated:
        """Evaluate the network."""
        if self.plainest is not None:  # few rows take no longer than these lines do
            out = self.plainest.outputs(self.shaped(observation))
            return out, out[:, self._outputs] if self._valued else None, None
        inputs = self.network_inputs(observation)
        if self.plain is not None:
            return self.parts(self.plain.outputs(inputs[0]))
        hidden = self.check_memory(memory, len(inputs[0])) if self.description.memory else None
        if self.cores is not None and hidden is not None:
            return self.parts(*self.cores.step(inputs, hidden, np.zeros(len(hidden), np.int32)))
        assert self.module is not None
        before = None if hidden is None else torch.from_numpy(hidden)
        with torch.no_grad():
            out, value, after = self.module(torch.from_numpy(inputs[0]), before)
        shared = self.module.critic is None and value is not None
        return out.numpy(), value.numpy() if shared else None, None if after is None else after.numpy()

    def network_inputs(self, observation: Array, moments: Sequence[Rows] | None = None) -> tuple[Rows, ...]:
        """Return the networks' inputs, the actor's first: features of images; or observations, normalised (by
        `moments`, or its own) or scaled where torch does not do it."""
        x = self.shaped(observation)
        if self.plainest is not None:
            return (x,)
        if self.sight:
            return tuple(body.features(x) for body in self.sight)
        x, moments = float_array(x), self.moments if moments is None else moments
        if self.plain is None and self.cores is None:
            return (x,)
        if moments is not None:
            return (normalize(x, *moments),)
        return (x if self.description.scale == 1.0 else x * np.float32(self.description.scale),)

    def shaped(self, observation: Array) -> Array:
        """Return observations [n, *shape]; flattened where the spec's shape is one number. Raise PolicyError if they
        have another shape."""
        shape = self.description.shape
        if observation.shape[1:] == shape:
            return observation
        if len(shape) != 1 or math.prod(observation.shape[1:]) != shape[0]:
            raise PolicyError(
                f"an 'actor_critic' policy was given observations of shape {observation.shape[1:]}; its spec says {shape}."
            )
        return observation.reshape(len(observation), *shape)

    def check_memory(self, memory: Array | None, rows: int) -> Rows:
        """Return the memory as float32. Raise PolicyError unless it has the right shape."""
        expected = (rows, self.description.memory)
        if memory is None or memory.shape != expected:
            description = "none" if memory is None else f"shape {memory.shape}"
            raise PolicyError(f"an 'actor_critic' policy wants memory of shape {expected}; it was given {description}.")
        return np.array(memory, np.float32)

    def parts(self, out: Rows, memory: Rows | None = None, free: Rows | None = None) -> Evaluated:
        """Return the parts of compiled outputs, whose last column may be the value; `free`, or its own, is appended."""
        width, free = self._outputs, self.free if free is None else free
        value = out[:, width] if out.shape[1] > width else None
        if free is not None:
            head_out, out = out, np.empty((len(out), width + free.shape[-1]), np.float32)
            out[:, :width], out[:, width:] = head_out[:, :width], free
        return out, value, memory


class ActingNetworks:
    """K networks of one spec: perceptrons, with or without memory, in one call; others in one call for each that has
    rows."""

    def __init__(self, networks: Sequence[ActingNetwork]) -> None:
        self._networks, first = networks, networks[0]
        plain = [network.plain for network in networks if network.plain is not None and not network.sight]
        self._plain = Perceptrons(plain) if plain else None
        self._cores = None
        if first.cores is not None and not first.sight:
            self._cores = Cores([network.module for network in networks if network.module is not None])
        self._free = None if first.free is None else np.stack([n.free for n in networks if n.free is not None])
        known = [network.moments for network in networks if network.moments is not None]
        self._moments = [np.stack(moment) for moment in zip(*known, strict=True)] or None

    def evaluate(self, observation: Array, memory: Array | None, index: NDArray[np.int32]) -> Evaluated:
        """Evaluate rows as `ActingNetwork.evaluate`, where row i is for network index[i], int[n] in 0 … K - 1."""
        first = self._networks[0]
        if self._plain is not None and first.plainest:
            return first.parts(self._plain.outputs(first.shaped(observation), index))
        if self._plain is None and self._cores is None:
            return self._one_by_one(observation, memory, index)
        moments = None if self._moments is None else [moment[index] for moment in self._moments]
        (x,), after = first.network_inputs(observation, moments), None
        if self._plain is not None:
            out = self._plain.outputs(x, index)
        elif self._cores is not None:
            out, after = self._cores.step((x,), first.check_memory(memory, len(x)), index)
        return first.parts(out, after, None if self._free is None else self._free[index])

    def _one_by_one(self, observation: Array, memory: Array | None, index: NDArray[np.int32]) -> Evaluated:
        first, n = self._networks[0].description, len(index)
        out = np.empty((n, first.head.outputs), np.float32)
        after = self._networks[0].check_memory(memory, n) if first.memory else None
        value = None
        for k in np.unique(index).tolist():
            rows = np.flatnonzero(index == k)
            answer = self._networks[k].evaluate(observation[rows], None if after is None else after[rows])
            out[rows] = answer[0][:, : out.shape[1]]
            if after is not None:
                after[rows] = answer[2]
            if answer[1] is not None:
                value = np.empty(n, np.float32) if value is None else value
                value[rows] = answer[1]
        return out, value, after


class DeviceNetworks:
    """`ActingNetworks` by torch on a device."""

    def __init__(self, networks: Sequence[ActingNetwork], placement: Placement) -> None:
        self._first = first = networks[0]
        architecture = _architecture(json.dumps(dict(first.spec.config)))
        self._stack = DeviceStack(architecture, [network.carried for network in networks], placement)
        self._outputs = first.description.head.outputs

    def evaluate(self, observation: Array, memory: Memory | None, index: NDArray[np.int32]) -> Evaluated:
        """Evaluate rows as `ActingNetworks.evaluate`. Memory stays where it is."""
        first = self._first
        if first.description.memory and not isinstance(memory, Tensor):
            memory = first.check_memory(memory, len(index))
        numbers, after = self._stack(index, first.shaped(observation), memory if first.description.memory else None)
        if numbers.shape[1] == self._outputs:
            return numbers, None, after
        return np.ascontiguousarray(numbers[:, :-1]), numbers[:, -1], after


@lru_cache(maxsize=64)
def _architecture(config: str) -> Architecture:
    """Return the architecture of one agent's network, without a critic that acting does not need (one without memory)."""
    spec = PolicySpec("actor_critic", json.loads(config))
    with own_stream():
        network = ActorCritic(spec)
    if network.critic is not None and network.own_core is None:
        network.critic = network.value = None
    return make_architecture(network, _ask, batched=describe_network(spec).body == "mlp")


def _ask(network: nn.Module, x: Tensor, memory: Tensor | None) -> tuple[Tensor, ...]:
    """Return the head's outputs, followed by a shared value, and the memory after."""
    assert isinstance(network, ActorCritic)
    out, value, after = network(x, memory)
    if value is not None and network.critic is None:
        out = torch.cat([out, value[:, None]], dim=1)
    return (out,) if after is None else (out, after)


class ActorCriticPolicy(CategoricalPolicy):
    """Kind `actor_critic`; config as `actor_critic_spec` makes it. Observations [n, *shape], numbers of any type.

    Noise becomes actions by inverting the cumulative distribution. Memory float32[n, M] is that of the cores (an LSTM's
    output and cell; a separate critic has its own core), zeros at episode starts. A shared value is the extra "value".
    Weights are named as in `ActorCritic.state_dict()`, normaliser statistics included. Several `agents` have one such
    network each, whose weights are named `members.K.…`; flat observations then end in the agent's one-hot id. All are
    evaluated in one call.
    """

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec, self.agents = spec, agents_in(spec, weights)
        own = spec if self.agents == 1 else member_spec(spec)
        description = describe_network(own)
        prefixes = [f"members.{k}." for k in range(self.agents)] if self.agents > 1 else [""]
        shapes = {prefix + name: shape for prefix in prefixes for name, shape in description.shapes.items()}
        self._weights = validate_weights(spec, weights, shapes)
        self.networks = [
            ActingNetwork(own, description, {name: self._weights[prefix + name] for name in description.shapes})
            for prefix in prefixes
        ]
        self._team = ActingNetworks(self.networks) if self.agents > 1 else None
        self._evaluate = self.networks[0].evaluate if self._team is None else self._evaluate_team
        self._critics: list[ActorCritic] | None = None  # made when somebody asks what they say
        self.head, self.noise_width = description.head, description.head.noise_width
        self.memory_shape = (description.memory,) if description.memory else None
        self.actions = self.head.outputs if isinstance(self.head, Categorical) else 0

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`. Raise PolicyError for an unknown mode, a row that has no legal action, observations
        or memory of another shape, observations without an agent's id where there are several, and outputs that are not
        finite."""
        check_mode(self, mode)
        return self.answer(self._evaluate(observation, memory), mask, noise, mode=mode)

    def answer(
        self, evaluation: Evaluated, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, mode: str
    ) -> PolicyOutput:
        """Return the actions for an evaluation, mask and noise."""
        out, value, memory = evaluation
        action, logp = self.head.act(out, mask, noise, greedy=mode == "greedy")
        return PolicyOutput(action, logp, memory, {} if value is None else {"value": value})

    def evaluate(self, observation: Array, memory: Array | None = None) -> ActorCriticAnswer:
        """Evaluate the network of each row."""
        return ActorCriticAnswer(*self._evaluate(observation, memory))

    def _evaluate_team(self, observation: Array, memory: Array | None = None) -> Evaluated:
        assert self._team is not None
        return self._team.evaluate(observation, memory, agents_of(observation, self.agents))

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        """Implement `CategoricalPolicy.probabilities`. Raises PolicyError if it has none."""
        if not self.actions or self.memory_shape is not None:
            raise PolicyError(
                "this 'actor_critic' policy has no table of action probabilities: it remembers, or plays vectors."
            )
        out = self.evaluate(observation).out
        return (one_hot_best if mode == "greedy" else masked_softmax)(out, mask), {}

    def values(
        self, observation: Array, mask: NDArray[np.bool_] | None, memory: Array | None, state: Array | None
    ) -> Values:
        """Implement `SupportsValues.values` by the critic, shared or its own. A central one gives nothing without a
        state."""
        if self._critics is None:
            with own_stream():
                self._critics = [ActorCritic(network.spec).requires_grad_(False).eval() for network in self.networks]
            for critic, network in zip(self._critics, self.networks, strict=True):
                load_arrays(critic, network.arrays)
        first, n = self._critics[0], len(observation)
        if first.value is None or (first.state and state is None):
            return Values()
        place = np.zeros(n, np.int32) if self.agents == 1 else agents_of(observation, self.agents)
        inputs, out = self.networks[0].shaped(observation), np.empty(n, np.float32)
        for k in np.unique(place).tolist():
            rows = np.flatnonzero(place == k)
            x, before, there = (
                None if part is None else torch.from_numpy(np.array(part[rows], np.float32))
                for part in (inputs, memory if self.memory_shape else None, state if first.state else None)
            )
            assert x is not None
            with torch.no_grad():
                value = self._critics[k](x, before, None, there)[1]
            out[rows] = value.numpy()
        return Values(out)

    @property
    def multiplications(self) -> int:
        """Return the multiplications per row, where torch may evaluate it."""
        return multiplications(self.networks[0].description.shapes.values())

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `Policy.tabulate`; None with memory, for vectors of actions, and with several agents, whose ids
        enumerated games do not have."""
        if not self.actions or self.memory_shape is not None or self.agents > 1:
            return None
        return super().tabulate(enumeration, player, mode=mode)

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @staticmethod
    def stack(policies: Sequence[ActorCriticPolicy]) -> StackedActorCritic:
        """Return policies of one spec as one. Raise PolicyError if their specs differ."""
        return StackedActorCritic(policies, ActingNetworks)

    @staticmethod
    def stack_on(policies: Sequence[ActorCriticPolicy], placement: Placement) -> StackedActorCritic:
        """Return policies of one spec as one on a device, evaluated by torch."""
        return StackedActorCritic(policies, partial(DeviceNetworks, placement=placement))


class StackedActorCritic:
    """K policies of one architecture: acting for all costs about as much as for one, if they are perceptrons. The
    result equals K separate calls up to rounding."""

    def __init__(
        self,
        policies: Sequence[ActorCriticPolicy],
        of: Callable[[Sequence[ActingNetwork]], ActingNetworks | DeviceNetworks],
    ) -> None:
        one_spec(policies)
        self._first = policies[0]
        self._networks = of([network for policy in policies for network in policy.networks])

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        check_mode(self._first, mode)
        if (agents := self._first.agents) > 1:
            index = index * np.int32(agents) + agents_of(observation, agents)
        return self._first.answer(self._networks.evaluate(observation, memory, index), mask, noise, mode=mode)


def normalize(x: Rows, mean: Rows, var: Rows) -> Rows:
    """Return normalised observations, as `Normalizer` does, in NumPy."""
    out: Rows = (x - mean) / np.sqrt(var + np.float32(1e-8))
    return np.clip(out, -CLIP, CLIP, out=out)


def float_array(observation: Array) -> Rows:
    """Return contiguous float32 that may be written to (for arrays that may not, kernels would be compiled once more)."""
    fine = observation.dtype == np.float32 and observation.flags.carray
    return observation if fine else np.array(observation, np.float32, order="C")


class Cores:
    """The recurrent networks of K policies, compiled, with a critic's core if it has its own. Bodies are perceptrons,
    or are left out and features are passed."""

    def __init__(self, networks: Sequence[ActorCritic]) -> None:
        self._actors = Recurrent([(*_tower(n.actor), _heads(n)) for n in networks])
        critics = [(*_tower(n.own_core), [cast(nn.Linear, n.value)]) for n in networks if n.own_core is not None]
        self._critics = Recurrent(critics) if critics else None

    def step(self, inputs: Sequence[Rows], memory: Rows, index: NDArray[np.int32]) -> tuple[Rows, Rows]:
        """Run one step of the actors; see `Recurrent.step`. The memory is that of both cores. inputs: of each core, or
        one for both."""
        first, *others = (x.reshape(len(x), math.prod(x.shape[1:])) for x in inputs)
        actor_size = self._actors.memory
        out, after = self._actors.step(first, np.ascontiguousarray(memory[:, :actor_size]), index)
        if self._critics is None:
            return out, after
        critic_memory = self._critics.step(
            others[0] if others else first, np.ascontiguousarray(memory[:, actor_size:]), index
        )[1]
        return out, np.concatenate([after, critic_memory], axis=1)


def _tower(tower: Tower) -> tuple[list[nn.Module], nn.RNNBase]:
    assert tower.core is not None
    return _layers(tower), tower.core


def _layers(tower: Tower) -> list[nn.Module]:
    """Return the body's layers; none of a body of convolutions, which is evaluated separately."""
    parts = list(tower.body.children())
    return parts if isinstance(tower.body, OwnBody) or not any(isinstance(p, nn.Sequential) for p in parts) else []


def sight_of(network: ActorCritic) -> tuple[Convolutions, ...]:
    """Return the bodies of convolutions that acting evaluates: the actor's, and that of a critic with its own core.
    None where images are normalised first."""
    towers = [network.actor, *([network.own_core] if network.own_core is not None else [])]
    if network.normaliser is not None or any(_layers(tower) for tower in towers) or len(network.shape) != 3:
        return ()
    return tuple(Convolutions(cast(nn.Sequential, tower.body), network.shape) for tower in towers)


def _heads(network: ActorCritic) -> list[nn.Linear]:
    """Return the head, and the value if it is shared."""
    return [network.head] if network.value is None or network.critic is not None else [network.head, network.value]


def head_behind(network: ActorCritic) -> Perceptron:
    """Return the head, and the value if it is shared, compiled, for features of convolutions."""
    last = _heads(network)
    flat = torch.cat([*(part.weight.reshape(-1) for part in last), *(part.bias for part in last)]).numpy()
    return Perceptron(Layout((network.actor.features, sum(part.out_features for part in last))), flat)
