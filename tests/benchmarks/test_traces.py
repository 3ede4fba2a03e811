"""What `make traces` compares, and what it takes for a clock."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import yaml

from benchmarks import traces, traces_worker
from ludus.algorithms.common.registry import ALGORITHMS

SETTINGS = yaml.safe_load(traces.SETTINGS.read_text())
ONE = {
    "hashes": {"weights": {"0/0-1": "a"}, "metrics": {"metrics loss": "b", "curves response": "c"}},
    "places": {"x": "cpu"},
}


def test_every_algorithm_is_recorded_by_both_backends_or_says_why_not() -> None:
    assert SETTINGS["algorithms"].keys() == ALGORITHMS.keys()
    missing = traces.absent(SETTINGS)
    for name in ALGORITHMS:
        cells = traces.cells_of(name, SETTINGS)
        backends = {cell["name"].split("/")[1] for cell in cells}
        assert backends | {key.partition("/")[2] for key in missing if key.partition("/")[0] == name} == set(
            traces.BACKENDS
        )
        assert len(cells) == len(backends) * len(traces.WAYS)


def test_backends_and_ways_differ_by_the_runtime_alone() -> None:
    cells = {cell["name"]: cell["scenario"] for cell in traces.cells_of("ppo", SETTINGS)}
    kernels, two = cells["ppo/kernels/one"], cells["ppo/kernels/two"]
    assert kernels["runtime"] == {"shards": 2, "tasks": 1, "device": "cpu"}
    assert two["runtime"] == {**kernels["runtime"], "kind": "processes", "workers": 2}
    assert cells["ppo/autograd/one"]["runtime"] == {**kernels["runtime"], "precision": "bf16"}
    assert {**two, "runtime": 0} == {**kernels, "runtime": 0} == {**cells["ppo/autograd/killed"], "runtime": 0}


@pytest.mark.parametrize(
    ("group", "part", "value"),
    [("weights", "0/0-1", "z"), ("metrics", "metrics loss", None), ("matches", "matches 1", "n")],
    ids=["changed", "missing", "new"],
)
def test_a_part_that_differs_is_named(group: str, part: str, value: str | None) -> None:
    hashes = {**ONE["hashes"], group: {**ONE["hashes"].get(group, {}), part: value}}
    if value is None:
        del hashes[group][part]
    assert traces.differences(ONE, ONE) == {}
    assert traces.differences(ONE, {"hashes": hashes}) == {group: [part]}


def test_a_run_that_failed_or_is_new_is_a_difference() -> None:
    failed = {"error": "Traceback\nValueError: no"}
    assert traces.differences(failed, ONE) == {"base": ["ValueError: no"]}
    assert traces.differences(failed, failed) == {"base": ["ValueError: no"]}
    assert traces.differences({"absent": "no such algorithm"}, ONE) == {"base": ["no such algorithm"]}
    result = traces.compare({"ppo/kernels/one": ONE}, {"ppo/kernels/one": ONE, "dqn/kernels/one": ONE}, ["ppo", "dqn"])
    assert result == {"dqn/kernels/one": {"base": ["it was not recorded"]}, "ppo/kernels/one": {}}


def test_ways_that_disagree_and_backends_that_are_one_are_told() -> None:
    other = {"hashes": {**ONE["hashes"], "weights": {}}, "places": {"x": "cpu"}}
    recording = {"ppo/kernels/one": ONE, "ppo/kernels/two": other, "ppo/kernels/killed": ONE, "ppo/autograd/one": other}
    assert traces.disagreements(recording) == ["ppo/kernels/two: weights"]
    assert traces.same_backend(recording) == ["ppo"]
    assert traces.same_backend({**recording, "ppo/autograd/one": {**other, "places": {"x": "torch"}}}) == []


def test_clocks_are_left_out_and_numbers_are_not() -> None:
    row = {
        "id": "a",
        "created": 1.0,
        "barrier": 3,
        "metrics": json.dumps({"loss": 0.5, "seconds/update": 2.0}),
        "mean": b"\x01",
    }
    assert traces_worker.plain(row) == {"id": "a", "metrics": {"loss": 0.5}, "mean": "01"}
    assert traces_worker.is_clock({"name": "seconds/update", "counter": "generations"})
    assert traces_worker.is_clock({"name": "decisions", "counter": "barriers"})
    assert not traces_worker.is_clock({"name": "loss", "counter": "generations"})


def test_one_bit_of_a_tensor_is_another_hash_and_metadata_is_not(tmp_path: Path) -> None:
    def hashed(metadata: str, data: bytes) -> str:
        entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        header = json.dumps({"__metadata__": {"spec": metadata}, "w": entry}).encode()
        file = tmp_path / "policy.safetensors"
        file.write_bytes(struct.pack("<Q", len(header)) + header + data)
        return traces_worker.hash_of(traces_worker.tensors_of(file))

    assert hashed("a", b"\0\0\0\0") == hashed("b", b"\0\0\0\0") != hashed("a", b"\1\0\0\0")


def test_a_recording_serves_what_is_asked_for_now_and_no_other() -> None:
    cells = traces.cells_of("ppo", SETTINGS)
    whole = {cell["name"]: {**ONE, "order": traces.order_of(cell)} for cell in cells}
    assert traces.complete("ppo", whole, SETTINGS)
    assert traces.complete("ppo", {name: {"absent": "no such algorithm"} for name in whole}, SETTINGS)
    other = traces.merged(SETTINGS, {"algorithms": {"ppo": {"settings": {"batch": 41}}}})
    assert not traces.complete("ppo", whole, other)
    assert not traces.complete("ppo", {**whole, "ppo/kernels/one": {"error": "no"}}, SETTINGS)
    assert not traces.complete("ppo", {}, SETTINGS)
