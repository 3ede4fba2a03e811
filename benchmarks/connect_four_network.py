"""A network for connect four that sees the board as its mover does, and looks at each four cells in a row with the same eyes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ROWS, COLUMNS = 6, 7
CELLS = ROWS * COLUMNS
INPUTS = 3 * CELLS


def windows() -> Tensor:
    """int64[69, 4]: the cells (row * 7 + column, row 0 the lowest) of every four in a row."""
    found = []
    for row in range(ROWS):
        for column in range(COLUMNS):
            for up, right in ((0, 1), (1, 0), (1, 1), (-1, 1)):
                if 0 <= row + 3 * up < ROWS and column + 3 * right < COLUMNS:
                    found.append([(row + k * up) * COLUMNS + column + k * right for k in range(4)])
    return torch.tensor(found)


class Windows(nn.Module):
    """Features of `openspiel/connect_four`'s observations float32[n, 126]: planes of the first player's cells, the second's, and the empty
    ones.

    Whose turn it is follows from the number of pieces. Cells are own, the other's, or playable; `eyes` features of each window, with
    weights that all windows share, and the cells themselves go through a perceptron with these `hidden` widths.
    """

    place: Tensor

    def __init__(self, shape: Sequence[int], eyes: int = 8, hidden: Sequence[int] = (128,)) -> None:
        super().__init__()
        if tuple(shape) != (INPUTS,):
            raise ValueError(f"observations of shape {list(shape)} are not of connect four; expected [{INPUTS}].")
        cells = windows()
        inputs = torch.arange(3)[:, None, None] * CELLS + cells
        place = inputs * len(cells) + torch.arange(len(cells))[:, None]
        self.register_buffer("place", place, persistent=False)  # int64[3, 69, 4]
        self.eyes = nn.Linear(3 * 4, eyes)
        layers: list[nn.Module] = []
        width = INPUTS + len(cells) * eyes
        for out in hidden:
            layers += [nn.Linear(width, out), nn.ReLU()]
            width = out
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """float32[n, 126] -> float32[n, hidden[-1]]."""
        cells = mover_view(x).flatten(1)
        features = torch.relu((cells @ self.matrix()).view(len(x), -1, len(self.eyes.bias)) + self.eyes.bias)
        out: Tensor = self.layers(torch.cat([features.flatten(1), cells], dim=1))
        return out

    def matrix(self) -> Tensor:
        """float32[126, 69 x eyes]: the weights of the windows where their cells are. A product with what is mostly zero is faster than
        gathering the cells of every window."""
        eyes, number = self.eyes.out_features, self.place.shape[1]
        weight = self.eyes.weight.view(eyes, 3, 1, 4).expand(-1, -1, number, -1).permute(1, 2, 3, 0)
        return weight.new_zeros(INPUTS * number, eyes).index_put((self.place,), weight).view(INPUTS, number * eyes)


def mover_view(x: Tensor) -> Tensor:
    """float32[n, 126] -> float32[n, 3, 42]: the mover's own cells, the other's, and the empty ones that a piece would fall into."""
    first, second, empty = x.view(-1, 3, CELLS).unbind(1)
    turn = (first.sum(1) > second.sum(1)).unsqueeze(1)  # of the second player
    below = torch.cat([torch.ones_like(empty[:, :COLUMNS]), 1 - empty[:, :-COLUMNS]], dim=1)
    return torch.stack([torch.where(turn, second, first), torch.where(turn, first, second), empty * below], dim=1)
