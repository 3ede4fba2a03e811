"""Networks of one form that torch evaluates together on a device: those of a population's policies, or of a team's agents.

Rows of several perceptrons, with or without memory, go through one batched product; other bodies are asked one after the other, since torch
batches neither images whose channels are last nor, for sure, a module of anybody's own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.core.device import Placement, to_device, to_host
from ludus.core.types import Array
from ludus.policies.actor_critic import Cell
from ludus.policies.perceptron import by_policy

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
    """What the networks of one spec have in common. network: one of them, without its weights (`form_of`). shapes: of those, by name. ask:
    (network, observation [n, …], memory [n, M] or None, more [n, …] or None …) -> numbers [n, k], and the memory after where there is
    one. batched: whether torch evaluates many of them at once."""

    network: nn.Module
    shapes: Mapping[str, tuple[int, ...]]
    ask: Ask
    batched: bool

    @property
    def size(self) -> int:
        """Floats of a network's weights, each array where it is aligned."""
        return sum(_room(shape) for shape in self.shapes.values())

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The arrays, by name, of float[…, size], of a network that is called `network`."""
        out, at = {}, 0
        for name, shape in self.shapes.items():
            out[f"network.{name}"] = flat[..., at : at + int(np.prod(shape))].view(*flat.shape[:-1], *shape)
            at += _room(shape)
        return out


def form_of(network: nn.Module, ask: Ask, *, batched: bool) -> Form:
    """Takes the network's weights away: only other numbers, which are no weights, stay. Cells are written out, for torch batches no
    other."""
    for part in list(network.modules()) if batched else ():
        if isinstance(core := getattr(part, "core", None), nn.RNNBase):
            part.core = Cell(core)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    for part in network.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None and name not in part._non_persistent_buffers_set:
                    empty = torch.empty_like(tensor, device="meta")
                    held[name] = nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty  # type: ignore[assignment]
    return Form(network.eval(), shapes, ask, batched)


def _room(shape: tuple[int, ...]) -> int:
    return -(-int(np.prod(shape)) // _ALIGNED) * _ALIGNED


class CarriedWeights:
    """A network's weights, by name; and copies of them on devices, where each is brought once."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays
        self._there: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device, form: Form) -> Tensor:
        """float32[size], as the form has them."""
        if device not in self._there:
            flat = np.zeros(form.size, np.float32)
            at = 0
            for name, shape in form.shapes.items():
                flat[at : at + int(np.prod(shape))] = self._arrays[name].reshape(-1)
                at += _room(shape)
            self._there[device] = to_device(flat, device)
        return self._there[device]


class DeviceStack:
    """K networks of one form where a placement says."""

    def __init__(self, form: Form, weights: Sequence[CarriedWeights], placement: Placement) -> None:
        self._form, self._placement, self._device = form, placement, placement.torch
        self._network = _Asked(copy.deepcopy(form.network), form.ask)
        for part in self._network.modules():
            for name in part._non_persistent_buffers_set:
                held = part._buffers[name]
                part._buffers[name] = None if held is None else held.to(self._device)
        flats = [each.on(self._device, form) for each in weights]
        self._flats = flats[0][None] if len(flats) == 1 else torch.stack(flats)
        self._all = form.views(self._flats)
        self._each: dict[int, dict[str, Tensor]] = {}

    @torch.no_grad()
    def __call__(
        self, index: NDArray[np.int32], observation: Array, memory: Memory | None, *more: Array | None
    ) -> tuple[NDArray[np.float32], Memory | None]:
        """(numbers float32[n, k] in host memory, the memory after), where row i goes through network index[i]. Memory comes back where it
        was: a tensor stays on the device; beside an array, all that is answered is read at once. Raises PolicyError for an index that is
        none."""
        given = [
            self._there(observation).float(),
            *(None if one is None else self._there(one) for one in (memory, *more)),
        ]
        with self._placement.products():
            numbers, *after = self._answers(index, given)
        if not after or isinstance(memory, Tensor):
            return to_host(numbers.float()), after[0].float() if after else None
        width = numbers.shape[1]
        both = to_host(torch.cat([numbers.float(), after[0].float()], dim=1))
        return np.ascontiguousarray(both[:, :width]), np.ascontiguousarray(both[:, width:])

    def _there(self, rows: Memory) -> Tensor:
        if isinstance(rows, Tensor):
            return rows
        return to_device(rows if rows.flags.writeable else rows.copy(), self._device)

    def _answers(self, index: NDArray[np.int32], rows: Sequence[Tensor | None]) -> Sequence[Tensor]:
        order, start = by_policy(index, len(self._flats))
        counts = np.diff(start)
        present = np.flatnonzero(counts)
        if len(present) <= 1:
            return self._one(int(present[0]) if len(present) else 0, rows)
        if self._form.batched:
            return self._together(present, counts[present], order, rows)
        there = to_device(order.astype(np.int64), self._device)
        sorted_rows = [None if one is None else one[there] for one in rows]
        parts = [
            self._one(k, [None if one is None else one[start[k] : start[k + 1]] for one in sorted_rows])
            for k in present.tolist()
        ]
        back = torch.empty_like(there).index_copy(0, there, torch.arange(len(there), device=self._device))
        return [torch.cat(answers)[back] for answers in zip(*parts, strict=True)]

    def _one(self, k: int, rows: Sequence[Tensor | None]) -> Sequence[Tensor]:
        """All rows through one network."""
        if k not in self._each:
            self._each[k] = {name: many[k] for name, many in self._all.items()}
        first = rows[0]
        assert first is not None
        n = len(first)
        width = max(bucket(n), LEAST)
        padded = [
            one if one is None or len(one) == width else torch.cat([one, one.new_zeros(width - n, *one.shape[1:])])
            for one in rows
        ]
        return [answer[:n] for answer in self._asked(self._each[k], *padded)]

    def _together(
        self,
        present: NDArray[np.int64],
        counts: NDArray[np.int64],
        order: NDArray[np.int64],
        rows: Sequence[Tensor | None],
    ) -> Sequence[Tensor]:
        """Rows side by side in tiles of one width, one for each network that has some; where some have many more than others, theirs are
        cut into several, so that at most about half is padding. Rows of a tile that nobody has are copies of the first row."""
        n = len(order)
        least = max(LEAST // len(present), 1)
        width = max(bucket(int(counts.max())), least)
        if width * len(present) > 2 * max(n, LEAST):
            width = max(bucket(-(-n // len(present))), least)
        tiles = -(-counts // width)
        total = int(tiles.sum())
        whole = total == len(present) == len(self._flats)
        total = total if whole else bucket(total)
        first = np.cumsum(tiles) - tiles
        spot = np.arange(n) + np.repeat(first * width - (np.cumsum(counts) - counts), counts)
        plan = np.zeros(total * width + n + total, np.int64)  # who stands where; where each stands; whose tile it is
        plan[spot] = order
        plan[total * width + order] = spot
        plan[total * width + n :][: int(tiles.sum())] = np.repeat(present, tiles)
        who, where, whose = torch.split_with_sizes(to_device(plan, self._device), [total * width, n, total])
        weights = self._all if whole else self._form.views(self._flats[whose])
        spread = [None if one is None else one[who].view(total, width, *one.shape[1:]) for one in rows]
        dims = (0, *(None if one is None else 0 for one in spread))
        return [answer.flatten(0, 1)[where] for answer in torch.vmap(self._asked, in_dims=dims)(weights, *spread)]

    def _asked(self, weights: dict[str, Tensor], *rows: Tensor | None) -> tuple[Tensor, ...]:
        out: tuple[Tensor, ...] = torch.func.functional_call(self._network, weights, rows)
        return out


class _Asked(nn.Module):
    """A network that is called as its form says."""

    def __init__(self, network: nn.Module, ask: Ask) -> None:
        super().__init__()
        self.network, self._ask = network, ask

    def forward(self, *rows: Tensor | None) -> tuple[Tensor, ...]:
        """See `Form`."""
        return self._ask(self.network, *rows)
