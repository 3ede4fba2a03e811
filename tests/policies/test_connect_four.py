"""The network for connect four."""

from __future__ import annotations

import pyspiel
import pytest
import torch

from ludus.core.errors import PolicyError
from ludus.policies.connect_four import FourInRow, mover_view, windows
from ludus.testing.network import check_network


def test_a_board_is_seen_as_its_mover_does():
    """4, 4, 3 in columns from 0: two pieces of the first player in the lowest row, one of the second's above; the second is to move."""
    state = pyspiel.load_game("connect_four").new_initial_state()
    for action in (4, 4, 3):
        state.apply_action(action)
    cells = mover_view(torch.tensor([state.observation_tensor(1)]))[0].view(6, 7)
    assert cells[:3].tolist() == [[3, 3, 3, 2, 2, 3, 3], [0, 0, 0, 3, 1, 0, 0], [0, 0, 0, 0, 3, 0, 0]]
    assert not cells[3:].any()
    state.apply_action(0)
    cells = mover_view(torch.tensor([state.observation_tensor(0)]))[0].view(6, 7)
    assert cells[:2].tolist() == [[2, 3, 3, 1, 1, 3, 3], [3, 0, 0, 3, 2, 0, 0]]


def test_every_window_is_looked_up_in_the_same_table():
    """As if the cells of each of the 69 were gathered, and their form counted in base 4."""
    network, cells = FourInRow((126,), eyes=5, hidden=(6,)), windows()
    assert len({tuple(sorted(window)) for window in cells.tolist()}) == len(cells) == 69
    board = torch.nn.functional.one_hot(torch.randint(3, (7, 42)), 3).transpose(1, 2).flatten(1).float()
    forms = (mover_view(board)[:, cells].long() * torch.tensor([1, 4, 16, 64])).sum(2)
    torch.testing.assert_close(network(board), network.layers(network.forms[forms].flatten(1)))
    check_network({"kind": "ludus.policies.connect_four:FourInRow"}, shape=(126,))


def test_another_shape_is_refused():
    with pytest.raises(PolicyError, match=r"shape \[9\] are not connect four's; expected \[126\]"):
        FourInRow((9,))
