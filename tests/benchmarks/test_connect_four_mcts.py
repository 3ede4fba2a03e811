"""What the connect-four benchmark makes of matches, and its network."""

import pyspiel
import pytest
import torch

from benchmarks.connect_four_matches import Record, wilson
from benchmarks.connect_four_mcts import BENCHMARK, points
from benchmarks.connect_four_network import Windows, mover_view, windows
from ludus.testing.network import check_network


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


def test_a_board_is_seen_as_its_mover_does():
    """4, 4, 3 in columns from 0: two pieces of the first player in the lowest row, one of the second's above; the second is to move."""
    state = pyspiel.load_game("connect_four").new_initial_state()
    for action in (4, 4, 3):
        state.apply_action(action)
    own, other, playable = mover_view(torch.tensor([state.observation_tensor(1)]))[0].nonzero().split([1, 2, 7])
    assert own.tolist() == [[0, 7 + 4]]
    assert other.tolist() == [[1, 3], [1, 4]]
    assert playable.tolist() == [[2, cell] for cell in (0, 1, 2, 5, 6, 7 + 3, 14 + 4)]


def test_every_window_is_seen_with_the_same_weights():
    """As if the cells of each of the 69 were gathered and shown to one layer."""
    network, cells = Windows((126,), eyes=5, hidden=(6,)), windows()
    assert len({tuple(sorted(window)) for window in cells.tolist()}) == len(cells) == 69
    board = torch.nn.functional.one_hot(torch.randint(3, (7, 42)), 3).transpose(1, 2).flatten(1).float()
    planes = mover_view(board)
    eyes = torch.relu(network.eyes(planes[:, :, cells].transpose(1, 2).flatten(2))).flatten(1)
    expected = network.layers(torch.cat([eyes, planes.flatten(1)], dim=1))
    torch.testing.assert_close(network(board), expected)
    check_network({"kind": "benchmarks.connect_four_network:Windows"}, shape=(126,))
    with pytest.raises(ValueError, match=r"shape \[9\] are not of connect four; expected \[126\]"):
        Windows((9,))
