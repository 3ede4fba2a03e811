"""What panels cost: what they load, what they hold, and what they compute once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import Request

from benchmarks.synthetic_league import League, rematch, write
from ludus.apps.ui.figures import meta_game
from ludus.apps.ui.figures.base import packed, unpacked
from ludus.apps.ui.figures.panels import PANELS
from ludus.apps.ui.server.answer_cache import Body, respond
from ludus.storage.reader import Memory, Reader
from ludus.storage.records import Batch, PayoffLog
from ludus.storage.store import Store


@pytest.fixture
def league(tmp_path: Path) -> Path:
    return write(tmp_path / "league", League(policies=12, points=2, events=10))


def test_no_panel_loads_a_compiler(league: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from ludus.apps.ui.figures.panels import PANELS\n"
        "from ludus.storage.reader import Reader\n"
        f"with Reader(Path({str(league)!r})) as reader:\n"
        "    for name, panel in PANELS.items(): panel(reader, **({'policy': '0-3'} if name == 'policy' else {}))\n"
        "print(*sorted({'numba', 'torch', 'llvmlite'} & sys.modules.keys()))"
    )
    quiet = {name: value for name, value in os.environ.items() if name != "LUDUS_ROUNDING_NOISE"}  # which loads more
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=quiet)
    assert done.stdout.split() == []


def test_a_made_up_league_is_a_whole_database(league: Path) -> None:
    with Reader(league) as reader:
        assert reader.damages(newest=None) == ()
        assert not any("is damaged" in note.text for note in PANELS["overview"](reader).notes)


def test_a_rematch_changes_what_panels_say(league: Path) -> None:
    memory = Memory()
    with Reader(league, memory=memory) as reader:
        before, last = reader.payoff_log(), reader.last_generation()
    assert last is not None
    with Store.open(league) as store:
        rematch(store, last, np.random.default_rng(0), number=12, pairs=5)
    with Reader(league, memory=memory) as reader:
        after = reader.payoff_log()
        assert reader.generation_numbers()[-1] == 12
    assert int(after.count.sum() - before.count.sum()) == 5 * 32


def one(profile: tuple[int, int], n: int, mean: float) -> Batch:
    return Batch(
        np.array([profile], np.int32), np.array([n]), np.array([[mean, -mean]]), np.zeros((1, 2)),
        np.zeros((1, 2, 3), np.int32), np.zeros(1, np.bool_),
    )  # fmt: skip


def test_a_log_that_grows_lets_go_of_what_was_copied() -> None:
    small = PayoffLog.empty((2, 2)).extended((2, 2), one((0, 1), 4, 0.5), [])
    arrays = [*small.arrays]
    large = PayoffLog.grown(arrays, (3, 3), [one((0, 1), 4, 0.0), one((2, 2), 1, 1.0)], [])
    assert arrays == []
    assert small.mean[0, 0, 1] == 0.5  # who holds the smaller one keeps it as it was
    assert large.sizes == (3, 3)
    assert large.count.tolist() == [[0, 8, 0], [0, 0, 0], [0, 0, 1]]
    np.testing.assert_allclose(large.mean[:, 0, 1], [0.25, -0.25], rtol=1e-12)
    assert np.isnan(large.mean[0, 1, 1])


def test_a_reader_frees_the_log_of_before_while_it_grows(league: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    with Reader(league, memory=memory) as reader:
        reader.payoff_log()
        last = reader.last_generation()
    assert last is not None
    with Store.open(league) as store:
        rematch(store, last, np.random.default_rng(0), number=12, pairs=1)
    held: list[object] = []
    grown = PayoffLog.grown

    def watched(arrays, *rest):  # type: ignore[no-untyped-def]
        held.append(memory.payoffs)
        return grown(arrays, *rest)

    monkeypatch.setattr(PayoffLog, "grown", staticmethod(watched))
    with Reader(league, memory=memory) as reader:
        reader.payoff_log()
    assert held == [None]


def test_rows_that_differ_are_told_apart_even_if_their_codes_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    n, mean = np.array([4, 4, 4, 8]), np.array([0.5, -0.5, 0.5, 0.5])
    for odd in (meta_game._ODD, np.uint64(0)):  # by 0 every row has one code
        monkeypatch.setattr(meta_game, "_ODD", odd)
        first, back = meta_game._different(n, mean)
        assert n[first][back].tolist() == n.tolist()
        assert mean[first][back].tolist() == mean.tolist()


def test_wins_take_two_bytes_until_a_sum_of_two_would_not_fit() -> None:
    few, many = one((0, 1), 4, 0.5), one((0, 1), 4, 0.5)
    few.wins[:], many.wins[:] = 7, 40_000
    small = PayoffLog.empty((2, 2)).extended((2, 2), few, [])
    large = small.extended((2, 2), many, [])
    assert small.wins.dtype == np.uint16
    assert large.wins.dtype == np.int32
    assert (small.wins[0, 0, 0, 1], large.wins[0, 0, 0, 1]) == (7, 40_007)


@pytest.mark.parametrize("shape", [(100, 100), (3, 5)])
@pytest.mark.parametrize("different", [3, 300, 10_000])
def test_a_packed_matrix_is_the_same_unpacked(shape: tuple[int, int], different: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.choice(np.append(rng.normal(size=different), np.nan), shape).astype(np.float32)
    matrix = packed(values, "f4")
    few = values.size > 4096 and different < 1000
    assert matrix.places == (("u1" if different < 256 else "u2") if few else "")
    np.testing.assert_array_equal(unpacked(matrix), values)
    assert np.isnan(values).any() or values.size < 100 or different > 1000


def test_a_large_answer_is_sent_a_part_at_a_time() -> None:
    content, sent = bytes(range(256)) * 1000, list[dict[str, Any]]()

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        scope = {"type": "http", "headers": [], "client": ("127.0.0.1", 1)}
        answer = await respond(Request(scope), Body(content))
        await answer(scope, lambda: None, send)  # type: ignore[arg-type]

    asyncio.run(ask())
    parts = [message["body"] for message in sent[1:]]
    assert b"".join(parts) == content
    assert max(map(len, parts)) <= 1 << 16 < len(content)
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(parts) - 1) + [False]
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(content)).encode()


def test_the_payoff_table_leaves_no_table_behind(league: Path) -> None:
    with Reader(league, memory=Memory()) as reader:
        PANELS["payoffs"](reader)
        tables = [
            name
            for name, value in meta_game.meta_game(reader)._cache.items()
            if isinstance(value, np.ndarray) and value.ndim > 1
        ]
    assert tables == []
