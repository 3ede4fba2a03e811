"""A policy, or a mixture of several, as one torch module without chance: what every exported file computes.

observation [n, …], mask [n, A], memory [n, M], member [n]  ->  scores, probabilities | action, mean, std;  next_memory

Pre-processing, normalisers, masks and recurrent cells lie in it. Who runs it draws actions, and once per episode the member of a mixture.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ludus.core.errors import PolicyError
from ludus.core.types import Enumeration, PolicySpec, condition_mode
from ludus.evaluation.policies import SampledPolicy
from ludus.policies.action_value_policy import ActionValuePolicy
from ludus.policies.action_values import ActionValues
from ludus.policies.action_values import load_weights as load_values
from ludus.policies.actor_critic import ActorCritic, load_arrays, member_spec
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.actor_values import ActorValuesPolicy
from ludus.policies.base import Policy
from ludus.policies.bodies import own_stream
from ludus.policies.categorical import TabularPolicy
from ludus.policies.heads import Categorical, Gaussian, Head, MultiCategorical, Point, Squashed, head_of
from ludus.policies.random import RandomPolicy
from ludus.policies.registry import ChoicePolicy, ConditionedPolicy, TwoPolicies, build_policy
from ludus.policies.specs import part_of, spec_of
from ludus.policies.torch_module import TorchPolicy, networks_of

LARGEST_TABLE = 1 << 24
"""Numbers of the observations of a table's information states, at most."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What goes into an exported policy and what comes out of it.

    Attributes:
        name: Of the policy, as it was named.
        game: Id of the environment; "" if it is not known.
        player: Player that it plays.
        observation: Shape of one observation.
        kind: Of actions: "discrete", "multi_discrete", "gaussian", "tanh" or "point".
        choices: Number of actions, of each number where they are several; () of boxes.
        box: {shape, low, high, middle, half} of boxes, flat; {} of others.
        memory: Numbers of memory; 0: none.
        members: Names of the policies of the mixture; one where it is none.
        probabilities: Of the members.
        modes: Of each member: "greedy" or "explore".
        inputs: Names, in order.
        outputs: Names, in order.
    """

    name: str
    game: str
    player: int
    observation: tuple[int, ...]
    kind: str
    choices: tuple[int, ...]
    box: Mapping[str, Any]
    memory: int
    members: tuple[str, ...]
    probabilities: tuple[float, ...]
    modes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


class ExportedPolicy(nn.Module):
    """Policies of one player as one module.

    Args:
        policies: Of the mixture; of each the probability and the mode.
        name: For the signature.
        game: Id of the environment; "" if it is not known.
        player: Whose policies they are.
        enumeration: Of the game, for policies that play by ids of its information states.

    Raises:
        PolicyError: If one of them is no function of observations, masks and memory, or they do not fit each other; it says why.
    """

    def __init__(
        self,
        policies: Sequence[SampledPolicy],
        *,
        name: str,
        game: str = "",
        player: int = 0,
        enumeration: Enumeration | None = None,
    ) -> None:
        super().__init__()
        with own_stream():
            members = _members(policies, enumeration, player)
        self.members = nn.ModuleList(members)
        first = members[0]
        for member in members:
            if (member.shape, member.kind, member.choices) != (first.shape, first.kind, first.choices):
                raise PolicyError(
                    f"{name} is a mixture of policies with observations {first.shape} and {member.shape}, actions {first.kind} "
                    f"{first.choices} and {member.kind} {member.choices}; one file needs equal ones. Export RUN@PLAYER/POLICY."
                )
        self.memory = max(member.memory for member in members)
        total = sum(one.prob for one in policies)
        discrete = bool(first.choices)
        inputs = ["observation", *(["mask"] if discrete else []), *(["memory"] if self.memory else [])]
        outputs = ["scores", "probabilities"] if discrete else ["action", "mean", "std"]
        self.signature = Signature(
            name=name,
            game=game,
            player=player,
            observation=first.shape,
            kind=first.kind,
            choices=first.choices,
            box=first.box,
            memory=self.memory,
            members=tuple(one.name for one in policies),
            probabilities=tuple(one.prob / total for one in policies),
            modes=tuple(one.mode for one in policies),
            inputs=(*inputs, *(["member"] if len(members) > 1 else [])),
            outputs=(*outputs, *(["next_memory"] if self.memory else [])),
        )
        self.requires_grad_(False).eval()

    def example(self, rows: int = 2) -> tuple[Tensor, ...]:
        """Return inputs of some rows."""
        signature = self.signature
        values = {
            "observation": torch.zeros(rows, *signature.observation),
            "mask": torch.ones(rows, sum(signature.choices), dtype=torch.bool),
            "memory": torch.zeros(rows, self.memory),
            "member": torch.zeros(rows, dtype=torch.int64),
        }
        return tuple(values[name] for name in signature.inputs)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of the signature for its inputs."""
        values = dict(zip(self.signature.inputs, inputs, strict=True))
        x, mask, memory = values["observation"], values.get("mask"), values.get("memory")
        every = [self._member(cast(Member, member), x, mask, memory) for member in self.members]
        if len(every) == 1:
            return every[0]
        rows = torch.arange(x.shape[0])
        return tuple(torch.stack(parts)[values["member"], rows] for parts in zip(*every, strict=True))

    def _member(self, member: Member, x: Tensor, mask: Tensor | None, memory: Tensor | None) -> tuple[Tensor, ...]:
        own = memory[:, : member.memory] if member.memory and memory is not None else None
        *out, after = member(x, mask, own)
        if not self.memory:
            return tuple(out)
        if after is None:
            after = x.new_zeros(x.shape[0], self.memory)
        elif member.memory < self.memory:
            after = torch.cat([after, x.new_zeros(x.shape[0], self.memory - member.memory)], dim=1)
        return (*out, after)


# --------------------------------------------------------------------------------------------------------------------
# One policy of the mixture.


class Member(nn.Module):
    """A policy in one mode.

    Attributes:
        shape: Shape of an observation.
        memory: Numbers of memory.
        kind: As of `Signature`.
        choices: As of `Signature`.
        box: As of `Signature`.
    """

    def __init__(self, shape: tuple[int, ...], memory: int, kind: str, choices: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.memory, self.kind, self.choices = shape, memory, kind, choices
        self.box: Mapping[str, Any] = {}

    def forward(self, x: Tensor, mask: Tensor | None, memory: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return (outputs …, the memory after or None)."""
        raise NotImplementedError


class Discrete(Member):
    """Scores of actions, and the probabilities that a mode makes of them.

    Args:
        network: (x, mask, memory) -> (scores [n, A], the memory after or None).
        shape: Shape of an observation.
        memory: Numbers of memory.
        choices: Number of actions, of each number where they are several.
        mode: "greedy": the first best one; "explore": the softmax of scores, or with an `epsilon` the best one except in that share.
        epsilon: Share of uniform legal actions.
        is_distribution: Whether scores are the probabilities themselves.
    """

    def __init__(
        self,
        network: nn.Module,
        shape: tuple[int, ...],
        memory: int,
        choices: tuple[int, ...],
        *,
        mode: str,
        epsilon: float | None = None,
        is_distribution: bool = False,
    ) -> None:
        super().__init__(shape, memory, "discrete" if len(choices) == 1 else "multi_discrete", choices)
        self.network, self.mode, self.epsilon, self.is_distribution = network, mode, epsilon, is_distribution

    def forward(self, x: Tensor, mask: Tensor | None, memory: Tensor | None) -> tuple[Tensor | None, ...]:
        assert mask is not None
        scores, after = self.network(x, mask, memory)
        legal = torch.where(mask, scores, torch.full_like(scores, -torch.inf))
        parts = zip(
            torch.split_with_sizes(legal, list(self.choices), 1),
            torch.split_with_sizes(mask, list(self.choices), 1),
            strict=True,
        )
        probabilities = [self._probabilities(part, allowed) for part, allowed in parts]
        return legal, probabilities[0] if len(probabilities) == 1 else torch.cat(probabilities, dim=1), after

    def _probabilities(self, scores: Tensor, mask: Tensor) -> Tensor:
        if self.mode != "greedy" and self.is_distribution:
            weights = torch.where(mask, scores, torch.zeros_like(scores))
            return weights / weights.sum(dim=1, keepdim=True)
        if self.mode != "greedy" and self.epsilon is None:
            return torch.softmax(scores, dim=1)
        best = scores.argmax(dim=1, keepdim=True)
        one = (torch.arange(scores.shape[1])[None] == best).to(scores.dtype)
        if self.mode == "greedy" or not self.epsilon:
            return one
        legal = mask.to(scores.dtype)
        return (1.0 - self.epsilon) * one + self.epsilon * legal / legal.sum(dim=1, keepdim=True)


class Box(Member):
    """The mean and the standard deviation of numbers in a box, in the network's units, and the action of the mean.

    Actions are middle + half × u, within low and high, where u = mean + std × z of a standard normal z, and its tanh of the kind "tanh".
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...], memory: int, head: Head) -> None:
        assert isinstance(head, Gaussian | Squashed | Point)
        kind = {Gaussian: "gaussian", Squashed: "tanh", Point: "point"}[type(head)]
        super().__init__(shape, memory, kind, ())
        self.network, self._head, bounds = network, head, head.bounds
        self.box = {
            "shape": list(bounds.shape),
            "low": [None if math.isinf(value) else value for value in bounds.low.tolist()],
            "high": [None if math.isinf(value) else value for value in bounds.high.tolist()],
            "middle": bounds.middle.tolist(),
            "half": bounds.half.tolist(),
        }
        for name in ("low", "high", "middle", "half"):
            self.register_buffer(f"box_{name}", torch.tensor(getattr(bounds, name), dtype=torch.float32))

    def forward(self, x: Tensor, mask: Tensor | None, memory: Tensor | None) -> tuple[Tensor | None, ...]:
        out, after = self.network(x, mask, memory)
        head, size = self._head, self._head.bounds.size
        mean = torch.tanh(out[:, :size]) if isinstance(head, Point) else out[:, :size]
        if isinstance(head, Point):
            std = out[:, size : size + 1].expand_as(mean)
        else:
            std = out[:, size : 2 * size].clamp(*head.log_std).exp()
        number = torch.tanh(mean) if isinstance(head, Squashed) else mean
        low, high, middle, half = (
            cast(Tensor, getattr(self, f"box_{name}")) for name in ("low", "high", "middle", "half")
        )
        action = torch.minimum(torch.maximum(middle + half * number, low), high)
        return action.reshape(-1, *head.bounds.shape), mean, std, after


def _members(policies: Sequence[SampledPolicy], enumeration: Enumeration | None, player: int) -> list[Member]:
    """Return the policies as modules. What is uniform has no observation of its own, and takes that of the others, or of the game."""
    members = {
        k: make_member(one.policy, one.mode, enumeration, player)
        for k, one in enumerate(policies)
        if not isinstance(one.policy, RandomPolicy)
    }
    shape = next((member.shape for member in members.values()), None)
    if shape is None and enumeration is not None:
        shape = tuple(enumeration.observation.shape[1:])
    return [members[k] if k in members else _uniform(one.policy, shape) for k, one in enumerate(policies)]


def make_member(policy: Policy, mode: str, enumeration: Enumeration | None, player: int) -> Member:
    """Return a policy in one mode as a module. Raise PolicyError if it is none; it says why."""
    if isinstance(policy, TwoPolicies):
        part, inner = policy.playing(mode)
        return make_member(part, inner, enumeration, player)
    if isinstance(policy, ConditionedPolicy):
        return _conditioned(policy, mode, enumeration, player)
    if isinstance(policy, ActorValuesPolicy):
        actor = ActorCriticPolicy(spec_of(policy.spec, "actor"), part_of(policy.weights(), "actor"))
        return make_member(actor, mode, enumeration, player)
    if mode not in ("explore", "greedy"):
        raise PolicyError(f"a {policy.spec.kind!r} policy in mode {mode!r} cannot be exported. {_KNOWN}")
    if isinstance(policy, ActorCriticPolicy):
        return _actor_critic(policy, mode)
    if isinstance(policy, ActionValuePolicy):
        return _action_values(policy, mode)
    if isinstance(policy, TorchPolicy):
        network = networks_of(policy.spec, policy.weights())["policy"]
        inputs = (int(policy.spec.config["inputs"]),)
        return Discrete(_Custom(network), inputs, 0, (policy.actions,), mode=mode)
    if isinstance(policy, TabularPolicy):
        return _table(policy, mode, enumeration, player)
    if isinstance(policy, ChoicePolicy):
        return _choice(policy, mode, enumeration, player)
    raise PolicyError(
        f"a {policy.spec.kind!r} policy cannot be exported: {_REASONS.get(policy.spec.kind, 'it is no network')}. {_KNOWN}"
    )


_KNOWN = (
    "Exported are networks (actor_critic, action_values, actor_values, torch, conditioned, choice, nfsp, averaged) and tables of a "
    "compiled game (tabular)."
)
_REASONS = {
    "bot": "it is code, asked with the environment in hand",
    "searching": "it searches with the game's rules; its network alone is another, weaker policy",
    "muzero": "it searches",
    "team_transformer": "its agents act one after another, given the actions of those before",
    "random": "it has no weights",
}


def _actor_critic(policy: ActorCriticPolicy, mode: str) -> Member:
    spec, weights = policy.spec, policy.weights()
    own = spec if policy.agents == 1 else member_spec(spec)
    networks = []
    for k in range(policy.agents):
        network, prefix = ActorCritic(own), f"members.{k}." if policy.agents > 1 else ""
        load_arrays(network, {name: weights[prefix + name] for name in network.state_dict()})
        networks.append(_ActorCritic(network))
    head, shape = head_of(spec.config["action"]), tuple(int(n) for n in spec.config["shape"])
    memory = 0 if policy.memory_shape is None else policy.memory_shape[0]
    whole = networks[0] if policy.agents == 1 else _PerAgent(networks)
    if isinstance(head, Categorical):
        return Discrete(whole, shape, memory, (head.outputs,), mode=mode)
    if isinstance(head, MultiCategorical):
        return Discrete(whole, shape, memory, head.choices, mode=mode)
    if isinstance(head, Point) and head.spread and mode == "explore":
        raise PolicyError(
            "how this policy explores differs from environment to environment. Export it with mode greedy."
        )
    if float(np.max(weights.get("warm_up", np.zeros(1)))) > 0.0 and mode == "explore":
        raise PolicyError("this policy still plays at random, to warm up. Export a later one, or mode greedy.")
    return Box(whole, shape, memory, head)


def _action_values(policy: ActionValuePolicy, mode: str) -> Member:
    spec, weights = policy.spec, policy.weights()
    own = spec if policy.agents == 1 else member_spec(spec)
    if mode == "explore" and (policy.spread or spec.config["head"].get("noisy")):
        raise PolicyError(
            "this policy explores by noise in its weights or its environment's place. Export it with mode greedy."
        )
    networks = []
    for k in range(policy.agents):
        network, prefix = ActionValues(own), f"members.{k}." if policy.agents > 1 else ""
        arrays = {name: weights[prefix + name] for name in network.state_dict()}
        load_values(network, own, {**arrays, "epsilon": weights["epsilon"]})
        networks.append(_Values(network))
    shape = tuple(int(n) for n in spec.config["shape"])
    memory = 0 if policy.memory_shape is None else policy.memory_shape[0]
    whole = networks[0] if policy.agents == 1 else _PerAgent(networks)
    return Discrete(whole, shape, memory, (policy.actions,), mode=mode, epsilon=policy.epsilon)


def _choice(policy: ChoicePolicy, mode: str, enumeration: Enumeration | None, player: int) -> Member:
    weights = policy.weights()
    entries = [(str(k), one["mode"], one) for k, one in enumerate(policy.spec.config["members"])]
    entries.insert(0, ("chooser", mode, policy.spec.config["chooser"]))
    parts = [
        make_member(
            build_policy(PolicySpec(one["kind"], one["config"]), part_of(weights, name)), how, enumeration, player
        )
        for name, how, one in entries
    ]
    first = parts[1]
    return Discrete(_Choice(parts), first.shape, 0, first.choices, mode="explore", is_distribution=True)


def _uniform(policy: Policy, shape: tuple[int, ...] | None) -> Member:
    config = policy.spec.config
    if shape is None or "low" in config:
        what = "its numbers of a box are no network's" if "low" in config else _REASONS["random"]
        raise PolicyError(f"a 'random' policy cannot be exported: {what}. {_KNOWN}")
    choices = tuple(int(n) for n in config.get("choices", [config.get("actions")]))
    return Discrete(_Uniform(sum(choices)), shape, 0, choices, mode="explore")


def _conditioned(policy: ConditionedPolicy, mode: str, enumeration: Enumeration | None, player: int) -> Member:
    weights = policy.weights()
    conditions = weights["condition"]
    rows = {condition_mode(k): k for k in range(len(conditions))}
    network = build_policy(spec_of(policy.spec, "network"), part_of(weights, "network"))
    member = make_member(network, "greedy" if mode == "greedy" else "explore", enumeration, player)
    condition = torch.from_numpy(conditions[rows.get(mode, len(rows) - 1)].copy())
    member.shape = (math.prod(member.shape) - len(condition),)
    if isinstance(member, Discrete | Box):
        member.network = _Conditioned(member.network, condition)
    return member


def _table(policy: TabularPolicy, mode: str, enumeration: Enumeration | None, player: int) -> Member:
    if enumeration is None:
        raise PolicyError(
            "this policy plays by ids of a compiled game's information states, which its file does not have. Name it by its run: "
            "RUN@PLAYER/POLICY."
        )
    ids = enumeration.ids(player)
    observation = np.asarray(enumeration.observation[ids], np.float32)
    if observation.size > LARGEST_TABLE:
        raise PolicyError(
            f"the table has {len(observation):,} information states of {observation[0].size} numbers, {observation.size:,} in all; a file "
            f"takes {LARGEST_TABLE:,}. Train a network on the game."
        )
    probs = policy.probs[ids.start - policy.offset : ids.stop - policy.offset]
    table = _Table(observation.reshape(len(observation), -1), probs)
    shape = enumeration.observation.shape[1:]
    return Discrete(table, shape, 0, (policy.actions,), mode=mode, is_distribution=True)


# --------------------------------------------------------------------------------------------------------------------
# Networks with one face: (x, mask, memory) -> (numbers [n, k], the memory after or None).


class _ActorCritic(nn.Module):
    def __init__(self, network: ActorCritic) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        del mask
        out, _, after = self.network(x, memory)
        return out, after


class _Values(nn.Module):
    def __init__(self, network: ActionValues) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        network = self.network
        features = network.body(x)
        if memory is None:
            return network.values(features, mask), None
        after = network.step(features, memory)
        return network.values(after[:, : network.width], mask), after


class _Custom(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        del mask, memory
        return self.network(x), None


class _PerAgent(nn.Module):
    """Each row goes through the network of its agent, by the one-hot id at the end of its observation."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        agent = x.flatten(1)[:, -len(self.networks) :].argmax(dim=1)
        out, after = zip(*(network(x, mask, memory) for network in self.networks), strict=True)
        rows = torch.arange(x.shape[0])
        return torch.stack(out)[agent, rows], None if memory is None else torch.stack(after)[agent, rows]


class _Conditioned(nn.Module):
    def __init__(self, network: nn.Module, condition: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("condition", condition)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        condition = cast(Tensor, self.condition)[None].expand(x.shape[0], -1)
        out: tuple[Tensor, Tensor | None] = self.network(torch.cat([x.flatten(1), condition], dim=1), mask, memory)
        return out


class _Table(nn.Module):
    """The row of the information state whose tensor is the observation; of an unknown one, the first."""

    def __init__(self, observation: np.ndarray[Any, Any], probs: np.ndarray[Any, Any]) -> None:
        super().__init__()
        self.register_buffer("observation", torch.from_numpy(observation.copy()))
        self.register_buffer("probs", torch.from_numpy(probs.astype(np.float32)))

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        del mask, memory
        distance = (x.flatten(1)[:, None] - cast(Tensor, self.observation)[None]).abs().sum(dim=2)
        return cast(Tensor, self.probs)[(-distance).argmax(dim=1)], None


class _Uniform(nn.Module):
    def __init__(self, actions: int) -> None:
        super().__init__()
        self.actions = actions

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        del mask, memory
        return x.new_zeros(x.shape[0], self.actions), None


class _Choice(nn.Module):
    """The members' probabilities, weighted by the chooser's: the first part is the chooser."""

    def __init__(self, parts: Sequence[Member]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None) -> tuple[Tensor, None]:
        del memory
        chooser, *members = self.parts
        picks = chooser(x, mask.new_ones(x.shape[0], len(members)), None)[1]
        every = torch.stack([member(x, mask, None)[1] for member in members], dim=1)
        return (picks[:, :, None] * every).sum(dim=1), None
