"""safetensors, in which policies (`ludus.policies.file`), checkpoints (`ludus.storage.checkpoint`) and snapshots of wrapped environments
(`ludus.envs.wrappers.base`) are stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ludus.core.types import PolicySpec
from ludus.envs.wrappers.base import pack, unpack
from ludus.policies.file import load_policy, save_policy
from ludus.storage import checkpoint

MATRIX = np.arange(6.0, dtype=np.float32).reshape(2, 3)
VIEWS = {"transposed": MATRIX.T, "strided": MATRIX[:, ::2], "fortran": np.asfortranarray(MATRIX)}


@pytest.mark.parametrize("name", VIEWS)
def test_memory_of_a_view_is_written_under_its_shape(name):
    """Why all three writers make arrays contiguous: other values come back, without an error."""
    array = VIEWS[name]
    loaded = load(save({"x": array}))["x"]
    assert loaded.shape == array.shape
    assert not np.array_equal(loaded, array)


def test_ludus_stores_the_values_of_views(tmp_path: Path):
    """`checkpoint.save` and `wrappers.base.pack`, given the views of the test above."""
    name = checkpoint.save(tmp_path, 1, VIEWS)
    stored = checkpoint.load(tmp_path, name)
    _, unpacked = unpack(pack(b"inner", VIEWS), names=VIEWS, what="a test")
    for key, array in VIEWS.items():
        np.testing.assert_array_equal(stored[key], array)
        np.testing.assert_array_equal(unpacked[key], array)


def test_metadata_of_several_keys_has_no_fixed_order():
    """Why `save_policy` writes one key, whose value is JSON: equal policies have equal bytes, and their SHA-256 is compared."""
    several = {save({"x": MATRIX}, metadata={key: key for key in "abcdefgh"}) for _ in range(20)}
    one = {save({"x": MATRIX}, metadata={"ludus": "{}"}) for _ in range(20)}
    assert len(several) > 1
    assert len(one) == 1


def test_order_of_arrays_in_a_file_is_not_that_of_the_dictionary():
    """`save_policy` sorts names, and the file's own order is by dtype and name: equal arrays in any order have equal bytes."""
    arrays = {"b": MATRIX, "a": MATRIX.astype(np.float64), "c": np.arange(3)}
    assert save(arrays) == save(dict(reversed(arrays.items())))


def test_file_begins_with_the_length_of_a_json_header():
    """`policies.file` reads the metadata from these bytes, without loading arrays."""
    data = save({"x": MATRIX}, metadata={"ludus": "spec"})
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header["__metadata__"] == {"ludus": "spec"}
    assert header["x"]["shape"] == [2, 3]


def test_cut_file_is_an_error():
    """`load_policy` and `unpack` turn SafetensorError into their own errors."""
    data = save({"x": MATRIX})
    for cut in (data[:-1], data[:20], b""):
        with pytest.raises(SafetensorError):
            load(cut)


def test_arrays_without_axes_and_empty_ones_keep_their_shape():
    """States have counters of shape (), and empty columns; `np.ascontiguousarray` alone would give the former an axis."""
    arrays = {"scalar": np.array(3.0), "empty": np.zeros((0, 4), np.int64)}
    for name, array in load(save(arrays)).items():
        assert (array.shape, array.dtype) == (arrays[name].shape, arrays[name].dtype)


def test_policy_with_a_transposed_array_is_loaded_with_its_values(tmp_path: Path):
    """`save_policy`, given an array whose memory is in the other order."""
    probs = np.asfortranarray(np.array([[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]))
    spec = PolicySpec("tabular", {"offset": 0, "actions": 2})
    save_policy(tmp_path / "p.safetensors", spec, {"probs": probs})
    np.testing.assert_array_equal(load_policy(tmp_path / "p.safetensors").weights()["probs"], probs)
