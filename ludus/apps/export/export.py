"""`ludus export`: a policy of a run as a file of another program, compared with the policy before it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
import torch

from ludus.apps.export import FORMATS, KAGGLE, ONNX, PT2, SAFETENSORS, SUFFIXES
from ludus.apps.export.check import Agreement, Outputs, Run, compare, decisions, random_decisions
from ludus.apps.export.formats import onnx_bytes, pt2_bytes, python_source
from ludus.apps.export.kaggle import agent_source
from ludus.apps.export.network import ExportedPolicy, Signature
from ludus.core.errors import ConfigError, PolicyError, join_or
from ludus.core.machine import check_place, replace_file
from ludus.core.packages import require
from ludus.core.types import Array
from ludus.envs.config import Environment
from ludus.evaluation.policies import SampledPolicy
from ludus.evaluation.trained import TrainedPolicy, load_policy
from ludus.policies.file import digest_of, save_policy
from ludus.policies.file import load_policy as read_policy


@dataclass(frozen=True, slots=True)
class Export:
    """What was written.

    Attributes:
        path: The file, or the folder.
        signature: Inputs and outputs.
        agreement: Of the file with the policy; None of safetensors, and where none was asked for.
        size: Bytes.
    """

    path: Path
    signature: Signature
    agreement: Agreement | None
    size: int


def export_policy(
    name: str,
    to: str,
    path: Path,
    *,
    player: int | None = None,
    mode: str | None = None,
    count: int = 1000,
    seed: int = 0,
) -> Export:
    """Write a policy, or a mixture, as a file that other programs run, after decisions were played by both.

    Args:
        name: RUN, RUN@WHAT or a file, as `ludus.load_policy` takes it.
        to: One of `FORMATS`.
        path: The file; of a mixture's safetensors a folder.
        player: Whose policy; None: the first one that has one.
        mode: "greedy" or "explore" for all; None: as the run plays them.
        count: Decisions that are compared.
        seed: Of these.

    Returns:
        What was written.

    Raises:
        ConfigError: For an unknown name or format, and a place where nothing can be written.
        PolicyError: If the policy cannot be exported, or the file would play otherwise; nothing is written then.
    """
    if to not in FORMATS:
        raise ConfigError(f"--to {to!r} was given; expected {join_or(FORMATS)}.")
    if to != SAFETENSORS:
        check_place(path)
    trained = load_policy(name, player=player)
    sampled = tuple(one if mode is None else replace(one, mode=mode) for one in trained.sampled if one.prob > 0.0)
    if to == SAFETENSORS:
        return _safetensors(name, sampled, trained, path)
    exported = _module(name, sampled, trained)
    about = f"{name}, player {trained.player}{f' of {exported.signature.game}' if exported.signature.game else ''}, exported by Ludus."
    data, run = opened(to, exported, about)
    agreement = None
    if count:
        agreement = _compared(exported.signature, run, sampled, trained.environment, count, seed)
        if not agreement.is_equal:
            raise PolicyError(
                f"{name} was not exported: in {agreement.decisions:,} decisions the file chose another clear action {agreement.different} "
                f"times, and probabilities or numbers differ by up to {agreement.largest:.3g}. This is a fault of Ludus; please report it."
            )
    replace_file(path, data)
    return Export(path, exported.signature, agreement, len(data))


def _module(name: str, sampled: tuple[SampledPolicy, ...], trained: TrainedPolicy) -> ExportedPolicy:
    env, enumeration = trained.environment, None
    if env is not None and any(one.policy.takes_ids or one.policy.spec.kind == "random" for one in sampled):
        vector = env.played.make(num_envs=1)
        vector.close()
        enumeration = vector.spec.enumeration
    game = "" if env is None else env.id
    return ExportedPolicy(sampled, name=name, game=game, player=trained.player, enumeration=enumeration)


def opened(to: str, exported: ExportedPolicy, about: str) -> tuple[bytes, Run]:
    """Return a file's content, and what it computes when it is opened.

    Args:
        to: One of `FORMATS`, but safetensors.
        exported: What it plays.
        about: A sentence on where it comes from.
    """
    signature = exported.signature
    if to == ONNX:
        data = onnx_bytes(exported)
        return data, open_onnx(data, signature)
    if to == PT2:
        data = pt2_bytes(exported)
        return data, open_pt2(data, signature)
    make: Callable[..., str] = agent_source if to == KAGGLE else python_source
    source = make(exported, about=about)
    return source.encode(), open_python(source, signature)


def open_onnx(data: bytes, signature: Signature) -> Run:
    """Return what an ONNX file computes, by ONNX Runtime on one core."""
    runtime = require("onnxruntime", "to compare an ONNX file", extra="export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    used = {one.name for one in session.get_inputs()}

    def run(inputs: Mapping[str, Array]) -> Outputs:
        values = session.run(list(signature.outputs), {key: value for key, value in inputs.items() if key in used})
        return dict(zip(signature.outputs, values, strict=True))

    return run


def open_pt2(data: bytes, signature: Signature) -> Run:
    """Return what a file of torch.export computes."""
    module = torch.export.load(BytesIO(data)).module()

    def run(inputs: Mapping[str, Array]) -> Outputs:
        with torch.no_grad():
            values = module(*(torch.from_numpy(np.array(inputs[name])) for name in signature.inputs))
        return {name: value.numpy() for name, value in zip(signature.outputs, values, strict=True)}

    return run


def open_python(source: str, signature: Signature) -> Run:
    """Return what a Python file computes. It is the source that was just made, so that nothing of others is executed."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "exported.py"
        file.write_text(source, encoding="utf-8")
        loader = SourceFileLoader("ludus_exported", str(file))
        module = ModuleType(loader.name)
        loader.exec_module(module)
    names = vars(module)

    def run(inputs: Mapping[str, Array]) -> Outputs:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            values = names["forward"](names["WEIGHTS"], *(inputs[name] for name in signature.inputs))
        return dict(zip(signature.outputs, values, strict=True))

    return run


def _compared(
    signature: Signature, run: Run, sampled: tuple[SampledPolicy, ...], env: Environment | None, count: int, seed: int
) -> Agreement:
    if env is None:
        return compare(signature, run, list(random_decisions(sampled, signature, count=count, seed=seed)))
    vector = env.played.make(num_envs=8)
    try:
        return compare(signature, run, list(decisions(sampled, signature, vector, count=count, seed=seed)))
    finally:
        vector.close()


def _safetensors(name: str, sampled: tuple[SampledPolicy, ...], trained: TrainedPolicy, path: Path) -> Export:
    """Write the policies' own files: one, or a folder with mixture.json."""
    if len(sampled) == 1:
        files = {path: sampled[0]}
    else:
        folder = path.with_suffix("") if path.suffix == SUFFIXES[SAFETENSORS] else path
        folder.mkdir(parents=True, exist_ok=True)
        files = {folder / f"{k}-{one.name.replace('/', '.')}.safetensors": one for k, one in enumerate(sampled)}
        entries = [
            {"file": file.name, "name": one.name, "probability": one.prob, "mode": one.mode}
            for file, one in files.items()
        ]
        replace_file(folder / "mixture.json", json.dumps({"policy": name, "members": entries}, indent=1).encode())
        path = folder
    for file, one in files.items():
        save_policy(file, one.policy.spec, one.policy.weights())
        if digest_of(read_policy(file)) != digest_of(one.policy):
            raise PolicyError(f"{str(file)!r} does not read as {one.name}. This is a fault of Ludus; please report it.")
    first = sampled[0].policy.spec
    signature = Signature(
        name, "" if trained.environment is None else trained.environment.id, trained.player, (), first.kind, (), {}, 0,
        tuple(one.name for one in sampled), tuple(one.prob for one in sampled), tuple(one.mode for one in sampled), (), (),
    )  # fmt: skip
    return Export(path, signature, None, sum(file.stat().st_size for file in files))
