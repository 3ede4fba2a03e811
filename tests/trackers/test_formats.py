"""What the trackers of other packages do without these packages: names, parameters, and the blocks of W&B's files."""

from __future__ import annotations

import struct

import pytest

from ludus.contrib.trackers.mlflow import MLflow, flat
from ludus.contrib.trackers.mlflow import _key as key
from ludus.contrib.trackers.wandb import records_of
from ludus.core.errors import ConfigError

BLOCK = 32768


def wandb_file(records: list[bytes]) -> bytes:
    """A head of seven bytes, then pieces that no block's end is in."""
    content = bytearray(b":W&B\xe1\xbe\x00")
    for record in records:
        place, first = 0, True
        while first or place < len(record):
            left = BLOCK - len(content) % BLOCK
            if left < 7:
                content += bytes(left)
                left = BLOCK
            piece = record[place : place + left - 7]
            place += len(piece)
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[first, place == len(record)]
            content += struct.pack("<IHB", 0, len(piece), kind) + piece
            first = False
    return bytes(content)


def test_records_span_blocks() -> None:
    records = [bytes([k]) * size for k, size in enumerate((10, 0, BLOCK, 3, 3 * BLOCK + 5, BLOCK - 40, 20, 1))]
    content = wandb_file(records)
    assert list(records_of(content)) == records
    for cut in (1, 8, 100, BLOCK):
        whole = list(records_of(content[:-cut]))
        assert whole == records[: len(whole)]
        assert len(whole) < len(records)


def test_configuration_becomes_flat() -> None:
    config = {"env": {"id": "x", "options": {}}, "seed": 0, "tags": ["a", 1], "stop": None, "rate": 3e-4}
    assert dict(flat(config)) == {
        "env.id": "x",
        "env.options": "{}",
        "seed": "0",
        "tags": "- a\n- 1",
        "stop": "null",
        "rate": "0.0003",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("population 0, main/return", "population 0_ main/return"),
        ("seconds/meta-solver", "seconds/meta-solver"),
        ("a..b/", "a_b"),
    ],
)
def test_names_have_letters_that_mlflow_takes(name: str, expected: str) -> None:
    assert key(name) == expected


def test_password_in_an_address_is_refused() -> None:
    """The scenario would keep it."""
    MLflow(tracking_uri="http://host:5000")
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_PASSWORD"):
        MLflow(tracking_uri="https://me:secret@host:5000")
