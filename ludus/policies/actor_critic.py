"""Networks of actor-critic policies: a body, an optional recurrent core, a head, and a value, shared, separate, or from
the environment's state. A spec's network is described without building it (`describe_network`)."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ludus.backend.device import floats_to_host, to_device
from ludus.backend.mlp import Layout
from ludus.core.errors import PolicyError
from ludus.core.types import Array, PolicySpec, Weights
from ludus.policies.base import choice, entry, integer, integers, validate_weights
from ludus.policies.bodies import for_rows, linear, make_body, orthogonal, own_stream, without_memory
from ludus.policies.heads import Head, head_of

CORES: dict[str, Callable[[int, int], nn.RNNBase] | None] = {"none": None, "gru": nn.GRU, "lstm": nn.LSTM}
CLIP = 10.0  # normalised observations lie within this many standard deviations


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Order in which n rows of segments run through time: row order[k] of step t, the longest segments first.

    Attributes:
        order: int64[n].
        steps: int64[T], rows of each step.
        rank: int64[S], segments from the longest to the shortest.
    """

    order: Tensor
    steps: Tensor
    rank: Tensor

    @staticmethod
    def of(start: Array, device: torch.device) -> Packing:
        """Return the packing of S segments of at least one row: segment s owns rows start[s] … start[s + 1] - 1."""
        length = np.diff(start)
        rank = np.argsort(-length, kind="stable")
        place = np.empty(len(length), np.int64)
        place[rank] = np.arange(len(length))
        segment = np.repeat(np.arange(len(length)), length)
        t = np.arange(int(start[-1])) - start[segment]
        order = np.lexsort((place[segment], t))
        steps = torch.from_numpy(np.bincount(t).astype(np.int64))  # torch wants these on the host
        return Packing(to_device(order, device), steps, to_device(rank, device))


class Normalizer(nn.Module):
    """(x - mean) / std, clipped to ±10, in place of a spec's scale. Statistics are buffers: they travel with the
    weights, and gradients do not move them."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(*shape))
        self.register_buffer("var", torch.ones(*shape))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised inputs: float[n, *shape] -> the same."""
        return ((x - for_rows(self.mean, x)) / for_rows((self.var + 1e-8).sqrt(), x)).clamp(-CLIP, CLIP)


class ReturnScale(nn.Module):
    """Moments of discounted returns, whose deviation divides rewards in learners. They travel with the weights; acting
    ignores them."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("var", torch.ones(()))
        self.register_buffer("count", torch.zeros(()))


class Tower(nn.Module):
    """A body and its core."""

    def __init__(self, body: nn.Module, features: int, core: str, width: int) -> None:
        super().__init__()
        self.body, kind = body, CORES[core]
        self.core = kind(features, width) if kind is not None else None
        self.features = features if kind is None else width
        self.memory = {"none": 0, "gru": width, "lstm": 2 * width}[core]

    def forward(self, x: Tensor, memory: Tensor | None, packing: Packing | None) -> tuple[Tensor, Tensor | None]:
        """Run the body and the core: x float[n, *shape] -> (features [n, F], the memory after).

        Args:
            x: Inputs.
            memory: Without a packing [n, M] of rows; with one [S, M] of segments, before the first row.
            packing: None: every row is one step.
        """
        features: Tensor = self.body(x)
        if self.core is None or memory is None:
            return features, None
        if packing is None:
            return core_step(self.core, features, memory)
        packed = PackedSequence(features[packing.order], packing.steps)
        before = memory[packing.rank][None]
        state = before if self.memory == self.features else tuple(p.contiguous() for p in before.chunk(2, dim=2))
        out, after = unrolled(self.core, packed, state)
        after = after[0] if isinstance(after, Tensor) else torch.cat([part[0] for part in after], dim=1)
        answer = torch.empty_like(out.data).index_copy(0, packing.order, out.data)
        return answer, torch.empty_like(after).index_copy(0, packing.rank, after)


class Cell(nn.Module):
    """One step of a core, whose parameters may be those of many networks."""

    def __init__(self, core: nn.RNNBase) -> None:
        super().__init__()
        self.names = [name for name, _ in core.named_parameters()]
        for name, parameter in core.named_parameters():
            self.register_parameter(name, parameter)
        self.lstm = isinstance(core, nn.LSTM)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Run `core_step` by the equations of `torch.nn.GRU` and `LSTM`."""
        inputs, hidden, bias, more = (cast(Tensor, getattr(self, name)) for name in self.names)
        h, *c = memory.chunk(2, dim=1) if self.lstm else (memory,)
        gates_x, gates_h = linear(x, inputs, bias), linear(h, hidden, more)
        if self.lstm:
            first, second, new, last = (gates_x + gates_h).chunk(4, dim=1)
            cell = second.sigmoid() * c[0] + first.sigmoid() * new.tanh()
            out = last.sigmoid() * cell.tanh()
            return out, torch.cat([out, cell], dim=1)
        (r, z, new), (old_r, old_z, old) = gates_x.chunk(3, dim=1), gates_h.chunk(3, dim=1)
        new = (new + (r + old_r).sigmoid() * old).tanh()
        after = new + (z + old_z).sigmoid() * (h - new)
        return after, after


def core_step(core: nn.RNNBase | Cell, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Run one step of a GRU or an LSTM: x float[n, F], memory [n, M] -> (output [n, H], the memory after)."""
    if isinstance(core, Cell):
        return cast(tuple[Tensor, Tensor], core(x, memory))
    inputs, hidden, bias, more = (cast(Tensor, p) for p in core.parameters())
    if isinstance(core, nn.GRU):
        after = torch.gru_cell(x, memory, inputs, hidden, bias, more)
        return after, after
    state = [p.contiguous() for p in memory.chunk(2, dim=1)]
    out, cell = torch.lstm_cell(x, state, inputs, hidden, bias, more)
    return out, torch.cat([out, cell], dim=1)


def unrolled(core: nn.RNNBase, x: Tensor | PackedSequence, state: Any) -> Any:
    """Return the output of a GRU or an LSTM for sequences."""
    with warnings.catch_warnings():
        # A GPU's kernel wants weights in one piece of their own; here they are parts of a learner's vector, and are copied at each call.
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        return core(x, state)


class ActorCritic(nn.Module):
    """The network of an `actor_critic` spec.

    A central critic is a perceptron over the environment's state and the agent's own observation, concatenated (the
    "agent-specific global state" of Yu et al. 2022, "The surprising effectiveness of PPO in cooperative multi-agent
    games", section 5.2). It has no core: a state needs no memory. Acting does not evaluate it.

    Attributes:
        memory: Floats of recurrent state per slot; 0: none.
        state: Entries of a central critic's input in addition to the observation; 0: there is none.
    """

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        config = spec.config
        self.shape = integers(spec, "shape")
        self.head_of: Head = head_of(entry(spec, "action"))
        normalised = dict(config.get("normalise", {}))
        self.normaliser = Normalizer(self.shape) if normalised.get("observations") else None
        self.returns = ReturnScale() if normalised.get("returns") else None
        self.scale = 1.0 if self.normaliser is not None else float(spec.config.get("scale", 1.0))
        self.actor = self._tower(spec)
        self.head = nn.Linear(self.actor.features, self.head_of.outputs - self.head_of.free)
        learned = self.head_of.free - len(self.head_of.numbers)
        self.log_std = nn.Parameter(torch.zeros(learned)) if learned else None
        for name in self.head_of.numbers:
            self.register_buffer(name, torch.zeros(1))
        value = choice(spec, "value", ("shared", "separate", "central", "none"))
        self.state = integer(spec, "state") if value == "central" else 0
        self.state_normaliser = Normalizer((self.state,)) if self.state and self.normaliser is not None else None
        self.critic = self._tower(spec) if value == "separate" else self._central(spec) if self.state else None
        shared = self.actor if self.critic is None else self.critic
        self.value = nn.Linear(shared.features, 1) if value != "none" else None
        self.memory = self.actor.memory + (self.critic.memory if self.critic is not None else 0)

    @property
    def networks(self) -> list[ActorCritic]:
        """Return the networks as a team's: itself."""
        return [self]

    def _tower(self, spec: PolicySpec) -> Tower:
        core = choice(spec, "core", tuple(CORES))
        body, features = make_body(entry(spec, "body"), self.shape, scale=self.scale)
        return Tower(body, features, core, integer(spec, "width") if core != "none" else 0)

    def _central(self, spec: PolicySpec) -> Tower:
        body, features = make_body(entry(spec, "critic"), (self.state + math.prod(self.shape),))
        return Tower(body, features, "none", 0)

    @property
    def own_core(self) -> Tower | None:
        """Return the critic, if it has its own core."""
        return self.critic if self.critic is not None and self.critic.core is not None else None

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        packing: Packing | None = None,
        state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Evaluate the network: (outputs of the head [n, outputs], value [n] or None, memory after).

        Args:
            x: float[n, *shape].
            memory: As `Tower.forward` takes it.
            packing: As `Tower.forward` takes it.
            state: float[n, state], for a central critic, which gives no value without it.
        """
        if self.normaliser is not None:
            x = self.normaliser(x)
        sizes = [self.actor.memory, self.memory - self.actor.memory]
        actor_memory, critic_memory = (None, None) if memory is None else torch.split_with_sizes(memory, sizes, 1)
        features, after = self.actor(x, actor_memory, packing)
        out = self.head(features)
        if self.head_of.free:
            out = torch.cat([out, for_rows(self.free(), out).expand(out.shape[0], -1)], dim=1)
        if self.state and state is None:
            return out, None, after
        if self.critic is not None:
            features, other = self.critic(x if state is None else self._side_by_side(state, x), critic_memory, packing)
            after = after if other is None or after is None else torch.cat([after, other], dim=1)
        return out, None if self.value is None else self.value(features)[:, 0], after

    def free(self) -> Tensor:
        """Return the head's outputs float[free] that do not depend on the observation."""
        learned = [] if self.log_std is None else [self.log_std]
        return torch.cat([*learned, *(getattr(self, name) for name in self.head_of.numbers)], dim=-1)

    def unroll(
        self, x: Tensor, memory: Tensor | None, start: Array | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Evaluate segments that begin at `start` int64[S + 1]; None: every row is one step. See `forward`."""
        out: tuple[Tensor, Tensor | None, Tensor | None]
        out = self(x, memory, None if start is None else Packing.of(start, x.device), state)
        return out

    def value_of(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """Return only the value [n], of a network that has one: without memory, or central."""
        if self.normaliser is not None:
            x = self.normaliser(x)
        tower = self.actor if self.critic is None else self.critic
        inputs = x if state is None else self._side_by_side(state, x)
        out: Tensor = cast(nn.Linear, self.value)(tower(inputs, None, None)[0])[:, 0]
        return out

    def _side_by_side(self, state: Tensor, x: Tensor) -> Tensor:
        """Return a central critic's inputs for states float[n, state] and observations [n, *shape], normalised if they
        are."""
        if self.state_normaliser is not None:
            state = self.state_normaliser(state)
        return torch.cat([state, x.flatten(1) * self.scale], dim=1)


# --------------------------------------------------------------------------------------------------------------------
# Teams whose agents have networks of their own, told apart by what they observe.


def agents_in(spec: PolicySpec, weights: Weights | None = None) -> int:
    """Return the number of networks of a spec: one for all agents, or one for each. Raise PolicyError for more than `weights` can be
    of."""
    agents = integer(spec, "agents", least=2) if "agents" in spec.config else 1
    if weights is not None and agents > max(1, len(weights)):
        raise PolicyError(f"a {spec.kind!r} policy of {agents} agents has {len(weights)} weights; each agent has some.")
    return agents


def member_spec(spec: PolicySpec) -> PolicySpec:
    """Return the spec of one agent's network, of a team's spec."""
    return PolicySpec(spec.kind, {key: value for key, value in spec.config.items() if key != "agents"})


def agents_of(observation: Array, agents: int) -> NDArray[np.int32]:
    """Return the agent of each of n flat observations, int32[n], from the one-hot id that the wrapper `agent_ids`
    appends. Raise PolicyError if it is none."""
    if not len(observation):
        return np.zeros(0, np.int32)
    ids = observation.reshape(len(observation), -1)[:, -agents:]
    index: NDArray[np.int32] = ids.argmax(axis=1).astype(np.int32)
    wrong = (ids != (np.arange(agents) == index[:, None])).any(axis=1)
    if ids.shape[1] != agents or wrong.any():
        sample = ids[int(wrong.argmax())].tolist()
        raise PolicyError(
            f"a team with a network for each of its {agents} agents tells them apart by the last {agents} entries of what they observe, "
            f"one of which is 1 and the others 0; it was given {sample}. Put the wrapper agent_ids around the environment, as the last one "
            "that changes observations."
        )
    return index


class TeamNetwork(nn.Module):
    """The networks of a spec of several agents: each row goes through that of its agent."""

    def __init__(self, spec: PolicySpec, *, seed: int = 0, initial_std: float = 1.0) -> None:
        super().__init__()
        own = member_spec(spec)
        self.members = nn.ModuleList(
            make_network(own, seed=(seed + k) % 2**63, initial_std=initial_std) for k in range(agents_in(spec))
        )

    @property
    def networks(self) -> list[ActorCritic]:
        """Return the networks, one for each agent."""
        return [member for member in self.members if isinstance(member, ActorCritic)]

    def unroll(
        self, x: Tensor, memory: Tensor | None, start: Array | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Evaluate segments of single agents; see `ActorCritic.unroll`. Raise PolicyError for observations without an
        agent's id. Off a CPU each network evaluates all rows: sorting them would require reading numbers."""
        if x.device.type != "cpu":
            return self.unroll_all(x, memory, start, state)
        agent = agents_of(x.detach().numpy(), len(self.members))
        owner = agent if start is None else agent[start[:-1]]
        answers, rows, segments = [], [], []
        for k, network in enumerate(self.networks):
            agent_rows, own = np.flatnonzero(agent == k), np.flatnonzero(owner == k)
            if not len(agent_rows) and (k or len(x)):
                continue
            where, segment_index = torch.from_numpy(agent_rows), torch.from_numpy(own)
            starts = None if start is None else np.concatenate([[0], np.cumsum(np.diff(start)[own])])
            before, states = None if memory is None else memory[segment_index], None if state is None else state[where]
            answers.append(network.unroll(x[where], before, starts, states))
            rows.append(agent_rows)
            segments.append(own)
        out, value, after = zip(*answers, strict=True)
        return _back(out, rows), _joined(value, rows), _joined(after, segments)

    def unroll_all(
        self, x: Tensor, memory: Tensor | None, start: Array | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Evaluate all rows by each network; unknown ids count as the first agent's."""
        owner = self._owner(x)
        segment_owner = owner if start is None else owner[to_device(start[:-1], x.device)]
        every = zip(*(network.unroll(x, memory, start, state) for network in self.networks), strict=True)
        out, value, after = (
            _chosen(parts, who) for parts, who in zip(every, (owner, owner, segment_owner), strict=True)
        )
        return cast(Tensor, out), value, after

    def _owner(self, x: Tensor) -> Tensor:
        """Return the agent of each row, int64[n]."""
        return x.flatten(1)[:, -len(self.members) :].argmax(dim=1)

    def value_of(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        if x.device.type != "cpu":
            return cast(Tensor, _chosen([network.value_of(x, state) for network in self.networks], self._owner(x)))
        agent = agents_of(x.detach().numpy(), len(self.members))
        out = x.new_empty(len(x))
        for k, network in enumerate(self.networks):
            rows = torch.from_numpy(np.flatnonzero(agent == k))
            if len(rows):
                out[rows] = network.value_of(x[rows], None if state is None else state[rows])
        return out


def _chosen(parts: Sequence[Tensor | None], owner: Tensor) -> Tensor | None:
    """Return row k of part owner[k]; None of missing parts."""
    there = [part for part in parts if part is not None]
    return torch.stack(there)[owner, torch.arange(len(owner), device=owner.device)] if there else None


def _back(parts: Sequence[Tensor], rows: Sequence[NDArray[np.int64]]) -> Tensor:
    """Return parts, of the listed rows, as one in the order of rows."""
    return torch.cat(list(parts))[torch.from_numpy(np.argsort(np.concatenate(rows)))]


def _joined(parts: Sequence[Tensor | None], rows: Sequence[NDArray[np.int64]]) -> Tensor | None:
    there = [part for part in parts if part is not None]
    return _back(there, rows) if there else None


# --------------------------------------------------------------------------------------------------------------------
# What a spec says of its network without one being made: a policy of a perceptron is built at every update, and
# making modules takes ten times as long.


@dataclass(frozen=True, slots=True, eq=False)
class NetworkDescription:
    """Description of one agent's network.

    Attributes:
        shape: Shape of an observation.
        head: The head.
        body: Kind of the body.
        memory: Floats of recurrent state per slot.
        scale: Factor of observations; 1 if they are normalised.
        layouts: Perceptrons that it consists of; see `layouts`.
        names: Names of the weights of "policy" there, in order.
        free: Weights that are outputs themselves.
        shapes: Shapes of all weights, by name.
    """

    shape: tuple[int, ...]
    head: Head
    body: str
    memory: int
    scale: float
    layouts: Mapping[str, Layout]
    names: tuple[str, ...]
    free: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]


def describe_network(spec: PolicySpec) -> NetworkDescription:
    """Return the description of a spec's network. Raise PolicyError for an invalid spec."""
    return _describe_network(json.dumps(dict(spec.config)))


@lru_cache(maxsize=64)
def _describe_network(config: str) -> NetworkDescription:
    spec = PolicySpec("actor_critic", json.loads(config))
    with without_memory(spec.config.get("body"), spec.config.get("critic")):
        network = ActorCritic(spec)
    body = entry(spec, "body")
    parts = _layouts(network, body)
    return NetworkDescription(
        shape=network.shape,
        head=network.head_of,
        body=body["kind"],
        memory=network.memory,
        scale=network.scale,
        layouts=parts,
        names=tuple(parts["policy"].shapes()) if parts else (),
        free=(*(("log_std",) if network.log_std is not None else ()), *network.head_of.numbers),
        shapes=shapes_of(network),
    )


def layouts(spec: PolicySpec) -> Mapping[str, Layout]:
    """Return the perceptrons that a network consists of, whose layers are named as its weights. Raise PolicyError for
    an invalid spec.

    Returns:
        "policy", the actor and its head, with the value if that is shared; "value", a separate critic with the same
        inputs. {} of a network with memory, convolutions or a custom body, or of a team's.
    """
    return describe_network(spec).layouts if agents_in(spec) == 1 else {}


def _layouts(network: ActorCritic, body: Mapping[str, Any]) -> dict[str, Layout]:
    if body["kind"] != "mlp" or network.memory:
        return {}
    activation, inputs = body.get("activation", "tanh"), math.prod(network.shape)

    def layout(name: str, tower: Tower, *last: tuple[str, int]) -> Layout:
        linear = [(k, part) for k, part in enumerate(tower.body.children()) if isinstance(part, nn.Linear)]
        names = *(((f"{name}.body.{k}", part.out_features),) for k, part in linear), last
        return Layout((inputs, *(sum(n for _, n in layer) for layer in names)), activation, names)

    head, value = ("head", network.head.out_features), ("value", 1)
    if network.value is not None and network.critic is None:
        return {"policy": layout("actor", network.actor, head, value)}
    out = {"policy": layout("actor", network.actor, head)}
    if network.critic is not None and not network.state:
        out["value"] = layout("critic", network.critic, value)
    return out


def make_network(spec: PolicySpec, *, seed: int = 0, initial_std: float = 1.0) -> ActorCritic:
    """Return a fresh network: orthogonal weights, of gain √2, in the core 1, 0.01 for the head and 1 for the value;
    zero biases (Huang et al. 2022, "The 37 implementation details of PPO"). Torch's global stream is unchanged. Raise
    PolicyError for an invalid spec.

    Args:
        spec: The spec.
        seed: Seed of the weights.
        initial_std: Standard deviation of Gaussian actions, in the network's units, where it does not depend on the
            observation.
    """
    with own_stream(seed):
        network = ActorCritic(spec)
        orthogonal(network)
        for tower in (network.actor, network.critic):
            if tower is not None and tower.core is not None:
                for name, parameter in tower.core.named_parameters():
                    nn.init.orthogonal_(parameter) if "weight" in name else nn.init.zeros_(parameter)
        orthogonal(network.head, 0.01)
        if network.value is not None:
            orthogonal(network.value, 1.0)
        if network.log_std is not None:
            nn.init.constant_(network.log_std, float(np.log(initial_std)))
    return network.eval()


def uniform_network(spec: PolicySpec, *, seed: int) -> ActorCritic:
    """Return a fresh network whose layers are uniform within ±1/√(their inputs), biases too: torch's default, that of
    the authors' TD3 (Fujimoto et al. 2018) and of Stable-Baselines3's off-policy learners. (LeCun et al. 1998,
    "Efficient BackProp", section 4.6.)"""
    with own_stream(seed):
        return ActorCritic(spec).eval()


def arrays_of(network: nn.Module) -> dict[str, Array]:
    """Return copies of parameters and buffers, float32, by name; in one transfer from a GPU."""
    state = network.state_dict()
    return dict(zip(state, floats_to_host(list(state.values())), strict=True))


def initial_weights(spec: PolicySpec, rng: np.random.Generator) -> Weights:
    """Return weights of `make_network`."""
    return arrays_of(make_network(spec, seed=int(rng.integers(2**63))))


def first_weights(spec: PolicySpec, start: Weights | None, *, seed: int) -> Weights:
    """Return copies of `start`, or fresh weights if it is None. Raise PolicyError if they do not fit."""
    return (
        arrays_of(make_network(spec, seed=seed))
        if start is None
        else validate_weights(spec, start, describe_network(spec).shapes)
    )


def shapes_of(network: nn.Module) -> Mapping[str, tuple[int, ...]]:
    """Return the names and shapes of what `arrays_of` returns."""
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def load_arrays(network: nn.Module, arrays: Mapping[str, Any]) -> None:
    """Load what `arrays_of` returned into the network."""
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
