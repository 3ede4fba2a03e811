"""Files of an exported policy: ONNX, torch.export's pt2, safetensors, and Python source that needs NumPy alone."""

from __future__ import annotations

import base64
import io
import json
import logging
import textwrap
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from ludus.apps.export.network import ExportedPolicy, Signature
from ludus.apps.export.numpy_source import HELPERS, numpy_function
from ludus.core.errors import PolicyError, one_line
from ludus.core.packages import require

_WIDTH = 116


@contextmanager
def _quiet() -> Iterator[None]:
    """What exporters say of themselves is of no use to who exports a policy."""
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def traced(policy: ExportedPolicy) -> ExportedProgram:
    """Return the policy as torch.export's program, for any number of rows. Raise PolicyError if torch cannot trace it, with why."""
    rows = Dim("rows")
    inputs = policy.example(rows=3)
    try:
        with _quiet(), torch.no_grad():
            return torch.export.export(policy, inputs, dynamic_shapes={"inputs": tuple({0: rows} for _ in inputs)})
    except Exception as error:  # torch raises what it likes for a custom module that it cannot trace
        raise PolicyError(f"torch.export cannot trace this policy: {one_line(error)}") from error


def onnx_bytes(policy: ExportedPolicy) -> bytes:
    """Return an ONNX file: inputs and outputs by the names of the signature, which its metadata `ludus` holds as JSON."""
    require("onnxscript", "ONNX files", extra="export")
    signature = policy.signature
    with _quiet():
        program = torch.onnx.export(
            traced(policy),
            (),
            dynamo=True,
            verbose=False,
            input_names=list(signature.inputs),
            output_names=list(signature.outputs),
        )
    assert program is not None
    model = program.model_proto
    entry = model.metadata_props.add()
    entry.key, entry.value = "ludus", json.dumps(signature.as_json())
    data: bytes = model.SerializeToString()
    return data


def pt2_bytes(policy: ExportedPolicy) -> bytes:
    """Return a file for `torch.export.load`; its extra file `ludus.json` is the signature."""
    buffer = io.BytesIO()
    extra = {"ludus.json": json.dumps(policy.signature.as_json())}
    with _quiet():
        torch.export.save(traced(policy), buffer, extra_files=extra)
    return buffer.getvalue()


def python_source(policy: ExportedPolicy, *, about: str) -> str:
    """Return a Python file that plays the policy with NumPy alone: `Policy().act(observation, mask)`.

    Args:
        policy: What it plays.
        about: A sentence on where it comes from.

    Raises:
        PolicyError: If its network has an operation without NumPy source.
    """
    signature = policy.signature
    function, tensors = numpy_function(traced(policy), signature.inputs)
    weights = [tensor.numpy() for tensor in tensors]
    packed = base64.b85encode(
        zlib.compress(b"".join(np.ascontiguousarray(array).tobytes() for array in weights), 9)
    ).decode()
    layout = [(array.dtype.str, list(array.shape)) for array in weights]
    template = (Path(__file__).parent / "policy.py.txt").read_text(encoding="utf-8")
    head, body = template.split("# --- what is exported ---\n")
    lines = [
        f'"""{about}\n',
        *_facts(signature),
        '"""\n\n',
        head.partition('"""\n')[2].lstrip("\n"),
        f"SIGNATURE = json.loads(\n{_quoted(json.dumps(signature.as_json()))})\n",
        f"LAYOUT = json.loads(\n{_quoted(json.dumps(layout))})\n",
        f"PACKED = (\n{_quoted(packed)})\n",
        HELPERS,
        "\n\n",
        function,
        body,
    ]
    return "".join(lines)


def _facts(signature: Signature) -> Iterator[str]:
    yield "\nIt needs NumPy alone.\n\n"
    yield "    policy = Policy(seed=0)\n"
    yield "    policy.reset()                        # at the beginning of each episode\n"
    mask = ", mask" if signature.choices else ""
    yield f"    action = policy.act(observation{mask})  # observation {list(signature.observation)}\n"


def _quoted(text: str) -> str:
    """Return a text as adjacent literals of one width; base 85 and JSON have no quotes that repr cannot hold."""
    return "".join(
        f"    {part!r}\n" for part in textwrap.wrap(text, _WIDTH, drop_whitespace=False, break_on_hyphens=False)
    )
