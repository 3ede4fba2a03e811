"""A transformer over the agents of a team: each acts given what all that act now see, and what those before it do (Wen et al. 2022,
"Multi-Agent Reinforcement Learning is a Sequence Modeling Problem"). One network plays the whole team, of which it is given whole groups.

    encoder   x_1 … x_m      -> representations r_1 … r_m, and values from them; every agent attends to every other one
    decoder   r, a_1 … a_m-1 -> outputs of the head for a_1 … a_m; agent k attends to actions before its own

Learning evaluates the decoder once, on the actions that were taken (`TeamTransformer.forward`); acting evaluates it agent by agent, for all
groups at once, and keeps the keys and values of those before (`TeamTransformer.decode`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.backend.device import Placement, multiplications, to_device, to_numpy
from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.actor_critic import Normalizer, ReturnScale, load_arrays, shapes_of
from ludus.policies.base import Teams, Values, check_mode, choice, entry, integer, one_spec, validate_weights
from ludus.policies.bodies import own_stream
from ludus.policies.categorical import full_mask, masked_softmax, one_hot_best
from ludus.policies.heads import Bounds, Categorical, Head, MultiCategorical, head_of

DECODERS = ("autoregressive", "decentralised")
_GAIN, _SMALL = math.sqrt(2.0), 0.01  # of layers in front of a GELU, and of others

# --------------------------------------------------------------------------------------------------------------------
# Rows of groups, and groups as sequences.


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """n rows in G groups as sequences of `longest` cells, the first of which are used: cell int64[n] of each row among
    all G × longest; place int64[n] of its agent; there bool[G, longest]. start int64[G + 1], on the host: where groups
    begin."""

    start: NDArray[np.int64]
    longest: int
    cell: Tensor
    place: Tensor
    there: Tensor

    @staticmethod
    def of(start: NDArray[np.int64], place: NDArray[Any], device: torch.device) -> Sequences:
        """Return the sequences. start: int64[G + 1] of groups of at least one row; place: [n] of their agents."""
        length = np.diff(start)
        longest = int(length.max(initial=1))
        group = np.repeat(np.arange(len(length)), length)
        cell = np.arange(int(start[-1])) - start[group] + group * longest
        cells, places = to_device(np.stack([cell, place.astype(np.int64)]), device)
        there = to_device(np.arange(longest) < length[:, None], device)
        return Sequences(start, longest, cells, places, there)

    def spread(self, rows: Tensor) -> Tensor:
        """Return rows as cells: [n, …] -> [G, longest, …], 0 in unused cells."""
        groups = len(self.start) - 1
        out = rows.new_zeros(groups * self.longest, *rows.shape[1:]).index_copy(0, self.cell, rows)
        return out.view(groups, self.longest, *rows.shape[1:])

    def rows(self, cells: Tensor) -> Tensor:
        """Return cells as rows: [G, longest, …] -> [n, …]."""
        return cells.flatten(0, 1).index_select(0, self.cell)

    def at(self, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (groups that have a k-th agent, its row in each)."""
        groups = np.flatnonzero(np.diff(self.start) > k)
        return groups, self.start[groups] + k


def starts_of(teams: Teams, *, team: int) -> NDArray[np.int64]:
    """Return where groups begin, int64[G + 1]. Raise PolicyError for rows that are not in order, or of more agents than
    a `team` has."""
    group, place = teams
    new = np.diff(group, prepend=-1) != 0
    if len(group) and (int(place.max()) >= team or int(place.min()) < 0):
        raise PolicyError(
            f"a policy for teams of {team} agents was given rows of the agents {np.unique(place).tolist()}."
        )
    if (np.diff(group) < 0).any() or (np.diff(place)[~new[1:]] <= 0).any():
        raise PolicyError(
            f"a joint policy takes the rows of a team side by side, in the order of its agents; given groups {group.tolist()} and places "
            f"{place.tolist()}."
        )
    return np.append(np.flatnonzero(new), len(group)).astype(np.int64)


# --------------------------------------------------------------------------------------------------------------------
# The parts of the network.

_Kept = list[Tensor | None]
"""Of a block, while it decodes: keys and values of both attentions so far, each [G, heads, k, D / heads]."""


class Attention(nn.Module):
    """softmax(q kᵀ / √d) v in `heads` parts, followed by a linear layer. (Vaswani et al. 2017, equation 1.)"""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor, allowed: Tensor) -> Tensor:
        """Return attend: x [G, L, D], context [G, M, D], allowed bool[…, L, M] that broadcasts to [G, heads, L, M] -> [G, L,
        D]."""
        return self._attend(x, *self.keys_values(context), allowed)

    def step(self, x: Tensor, context: Tensor, cache: _Kept, at: int) -> Tensor:
        """Return the output [G, 1, D] for x [G, 1, D], whose context is the newest entry [G, 1, D] and those before it,
        in cache[at : at + 2]."""
        for place, new in enumerate(self.keys_values(context), at):
            before = cache[place]
            cache[place] = new if before is None else torch.cat([before, new], dim=2)
        key, value = cast(tuple[Tensor, Tensor], tuple(cache[at : at + 2]))
        return self._attend(x, key, value, None)

    def keys_values(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return (keys, values) [G, heads, M, D / heads]."""
        return self._parts(self.key(context)), self._parts(self.value(context))

    def _attend(self, x: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
        query = self._parts(self.query(x))
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        mixed = torch.softmax(scores, dim=-1) @ value
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _parts(self, x: Tensor) -> Tensor:
        groups, many, width = x.shape
        return x.view(groups, many, self.heads, width // self.heads).transpose(1, 2)


def _mlp(width: int, outputs: int, *, norm: bool) -> nn.Sequential:
    middle = [nn.LayerNorm(width)] if norm else []
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), *middle, nn.Linear(width, outputs))


class EncoderBlock(nn.Module):
    """Attention to all agents and a perceptron, each with a normalised shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(width, heads), _mlp(width, width, norm=False)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """Evaluate the block: x [G, M, D], there bool[G, M] -> [G, M, D]."""
        x = self.first(x + self.attention(x, x, there[:, None, None]))
        out: Tensor = self.second(x + self.mlp(x))
        return out


class DecoderBlock(nn.Module):
    """Attention to the actions so far, attention to that by the agents' representations, and a perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.actions, self.agents = Attention(width, heads), Attention(width, heads)
        self.mlp = _mlp(width, width, norm=False)
        self.first, self.second, self.third = (nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, context: Tensor, past: Tensor) -> Tensor:
        """Evaluate the block: x, context [G, M, D], past bool[M, M] -> [G, M, D]."""
        x = self.first(x + self.actions(x, x, past))
        x = self.second(context + self.agents(context, x, past))
        out: Tensor = self.third(x + self.mlp(x))
        return out

    def step(self, x: Tensor, context: Tensor, cache: _Kept) -> Tensor:
        """Evaluate the block for the next agent only, [G, 1, D]."""
        x = self.first(x + self.actions.step(x, x, cache, 0))
        x = self.second(context + self.agents.step(context, x, cache, 2))
        out: Tensor = self.third(x + self.mlp(x))
        return out


class Seen(nn.Module):
    """Embedding of observations and agents: GELU(W LayerNorm(x) + b + e_place). With e, the columns of W that one-hot
    ids appended to x would have, no ids need be observed."""

    def __init__(self, inputs: int, team: int, width: int, *, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs) if norm else nn.Identity()
        self.linear, self.place = nn.Linear(inputs, width), nn.Embedding(team, width)

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        """Return the embedding: x float[n, inputs], place int64[n] -> [n, D]."""
        return nn.functional.gelu(self.linear(self.norm(x)) + self.place(place))


class ActionCode(nn.Module):
    """Embedding of actions for the decoder: GELU(W f) of features f [n, 1 + F], of which the first flags that no agent
    has acted yet. F: all choices one-hot, or a box's numbers, between -1 and 1 where it is bounded."""

    middle: Tensor
    reach: Tensor

    def __init__(self, action: Any, head: Head, width: int) -> None:
        super().__init__()
        self.choices: tuple[int, ...] = ()
        if isinstance(head, Categorical | MultiCategorical):
            self.choices = (head.outputs,) if isinstance(head, Categorical) else head.choices
            features = sum(self.choices)
        else:
            bounds = Bounds.of(action)
            features = bounds.size
            for name, number in (("middle", bounds.middle), ("reach", bounds.half)):
                self.register_buffer(name, torch.from_numpy(number.astype(np.float32)), persistent=False)
        self.linear = nn.Linear(1 + features, width, bias=False)

    def forward(self, action: Tensor) -> Tensor:
        """Return the embedding: action [n, …] -> [n, D]."""
        return self._coded(torch.nn.functional.pad(self.features(action), (1, 0)))

    def features(self, action: Tensor) -> Tensor:
        """Return features float[n, F]."""
        rows = action.reshape(len(action), -1)
        if not self.choices:
            return (rows.float() - self.middle) / self.reach
        parts = (rows[:, k, None] == torch.arange(count, device=rows.device) for k, count in enumerate(self.choices))
        return torch.cat(list(parts), dim=1).float()

    def start(self, groups: int) -> Tensor:
        """Return [G, 1, D] before any agent has acted."""
        first = torch.nn.functional.one_hot(self.linear.weight.new_zeros(1, dtype=torch.long), self.linear.in_features)
        return self._coded(first.to(self.linear.weight)).expand(groups, 1, -1)

    def _coded(self, features: Tensor) -> Tensor:
        return nn.functional.gelu(self.linear(features))


class TeamTransformer(nn.Module):
    """The network of a `team_transformer` spec.

    Observations are flat, scaled or normalised, and the embedding of each agent's place is added. A "decentralised"
    decoder is a perceptron of the agent's own observation, without the encoder: then only values depend on the others
    (the paper's MAT-Dec).
    """

    state_normaliser = None
    memory = state = 0

    def __init__(self, spec: PolicySpec) -> None:
        super().__init__()
        config, action = spec.config, entry(spec, "action")
        self.shape, self.team = tuple(int(n) for n in entry(spec, "shape")), integer(spec, "team")
        self.head_of: Head = head_of(action)
        width, layers, heads = (integer(spec, key) for key in ("width", "layers", "heads"))
        if width % heads:
            raise PolicyError(f"policy spec {spec.kind!r}: a width of {width} does not fall into {heads} heads.")
        normalised = dict(config.get("normalise", {}))
        self.normaliser = Normalizer(self.shape) if normalised.get("observations") else None
        self.returns = ReturnScale() if normalised.get("returns") else None
        self.scale = 1.0 if self.normaliser is not None else float(config.get("scale", 1.0))
        inputs, norm = math.prod(self.shape), bool(entry(spec, "layer_norm"))
        self.seen, self.seen_norm = Seen(inputs, self.team, width, norm=norm), nn.LayerNorm(width)
        self.encoder = nn.ModuleList(EncoderBlock(width, heads) for _ in range(layers))
        self.value = _mlp(width, 1, norm=True)
        outputs = self.head_of.outputs - self.head_of.free
        self.autoregressive = choice(spec, "decoder", DECODERS) == "autoregressive"
        if self.autoregressive:
            self.code, self.code_norm = ActionCode(action, self.head_of, width), nn.LayerNorm(width)
            self.decoder = nn.ModuleList(DecoderBlock(width, heads) for _ in range(layers))
        else:
            self.own, self.own_norm = Seen(inputs, self.team, width, norm=norm), nn.LayerNorm(width)
        self.head = _mlp(width, outputs, norm=True)
        learned = self.head_of.free - len(self.head_of.numbers)
        self.log_std = nn.Parameter(torch.zeros(learned)) if learned else None

    @property
    def networks(self) -> list[TeamTransformer]:
        """Return itself: the networks whose statistics learners publish."""
        return [self]

    def forward(self, x: Tensor, action: Tensor, sequences: Sequences) -> tuple[Tensor, Tensor]:
        """Evaluate recorded actions: x float[n, *shape], action [n, …] -> (outputs of the head [n, outputs], values
        [n]). An agent's outputs depend on the actions before its own, and on no others."""
        x = self._flat(x)
        agents = self.encode(x, sequences)
        value = self.value_of(agents, sequences)
        if not self.autoregressive:
            return self._decentralised(x, sequences.place), value
        codes = sequences.spread(self.code(action))
        before = self.code_norm(torch.cat([self.code.start(len(codes)), codes[:, :-1]], dim=1))
        past = torch.ones(sequences.longest, sequences.longest, dtype=torch.bool, device=x.device).tril()
        for block in self.decoder:
            before = block(before, agents, past)
        return self._with_free(self.head(sequences.rows(before))), value

    def values(self, x: Tensor, sequences: Sequences) -> Tensor:
        """Return values [n]; they do not depend on actions."""
        return self.value_of(self.encode(self._flat(x), sequences), sequences)

    def encode(self, x: Tensor, sequences: Sequences) -> Tensor:
        """Return the agents' representations [G, longest, D], of x float[n, inputs]."""
        agents = self.seen_norm(sequences.spread(self.seen(x, sequences.place)))
        for block in self.encoder:
            agents = block(agents, sequences.there)
        return cast(Tensor, agents)

    def value_of(self, agents: Tensor, sequences: Sequences) -> Tensor:
        """Return values [n] of the result of `encode`."""
        out: Tensor = self.value(sequences.rows(agents))[:, 0]
        return out

    def decode(self, x: Tensor, sequences: Sequences, choose: Callable[[NDArray[np.int64], Tensor], Tensor]) -> None:
        """Sample actions agent by agent, in as many steps as the largest group has agents: `choose(rows int64[m],
        outputs [m, outputs])` returns the actions [m, …] of these rows, on the network's device."""
        x = self._flat(x)
        if not self.autoregressive:
            choose(np.arange(len(x)), self._decentralised(x, sequences.place))
            return
        agents = self.encode(x, sequences)
        before, cache = self.code.start(len(agents)), [cast(_Kept, [None] * 4) for _ in self.decoder]
        for k in range(sequences.longest):
            out = self.code_norm(before)
            for block, held in zip(self.decoder, cache, strict=True):
                out = cast(DecoderBlock, block).step(out, agents[:, k : k + 1], held)
            groups, rows = sequences.at(k)
            whole = len(groups) == len(agents)
            where = None if whole else to_device(groups, x.device)
            out = out[:, 0] if where is None else out[where, 0]
            code = self.code(choose(rows, self._with_free(self.head(out))))[:, None]
            before = code if where is None else torch.zeros_like(before).index_copy(0, where, code)

    def _flat(self, x: Tensor) -> Tensor:
        return self.normaliser(x).flatten(1) if self.normaliser is not None else x.flatten(1) * self.scale

    def _decentralised(self, x: Tensor, place: Tensor) -> Tensor:
        return self._with_free(self.head(self.own_norm(self.own(x, place))))

    def _with_free(self, out: Tensor) -> Tensor:
        return out if self.log_std is None else torch.cat([out, self.log_std.expand(len(out), -1)], dim=1)


def make_team_transformer(spec: PolicySpec, *, seed: int = 0, initial_std: float = 1.0) -> TeamTransformer:
    """Return a fresh network: orthogonal weights with the gains of the authors' code, zero biases. Torch's global
    stream is unchanged. Raise PolicyError for an invalid spec. initial_std: of Gaussian actions, in the network's
    units."""
    with own_stream(seed):
        network = TeamTransformer(spec)
        for name, module in network.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                active = name.endswith(
                    ("seen.linear", "own.linear", "code.linear", "place", "mlp.0", "value.0", "head.0")
                )
                nn.init.orthogonal_(module.weight, _GAIN if active else _SMALL)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if network.log_std is not None:
            nn.init.constant_(network.log_std, math.log(initial_std))
    return network.eval()


# --------------------------------------------------------------------------------------------------------------------
# The policy.


def _play(
    network: TeamTransformer,
    observation: Array,
    mask: NDArray[np.bool_] | None,
    noise: NDArray[np.float32],
    teams: Teams,
    *,
    greedy: bool,
    placement: Placement | None = None,
) -> PolicyOutput:
    """Return what a network plays. placement: where it is; None: here."""
    device = torch.device("cpu") if placement is None else placement.torch
    head, n = network.head_of, len(observation)
    action, logp = head.act(np.zeros((0, head.outputs), np.float32), None, noise[:0], greedy=greedy)
    action, logp = np.empty((n, *action.shape[1:]), action.dtype), np.empty(n, logp.dtype)

    def choose(rows: NDArray[np.int64], out: Tensor) -> Tensor:
        legal = None if mask is None else mask[rows]
        action[rows], logp[rows] = head.act(to_numpy(out.float()), legal, noise[rows], greedy=greedy)
        return to_device(action[rows], device)

    if n:
        x = to_device(np.array(observation, np.float32).reshape(n, *network.shape), device)
        sequences = Sequences.of(starts_of(teams, team=network.team), teams.place, device)
        with torch.no_grad():
            if placement is None:
                network.decode(x, sequences, choose)
            else:
                with placement.products():
                    network.decode(x, sequences, choose)
    return PolicyOutput(action, logp)


class TeamTransformerPolicy:
    """Kind `team_transformer`, a `JointPolicy`; config as `team_transformer_spec` makes it. Weights are named as in
    `TeamTransformer.state_dict()`, normaliser statistics included. It has no memory."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    memory_shape: tuple[int, ...] | None = None
    takes_ids = False

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec = spec
        with own_stream():
            self.network = TeamTransformer(spec)
        self._weights = validate_weights(spec, weights, shapes_of(self.network))
        load_arrays(self.network, self._weights)
        self.network.requires_grad_(False).eval()
        self.team_size, self.noise_width = self.network.team, self.network.head_of.noise_width
        self._elsewhere: dict[torch.device, TeamTransformer] = {}

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
        teams: Teams | None = None,
    ) -> PolicyOutput:
        """Implement `JointPolicy.act`. Raise PolicyError for an unknown mode, observations of another shape, a row that
        has no legal action, and outputs that are not finite."""
        return _play(
            self.network, self.shaped(observation), mask, noise, self.whose(teams, mode), greedy=mode == "greedy"
        )

    def chances(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        action: Array,
        teams: Teams,
        *,
        mode: str = "explore",
    ) -> NDArray[np.float64] | None:
        """Implement `JointPolicy.chances`."""
        check_mode(self, mode)
        unknown = bool(len(action)) and bool((np.asarray(action)[:-1][np.diff(teams.group) == 0] < 0).any())
        if not isinstance(self.network.head_of, Categorical) or unknown:
            return None
        with torch.no_grad():
            actions = torch.from_numpy(np.array(action))
            out = self.network(self._tensor(observation), actions, self._sequences(teams))[0].numpy()
        legal = full_mask(mask, len(out), self.network.head_of.outputs)
        return (one_hot_best if mode == "greedy" else masked_softmax)(out, legal)

    def values(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        state: Array | None,
        *,
        teams: Teams | None = None,
    ) -> Values:
        sequences = self._sequences(self.whose(teams, "explore"))
        with torch.no_grad():
            return Values(self.network.values(self._tensor(observation), sequences).numpy())

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return None: it cannot be tabulated."""
        return None

    @cached_property
    def multiplications(self) -> int:
        """Return the multiplications per row, where torch may evaluate it."""
        return multiplications(parameter.shape for parameter in self.network.parameters())

    def weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    @staticmethod
    def stack_on(policies: Sequence[TeamTransformerPolicy], placement: Placement) -> StackedTeamTransformers:
        """Return policies of one spec as one on a device. Raise PolicyError if their specs differ."""
        return StackedTeamTransformers(policies, placement)

    def on(self, device: torch.device) -> TeamTransformer:
        """Return its network on a device; copied once."""
        if device not in self._elsewhere:
            self._elsewhere[device] = copy.deepcopy(self.network).to(device)
        return self._elsewhere[device]

    def shaped(self, observation: Array) -> Array:
        """Return observations [n, …] as [n, *shape]. Raise PolicyError if they have another size."""
        shape = self.network.shape
        if math.prod(observation.shape[1:]) != math.prod(shape):
            raise PolicyError(
                f"a {self.spec.kind!r} policy was given observations of shape {observation.shape[1:]}; its spec says {shape}."
            )
        return observation.reshape(len(observation), *shape)

    def whose(self, teams: Teams | None, mode: str) -> Teams:
        """Return the teams, which are required, for a mode that the policy has."""
        check_mode(self, mode)
        if teams is None:
            raise PolicyError(
                f"a policy of kind {self.spec.kind!r} plays a team of {self.team_size} agents together; say whose rows these "
                "are (`teams`, see ludus.policies.base.JointPolicy)."
            )
        return teams

    def _tensor(self, observation: Array) -> Tensor:
        return torch.from_numpy(np.array(self.shaped(observation), np.float32))

    def _sequences(self, teams: Teams) -> Sequences:
        return Sequences.of(starts_of(teams, team=self.team_size), teams.place, torch.device("cpu"))


class StackedTeamTransformers:
    """K policies of one spec on a device; those that have rows are evaluated in turn."""

    def __init__(self, policies: Sequence[TeamTransformerPolicy], placement: Placement) -> None:
        one_spec(policies)
        self._first, self._placement = policies[0], placement
        self._networks = [policy.on(placement.torch) for policy in policies]

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        index: NDArray[np.int32],
        mode: str = "explore",
        teams: Teams | None = None,
    ) -> PolicyOutput:
        """Implement `JointPolicy.act`, where row i is played by policy index[i], int[n] in 0 … K - 1."""
        first = self._first
        whose, inputs = first.whose(teams, mode), first.shaped(observation)
        output = None
        for k in np.unique(index).tolist() or [0]:
            rows = np.flatnonzero(index == k)
            act = _play(
                self._networks[k],
                inputs[rows],
                None if mask is None else mask[rows],
                noise[rows],
                whose.take(rows),
                greedy=mode == "greedy",
                placement=self._placement,
            )
            if output is None:
                output = PolicyOutput(
                    np.empty((len(index), *act.action.shape[1:]), act.action.dtype), np.empty(len(index), np.float32)
                )
            output.action[rows], output.logp[rows] = act.action, act.logp
        assert output is not None
        return output
