"""Networks of one architecture that torch evaluates together on a device: those of a population's policies, or of a
team's agents.

Rows of several perceptrons, with or without memory, go through one batched product; other bodies are evaluated in turn,
since torch batches neither channels-last images nor, reliably, a custom module.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.backend.device import Placement, to_device, to_numpy
from ludus.backend.mlp import by_policy
from ludus.core.types import Array
from ludus.policies.actor_critic import Cell
from ludus.policies.bodies import linear

LEAST = 64
"""Rows that are evaluated together at least, others being padding."""
_ALIGNED = 64  # floats: where weights begin, so that products read them in whole lines

Memory: TypeAlias = Array | Tensor
Ask: TypeAlias = Callable[..., tuple[Tensor, ...]]


def bucket(rows: int) -> int:
    """Return the next of the sizes that kernels see: four per doubling (64, 80, 96, 112, 128 …), so that at most a
    fifth is padding."""
    step = max((1 << (rows - 1).bit_length()) // 8, 1)
    return -(-rows // step) * step


@dataclass(frozen=True, slots=True, eq=False)
class Architecture:
    """What the networks of one spec have in common.

    Attributes:
        network: One of them (`make_architecture`).
        shapes: Shapes of its weights, by name.
        ask: (network, observation [n, …], memory [n, M] or None, more [n, …] or None …) -> numbers [n, k], and the
            memory after if there is one.
        batched: Whether its weights may be those of many networks (`ludus.policies.bodies.linear`).
    """

    network: nn.Module
    shapes: Mapping[str, tuple[int, ...]]
    ask: Ask
    batched: bool

    @property
    def size(self) -> int:
        """Return the floats of a network's weights, each array aligned."""
        return sum(_room(shape) for shape in self.shapes.values())

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the arrays, by name, as views of float[…, size]."""
        out, at = {}, 0
        for name, shape in self.shapes.items():
            out[name] = flat[..., at : at + math.prod(shape)].view(*flat.shape[:-1], *shape)
            at += _room(shape)
        return out


def make_architecture(network: nn.Module, ask: Ask, *, batched: bool) -> Architecture:
    """Return the architecture of a network, which it takes over. If batched, its weights become buffers without
    numbers, since they come with each call, and cells are replaced by `Cell`."""
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    network.eval().requires_grad_(False)
    if batched:
        for part in list(network.modules()):
            for name, child in part.named_children():
                if isinstance(child, nn.RNNBase):
                    setattr(part, name, Cell(child))
                elif type(child) is nn.Linear:
                    setattr(part, name, _Linear(child))
        for part, name in _places(network, shapes):
            part._parameters.pop(name, None)
            part._buffers[name] = None
    return Architecture(network, shapes, ask, batched)


def _places(network: nn.Module, names: Iterable[str]) -> list[tuple[nn.Module, str]]:
    """Return the module that has each of these arrays, and its name there."""
    split = [name.rpartition(".") for name in names]
    return [(network.get_submodule(path), leaf) for path, _, leaf in split]


class _Linear(nn.Module):
    """As the layer that it is made of."""

    weight: Tensor
    bias: Tensor

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("weight", of.weight)
        self.register_buffer("bias", of.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the same as `linear`."""
        return linear(x, self.weight, self.bias)


def _room(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // _ALIGNED) * _ALIGNED


class CarriedWeights:
    """A network's weights, by name, and their copies on devices, which later stacks reuse while one holds them."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._held: WeakValueDictionary[torch.device, Tensor] | None = None  # making one takes as long as a row

    def on(self, device: torch.device, architecture: Architecture) -> Tensor:
        """Return float32[size], in the architecture's layout."""
        tensor = None if self._held is None else self._held.get(device)
        if tensor is None:
            flat = np.zeros(architecture.size, np.float32)
            at = 0
            for name, shape in architecture.shapes.items():
                flat[at : at + math.prod(shape)] = self._arrays[name].reshape(-1)
                at += _room(shape)
            tensor = to_device(flat, device)
            self.are(tensor)
        return tensor

    def are(self, flat: Tensor) -> None:
        """Set what `on` returns, for as long as a reference to it exists."""
        if self._held is None:
            self._held = WeakValueDictionary()
        self._held[flat.device] = flat


class DeviceStack:
    """K networks of one architecture on a device."""

    def __init__(self, architecture: Architecture, weights: Sequence[CarriedWeights], placement: Placement) -> None:
        self._architecture, self._placement, self._device = architecture, placement, placement.torch
        self._weights = [each.on(self._device, architecture) for each in weights]
        self._plan: _Plan | None = None  # of the last index
        self._each: dict[int, Any] = {}  # networks, or of batched ones their weights
        if architecture.batched:
            self._network = copy.deepcopy(architecture.network).to(self._device)
            self._where = _places(self._network, architecture.shapes)
            self._flats = torch.stack(self._weights)
            self._weights = list(self._flats)
            self._all = list(architecture.views(self._flats).values())
        for each, flat in zip(weights, self._weights, strict=True):
            each.are(flat)

    @torch.no_grad()
    def __call__(
        self, index: NDArray[np.int32], observation: Array, memory: Memory | None, *more: Array | None
    ) -> tuple[NDArray[np.float32], Memory | None]:
        """Return (numbers float32[n, k] in host memory, the memory after), where row i goes through network index[i].

        A memory tensor stays on the device; if memory is an array, all outputs are read in one transfer. Raise
        PolicyError for an invalid index.
        """
        inputs = [
            self._there(observation).float(),
            *(None if one is None else self._there(one) for one in (memory, *more)),
        ]
        with self._placement.products():
            numbers, *after = self._answers(index, inputs)
        if not after or isinstance(memory, Tensor):
            return to_numpy(numbers.float()), after[0].float() if after else None
        width = numbers.shape[1]
        both = to_numpy(torch.cat([numbers.float(), after[0].float()], dim=1))
        return np.ascontiguousarray(both[:, :width]), np.ascontiguousarray(both[:, width:])

    def _there(self, rows: Memory) -> Tensor:
        if isinstance(rows, Tensor):
            return rows
        return to_device(rows if rows.flags.writeable else rows.copy(), self._device)

    def _answers(self, index: NDArray[np.int32], rows: Sequence[Tensor | None]) -> Sequence[Tensor]:
        if self._plan is None or not np.array_equal(self._plan.index, index):
            self._plan = self._planned(index.copy())
        plan = self._plan
        if plan.who is None:
            return self._one(plan.parts[0][0], rows)
        spread = [None if one is None else one[plan.who] for one in rows]
        if plan.weights is not None:
            answers = self._architecture.ask(self._with(plan.weights), *spread)
        else:
            parts = [self._one(k, [None if one is None else one[own] for one in spread]) for k, own in plan.parts]
            answers = tuple(torch.cat(several) for several in zip(*parts, strict=True))
        return [answer[plan.where] for answer in answers]

    def _planned(self, index: NDArray[np.int32]) -> _Plan:
        order, start = by_policy(index, len(self._weights))
        counts = np.diff(start)
        present = np.flatnonzero(counts)
        parts = [(k, slice(start[k], start[k + 1])) for k in present.tolist()] or [(0, slice(0, 0))]
        if len(parts) == 1:
            return _Plan(index, parts)
        if self._architecture.batched:
            return self._tiled(index, present, counts[present], order)
        both = np.concatenate([order, np.argsort(order)])
        who, where = to_device(both, self._device).chunk(2)
        return _Plan(index, parts, who, where)

    def _one(self, k: int, rows: Sequence[Tensor | None]) -> Sequence[Tensor]:
        """Evaluate all rows by one network."""
        first = rows[0]
        assert first is not None
        n = len(first)
        width = max(bucket(n), LEAST)
        padded = [
            one if one is None or len(one) == width else torch.cat([one, one.new_zeros(width - n, *one.shape[1:])])
            for one in rows
        ]
        return [answer[:n] for answer in self._architecture.ask(self._alone(k), *padded)]

    def _alone(self, k: int) -> nn.Module:
        """Return network k."""
        architecture = self._architecture
        if architecture.batched:
            if k not in self._each:
                self._each[k] = [many[k] for many in self._all]
            return self._with(self._each[k])
        if k not in self._each:
            self._each[k] = copy.deepcopy(architecture.network).to(self._device)
            self._each[k].load_state_dict(architecture.views(self._weights[k]))
        network: nn.Module = self._each[k]
        return network

    def _with(self, weights: Iterable[Tensor]) -> nn.Module:
        """Return the network with these weights."""
        for (part, name), array in zip(self._where, weights, strict=True):
            part._buffers[name] = array
        return self._network

    def _tiled(
        self, index: NDArray[np.int32], present: NDArray[np.int64], counts: NDArray[np.int64], order: NDArray[np.int64]
    ) -> _Plan:
        """Return a plan of tiles of one width, one for each network that has rows; where some have many more than
        others, theirs are split, so that at most about half is padding. Padding rows are copies of the first row."""
        n = len(order)
        least = max(LEAST // len(present), 1)
        width = max(bucket(int(counts.max())), least)
        if width * len(present) > 2 * max(n, LEAST):
            width = max(bucket(-(-n // len(present))), least)
        tiles = -(-counts // width)
        total = int(tiles.sum())
        whole = total == len(present) == len(self._weights)
        total = total if whole else bucket(total)
        first = np.cumsum(tiles) - tiles
        spot = np.arange(n) + np.repeat(first * width - (np.cumsum(counts) - counts), counts)
        plan = np.zeros(total * width + n + total, np.int64)  # who stands where; where each stands; whose tile it is
        plan[spot] = order
        plan[total * width + order] = spot
        plan[total * width + n :][: int(tiles.sum())] = np.repeat(present, tiles)
        who, where, whose = torch.split_with_sizes(to_device(plan, self._device), [total * width, n, total])
        weights = self._all if whole else list(self._architecture.views(self._flats[whose]).values())
        return _Plan(index, (), who, where, weights)


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How the rows of an index go through networks; kept, since slots change policies only between episodes.

    Attributes:
        index: The index.
        parts: Slices of each network's rows in the order `who`; without `who`, all rows are of the first part's
            network.
        who: Order of the rows.
        where: Positions of the outputs in the order of rows.
        weights: Weights of the tiles, if all are evaluated together.
    """

    index: NDArray[np.int32]
    parts: Sequence[tuple[int, slice]]
    who: Tensor | None = None
    where: Tensor | None = None
    weights: list[Tensor] | None = None
