from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from ludus.core.jsonable import to_builtins, to_json


@dataclass(frozen=True, slots=True)
class Move:
    from_: tuple[int, int]
    worth: float


@pytest.mark.parametrize("worth", ["0.5", "nan"])
def test_records_are_told_by_their_fields(worth: str) -> None:
    """By both ways: the quick one, and that around what is not finite."""
    told = {"0": [{"from": [1, 2], "worth": 0.5 if worth == "0.5" else None}], "é": [1, True], "file": "b.html"}
    value = {
        0: [Move((1, 2), float(worth))],
        "é": [np.int64(1), np.bool_(True)],
        "file": Path("/a/b.html"),
    }
    assert to_builtins(value) == told
    text = '{"0":[{"from":[1,2],"worth":W}],"é":[1,true],"file":"b.html"}'
    assert to_json(value) == text.replace("W", "0.5" if worth == "0.5" else "null").encode()


def test_nonfinite_numbers_become_null() -> None:
    found = to_json({"a": [1.0, float("nan")], "b": (float("inf"), "é"), "c": np.array([np.nan, 2.0], np.float32)})
    assert found == '{"a":[1.0,null],"b":[null,"é"],"c":[null,2.0]}'.encode()


def test_other_mappings_and_sequences_are_like_the_usual_ones() -> None:
    assert to_json([MappingProxyType({"a": range(2)})]) == b'[{"a":[0,1]}]'
    assert to_json({np.int64(1): 2, (1, 2): 3}) == b'{"1":2,"(1, 2)":3}'
    with pytest.raises(TypeError, match="bytes has no form in JSON"):
        to_json({"a": b"1"})
