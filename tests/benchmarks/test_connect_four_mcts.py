"""What the connect-four benchmark makes of matches."""

import pytest

from benchmarks.connect_four_matches import Record, wilson
from benchmarks.connect_four_mcts import BENCHMARK, points


def test_wilson_interval():
    share, low, high = wilson(9, 10)
    assert share == 0.9
    assert (low, high) == pytest.approx((0.5958, 0.9821), abs=1e-4)  # Brown, Cai and DasGupta 2001, equation 4
    assert wilson(0, 10)[1] == pytest.approx(0.0, abs=1e-12)
    assert wilson(10, 10)[2] == pytest.approx(1.0)


def test_a_draw_is_no_win_and_half_a_point():
    both = Record(won=6, drawn=2, lost=2) + Record(won=1, drawn=4, lost=5)
    assert both.games == 20
    assert both.wins[0] == 0.35
    assert both.score == 0.5


def test_the_last_snapshot_of_each_five_minutes_plays():
    assert points([0, 100, 290, 310, 650, 700], every=300) == [2, 3, 5]
    assert points([0, 10], every=300) == [1]


def test_the_bars_are_for_the_whole_measurement():
    assert not any(bar.quick for bar in BENCHMARK.bars)
