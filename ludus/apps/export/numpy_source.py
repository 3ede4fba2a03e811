"""A torch program as Python source that needs NumPy alone.

torch.export turns a module into a list of ATen operations; each is written as one line of NumPy. What has no line here is refused by name.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ludus.core.errors import PolicyError

Write: TypeAlias = Callable[..., str]

_DTYPES = {
    torch.float32: "np.float32",
    torch.float64: "np.float64",
    torch.int64: "np.int64",
    torch.int32: "np.int32",
    torch.bool: "np.bool_",
}


def _axes(dims: Any) -> str:
    return repr(tuple(dims)) if isinstance(dims, Sequence) else repr(dims)


def _reduction(name: str) -> Write:
    def write(x: str, dim: Any = None, keepdim: Any = False, **_: Any) -> str:
        return f"np.{name}({x}, axis={_axes(dim) if dim is not None else None}, keepdims={keepdim})"

    return write


def _binary(symbol: str) -> Write:
    def write(x: str, y: Any, *, alpha: Any = 1, **_: Any) -> str:
        return f"({x} {symbol} {y})" if alpha in (1, "1") else f"({x} {symbol} {alpha} * {y})"

    return write


def _call(function: str) -> Write:
    return lambda *arguments, **_: f"{function}({', '.join(map(str, arguments))})"


def _filled(like: bool) -> Write:
    def write(shape: Any, value: Any = 0, dtype: Any = None, **_: Any) -> str:
        where = f"{shape}.shape" if like else shape
        return f"np.full({where}, {value}, {f'{shape}.dtype' if like and dtype is None else dtype or 'np.float32'})"

    return write


def _clamp(x: str, low: Any = None, high: Any = None, **_: Any) -> str:
    return f"np.clip({x}, {low}, {high})"


def _split(x: str, sizes: Any, dim: Any = 0) -> str:
    return f"split({x}, {sizes}, {dim})"


def _slice(x: str, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> str:
    end = None if isinstance(end, int) and end > 1 << 60 else end
    return f"{x}[(slice(None),) * {dim} + (slice({start}, {end}, {step}),)]"


def _to(x: str, dtype: Any = None, **_: Any) -> str:
    return f"{x}.astype({dtype})" if dtype is not None else x


def _arange(*bounds: Any, dtype: Any = None, **_: Any) -> str:
    return f"np.arange({', '.join(map(str, bounds))}, dtype={dtype or 'np.int64'})"


def _convolution(x: str, w: str, b: Any, stride: Any, padding: Any, dilation: Any, transposed: Any, *rest: Any) -> str:
    if transposed or rest[-1] != 1 or any(n != 1 for n in dilation):
        raise PolicyError(
            "a convolution that is transposed, dilated or in groups has no NumPy source here. Export to onnx or pt2."
        )
    return f"convolve({x}, {w}, {b}, {tuple(stride)}, {tuple(padding)})"


def _pool(x: str, size: Any, stride: Any = None, padding: Any = (0, 0), *_: Any) -> str:
    return f"(pool({x}, {tuple(size)}, {tuple(stride or size)}, {tuple(padding)}),)"


_OPERATIONS: Final[Mapping[str, Write]] = {
    "addmm": lambda b, x, w: f"({x} @ {w} + {b})",
    "mm": _binary("@"),
    "bmm": _binary("@"),
    "permute": lambda x, dims: f"{x}.transpose({_axes(dims)})",
    "t": lambda x: f"{x}.T",
    "view": lambda x, shape: f"{x}.reshape({shape})",
    "reshape": lambda x, shape: f"{x}.reshape({shape})",
    "_unsafe_view": lambda x, shape: f"{x}.reshape({shape})",
    "expand": lambda x, shape, **_: f"expand({x}, {shape})",
    "cat": lambda parts, dim=0: f"np.concatenate({parts}, axis={dim})",
    "stack": lambda parts, dim=0: f"np.stack({parts}, axis={dim})",
    "split_with_sizes": _split,
    "slice": _slice,
    "select": lambda x, dim, k: f"np.take({x}, {k}, axis={dim})",
    "unsqueeze": lambda x, dim: f"np.expand_dims({x}, {dim})",
    "squeeze": lambda x, dim=None: f"np.squeeze({x}, axis={_axes(dim)})",
    "tanh": _call("np.tanh"),
    "relu": lambda x: f"np.maximum({x}, np.float32(0))",
    "sigmoid": _call("sigmoid"),
    "exp": _call("np.exp"),
    "log": _call("np.log"),
    "sqrt": _call("np.sqrt"),
    "cos": _call("np.cos"),
    "abs": _call("np.abs"),
    "neg": lambda x: f"(-{x})",
    "add": _binary("+"),
    "sub": _binary("-"),
    "mul": _binary("*"),
    "div": _binary("/"),
    "maximum": _call("np.maximum"),
    "minimum": _call("np.minimum"),
    "clamp": _clamp,
    "where": _call("np.where"),
    "full_like": _filled(like=True),
    "zeros_like": _filled(like=True),
    "ones_like": lambda x, **_: f"np.ones_like({x})",
    "full": _filled(like=False),
    "zeros": lambda shape, dtype=None, **_: f"np.zeros({shape}, {dtype or 'np.float32'})",
    "ones": lambda shape, dtype=None, **_: f"np.ones({shape}, {dtype or 'np.float32'})",
    "arange": _arange,
    "index": _call("index"),
    "index_select": lambda x, dim, places: f"np.take({x}, {places}, axis={dim})",
    "embedding": lambda table, places, *_, **__: f"{table}[{places}]",
    "unbind": lambda x, dim=0: f"tuple(np.moveaxis({x}, {dim}, 0))",
    "cumsum": lambda x, dim, **_: f"np.cumsum({x}, axis={dim}, dtype={x}.dtype)",
    "gather": lambda x, dim, places, **_: f"np.take_along_axis({x}, {places}, axis={dim})",
    "argmax": lambda x, dim=None, keepdim=False: f"np.argmax({x}, axis={dim}, keepdims={keepdim})",
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "sum": _reduction("sum"),
    "mean": _reduction("mean"),
    "any": _reduction("any"),
    "all": _reduction("all"),
    "rsqrt": lambda x: f"(np.float32(1) / np.sqrt({x}))",
    "reciprocal": lambda x: f"(np.float32(1) / {x})",
    "sin": _call("np.sin"),
    "sign": _call("np.sign"),
    "floor": _call("np.floor"),
    "log1p": _call("np.log1p"),
    "expm1": _call("np.expm1"),
    "pow": _call("np.power"),
    "rsub": lambda x, y, *_: f"({y} - {x})",
    "leaky_relu": lambda x, alpha=0.01: f"np.where({x} > 0, {x}, {alpha} * {x})",
    "elu": lambda x, alpha=1.0, *_: f"np.where({x} > 0, {x}, {alpha} * np.expm1(np.minimum({x}, 0)))",
    "hardtanh": lambda x, low=-1.0, high=1.0: f"np.clip({x}, {low}, {high})",
    "native_layer_norm": lambda x, shape, w, b, eps: f"(layer_norm({x}, {len(shape)}, {w}, {b}, {eps}),)",
    "_log_softmax": lambda x, dim, *_: f"log_softmax({x}, {dim})",
    "_softmax": lambda x, dim, *_: f"softmax({x}, {dim})",
    "eq": _binary("=="),
    "ne": _binary("!="),
    "lt": _binary("<"),
    "le": _binary("<="),
    "gt": _binary(">"),
    "ge": _binary(">="),
    "logical_not": _call("np.logical_not"),
    "logical_and": _call("np.logical_and"),
    "logical_or": _call("np.logical_or"),
    "bitwise_and": _binary("&"),
    "_to_copy": _to,
    "clone": lambda x, **_: x,
    "alias": lambda x: x,
    "detach": lambda x: x,
    "lift_fresh_copy": lambda x: x,
    "sym_size": lambda x, dim: f"{x}.shape[{dim}]",
    "convolution": _convolution,
    "max_pool2d_with_indices": _pool,
}
"""Of ATen's operations: the NumPy expression of its arguments. Overloads of one name are one operation in NumPy."""

HELPERS: Final = """
def sigmoid(x):
    return np.float32(0.5) * (np.float32(1.0) + np.tanh(np.float32(0.5) * x))


def softmax(x, axis):
    x = np.exp(x - x.max(axis=axis, keepdims=True))
    return x / x.sum(axis=axis, keepdims=True)


def log_softmax(x, axis):
    x = x - x.max(axis=axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


def layer_norm(x, axes, weight, bias, eps):
    axes = tuple(range(-axes, 0))
    x = x - x.mean(axis=axes, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps)
    return x if weight is None else x * weight if bias is None else x * weight + bias


def split(x, sizes, axis):
    return np.split(x, np.cumsum(sizes)[:-1], axis=axis)


def index(x, places):
    return x[tuple(slice(None) if place is None else place for place in places)]


def expand(x, shape):
    short = len(shape) - x.ndim
    return np.broadcast_to(x, [x.shape[k - short] if n == -1 else n for k, n in enumerate(shape)])


def windows(x, size, stride, padding, fill):
    (above, left), (down, across) = padding, stride
    x = np.pad(x, ((0, 0), (0, 0), (above, above), (left, left)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))[:, :, ::down, ::across]


def convolve(x, weight, bias, stride, padding):
    out = np.tensordot(windows(x, weight.shape[2:], stride, padding, 0), weight, axes=((1, 4, 5), (1, 2, 3)))
    out = out.transpose(0, 3, 1, 2)
    return out if bias is None else out + bias[:, None, None]


def pool(x, size, stride, padding):
    return windows(x, size, stride, padding, -np.inf).max(axis=(4, 5))
"""


def numpy_function(program: ExportedProgram, names: Sequence[str]) -> tuple[str, list[torch.Tensor]]:
    """Return the source of `forward(weights, *names)`, which returns a tuple, and the weights that it is called with.

    Args:
        program: As torch.export made it.
        names: Of its inputs, in order.

    Raises:
        PolicyError: If it has an operation that has no line here, by its name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch to itself
        program = program.run_decompositions()
    signature = program.graph_signature
    stored = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    arrays, uses, lines = list[torch.Tensor](), iter(names), list[str]()
    texts: dict[Node, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if node.name in stored:
                if node.users:
                    arrays.append(_array(program, stored[node.name]))
                    texts[node] = f"weights[{len(arrays) - 1}]"
            else:
                texts[node] = next(uses)
        elif node.op == "call_function" and not str(node.target).startswith("aten._assert"):
            texts[node] = f"{node.name}_"  # helpers and inputs have names without it
            lines.append(f"    {texts[node]} = {_expression(node, texts)}")
        elif node.op == "output":
            lines.append(f"    return {_text(tuple(node.args[0]), texts)}")
    return "\n".join([f"def forward(weights, {', '.join(names)}):", *lines, ""]), arrays


def _array(program: ExportedProgram, name: str) -> torch.Tensor:
    constants = program.constants
    value: torch.Tensor = program.state_dict[name] if name in program.state_dict else constants[name]
    return value.detach()


def _expression(node: Node, texts: Mapping[Node, str]) -> str:
    target: Any = node.target
    arguments = [_text(value, texts) if _is_text(value) else value for value in node.args]
    if target is operator.getitem:
        return f"{arguments[0]}[{arguments[1]}]"
    function = getattr(target, "__name__", "")
    if getattr(operator, function, None) is target:  # of sizes
        return f"operator.{function}({', '.join(map(str, arguments))})"
    name = target._schema.name.partition("::")[2] if hasattr(target, "_schema") else str(target)
    if name not in _OPERATIONS:
        raise PolicyError(f"the operation {name!r} of this network has no NumPy source here. Export to onnx or pt2.")
    options = {key: _text(value, texts) if _is_text(value) else value for key, value in node.kwargs.items()}
    try:
        return _OPERATIONS[name](*arguments, **options)
    except TypeError as error:
        raise PolicyError(
            f"the operation {target} of this network has no NumPy source here ({error}). Export to onnx or pt2."
        ) from error


def _is_text(value: Any) -> bool:
    """Whether a value is written by `_text`: whole lists of numbers stay as they are."""
    if isinstance(value, list | tuple):
        return any(_is_text(each) for each in value)
    return isinstance(value, Node | torch.dtype | float)


def _text(value: Any, texts: Mapping[Node, str]) -> str:
    if isinstance(value, Node):
        return texts[value]
    if isinstance(value, torch.dtype):
        return _DTYPES[value]
    if isinstance(value, float):
        return (
            f"np.float32({'np.inf' if value == float('inf') else '-np.inf' if value == -float('inf') else repr(value)})"
        )
    if isinstance(value, list | tuple):
        return "(" + "".join(f"{_text(each, texts)}, " for each in value) + ")"
    return repr(value)
