"""A network for connect four: every four cells in a row are looked up in one table, whose entries are learned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ludus.core.errors import PolicyError

__all__ = ["FourInRow"]

ROWS, COLUMNS = 6, 7
CELLS = ROWS * COLUMNS
INPUTS = 3 * CELLS
FORMS = 4**4
"""What four cells can look like, each empty and out of reach (0), its mover's own (1), the other's (2), or empty and playable (3)."""


class FourInRow(nn.Module):
    """Features of `openspiel/connect_four`'s observations float32[n, 126], for `network: {kind: ludus.policies.connect_four:FourInRow}`.

    The board is seen as its mover does; whose turn it is follows from the number of pieces. Each of the 69 windows of four cells has one of
    256 forms, and a form has `eyes` numbers, the same wherever it stands (an n-tuple network with shared tables: Lucas 2008, "Learning to
    play Othello with n-tuple systems"; Thill, Koch and Konen 2012 for connect four). They go through a perceptron with `hidden` widths.
    Raises PolicyError for another shape.
    """

    digits: Tensor

    def __init__(self, shape: Sequence[int], eyes: int = 8, hidden: Sequence[int] = (128,)) -> None:
        super().__init__()
        if tuple(shape) != (INPUTS,):
            raise PolicyError(f"observations of shape {list(shape)} are not connect four's; expected [{INPUTS}].")
        cells = windows()
        digits = torch.zeros(CELLS, len(cells))
        digits[cells.T, torch.arange(len(cells))] = (4.0 ** torch.arange(4))[:, None]
        self.register_buffer("digits", digits, persistent=False)  # float32[42, 69]
        self.forms = nn.Parameter(torch.randn(FORMS, eyes) * 0.3)
        layers: list[nn.Module] = []
        width = len(cells) * eyes
        for out in hidden:
            layers += [nn.Linear(width, out), nn.ReLU()]
            width = out
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return features: float32[n, 126] -> float32[n, hidden[-1]]."""
        form = (mover_view(x) @ self.digits).long().flatten().clamp_(0, FORMS - 1)  # whatever is no board
        # Not `embedding`, whose gradient takes four times as long.
        out: Tensor = self.layers(self.forms.index_select(0, form).view(x.shape[0], -1))
        return out


def windows() -> Tensor:
    """Return int64[69, 4]: the cells (row * 7 + column, row 0 the lowest) of every four in a row."""
    cells = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            for up, right in ((0, 1), (1, 0), (1, 1), (-1, 1)):
                if 0 <= row + 3 * up < ROWS and column + 3 * right < COLUMNS:
                    cells.append([(row + k * up) * COLUMNS + column + k * right for k in range(4)])
    return torch.tensor(cells)


def mover_view(x: Tensor) -> Tensor:
    """Return each cell's form as in `FORMS`: float32[n, 126] (planes of the first player's cells, the second's, and the
    empty ones) -> float32[n, 42]."""
    first, second, empty = x.view(x.shape[0], 3, CELLS).unbind(1)
    turn = (first.sum(1, keepdim=True) > second.sum(1, keepdim=True)).to(x.dtype)  # of the second player
    below = torch.cat([torch.ones_like(empty[:, :COLUMNS]), 1 - empty[:, :-COLUMNS]], dim=1)
    return first + 2 * second + turn * (first - second) + 3 * empty * below
