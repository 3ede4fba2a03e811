"""Few rows of a perceptron, one by one or by BLAS: the same numbers either way, on whatever processor."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.backend import mlp
from ludus.backend.mlp import Layout, Perceptron, Perceptrons


@pytest.mark.parametrize("unpacked", [0, 10**6])
@pytest.mark.parametrize("rows", [1, 2, 8, 9])
def test_rows_stacked_or_alone_give_the_same(unpacked: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp, "_UNPACKED", unpacked)
    rng = np.random.default_rng(0)
    layout = Layout((5, 64, 3))
    networks = [Perceptron(layout, rng.standard_normal(layout.size).astype(np.float32)) for _ in range(3)]
    seen = rng.integers(0, 2, (rows, 5)).astype(np.float32)
    index = np.full(rows, 1, np.int32)
    alone = np.concatenate([networks[1].outputs(row[None]) for row in seen])
    np.testing.assert_allclose(networks[1].outputs(seen), alone, atol=1e-5)
    np.testing.assert_allclose(Perceptrons(networks).outputs(seen, index), alone, atol=1e-5)
