"""Policies as files that other programs run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ONNX, PT2, SAFETENSORS, PYTHON, KAGGLE = FORMATS = ("onnx", "pt2", "safetensors", "python", "kaggle")
SUFFIXES: Final[Mapping[str, str]] = {
    ONNX: ".onnx",
    PT2: ".pt2",
    SAFETENSORS: ".safetensors",
    PYTHON: ".py",
    KAGGLE: ".py",
}
"""Of the file of each format; a mixture's safetensors are a folder."""
