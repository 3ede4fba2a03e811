"""Policies of action values, played epsilon-greedily; the networks of `action_values` are evaluated by CPU kernels or
by torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.backend.device import Placement, multiplications
from ludus.backend.mlp import Perceptron, Perceptrons, flatten, float_rows
from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError
from ludus.core.seeding import mix, uniform
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.action_values import ActionValues, layout_of, rows_of
from ludus.policies.actor_critic import agents_in, agents_of, load_arrays, shapes_of
from ludus.policies.actor_critic_policy import Recurrent
from ludus.policies.base import Values, check_mode, entry, integer, one_spec, validate_weights
from ludus.policies.bodies import own_stream, without_memory
from ludus.policies.categorical import (
    CategoricalPolicy,
    answers,
    best_legal,
    checked_mask,
    draw_row,
    epsilon_mix,
    full_mask,
    one_hot_best,
    refuse_row,
)
from ludus.policies.specs import per_env_exploration, tabulates
from ludus.policies.stacks import Architecture, CarriedWeights, DeviceStack, Memory, make_architecture

# --------------------------------------------------------------------------------------------------------------------
# From what networks answer to actions, compiled.


@kernel
def action_values(out: Array, mask: NDArray[np.bool_]) -> Array:
    """Return Q from network outputs float[n, A], or float[n, A + 1] dueling: V + advantage - mean legal advantage (Wang
    et al. 2016, equation 9, with the mean over legal actions). 0 where illegal."""
    n, actions = mask.shape
    q = np.zeros((n, actions), out.dtype)
    for i in range(n):
        base = out.dtype.type(0)
        if out.shape[1] > actions:
            legal = 0
            for a in range(actions):
                if mask[i, a]:
                    base -= out[i, a]
                    legal += 1
            base = base / out.dtype.type(max(legal, 1)) + out[i, actions]
        for a in range(actions):
            if mask[i, a]:
                q[i, a] = out[i, a] + base
    return q


def epsilon_greedy(
    q: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], epsilon: float | NDArray[np.float64]
) -> PolicyOutput:
    """Return epsilon-greedy actions: with probability epsilon a uniform legal action, else the first best legal one.

    Args:
        q: float[n, A].
        mask: bool[n, A], or None: all are legal.
        noise: float32[n, >= 1].
        epsilon: float64[n], or one for all.

    Returns:
        Actions with the extras "taken" and "best", q of the action and of the best legal one, float32[n].

    Raises:
        PolicyError: A mask of another shape, or a row without a legal action or with a NaN.
    """
    legal, action, logp = checked_mask(mask, *q.shape), *answers(len(q))
    q_action, best = np.empty((2, len(q)), np.float32)
    chance = np.full(len(q), epsilon) if isinstance(epsilon, float) else epsilon
    refuse_row(_epsilon_greedy(q, legal, noise[:, 0], chance, action, logp, q_action, best), q)
    return PolicyOutput(action, logp, None, {"taken": q_action, "best": best})


@kernel
def _epsilon_greedy(q, mask, noise, epsilon, action, logp, q_action, most):  # type: ignore[no-untyped-def]
    """Fill action, logp, q_action and most. Return the first row without a legal action or with a NaN, or -1."""
    actions, masked = q.shape[1], mask.size > 0
    weight = np.empty(actions)
    for i in range(len(q)):
        legal = mask[i if masked else 0]
        best = best_legal(q[i], legal)
        if best < 0:
            return i
        count = legal.sum() if masked else actions
        for a in range(actions):
            weight[a] = epsilon[i] / count if not masked or legal[a] else 0.0
        weight[best] += 1.0 - epsilon[i]
        action[i], logp[i] = draw_row(weight, weight.sum(), noise[i])
        q_action[i], most[i] = q[i, action[i]], q[i, best]
    return -1


@kernel
def scaled_normals(noise: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return f(z) = sign(z) √|z| of standard normals z, float32[n, size], made from each row's own uniform (Fortunato
    et al. 2018, below equation 11; Box and Muller 1958)."""
    out = np.empty((len(noise), size), np.float32)
    for i in range(len(noise)):
        key = mix(np.uint64(np.float64(noise[i]) * 4294967296.0))
        for j in range(0, size, 2):
            radius = np.sqrt(-2.0 * np.log(1.0 - uniform(key, np.uint64(j))))
            angle = 2.0 * np.pi * uniform(key, np.uint64(j + 1))
            for k in range(min(2, size - j)):
                z = radius * (np.cos(angle) if k == 0 else np.sin(angle))
                out[i, j + k] = np.sqrt(abs(z)) * (1.0 if z > 0.0 else -1.0)
    return out


# --------------------------------------------------------------------------------------------------------------------
# Acting.

Member: TypeAlias = Perceptron | ActionValues
Scalar = TypeVar("Scalar", bound=np.generic)


class _Values:
    """Base of evaluators of action values. memory, noise_size: of a network; 0: none."""

    memory = noise_size = 0
    _actions: int
    _agents: int

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Memory | None,
        noise: NDArray[np.float32],
        *,
        epsilon: float | NDArray[np.float64],
        explore: bool,
        spread: float = 0.0,
        index: NDArray[np.int32] | None = None,
    ) -> PolicyOutput:
        """Return actions; see `Policy.act`. Row i is played by policy index[i] (None: there is one), with epsilon
        float64[n], or one for all, spread by the first column of the noise (`per_env_exploration`)."""
        if spread:
            epsilon, noise = per_env_exploration(epsilon, noise[:, 0], spread=spread), noise[:, 1:]
        random = noise[:, 1] if explore and self.noise_size else None
        q, after = self.values(observation, mask, memory, random=random, index=index)
        act = epsilon_greedy(q, mask, noise, epsilon if explore else 0.0)
        return act if after is None else act._replace(memory=after)

    def values(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Memory | None = None,
        *,
        random: NDArray[np.float32] | None = None,
        index: NDArray[np.int32] | None = None,
    ) -> tuple[Array, Any]:
        """Return (action values float32[n, A], the memory after).

        Args:
            observation: [n, …].
            mask: bool[n, A], or None.
            memory: float32[n, M], or None.
            random: float32[n], uniforms from which a noisy head's noise is made; None: none.
            index: int32[n], the policy of each row; None: there is one.

        Raises:
            PolicyError: Memory of another shape, or agents that cannot be told apart.
        """
        raise NotImplementedError

    def _places(self, observation: Array, index: NDArray[np.int32] | None) -> NDArray[np.int32] | None:
        """Return the network of each row; None: there is one."""
        if self._agents == 1:
            return index
        agent = agents_of(observation, self._agents)
        return agent if index is None else index * np.int32(self._agents) + agent

    def _check_memory(self, memory: Array | None, rows: int) -> NDArray[np.float32]:
        expected = (rows, self.memory)
        if memory is None or memory.shape != expected:
            description = "none" if memory is None else f"shape {memory.shape}"
            raise PolicyError(
                f"an 'action_values' policy wants memory of shape {expected}; it was given {description}."
            )
        return float_rows(memory, self.memory)


class ValueNetworks(_Values):
    """The networks of K policies of one spec, with those of each one's agents adjacent. Perceptrons, and recurrent
    cells on top of them, are evaluated by CPU kernels, others by torch."""

    def __init__(self, members: Sequence[Member], *, actions: int, agents: int) -> None:
        first = members[0]
        self._members, self._actions, self._agents = members, actions, agents
        self._perceptrons: Perceptrons | None = None
        self._cells: Recurrent | None = None
        if isinstance(first, Perceptron):
            return
        self.memory, self.noise_size = first.memory, first.head.noise_size
        if first.core is not None and first.plain:
            modules = cast(Sequence[ActionValues], members)
            parts = [(list(m.body.children()), cast(nn.RNNBase, m.core), m.head.linear) for m in modules]
            self._cells, self._inputs = Recurrent(parts), math.prod(first.shape)

    def values(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Memory | None = None,
        *,
        random: NDArray[np.float32] | None = None,
        index: NDArray[np.int32] | None = None,
    ) -> tuple[Array, Any]:
        index = self._places(observation, index)
        first = self._members[0]
        if isinstance(first, Perceptron):
            if index is None:
                return self._values(first.outputs(observation), mask), None
            if self._perceptrons is None:
                self._perceptrons = Perceptrons(cast(Sequence[Perceptron], self._members))
            return self._values(self._perceptrons.outputs(observation, index), mask), None
        hidden = self._check_memory(cast(Array | None, memory), len(observation)) if self.memory else None
        if self._cells is not None and hidden is not None:
            x = float_rows(observation, self._inputs)
            out, after = self._cells.step(x, hidden, np.zeros(len(x), np.int32) if index is None else index)
            return self._values(out, mask), after
        mask = None if mask is None else full_mask(mask, len(observation), self._actions)
        if index is None:
            return _torch_values(first, observation, mask, hidden, random)
        q, next_memory = (
            np.empty((len(observation), self._actions), np.float32),
            None if hidden is None else hidden.copy(),
        )
        for k in np.unique(index).tolist():
            rows = np.flatnonzero(index == k)
            q[rows], state = _torch_values(
                cast(ActionValues, self._members[k]),
                observation[rows],
                _own(mask, rows),
                _own(hidden, rows),
                _own(random, rows),
            )
            if next_memory is not None:
                next_memory[rows] = state
        return q, next_memory

    def _values(self, out: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> Array:
        """Return the values of a plain head's outputs."""
        return out if out.shape[1] == self._actions else action_values(out, full_mask(mask, len(out), self._actions))


def _own(of: NDArray[Scalar] | None, rows: NDArray[np.int64]) -> NDArray[Scalar] | None:
    return None if of is None else of[rows]


def _torch_values(
    network: ActionValues,
    observation: Array,
    mask: NDArray[np.bool_] | None,
    memory: NDArray[np.float32] | None,
    random: NDArray[np.float32] | None,
) -> tuple[Array, Array | None]:
    """Return values and memory by torch; see `ValueNetworks.values`."""
    legal = None if mask is None else torch.from_numpy(mask)
    noise = None
    if random is not None:
        noise = torch.from_numpy(scaled_normals(np.ascontiguousarray(random, np.float32), network.head.noise_size))
    with torch.no_grad():
        features = network.body(rows_of(observation, network.shape))
        if memory is None:
            return network.values(features, legal, noise).numpy(), None
        after = network.step(features, torch.from_numpy(memory))
        return network.values(after[:, : network.width], legal, noise).numpy(), after.numpy()


class DeviceValues(_Values):
    """`ValueNetworks` by torch on a device. Memory stays where it is."""

    def __init__(self, policies: Sequence[ActionValuePolicy], placement: Placement) -> None:
        first = policies[0]
        architecture = _architecture(json.dumps(dict(first.spec.config)))
        network = cast(ActionValues, architecture.network)
        self.memory, self.noise_size, self._head = network.memory, network.head.noise_size, network.head
        self._actions, self._agents, self._shape = first.actions, first.agents, network.shape
        self._stack = DeviceStack(architecture, [own for policy in policies for own in policy.carried], placement)

    def values(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Memory | None = None,
        *,
        random: NDArray[np.float32] | None = None,
        index: NDArray[np.int32] | None = None,
    ) -> tuple[Array, Any]:
        n, index = len(observation), self._places(observation, index)
        if self.memory and not isinstance(memory, Tensor):
            memory = self._check_memory(memory, n)
        wanted = mask is not None and self._head.value is not None  # over whose legal actions the mean goes
        return self._stack(
            np.zeros(n, np.int32) if index is None else index,
            observation.reshape(n, *self._shape),
            memory if self.memory else None,
            full_mask(mask, n, self._actions) if wanted else None,
            None if random is None else scaled_normals(np.ascontiguousarray(random, np.float32), self.noise_size),
        )


@lru_cache(maxsize=64)
def _architecture(config: str) -> Architecture:
    """Return the architecture of one agent's network."""
    spec = PolicySpec("action_values", json.loads(config))
    with own_stream():
        network = ActionValues(spec)
    return make_architecture(network, _ask, batched=entry(spec, "body").get("kind") == "mlp")


def _ask(
    network: nn.Module, x: Tensor, memory: Tensor | None, mask: Tensor | None, noise: Tensor | None
) -> tuple[Tensor, ...]:
    """Return action values, and the memory after."""
    assert isinstance(network, ActionValues)
    features = network.body(x)
    if memory is None:
        return (network.values(features, mask, noise),)
    after = network.step(features, memory)
    return network.values(after[:, : network.width], mask, noise), after


class ActionValuePolicy(CategoricalPolicy):
    """Kind `action_values`; config as `action_values_spec` makes it. Weights are named as in the module's
    `state_dict()`, and `epsilon` float32[1]: "explore" plays a uniform legal action with that probability, and
    otherwise, like "greedy", the best one. So exploration travels with the weights.

    A noisy head has different noise in every row and decision of "explore", made from a second uniform; so acting stays
    pure, and the size of the noise travels with the weights. Its logp is that of the action given this noise, and
    "explore" has no table.

    With `spread` in its config the first number of the noise is no uniform, but the position of the row's environment
    among all (`RolloutRequest.place`), and epsilon differs by it; such an "explore" has no table.

    The values of the action and of the best legal one are the extras "taken" and "best".

    With `agents` in its config each agent of the team has a network, `members.K.…`, and observations end in its one-hot
    id.
    """

    extras: ClassVar[tuple[str, ...]] = ("taken", "best")

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec, self.actions = spec, integer(spec, "actions")
        self.agents = agents_in(spec, weights)
        prefixes = [f"members.{k}." for k in range(self.agents)] if self.agents > 1 else [""]
        layout, networks = layout_of(spec), []
        if layout is None:
            with without_memory(spec.config.get("body")):
                shapes = shapes_of(ActionValues(spec))
        else:
            shapes = layout.shapes()
        every = {prefix + name: shape for prefix in prefixes for name, shape in shapes.items()}
        self._weights = validate_weights(spec, weights, {**every, "epsilon": (1,)})
        self.epsilon = float(self._weights["epsilon"][0])
        if not 0.0 <= self.epsilon <= 1.0:
            raise PolicyError(f"epsilon of a {spec.kind!r} policy is {self.epsilon}; expected a probability.")
        if layout is None:
            with own_stream():
                networks = [ActionValues(spec).requires_grad_(False) for _ in prefixes]
        for network, prefix in zip(networks, prefixes, strict=False):
            load_arrays(network, {name: self._weights[prefix + name] for name in shapes})
        self.carried = [CarriedWeights({name: self._weights[prefix + name] for name in shapes}) for prefix in prefixes]
        self.members: list[Member] = list(networks)
        if layout is not None:
            names = [[prefix + name for name in shapes] for prefix in prefixes]
            self.members = [Perceptron(layout, flatten(self._weights, own)) for own in names]
        self._networks = ValueNetworks(self.members, actions=self.actions, agents=self.agents)
        self.memory_shape = (self._networks.memory,) if self._networks.memory else None
        self.spread = float(spec.config.get("spread", 0.0))
        self.noise_width = 1 + (self._networks.noise_size > 0) + (self.spread > 0.0)

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`. Raise PolicyError for an unknown mode, a row without a legal action or with a NaN,
        memory of another shape, and, of a team, observations without an agent's id."""
        check_mode(self, mode)
        return self._networks.act(
            observation, mask, memory, noise, epsilon=self.epsilon, explore=mode == "explore", spread=self.spread
        )

    def probabilities(
        self, observation: Array, mask: NDArray[np.bool_], *, mode: str
    ) -> tuple[NDArray[np.float64], Mapping[str, Array]]:
        """Implement `CategoricalPolicy.probabilities`, for a policy that `tabulates`."""
        probs = one_hot_best(self._networks.values(observation, mask)[0], mask)
        return (epsilon_mix(probs, mask, self.epsilon) if mode == "explore" else probs), {}

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `CategoricalPolicy.tabulate`; None unless the spec `tabulates`: in "explore" with a noisy head,
        whose choices are no product of a table, with memory, and for a team, since enumerated games have no ids of
        agents."""
        check_mode(self, mode)
        return super().tabulate(enumeration, player, mode=mode) if tabulates(self.spec, mode=mode) else None

    def values(
        self, observation: Array, mask: NDArray[np.bool_] | None, memory: Array | None, state: Array | None
    ) -> Values:
        """Implement `SupportsValues.values`; of a noisy head, without noise. The state is ignored."""
        values = np.array(self._networks.values(observation, mask, memory)[0][:, : self.actions], np.float32)
        legal = values if mask is None else np.where(mask, values, -np.inf)
        return Values(legal.max(axis=1).astype(np.float32), values)

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @property
    def multiplications(self) -> int:
        """Return the multiplications per row, where torch may evaluate it."""
        return multiplications(array.shape for array in self._weights.values()) // self.agents

    @staticmethod
    def stack(policies: Sequence[ActionValuePolicy]) -> StackedActionValues:
        """Return policies of one spec as one. Raise PolicyError if their specs differ."""
        one_spec(policies)
        members = [member for policy in policies for member in policy.members]
        first = policies[0]
        return StackedActionValues(policies, ValueNetworks(members, actions=first.actions, agents=first.agents))

    @staticmethod
    def stack_on(policies: Sequence[ActionValuePolicy], placement: Placement) -> StackedActionValues:
        """Return policies of one spec as one on a device, evaluated by torch."""
        one_spec(policies)
        return StackedActionValues(policies, DeviceValues(policies, placement))


class StackedActionValues:
    """K policies of one spec, each with its own epsilon, evaluated in one call."""

    def __init__(self, policies: Sequence[ActionValuePolicy], networks: _Values) -> None:
        self._first, self._networks = policies[0], networks
        self._epsilon = np.array([policy.epsilon for policy in policies])

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Memory | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        check_mode(self._first, mode)
        epsilon, spread = self._epsilon[index], self._first.spread
        return self._networks.act(
            observation, mask, memory, noise, epsilon=epsilon, explore=mode == "explore", spread=spread, index=index
        )
