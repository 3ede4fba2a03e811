"""The networks that a learner trains, on one flat vector: torch modules, or perceptrons whose passes over a batch are written out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from ludus.backend import device as core_device
from ludus.backend.mlp import Layer, Layout, Workspace, flatten, forward, split
from ludus.core.machine import keep_freed_memory
from ludus.core.types import Array, Weights


def prepare_learning(network: nn.Module) -> None:
    """For whoever will learn this network, in this process: one with convolutions frees and asks for the same large buffers in every
    update, which the process therefore keeps (`ludus.core.machine`)."""
    if any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules()):
        keep_freed_memory()


@contextmanager
def learning(module: nn.Module, seed: int) -> Iterator[None]:
    """Dropout and the like act in here alone, and draw from a stream of this seed, so that equal seeds learn alike."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed % 2**63)
        module.train()
        try:
            yield
        finally:
            module.eval()


class FlatModule:
    """The parameters of `module` become views of one vector, `flat`, and what autograd adds up for them views of another, `gradient`: one
    pass of the optimizer moves them all, and a target network is one copy. They begin where torch aligns memory, so that sums come out
    the same to the last bit in every process.

    values float32[size], grad float32[size + sums]: both as tensors, on the module's device. parts: the parameters, with where each
    lies. On a CPU also as NumPy views of the same memory: flat, and gradient, with the sums behind it, which ranks add up together with
    it (`joint`: both). layouts: the module's, of perceptrons whose passes may be written out as well: the vector is then the same.
    """

    flat: Array
    gradient: Array
    sums: Array
    joint: Array

    def __init__(
        self,
        module: nn.Module,
        *,
        sums: int = 0,
        layouts: Iterable[Layout] = (),
        device: torch.device | str = "cpu",
    ) -> None:
        """Move the module to the device."""
        self.device = torch.device(device)
        if self.device.type == "cpu":
            prepare_learning(module)
        self.module = module.to(self.device)
        named = dict(module.named_parameters())
        parameters = [named[name] for name in [n for layout in layouts for n in layout.shapes()] or named]
        self._parameters = parameters
        self.hooked = False  # whether somebody waits for the gradient of single parameters
        self.size = sum(p.numel() for p in parameters)
        self.values = torch.zeros(self.size, device=self.device)
        self.grad = torch.zeros(self.size + sums, device=self.device)
        self.parts: list[tuple[nn.Parameter, slice]] = []
        at = 0
        for p in parameters:
            place = slice(at, at + p.numel())
            self.parts.append((p, place))
            self.values[place] = p.detach().reshape(-1)
            p.data = self.values[place].view_as(p)
            p.grad = self.grad[place].view_as(p)
            at += p.numel()
        if self.device.type == "cpu":
            self.flat, self.joint = self.values.numpy(), self.grad.numpy()
            self.gradient, self.sums = self.joint[: self.size], self.joint[self.size :]

    def zero(self) -> None:
        """Set the gradient and the sums to zero."""
        self.grad.zero_()

    def differentiate(self, loss: torch.Tensor) -> None:
        """Fill in the gradient of a loss; the sums behind it are to be filled in after."""
        wanted = [p for p in self._parameters if p.requires_grad]
        if self.device.type == "cpu" or self.hooked:
            self.zero()
            torch.autograd.backward(loss, inputs=wanted)
            return
        gradients = dict(zip(map(id, wanted), torch.autograd.grad(loss, wanted, allow_unused=True), strict=True))
        parts = []
        for p in self._parameters:
            part = gradients.get(id(p))
            parts.append((torch.zeros_like(p) if part is None else part).reshape(-1))
        torch.cat(parts, out=self.grad[: self.size])  # one kernel, and not one for each to add them to nothing

    def part(self, module: nn.Module) -> FlatPart:
        """Return the parameters of a module within this one, which lie side by side."""
        own = {id(p) for p in module.parameters()}
        places = [place for p, place in self.parts if id(p) in own]
        return FlatPart(self, slice(places[0].start, places[-1].stop))


class FlatPart:
    """Some of the parameters of a `FlatModule`, for an optimizer of their own: values and grad float32[size], views of its vectors; on a
    CPU flat and gradient, too."""

    flat: Array
    gradient: Array

    def __init__(self, whole: FlatModule, place: slice) -> None:
        self.device, self.size = whole.device, place.stop - place.start
        self.values, self.grad = whole.values[place], whole.grad[place]
        if self.device.type == "cpu":
            self.flat, self.gradient = whole.flat[place], whole.gradient[place]


def multiplications(module: nn.Module) -> int:
    """See `ludus.backend.device.multiplications`."""
    return core_device.multiplications(parameter.shape for parameter in module.parameters())


def views(layouts: Iterable[Layout], flat: torch.Tensor) -> list[list[Layer]]:
    """Return the layers of perceptrons that lie one after the other in a vector."""
    out, at = [], 0
    for layout in layouts:
        out.append(layout.layers(flat[at : at + layout.size]))
        at += layout.size
    return out


class TrainedNetwork:
    """`parts`: name -> layout, in the order in which `flat` holds them. `flat` and `gradient` are NumPy views of torch memory.

    sums: floats behind the gradient in memory, for what ranks add up together with it (`joint`: both).
    """

    def __init__(self, parts: Mapping[str, Layout], weights: Weights, *, sums: int = 0) -> None:
        self.parts = dict(parts)
        self._shapes = {k: v for layout in self.parts.values() for k, v in layout.shapes().items()}
        self._parameters = torch.from_numpy(flatten(weights, list(self._shapes)))
        size = len(self._parameters)
        gradient = torch.zeros(size + sums)
        self.flat, self.joint = self._parameters.numpy(), gradient.numpy()
        self.gradient, self.sums = self.joint[:size], self.joint[size:]
        self.layers, self.into = (
            dict(zip(self.parts, views(self.parts.values(), flat), strict=True))
            for flat in (self._parameters, gradient)
        )

    def weights(self) -> dict[str, Array]:
        """Return copies of the parameters by name."""
        return split(self.flat, self._shapes)

    def load(self, weights: Weights) -> None:
        """Load what `weights` returned, in any order."""
        self.flat[:] = flatten(weights, list(self._shapes))

    def evaluate(self, part: str, x: torch.Tensor) -> Array:
        """Return outputs float32[n, outputs] of one part on x float32[n, inputs]."""
        return forward(self.layers[part], x, self.parts[part].activation).numpy()


class ForwardBackwardBuffers:
    """Repeated forward and backward passes of a network over the same inputs x float32[n, inputs], in the same buffers.

    outputs[part] and gradients[part] are NumPy views float32[n, outputs]: the second is filled in before `backward`.
    """

    def __init__(self, network: TrainedNetwork, x: torch.Tensor) -> None:
        self._network, self._x = network, x
        self._work = {name: Workspace(layout, len(x)) for name, layout in network.parts.items()}
        self.outputs = {name: work.out.numpy() for name, work in self._work.items()}
        self.gradients = {name: work.gradient.numpy() for name, work in self._work.items()}

    def forward(self) -> None:
        """Fill `outputs`."""
        for name, work in self._work.items():
            work.forward(self._network.layers[name], self._x)

    def backward(self) -> None:
        """Fill the network's `gradient`."""
        for name, work in self._work.items():
            work.backward(self._network.layers[name], self._x, self._network.into[name])
