"""ONNX files, by ONNX Runtime: those that `ludus export` wrote, and others with an observation as input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .common import Refused, require_box
from .outputs import Reader
from .signed import SignedPolicy

_MASKS = ("action_mask", "action_masks", "legal_actions", "mask")
_TYPES = {
    "tensor(bool)": np.bool_,
    "tensor(double)": np.float64,
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
}


class ONNXModel:
    """A network in an ONNX file.

    Args:
        game: Of the message hello.
        path: FILE.onnx.
        deterministic: Play the likeliest action instead of drawing one.
        masks: Play legal actions only. An input that is called mask or action_mask gets them.
        output: What the first output is, action, logits, probabilities or values; "": its name and type tell.
    """

    def __init__(
        self, game: dict[str, Any], path: str, *, deterministic: bool = False, masks: bool = True, output: str = ""
    ) -> None:
        self._session = _session(path)
        self._inputs = {one.name: one for one in self._session.get_inputs()}
        self._outputs = [one.name for one in self._session.get_outputs()]
        self._signed: SignedPolicy | None = None
        metadata = self._session.get_modelmeta().custom_metadata_map
        if "ludus" in metadata:
            signature = json.loads(metadata["ludus"])
            self._signed = SignedPolicy(
                game, signature, self._run, what=repr(path), deterministic=deterministic, masks=masks
            )
            return
        self._reader = Reader(game, output=output, deterministic=deterministic, masks=masks)
        self._mask = next((name for name in self._inputs if name.lower() in _MASKS), "")
        others = [name for name in self._inputs if name != self._mask]
        if len(others) != 1:
            raise Refused(
                f"{path!r} has the inputs {', '.join(self._inputs)}; one was expected, the observation, and perhaps action_mask. Files of "
                "`ludus export` say more in their metadata."
            )
        self._observation = others[0]
        shape = self._inputs[self._observation].shape
        self._single = isinstance(shape[0], int) and shape[0] == 1
        size = [int(np.prod(player["observation"]["shape"])) for player in game["players"]]
        if all(isinstance(n, int) for n in shape[1:]):
            self._shape = tuple(shape[1:])
            if any(int(np.prod(self._shape)) != n for n in size):
                require_box(game, self._shape, "", what=repr(path))
        else:
            self._shape = tuple(game["players"][0]["observation"]["shape"])

    def _run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(self._outputs, self._session.run(self._outputs, inputs), strict=True))

    def act(self, player: int, slots: list[Any], seeds: list[int], observation: Any, mask: Any) -> list[Any]:
        """Return an action per row, by one run of the network; by one for each row where the file has a fixed size of one."""
        if self._signed is not None:
            return self._signed.act(player, slots, seeds, observation, mask)
        value = observation.reshape(len(slots), *self._shape)
        inputs = {self._observation: value.astype(_TYPES.get(self._inputs[self._observation].type, np.float32))}
        if self._mask:
            legal = np.ones((len(slots), sum(self._reader.counts(player))), np.bool_) if mask is None else mask
            inputs[self._mask] = legal.astype(_TYPES.get(self._inputs[self._mask].type, np.float32))
        first = self._outputs[0]
        if self._single:
            rows = [
                self._run({name: rows[k : k + 1] for name, rows in inputs.items()})[first] for k in range(len(slots))
            ]
            out = np.concatenate([np.reshape(row, (1, -1)) for row in rows])
        else:
            out = self._run(inputs)[first]
        return self._reader.actions(player, slots, seeds, mask, out, first)


def _session(path: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise Refused(
            f"{path!r} needs ONNX Runtime ({error}): `pip install onnxruntime`, or name a Python that has it, python=PATH."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises what it likes
        raise Refused(f"{path!r} could not be loaded by ONNX Runtime: {' '.join(str(error).split())[:300]}") from error
