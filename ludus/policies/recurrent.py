"""Recurrent cores written out for acting: a batch, of one network or of many, in one compiled call.

Each network is flat float32[size]: into the gates from what is seen [F, G × H] and its bias, and from what is remembered [H, G × H] and its
bias, then the head [H, outputs] and its bias. Gates lie side by side, in torch's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from ludus.policies.mlp import ACTIVATIONS, Layout
from ludus.policies.perceptron import Perceptron, Perceptrons, by_policy, dense_from, tanh

Rows = NDArray[np.float32]


class Recurrent:
    """K networks of one shape: a perceptron body, a GRU or an LSTM, and a head. Row i goes through network index[i]."""

    def __init__(self, parts: Sequence[tuple[Sequence[nn.Module], nn.RNNBase, Sequence[nn.Linear]]]) -> None:
        """parts: the body's layers, the core, and linear layers that make one head side by side, of each network."""
        body, core, head = parts[0]
        kinds = {type(part) for part in body}
        self._activation = ACTIVATIONS.index("relu" if nn.ReLU in kinds else "tanh")
        self._hidden, self._lstm = core.hidden_size, isinstance(core, nn.LSTM)
        self._outputs = sum(part.out_features for part in head)
        self.memory = self._hidden * (2 if self._lstm else 1)
        self._flats = np.stack([_flat(core, head) for _, core, head in parts])
        bodies = [_body(body, self._activation) for body, _, _ in parts]
        self._bodies = Perceptrons([body for body in bodies if body is not None]) if bodies[0] is not None else None

    def step(self, x: Rows, memory: Rows, index: NDArray[np.int32]) -> tuple[Rows, Rows]:
        """x float32[n, inputs], memory float32[n, M] -> (outputs float32[n, outputs], the memory after)."""
        if self._bodies is not None:
            x = self._bodies.outputs(x, index)
            _activate(x, self._activation)
        order, start = by_policy(index, len(self._flats))
        out, after = np.empty((len(x), self._outputs), np.float32), np.empty((len(x), self.memory), np.float32)
        _cells(self._flats, x, memory, self._hidden, self._lstm, order, start, out, after)
        return out, after


def _body(layers: Sequence[nn.Module], activation: int) -> Perceptron | None:
    """Linear layers as one perceptron, which leaves the last activation to us; None if there are none."""
    linear = [part for part in layers if isinstance(part, nn.Linear)]
    if not linear:
        return None
    widths = (linear[0].in_features, *(part.out_features for part in linear))
    flat = torch.cat([piece for part in linear for piece in (part.weight.T.reshape(-1), part.bias)]).detach().numpy()
    return Perceptron(Layout(widths, ACTIVATIONS[activation]), flat)


def _flat(core: nn.RNNBase, head: Sequence[nn.Linear]) -> Rows:
    seen, kept, bias, more = (cast(torch.Tensor, p) for p in core.parameters())
    pieces = [seen.T, bias, kept.T, more]
    pieces += [torch.cat([part.weight for part in head]).T, torch.cat([part.bias for part in head])]
    out: Rows = torch.cat([piece.reshape(-1) for piece in pieces]).detach().numpy()
    return out


@njit(cache=True, fastmath={"contract", "nsz"}, error_model="numpy")
def _activate(x, activation):  # type: ignore[no-untyped-def]
    """In place: a place in `ACTIVATIONS`."""
    for i in range(len(x)):
        row = x[i]
        if activation == 0:
            for j in range(len(row)):
                row[j] = tanh(row[j])
        else:
            for j in range(len(row)):
                row[j] = np.float32(0.0) if row[j] < np.float32(0.0) else row[j]


@njit(cache=True)
def _cells(flats, x, h, hidden, lstm, order, start, out, after):  # type: ignore[no-untyped-def]
    """Row order[i] of x [n, F] and h [n, M] goes through the network whose rows hold i, into out [n, outputs] and after [n, M]."""
    for k in range(len(flats)):
        rows = order[start[k] : start[k + 1]]
        if len(rows):
            answer, state = _cell(flats[k], x[rows], h[rows], hidden, lstm, out.shape[1])
            for r in range(len(rows)):
                out[rows[r]] = answer[r]
                after[rows[r]] = state[r]


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _cell(flat, x, h, hidden, lstm, outputs):  # type: ignore[no-untyped-def]
    """GRU (Cho et al. 2014, as in torch): r = σ(x_r + h_r), z = σ(x_z + h_z), c = tanh(x_c + r h_c), h' = (1 - z) c + z h. LSTM (Hochreiter
    and Schmidhuber 1997, with Gers's forget gate): c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'); memory is h, then c."""
    n, gates = len(x), 4 if lstm else 3
    seen, kept = np.empty((n, gates * hidden), np.float32), np.empty((n, gates * hidden), np.float32)
    at = dense_from(flat, 0, x, -1, seen)
    at = dense_from(flat, at, np.ascontiguousarray(h[:, :hidden]), -1, kept)
    state, told = np.empty(h.shape, np.float32), np.empty((n, hidden), np.float32)
    half, one = np.float32(0.5), np.float32(1.0)
    for i in range(n):
        s, k = seen[i], kept[i]
        for j in range(hidden):  # σ(v) = (1 + tanh(v / 2)) / 2
            first = half + half * tanh(half * (s[j] + k[j]))
            second = half + half * tanh(half * (s[hidden + j] + k[hidden + j]))
            if lstm:
                new = tanh(s[2 * hidden + j] + k[2 * hidden + j])
                last = half + half * tanh(half * (s[3 * hidden + j] + k[3 * hidden + j]))
                cell = second * h[i, hidden + j] + first * new
                state[i, hidden + j] = cell
                told[i, j] = last * tanh(cell)
            else:
                new = tanh(s[2 * hidden + j] + first * k[2 * hidden + j])
                told[i, j] = (one - second) * new + second * h[i, j]
            state[i, j] = told[i, j]
    out = np.empty((n, outputs), np.float32)
    dense_from(flat, at, told, -1, out)
    return out, state
