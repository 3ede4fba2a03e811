"""The networks that a learner trains, on one flat vector: torch modules, or perceptrons whose passes over a batch are written out; and
Adam on that vector, with the gradient's norm clipped: in one compiled pass on a CPU, torch's fused one on a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.backend import device as core_device
from ludus.backend.device import scalars_to_host, to_numpy
from ludus.backend.mlp import Layout, Workspace, evaluate, flatten, split
from ludus.core.arrays import kernel
from ludus.core.machine import keep_freed_memory
from ludus.core.types import Array, State, Weights


def prepare_learning(network: nn.Module) -> None:
    """For whoever will learn this network, in this process: one with convolutions frees and asks for the same large buffers in every
    update, which the process therefore keeps (`ludus.core.machine`)."""
    if any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in network.modules()):
        keep_freed_memory()


@contextmanager
def learning(module: nn.Module, seed: int | None) -> Iterator[None]:
    """Dropout and the like act in here alone, and draw from a stream of this seed, so that equal seeds learn alike. None: nothing draws."""
    if seed is None:
        module.train()
        try:
            yield
        finally:
            module.eval()
        return
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed % 2**63)
        module.train()
        try:
            yield
        finally:
            module.eval()


_WITHOUT_NUMBERS = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.Embedding, nn.Flatten, nn.Identity),
    *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict),
    *(nn.ReLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.GELU, nn.SiLU, nn.LeakyReLU),
)


def draws_numbers(module: nn.Module) -> bool:
    """Return whether a network may draw random numbers as it learns: it has layers other than Ludus's own and torch's plainest ones."""
    return any(
        type(part) not in _WITHOUT_NUMBERS and type(part).__module__.partition(".")[0] != "ludus"
        for part in module.modules()
    )


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


def slices(layouts: Iterable[Layout]) -> list[slice]:
    """Return where perceptrons lie that follow each other in a flat vector."""
    out, at = [], 0
    for layout in layouts:
        out.append(slice(at, at + layout.size))
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
        self.places = dict(zip(self.parts, slices(self.parts.values()), strict=True))

    def weights(self) -> dict[str, Array]:
        """Return copies of the parameters by name."""
        return split(self.flat, self._shapes)

    def load(self, weights: Weights) -> None:
        """Load what `weights` returned, in any order."""
        self.flat[:] = flatten(weights, list(self._shapes))

    def evaluate(self, part: str, x: Array) -> NDArray[np.float32]:
        """Return outputs float32[n, outputs] of one part on x float32[n, inputs]."""
        return evaluate(self.parts[part], self.flat[self.places[part]], x)


class ForwardBackwardBuffers:
    """Forward and backward passes of a network, in the same buffers again and again.

    outputs[part] and gradients[part] are float32[n, outputs], of the last forward pass: the second is filled in before `backward`.
    """

    outputs: dict[str, NDArray[np.float32]]
    gradients: dict[str, NDArray[np.float32]]

    def __init__(self, network: TrainedNetwork) -> None:
        self._network = network
        self._work = {name: Workspace(layout) for name, layout in network.parts.items()}

    def forward(self, x: Array) -> None:
        """Fill `outputs`, of x float32[n, inputs]."""
        network = self._network
        for name, work in self._work.items():
            work.forward(network.flat[network.places[name]], x)
        self.outputs = {name: work.out for name, work in self._work.items()}
        self.gradients = {name: work.gradient for name, work in self._work.items()}

    def backward(self, x: Array) -> None:
        """Fill the network's `gradient`, after `forward` of the same x."""
        network = self._network
        for name, work in self._work.items():
            place = network.places[name]
            work.backward(network.flat[place], x, network.gradient[place])


@kernel(fastmath={"reassoc", "contract"})
def _norm(gradient: Array) -> float:
    total = 0.0
    for i in range(len(gradient)):
        total += float(gradient[i]) * float(gradient[i])
    return math.sqrt(total)


@kernel
def _adam(p, g, m, v, scale, rate, beta1, beta2, epsilon, correction):  # type: ignore[no-untyped-def]
    scale, rate = p.dtype.type(scale), p.dtype.type(rate)
    b1, b2, epsilon = p.dtype.type(beta1), p.dtype.type(beta2), p.dtype.type(epsilon)
    c1, c2, root = p.dtype.type(1.0 - beta1), p.dtype.type(1.0 - beta2), p.dtype.type(correction)
    tiny = p.dtype.type(1e-30)
    for i in range(len(p)):
        x = g[i] * scale
        first = b1 * m[i] + c1 * x
        second = b2 * v[i] + c2 * x * x
        # moments of inputs that no longer occur decay for ever; denormal numbers would slow every later step
        m[i] = first if abs(first) > tiny else p.dtype.type(0)
        v[i] = second if second > tiny else p.dtype.type(0)
        p[i] -= rate * m[i] / (np.sqrt(v[i]) * root + epsilon)


@dataclass(slots=True)
class Adam:
    """State of the optimizer of `size` parameters. (Kingma and Ba 2015, algorithm 1, as torch.optim.Adam computes it.)"""

    size: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-5
    dtype: type = np.float32
    steps: int = 0
    m: NDArray[np.float32] = field(init=False)
    v: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.m, self.v = np.zeros(self.size, self.dtype), np.zeros(self.size, self.dtype)

    def step(self, parameters: Array, gradient: Array, *, rate: float, max_norm: float) -> float:
        """Move `parameters` in place, by the gradient scaled down to `max_norm` (0: as it is). Answers the norm before.

        A gradient with a NaN or infinity changes nothing; its norm says so.
        """
        norm = float(_norm(gradient))
        if not math.isfinite(norm):
            return norm
        self.steps += 1
        scale = min(1.0, max_norm / (norm + 1e-6)) if max_norm > 0.0 else 1.0
        first, second = 1.0 - self.beta1**self.steps, 1.0 - self.beta2**self.steps
        _adam(
            parameters,
            gradient,
            self.m,
            self.v,
            scale,
            rate / first,
            self.beta1,
            self.beta2,
            self.epsilon,
            second**-0.5,
        )
        return norm

    def state_dict(self) -> State:
        return {"steps": self.steps, "m": self.m.copy(), "v": self.v.copy()}

    def load_state_dict(self, state: State) -> None:
        self.steps = int(state["steps"])
        self.m[:], self.v[:] = state["m"], state["v"]


def finite(number: torch.Tensor) -> torch.Tensor:
    """Return whether it is, bool of its shape: torch's own takes twice as many kernels."""
    return number * 0.0 == 0.0


class ModuleAdam:
    """Moves the parameters of a `FlatModule`, or of a part of one, on its device, and never reads a number back from there. State is the
    same on all devices."""

    def __init__(self, module: FlatModule | FlatPart, *, epsilon: float = 1e-5, fused: bool | None = None) -> None:
        """fused: torch's kernel; None: everywhere but on a CPU."""
        self.module, self._epsilon = module, epsilon
        fused = module.device.type != "cpu" if fused is None else fused
        self._cpu_adam = None if fused else Adam(module.size, epsilon=epsilon)
        if fused:  # on a CPU the compiled one has its own
            self._steps = torch.zeros((), device=module.device)
            self._m, self._v = torch.zeros_like(module.values), torch.zeros_like(module.values)

    @torch.no_grad()
    def step(self, *, rate: float | torch.Tensor, max_norm: float, held: torch.Tensor | bool = False) -> torch.Tensor:
        """As `Adam.step`; held: a bool by which nothing moves. The norm of the gradient, on the device. The rate may lie there, too."""
        module = self.module
        if self._cpu_adam is not None:
            rate = float(rate)
            if held:
                return torch.tensor(float(_norm(module.gradient)), dtype=torch.float64)
            return torch.tensor(self.step_on_cpu(rate=rate, max_norm=max_norm), dtype=torch.float64)
        length = self.grad_norm()
        return self.move(length, ~finite(length) | held, rate=rate, max_norm=max_norm)

    @property
    def on_cpu(self) -> bool:
        """Whether a CPU's compiled pass moves them."""
        return self._cpu_adam is not None

    def grad_norm(self) -> torch.Tensor:
        """Return the norm of the gradient, on the device."""
        length: torch.Tensor = torch.linalg.vector_norm(self.module.grad[: self.module.size])
        return length

    @torch.no_grad()
    def move(
        self, length: torch.Tensor, held: torch.Tensor, *, rate: float | torch.Tensor, max_norm: float
    ) -> torch.Tensor:
        """By torch's kernel, down a gradient of this length, which is answered; not if held."""
        module, still = self.module, held.to(torch.float32)
        self._steps += 1.0 - still
        if module.device.type != "meta":  # where the kernel has no shadow
            torch._fused_adam_(
                [module.values],
                [module.grad[: module.size]],
                [self._m],
                [self._v],
                [],
                [self._steps],
                lr=rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=0.0,
                eps=self._epsilon,
                amsgrad=False,
                maximize=False,
                grad_scale=((length + 1e-6) / max_norm).clamp(min=1.0) if max_norm > 0.0 else None,  # it divides by it
                found_inf=still,  # 1: nothing moves
            )
        return length

    def step_on_cpu(self, *, rate: float, max_norm: float) -> float:
        """Do `Adam.step`, on a CPU."""
        assert self._cpu_adam is not None
        return self._cpu_adam.step(self.module.flat, self.module.gradient, rate=rate, max_norm=max_norm)

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the state of torch's kernel, always the same memory: steps, and the running means of gradients and of their squares."""
        return self._steps, self._m, self._v

    def snapshot(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | State:
        """Return what `restore` goes back to: on the device."""
        if self._cpu_adam is not None:
            return self._cpu_adam.state_dict()
        return self._steps.clone(), self._m.clone(), self._v.clone()

    def restore(self, snapshot: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | State) -> None:
        """Go back to a snapshot, the result of `kept`."""
        if isinstance(snapshot, tuple):
            for tensor, before in zip(self.tensors, snapshot, strict=True):
                tensor.copy_(before)
        elif self._cpu_adam is not None:
            self._cpu_adam.load_state_dict(snapshot)

    def state_dict(self) -> State:
        """Return the state, as `Adam.state_dict`."""
        if self._cpu_adam is not None:
            return self._cpu_adam.state_dict()
        steps, m, v = map(to_numpy, self.tensors)
        return {"steps": int(steps), "m": m.copy(), "v": v.copy()}

    def load_state_dict(self, state: State) -> None:
        """Load the state of any device."""
        if self._cpu_adam is not None:
            self._cpu_adam.load_state_dict(state)
            return
        self._steps.fill_(float(state["steps"]))
        self._m.copy_(torch.from_numpy(state["m"]))
        self._v.copy_(torch.from_numpy(state["v"]))


class NonFiniteGuard:
    """Steps of optimizers on one device. Where a loss or a gradient is no number, none of them moves any more, until that is read: nothing
    inside an update waits for the device. wrong: bool[] there, whether it was so since the last reading; always the same memory."""

    def __init__(self, device: torch.device | str) -> None:
        self.nonfinite = torch.zeros((), dtype=torch.bool, device=device)

    def step(
        self,
        adam: ModuleAdam,
        loss: torch.Tensor,
        *,
        rate: float | torch.Tensor,
        max_norm: float,
        unwanted: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As `ModuleAdam.step`, if all numbers so far and the loss are finite. unwanted: a bool on the device by which there is no step,
        and whose numbers do not count."""
        if adam.on_cpu:
            wrong = self.nonfinite | ~finite(loss)
            norm = adam.step(rate=rate, max_norm=max_norm, held=wrong if unwanted is None else wrong | unwanted)
            wrong = wrong | ~finite(norm)
            self.nonfinite |= wrong if unwanted is None else wrong & ~unwanted
            return norm
        norm = adam.grad_norm()
        wrong = ~finite(loss + norm)
        held = self.nonfinite | wrong if unwanted is None else self.nonfinite | wrong | unwanted
        self.nonfinite |= wrong if unwanted is None else wrong & ~unwanted
        return adam.move(norm, held, rate=rate, max_norm=max_norm)

    def watch(self, numbers: torch.Tensor) -> None:
        """Also require these numbers to be finite."""
        self.nonfinite |= ~finite(numbers.sum())

    def read(self, numbers: Sequence[torch.Tensor]) -> tuple[list[float], bool]:
        """Return (scalars of the device, whether something was no number since this was asked last), in one transfer."""
        *scalars, wrong = scalars_to_host([*numbers, self.nonfinite])
        if wrong:
            self.nonfinite.zero_()
        return scalars, bool(wrong)


@dataclass(frozen=True, slots=True)
class OptimizerStepResult:
    """What became of a step. told: what was to be told of it. wrong: what became NaN or infinite, "" if all is well."""

    loss: float
    norm: float
    metrics: Sequence[float]
    nonfinite: str


class GuardedAdam:
    """Steps of Adam after which all weights are finite.

    On a CPU each step is looked at, and one that fails is not made. Elsewhere a number is read only of a step that is to be looked at, as
    the guard does it, and when one is seen that is none, all is as it was after the last step that was looked at.
    """

    def __init__(self, adam: ModuleAdam, guard: NonFiniteGuard, *beside: torch.Tensor) -> None:
        """beside: what goes back together with the weights."""
        self.adam, self._module, self._guard, self._moved = adam, adam.module, guard, (adam.module.values, *beside)
        self.on_cpu = adam.module.device.type == "cpu"
        self._snapshot: tuple[list[torch.Tensor], Any] | None = None

    def step(
        self, loss: torch.Tensor | float, metrics: Sequence[Any], *, rate: float, max_norm: float, look: bool = True
    ) -> OptimizerStepResult | None:
        """Do a step along the gradient that the module holds. metrics: numbers, or scalars on the device. None where this step is not
        looked at."""
        return (
            self._step_on_cpu(float(loss), metrics, rate, max_norm)
            if self.on_cpu
            else self._step_on_device(torch.as_tensor(loss), metrics, rate, max_norm, look)
        )

    def _step_on_cpu(self, loss: float, metrics: Sequence[Any], rate: float, max_norm: float) -> OptimizerStepResult:
        flat, numbers = self._module.flat, [float(number) for number in metrics]
        if not math.isfinite(loss):
            return OptimizerStepResult(loss, 0.0, numbers, "the loss")
        weights, snapshot = flat.copy(), self.adam.snapshot()
        norm = self.adam.step_on_cpu(rate=rate, max_norm=max_norm)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite weights, which the sum is to show
            total = float(flat.sum())
        if math.isfinite(norm) and (math.isfinite(total) or np.isfinite(flat).all()):
            return OptimizerStepResult(loss, norm, numbers, "")
        flat[:] = weights
        self.adam.restore(snapshot)
        return OptimizerStepResult(loss, norm, numbers, "the weights" if math.isfinite(norm) else "the gradient")

    def _step_on_device(
        self, loss: torch.Tensor, metrics: Sequence[Any], rate: float, max_norm: float, look: bool
    ) -> OptimizerStepResult | None:
        self.keep()
        norm = self.move(loss, rate=rate, max_norm=max_norm)
        return self.look(loss, norm, metrics) if look else None

    def keep(self) -> None:
        """Keep what to go back to, before a step on a device other than a CPU."""
        if self._snapshot is None:
            self._snapshot = [tensor.clone() for tensor in self._moved], self.adam.snapshot()

    def move(self, loss: torch.Tensor, *, rate: float | torch.Tensor, max_norm: float) -> torch.Tensor:
        """Do the step on the device only, and return the gradient's norm."""
        return self._guard.step(self.adam, loss, rate=rate, max_norm=max_norm)

    def look(self, loss: torch.Tensor, norm: torch.Tensor, metrics: Sequence[Any]) -> OptimizerStepResult:
        """Return the result of a step, and go back to the last finite state if it is not finite."""
        assert self._snapshot is not None
        self._guard.watch(self._module.values)
        (before, optimizer), self._snapshot = self._snapshot, None
        (loss_value, length, *numbers), wrong = self._guard.read([loss, norm, *metrics])
        if not wrong:
            return OptimizerStepResult(loss_value, length, numbers, "")
        for tensor, old in zip(self._moved, before, strict=True):
            tensor.copy_(old)
        self.adam.restore(optimizer)
        return OptimizerStepResult(loss_value, length, numbers, "a loss or its gradient")
