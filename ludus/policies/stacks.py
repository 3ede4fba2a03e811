"""Networks of one form that torch evaluates together on a device: those of a population's policies, or of a team's agents.

Rows of several perceptrons, with or without memory, go through one batched product; other bodies are asked one after the other, since torch
batches neither images whose channels are last nor, for sure, a module of anybody's own.
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
from ludus.backend.perceptron import by_policy
from ludus.core.types import Array
from ludus.policies.actor_critic import Cell
from ludus.policies.bodies import linear

LEAST = 64
"""Rows that are evaluated together at least, others being padding."""
_ALIGNED = 64  # floats: where weights begin, so that products read them in whole lines

Memory: TypeAlias = Array | Tensor
Ask: TypeAlias = Callable[..., tuple[Tensor, ...]]


def bucket(rows: int) -> int:
    """The next of the sizes that kernels see: four to each doubling (64, 80, 96, 112, 128 …), so that at most a fifth is padding."""
    step = max((1 << (rows - 1).bit_length()) // 8, 1)
    return -(-rows // step) * step


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What the networks of one spec have in common. network: one of them (`form_of`). shapes: of its weights, by name. ask: (network,
    observation [n, …], memory [n, M] or None, more [n, …] or None …) -> numbers [n, k], and the memory after where there is one. batched:
    whether its weights may be those of many networks (`ludus.policies.bodies.linear`)."""

    network: nn.Module
    shapes: Mapping[str, tuple[int, ...]]
    ask: Ask
    batched: bool

    @property
    def size(self) -> int:
        """Floats of a network's weights, each array where it is aligned."""
        return sum(_room(shape) for shape in self.shapes.values())

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The arrays, by name, of float[…, size]."""
        out, at = {}, 0
        for name, shape in self.shapes.items():
            out[name] = flat[..., at : at + math.prod(shape)].view(*flat.shape[:-1], *shape)
            at += _room(shape)
        return out


def form_of(network: nn.Module, ask: Ask, *, batched: bool) -> Form:
    """Takes the network. If batched, its weights become buffers without numbers, since they come with each call, and cells are written
    out."""
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
    return Form(network, shapes, ask, batched)


def _places(network: nn.Module, names: Iterable[str]) -> list[tuple[nn.Module, str]]:
    """Which module has each of these arrays, and how it calls it."""
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
        """See `linear`."""
        return linear(x, self.weight, self.bias)


def _room(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // _ALIGNED) * _ALIGNED


class CarriedWeights:
    """A network's weights, by name, and where they are on devices: each stack that is made while another has them takes them from there."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._held: WeakValueDictionary[torch.device, Tensor] | None = None  # making one takes as long as a row

    def on(self, device: torch.device, form: Form) -> Tensor:
        """float32[size], as the form has them."""
        tensor = None if self._held is None else self._held.get(device)
        if tensor is None:
            flat = np.zeros(form.size, np.float32)
            at = 0
            for name, shape in form.shapes.items():
                flat[at : at + math.prod(shape)] = self._arrays[name].reshape(-1)
                at += _room(shape)
            tensor = to_device(flat, device)
            self.are(tensor)
        return tensor

    def are(self, flat: Tensor) -> None:
        """What `on` gives, as long as somebody holds it."""
        if self._held is None:
            self._held = WeakValueDictionary()
        self._held[flat.device] = flat


class DeviceStack:
    """K networks of one form where a placement says."""

    def __init__(self, form: Form, weights: Sequence[CarriedWeights], placement: Placement) -> None:
        self._form, self._placement, self._device = form, placement, placement.torch
        self._weights = [each.on(self._device, form) for each in weights]
        self._plan: _Plan | None = None  # of the last index
        self._each: dict[int, Any] = {}  # networks, or of batched ones their weights
        if form.batched:
            self._network = copy.deepcopy(form.network).to(self._device)
            self._where = _places(self._network, form.shapes)
            self._flats = torch.stack(self._weights)
            self._weights = list(self._flats)
            self._all = list(form.views(self._flats).values())
        for each, flat in zip(weights, self._weights, strict=True):
            each.are(flat)

    @torch.no_grad()
    def __call__(
        self, index: NDArray[np.int32], observation: Array, memory: Memory | None, *more: Array | None
    ) -> tuple[NDArray[np.float32], Memory | None]:
        """(numbers float32[n, k] in host memory, the memory after), where row i goes through network index[i]. Memory comes back where it
        was: a tensor stays on the device; beside an array, all that is answered is read at once. Raises PolicyError for an index that is
        none."""
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
            answers = self._form.ask(self._with(plan.weights), *spread)
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
        if self._form.batched:
            return self._tiled(index, present, counts[present], order)
        both = np.concatenate([order, np.argsort(order)])
        who, where = to_device(both, self._device).chunk(2)
        return _Plan(index, parts, who, where)

    def _one(self, k: int, rows: Sequence[Tensor | None]) -> Sequence[Tensor]:
        """All rows through one network."""
        first = rows[0]
        assert first is not None
        n = len(first)
        width = max(bucket(n), LEAST)
        padded = [
            one if one is None or len(one) == width else torch.cat([one, one.new_zeros(width - n, *one.shape[1:])])
            for one in rows
        ]
        return [answer[:n] for answer in self._form.ask(self._alone(k), *padded)]

    def _alone(self, k: int) -> nn.Module:
        """Network k."""
        form = self._form
        if form.batched:
            if k not in self._each:
                self._each[k] = [many[k] for many in self._all]
            return self._with(self._each[k])
        if k not in self._each:
            self._each[k] = copy.deepcopy(form.network).to(self._device)
            self._each[k].load_state_dict(form.views(self._weights[k]))
        network: nn.Module = self._each[k]
        return network

    def _with(self, weights: Iterable[Tensor]) -> nn.Module:
        """The network, with these."""
        for (part, name), array in zip(self._where, weights, strict=True):
            part._buffers[name] = array
        return self._network

    def _tiled(
        self, index: NDArray[np.int32], present: NDArray[np.int64], counts: NDArray[np.int64], order: NDArray[np.int64]
    ) -> _Plan:
        """Rows side by side in tiles of one width, one for each network that has some; where some have many more than others, theirs are
        cut into several, so that at most about half is padding. Rows of a tile that nobody has are copies of the first row."""
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
        weights = self._all if whole else list(self._form.views(self._flats[whose]).values())
        return _Plan(index, (), who, where, weights)


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """How the rows of an index go through networks; kept, since slots change their policies only between episodes. parts: of the rows in
    the order `who`, those of each network; where: their answers in the order of rows. weights: of the tiles, where all are asked at once.
    Without `who`, all rows are of the first part's network."""

    index: NDArray[np.int32]
    parts: Sequence[tuple[int, slice]]
    who: Tensor | None = None
    where: Tensor | None = None
    weights: list[Tensor] | None = None
