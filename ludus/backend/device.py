"""Where networks compute: on which device, in which precision, and by which of two backends.

*written*: passes that are written out, and kernels for few rows on a CPU. *torch*: the module itself, by autograd, on any device. What a
scenario asks for is a `DeviceChoice`; `resolve_placement` is the one function that decides, and says why.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from ludus.backend.streams import stream_number
from ludus.core.compilation import COMPILATION
from ludus.core.errors import ConfigError
from ludus.core.types import Array, DeviceChoice, Precision
from ludus.core.user_code import qualified_name

if TYPE_CHECKING:
    import torch

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")

_FORM = re.compile(r"auto|cpu|cuda(:\d+)?")
_OTHERS = ("mps", "xpu", "xla", "hpu", "mtia", "npu", "vulkan", "opencl", "directml", "rocm", "gpu")
_ROCM = "AMD's GPUs are called cuda, too, by a torch that was built for ROCm."
CostKind = Literal["graph", "step", "acting"]
"""What is computed: a learner's step that a GPU repeats as a CUDA graph, one whose kernels are launched one by one, a policy's answers."""

WORTH: Mapping[CostKind, float] = {"graph": 4e6, "step": 5e7, "acting": 2e7}
"""Multiplications of a forward pass over all rows from which `auto` takes a GPU, not one core's CPU kernels. Of one H200, to be measured
again by `benchmarks.gpu_auto`: PPO's steps as graphs were 2.4 times as fast as a core at 6.7e6 multiplications, 3.6 times at 2.2e7 and
7.1 times at 2.7e7 (28 November 2026); in proportion, 1.5 times at 4e6. Before graphs, steps were as fast between 2e7 and 8e7; answers were
at 1e7, and a fifth faster at 2e7 (27 November 2026)."""

AUTO = (
    f"a GPU, where there is one, for steps of {WORTH['graph']:.0e} multiplications or more ({WORTH['step']:.0e} where they "
    f"are not CUDA graphs), and for answers of {WORTH['acting']:.0e}; else the CPU"
)
"""What device: auto means, in words."""


def parse_device(value: str) -> str:
    """`value`, if it names a device: auto, cpu, cuda, cuda:N. Raises ConfigError."""
    if isinstance(value, str) and _FORM.fullmatch(value):
        return value
    wanted = "expected auto, cpu, cuda, or cuda:N for GPU N (from 0)"
    kind = str(value).partition(":")[0].lower()
    if kind in _OTHERS:
        more = f" {_ROCM}" if kind in ("rocm", "gpu") else ""
        raise ConfigError(f"device is {value!r}, which Ludus does not compute on; {wanted}.{more}")
    raise ConfigError(f"device is {value!r}; {wanted}.")


@dataclass(frozen=True, slots=True)
class UpdateCost:
    """One step of a learner, or answers of a policy. multiplications: of a forward pass over one row. rows: at a time. has_cpu_kernel:
    whether CPU kernels compute it; if not, `no_kernel_reason` says why. no_compile_reason: why torch does not compile its steps; "" if it
    can. kind: which of `WORTH` applies."""

    multiplications: int
    rows: int
    has_cpu_kernel: bool
    no_kernel_reason: str = ""
    no_compile_reason: str = "its steps are no single function"
    kind: CostKind = "step"


def multiplications(shapes: Iterable[Sequence[int]]) -> int:
    """Return the multiplications of a forward pass over one row, from the shapes of the weights: at least one for each, and of a
    convolution one for each place, of which there are not known here how many (a hundred are assumed)."""
    return sum(math.prod(shape) * (100 if len(shape) == 4 else 1) for shape in shapes if len(shape) >= 2)


@dataclass(frozen=True, slots=True)
class Placement:
    """What was decided. device: "cpu", "cuda:0" …. why: in words. compiler: None where nobody has asked for it. graphs: on a GPU."""

    device: str
    written: bool
    precision: Precision
    why: str
    compiler: Compiler | None = field(default=None, compare=False)
    graphs: Graphs | None = field(default=None, compare=False)

    @property
    def torch(self) -> torch.device:
        """The device, as torch knows it."""
        import torch

        return torch.device(self.device)

    def products(self) -> AbstractContextManager[None]:
        """Make torch multiply in this precision inside of the block."""
        plain = (
            self.device == "cpu" and self.precision == "float32"
        )  # as always there: small updates notice every microsecond
        return nullcontext() if plain or _compiling() else self._products()

    @property
    def compiles(self) -> bool:
        """Whether it does, until now."""
        return self.compiler is not None and not self.compiler.failed

    def compiled(self, function: Callable[_Given, _Answer], *, part: bool = False) -> Callable[_Given, _Answer]:
        """Return the function, compiled if that was asked for. It takes tensors of so many rows each, alone or in dataclasses and mappings,
        and keeps nothing; what it answers is to be differentiated and read before it is called again (on a GPU that memory is used anew).
        Floats that it is given change from call to call. part: of a step that is `repeated`."""
        if not self.compiles or self.compiler is None:
            return function
        return self.compiler.compiled(function, self, part=part)

    def repeated(self, step: Callable[..., _Answer]) -> Callable[..., _Answer]:
        """Return a whole step, loss, gradient and optimizer: on a GPU as CUDA graphs, see `Graphs`; else as it is. It is given tensors
        there, and floats, which both change from call to call, alone or in tuples, mappings and dataclasses; beside them what does not
        change with the form of these. It changes tensors in place, asks nothing of the host, and answers tensors, without gradients, that
        are read before it is called again."""
        return step if self.graphs is None else self.graphs.of(step, self.torch)

    @contextmanager
    def _products(self) -> Iterator[None]:
        import torch

        if self.precision == "bf16":
            with torch.autocast(self.torch.type, dtype=torch.bfloat16):
                yield
            return
        if self.device == "cpu":  # which has one
            yield
            return
        before = torch.get_float32_matmul_precision()
        try:
            torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def __str__(self) -> str:
        backend, compiler = "CPU kernels" if self.written else "torch", self.compiler
        one_by_one = "" if self.graphs is None or not self.graphs.failed else f"; no CUDA graphs: {self.graphs.failed}"
        if compiler is None:
            return f"{self.device} ({backend}): {self.why}{one_by_one}"
        if compiler.failed:
            return f"{self.device} ({backend}): {self.why}; not compiled: {compiler.failed}{one_by_one}"
        sizes = f"; batches of {_SIZES} sizes are compiled, others are not" if compiler.others else ""
        return f"{self.device} ({backend}, compiled): {self.why}{sizes}{one_by_one}"


@runtime_checkable
class HasPlacement(Protocol):
    """A learner that computes where its context asks for."""

    @property
    def placement(self) -> Placement: ...


def describe_device(learner: object) -> str:
    """Return where it computes, by which backend and why, in words."""
    return (
        str(learner.placement)
        if isinstance(learner, HasPlacement)
        else f"cpu: {qualified_name(learner)} computes there only"
    )


def placement_for_table(learner: object, table: str) -> Placement | None:
    """Return where a learner learns from what one of its tables holds, as its `learns_at(table)` says, or `placement`; None: on the CPU,
    from arrays."""
    tell = getattr(learner, "learns_at", None)
    placement: Placement | None = getattr(learner, "placement", None) if tell is None else tell(table)
    return placement


def resolve_placement(choice: DeviceChoice, work: UpdateCost) -> Placement:
    """Return where one learner computes. Raises ConfigError for a GPU that is not there, and for options that the place has no use for."""
    device, why = _device(choice, work)
    if device == "cpu" and choice.precision == "tf32":
        raise ConfigError(
            f"precision is tf32, which is a GPU's; this learns on the CPU ({why}). Leave it out, or give device=cuda."
        )
    written = choice.written and work.has_cpu_kernel and device == "cpu" and choice.precision == "float32"
    if device == "cpu" and not work.has_cpu_kernel and work.no_kernel_reason:
        why = f"{why}; {work.no_kernel_reason}"
    compiler = None
    if choice.compile:
        failed = "there is nothing to compile" if written else work.no_compile_reason or missing_compiler(device)
        compiler = Compiler(failed)
    return Placement(device, written, choice.precision, why, compiler, Graphs() if repeats(device) else None)


_EACH: Mapping[CostKind, str] = {"graph": "a step", "step": "a step", "acting": "for all answers of a step"}


def _device(choice: DeviceChoice, work: UpdateCost) -> tuple[str, str]:
    named = choice.device.startswith("cuda")
    if choice.device == "auto" or (named and choice.if_large):
        if not named and not gpu_count():
            return "cpu", "there is no GPU"
        gpu = require_gpu(choice.device) if named else "cuda:0"
        size = work.multiplications * work.rows
        counted, worth = f"{size:.2g} multiplications {_EACH[work.kind]}", WORTH[work.kind]
        return ("cpu", f"{counted} are too few for a GPU (from {worth:.0g})") if size < worth else (gpu, counted)
    if named:
        return require_gpu(choice.device), "as asked for"
    return choice.device, "as asked for"


def gpu_count() -> int:
    """Return how many there are that torch computes on."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def require_gpu(device: str) -> str:
    """Return "cuda" or "cuda:N" as "cuda:N". Raises ConfigError, which says what to install or to change, if it is not there."""
    import torch

    count, number = gpu_count(), int(device.partition(":")[2] or 0)
    if number < count:
        return f"cuda:{number}"
    if count:
        raise ConfigError(
            f"device is {device}, and there {'is one GPU' if count == 1 else f'are {count} GPUs'}, "
            f"cuda:0{'' if count == 1 else f' to cuda:{count - 1}'}. Name one of them."
        )
    if torch.version.cuda is None and torch.version.hip is None:
        raise ConfigError(
            f"device is {device}, and this torch ({torch.__version__}) was built for CPUs only. Install one that was built for your GPU "
            "(https://pytorch.org/get-started/locally), or use device=cpu."
        )
    raise ConfigError(
        f"device is {device}, and torch ({torch.__version__}) sees no GPU. Look whether nvidia-smi does, whether the driver is new enough "
        "for this torch, and whether CUDA_VISIBLE_DEVICES hides it (on Ray, give runtime.trainer_gpus); or use device=cpu."
    )


# --------------------------------------------------------------------------------------------------------------------
# Steps that torch compiles: whole functions, for few sizes of a batch.

_SIZES = 4
"""Numbers of rows for which a function is compiled, seconds each: minibatches and a short one, while as much is collected each time. Others
run as they are."""


class Compiler:
    """`torch.compile` of one learner's functions, on a GPU as CUDA graphs. What fails is run as it is from then on, and failed says why.
    others: whether batches came whose sizes are not compiled."""

    def __init__(self, failed: str = "") -> None:
        self.failed, self.others = failed, False

    def compiled(
        self, function: Callable[_Given, _Answer], placement: Placement, *, part: bool = False
    ) -> Callable[_Given, _Answer]:
        """See `Placement.compiled`."""
        import torch

        on_gpu, sizes = placement.device.startswith("cuda"), set[int]()
        fast: Callable[..., Any] | None = None

        def as_tensors(value: Any) -> Any:
            """Return numbers as tensors: others would be compiled in."""
            if isinstance(value, tuple):
                return tuple(map(as_tensors, value))
            return _number(value, placement.torch) if isinstance(value, float) else value

        def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Answer:
            nonlocal fast
            rows = _rows([*args, *kwargs.values()])
            if self.failed or (rows not in sizes and len(sizes) == _SIZES):
                self.others = True
                return function(*args, **kwargs)
            new = rows not in sizes
            sizes.add(rows)
            try:
                if fast is None:
                    mode = "reduce-overhead" if on_gpu and not part else None
                    fast = torch.compile(function, fullgraph=True, dynamic=False, mode=mode)
                if on_gpu and not part:
                    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
                with placement.products(), _compiles() if new else nullcontext(), COMPILATION.of("steps of a learner"):
                    answer: _Answer = fast(
                        *map(as_tensors, args), **{name: as_tensors(value) for name, value in kwargs.items()}
                    )
                return answer
            except Exception as error:  # noqa: BLE001  of whatever class; what is the function's own will come again
                self.failed = compile_failure(error)
            return function(*args, **kwargs)

        return call


_FUNCTIONS = 64
"""How often torch may compile one function of a class, of which there may be many learners, with other networks, in a process. Learners
whose networks are alike share what was compiled; torch's own limit is 8."""


@contextmanager
def _compiles() -> Iterator[None]:
    """Its gradient with a function, which torch would compile when that is asked for first, outside of what knows a compiler's failure.
    Compilers warn of their own parts, which nobody here can change."""
    import torch._dynamo
    import torch._functorch.config

    dynamo, functorch = torch._dynamo.config, torch._functorch.config
    limit = "recompile_limit" if hasattr(dynamo, "recompile_limit") else "cache_size_limit"  # before torch 2.6
    at_once = {"force_non_lazy_backward_lowering": True}
    with (
        warnings.catch_warnings(),
        dynamo.patch({limit: _FUNCTIONS}),
        functorch.patch(at_once) if hasattr(functorch, *at_once) else nullcontext(),
    ):
        warnings.simplefilter("ignore")
        yield


def _rows(values: Iterable[Any]) -> int:
    """Return the number of rows of the first tensor."""
    import torch

    for value in values:
        if isinstance(value, Mapping):
            value = next(iter(value.values()), None)
        elif is_dataclass(value):
            value = getattr(value, fields(value)[0].name)
        if isinstance(value, torch.Tensor) and value.ndim:
            return len(value)
    return 0


def _compiling() -> bool:
    import torch

    return torch.compiler.is_compiling()


def compile_failure(error: Exception) -> str:
    """Return what kept torch from compiling, in one line."""
    return " ".join(str(error).split("\n\n")[0].split())[:300] or type(error).__name__


def missing_compiler(device: str) -> str:
    """Return what is missing for compiling there; "" if all is there."""
    if device.startswith("cuda"):
        if find_spec("triton") is None:
            return "Triton is not installed, by which torch compiles for GPUs"
        has_compiler = any(map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang")))
        return "" if has_compiler else "there is no C compiler, which Triton needs (CC names one)"
    if device == "cpu":
        name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
        return "" if shutil.which(name) else f"there is no C++ compiler {name!r} (CXX names another)"
    return "there are no numbers to compute"


# --------------------------------------------------------------------------------------------------------------------
# Whole steps that a GPU repeats: to begin their kernels one by one is most of what small steps cost.

_FORMS = 8
"""Of what a step is given, for which it is kept: those that came last. Each has its inputs once more, and all share memory beside that."""
_PLAIN = 2
"""Times that a form runs as it is first: torch compiles then, and finds what kernels suit."""


def repeats(device: str) -> bool:
    """Return whether steps there are kept."""
    return device.startswith("cuda")


class Graphs:
    """CUDA graphs of one learner's steps, one for each form of what they are given. Where one cannot be made, all run as they are from then
    on, and failed says why."""

    def __init__(self) -> None:
        self.failed, self._pool = "", None

    def of(self, step: Callable[..., _Answer], device: torch.device) -> Callable[..., _Answer]:
        """See `Placement.repeated`."""
        import torch

        forms: dict[object, _Form[_Answer]] = {}

        def call(*args: Any) -> _Answer:
            if self.failed:
                return step(*args)
            leaves: list[Any] = []
            key = stream_number(), _form_of(args, leaves, torch.Tensor)
            form = forms[key] = forms.pop(key) if key in forms else _Form()
            if form.replay is not None:
                return form.again(leaves)
            if len(forms) > _FORMS:
                del forms[next(iter(forms))]
            on_device = [
                _number(x, device) if isinstance(x, float) else x.to(device, non_blocking=True) for x in leaves
            ]
            if form.plain < _PLAIN:
                form.plain += 1
                return step(*_formed(args, iter(on_device), torch.Tensor))
            try:
                self._pool = self._pool or pool_on(device)
                form.keep(step, args, leaves, on_device, self._pool)
            except Exception as error:  # noqa: BLE001  of whatever class; what is the step's own will come again
                self.failed = compile_failure(error)
                forms.clear()
                return step(*args)
            return form.again(leaves)

        return call


@dataclass(slots=True)
class _Form(Generic[_Answer]):
    """A step for inputs of one form. plain: times that it ran as it is. there: its inputs, on the device. numbers: what floats they are."""

    plain: int = 0
    on_device: list[torch.Tensor] = field(default_factory=list)
    numbers: list[float | None] = field(default_factory=list)
    replay: Callable[[], None] | None = None
    answer: _Answer | None = None

    def keep(
        self,
        step: Callable[..., _Answer],
        args: tuple[Any, ...],
        leaves: list[Any],
        on_device: list[torch.Tensor],
        pool: Any,
    ) -> None:
        """Nothing is computed yet."""
        import torch

        self.on_device = [tensor.clone() for tensor in on_device]
        self.numbers = [leaf if isinstance(leaf, float) else None for leaf in leaves]
        of_form = _formed(args, iter(self.on_device), torch.Tensor)
        self.answer, self.replay = captured(lambda: step(*of_form), on_device[0].device, pool)

    def again(self, leaves: list[Any]) -> _Answer:
        """The step, of these numbers."""
        import torch

        groups: dict[torch.dtype, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for k, (buffer, leaf) in enumerate(zip(self.on_device, leaves, strict=True)):
            if isinstance(leaf, float):
                if leaf != self.numbers[k]:
                    buffer.fill_(leaf)
                    self.numbers[k] = leaf
            elif leaf.device == buffer.device:
                into, out = groups.setdefault(buffer.dtype, ([], []))
                into.append(buffer)
                out.append(leaf)
            else:
                buffer.copy_(leaf, non_blocking=True)
        for into, out in groups.values():  # one launch for each; of several dtypes torch copies them one by one
            torch._foreach_copy_(into, out)
        assert self.replay is not None
        self.replay()
        return cast(_Answer, self.answer)


_CAPTURE = threading.Lock()  # of the stream


@lru_cache
def _capturing_on(device: torch.device, number: int) -> Any:
    """Return the stream to capture what runs on a stream of `side_stream`. Each has memory of its own for products, which graphs that run
    at the same time cannot share."""
    import torch

    del number
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def pool_on(device: torch.device) -> Any:
    """Return memory for graphs that never run at the same time, and whose results are read before another runs."""
    import torch

    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


def captured(step: Callable[[], _Answer], device: torch.device, pool: Any) -> tuple[_Answer, Callable[[], None]]:
    """Return (where the step will answer, what runs it there): its kernels on a GPU, which are noted and not run. Raises what the step
    does, and RuntimeError for what a graph cannot take; the GPU is then as it was."""
    import torch

    graph, now = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    beside = _capturing_on(device, stream_number())
    with _CAPTURE, torch.cuda.stream(beside):
        beside.wait_stream(now)
        graph.capture_begin(pool, capture_error_mode="thread_local")  # what other threads do there meanwhile is theirs
        try:
            answer = step()
        except BaseException:
            with suppress(Exception):
                graph.capture_end()  # says only that there was an error
            for end in ("_cuda_endAllocateToPool", "_cuda_releasePool"):  # which that leaves undone
                with suppress(Exception):
                    getattr(torch._C, end)(torch.cuda.current_device(), pool)
            raise
        graph.capture_end()
        now.wait_stream(beside)
    replay: Callable[[], None] = graph.replay
    return answer, replay


@dataclass(frozen=True, slots=True, eq=False)
class LazyRows:
    """Rows int64[n] of columns that stay where they are on a device. A step that is given these gathers them, as a part of its graph. The
    numbers of the rows may lie in memory."""

    columns: Mapping[str, torch.Tensor]
    rows: torch.Tensor

    def gathered(self) -> dict[str, torch.Tensor]:
        """Return tensors of n rows."""
        rows: torch.Tensor | None = None
        out = {}
        for name, column in self.columns.items():
            rows = self.rows.to(column.device, non_blocking=True) if rows is None else rows
            out[name] = column.index_select(0, rows)
        return out


def gather_rows(columns: Mapping[str, torch.Tensor] | LazyRows) -> Mapping[str, torch.Tensor]:
    """Return columns of a batch on a device, as tensors."""
    return columns.gathered() if isinstance(columns, LazyRows) else columns


def _number(value: float, device: torch.device) -> torch.Tensor:
    import torch

    return torch.full((), value, device=device)


def _form_of(value: Any, leaves: list[Any], tensor: type[torch.Tensor]) -> object:
    """Return what is the same in values that a graph serves. Tensors and floats are added to the leaves."""
    if isinstance(value, tensor):
        leaves.append(value)
        return value.shape, value.dtype
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        leaves.append(value)
        return float
    if isinstance(value, int):
        return type(value), value
    if isinstance(value, tuple):
        return tuple([_form_of(each, leaves, tensor) for each in value])
    if isinstance(value, Mapping):
        return tuple([(name, _form_of(each, leaves, tensor)) for name, each in value.items()])
    if isinstance(value, LazyRows):
        leaves.append(value.rows)
        return tuple([(name, c.data_ptr(), c.shape, c.dtype) for name, c in value.columns.items()]), value.rows.shape
    if is_dataclass(value):
        return tuple([_form_of(getattr(value, each.name), leaves, tensor) for each in fields(value)])
    if isinstance(value, np.ndarray | np.generic | list | set):
        raise TypeError(f"a graph takes nothing from memory, and was given a {type(value).__name__}")
    return type(value)


def _formed(value: Any, leaves: Iterator[Any], tensor: type[torch.Tensor]) -> Any:
    """Return the value with these leaves."""
    if isinstance(value, float | tensor):
        return next(leaves)
    if isinstance(value, tuple):
        parts = [_formed(each, leaves, tensor) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Mapping):
        return {name: _formed(each, leaves, tensor) for name, each in value.items()}
    if isinstance(value, LazyRows):
        return LazyRows(value.columns, next(leaves))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{each.name: _formed(getattr(value, each.name), leaves, tensor) for each in fields(value)}
        )
    return value


# --------------------------------------------------------------------------------------------------------------------
# Between host and device. A learner reads numbers back by `scalars_to_host` alone, once a round or an epoch; on the device
# "meta", which has no numbers, they are zeros, so that tests see whether an update reads any in another way.


def scalars_to_host(numbers: Sequence[torch.Tensor]) -> list[float]:
    """Return the values of scalars of one device, read in one transfer."""
    import torch

    packed = torch.stack(
        [number.detach() for number in numbers]
        if all(number.dtype in (torch.float32, torch.bool) for number in numbers)  # which float32 holds
        else [number.detach().double() for number in numbers]
    )
    return [0.0] * len(packed) if packed.device.type == "meta" else list(packed.tolist())


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return its numbers in memory: the same memory on a CPU; elsewhere a copy, for which this waits."""
    import torch

    tensor = tensor.detach()
    return (torch.zeros_like(tensor, device="cpu") if tensor.device.type == "meta" else tensor.cpu()).numpy()


_LITTLE = 1 << 14
"""Bytes up to which a driver copies what it is given at once, and what is pinned takes longer."""


def to_device(array: Array | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor of the array: the same memory on a CPU; elsewhere a copy, by pinned memory if it is large, that nobody waits for.
    What is a tensor there already stays as it is."""
    import torch

    if not isinstance(array, np.ndarray):
        return array.to(device, non_blocking=True)
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda" and tensor.nbytes > _LITTLE:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def generator_on(device: torch.device, seed: int) -> torch.Generator | None:
    """Return a stream of the device's random numbers, seeded; None, torch's own, on "meta", which has no numbers."""
    import torch

    return None if device.type == "meta" else torch.Generator(device).manual_seed(seed % 2**63)


# --------------------------------------------------------------------------------------------------------------------
# Many at once: a transfer costs some microseconds, however little goes with it.

_ALIGNED = 16  # bytes, so that every column may be read as what it is


def columns_to_device(columns: Mapping[str, Array], device: torch.device) -> dict[str, torch.Tensor]:
    """Return copies of columns in one piece of memory: to a GPU it goes in one transfer, by pinned memory, that nobody waits for."""
    import torch

    whole = {name: np.ascontiguousarray(array) for name, array in columns.items()}
    ends = np.cumsum([-(-array.nbytes // _ALIGNED) * _ALIGNED for array in whole.values()], dtype=np.int64).tolist()
    packed = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, pin_memory=device.type == "cuda")
    memory = packed.numpy()
    places = {name: slice(at, at + array.nbytes) for at, (name, array) in zip([0, *ends], whole.items(), strict=False)}
    for name, array in whole.items():
        memory[places[name]] = array.reshape(-1).view(np.uint8)
    transferred = packed.to(device, non_blocking=True)
    return {name: transferred[places[name]].view(dtype_of(array)).view(array.shape) for name, array in whole.items()}


def dtype_of(array: Array) -> torch.dtype:
    """Return torch's dtype of an array. Raises TypeError where it has none."""
    import torch

    return torch.from_numpy(np.empty(0, array.dtype)).dtype


def floats_to_host(tensors: Sequence[torch.Tensor]) -> list[Array]:
    """Copy float32 of tensors of one device. From a GPU they come in one transfer, beside what it computes: in a stream of its own that
    waits for what was asked for by now, and for which nothing waits there."""
    import torch

    if not tensors or tensors[0].device.type == "cpu":
        return [to_numpy(tensor).astype(np.float32) for tensor in tensors]
    packed = torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])
    on_host = _beside(packed) if packed.device.type == "cuda" else to_numpy(packed)
    parts = np.split(on_host, np.cumsum([tensor.numel() for tensor in tensors])[:-1])
    return [part.reshape(tensor.shape).copy() for part, tensor in zip(parts, tensors, strict=True)]


def _beside(packed: torch.Tensor) -> Array:
    """Return what a GPU holds, read in a stream of its own."""
    import torch

    out = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
    stream = torch.cuda.Stream(packed.device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(packed.device))
    with torch.cuda.stream(stream):
        out.copy_(packed, non_blocking=True)
    packed.record_stream(stream)
    stream.synchronize()
    return out.numpy()
