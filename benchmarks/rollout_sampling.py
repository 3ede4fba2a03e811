"""Microseconds to draw from a masked categorical over 64 rows of 7 actions, log-probabilities included: Ludus's compiled kernel, beside
torch, eager and compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter

import numpy as np
import torch

ROWS, ACTIONS, CALLS, REPEATS = 64, 7, 500, 15


def _microseconds(call: Callable[[], object]) -> float:
    for _ in range(50):
        call()
    found = []
    for _ in range(REPEATS):
        begun = perf_counter()
        for _ in range(CALLS):
            call()
        found.append((perf_counter() - begun) / CALLS * 1e6)
    return median(found)


def _torch(logits: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By the inverse of the cumulative distribution, as Ludus does, which torch compiles well."""
    logp = torch.log_softmax(logits.masked_fill(~mask, -torch.inf), 1)
    action = (logp.exp().cumsum(1) <= noise).sum(1).clamp(max=ACTIONS - 1)
    return action, logp.gather(1, action[:, None])[:, 0]


def figures() -> dict[str, float]:
    from ludus.policies.categorical import sample

    rng = np.random.default_rng(0)
    logits = rng.standard_normal((ROWS, ACTIONS)).astype(np.float32)
    mask = rng.random((ROWS, ACTIONS)) < 0.7
    mask[:, 0] = True
    noise = rng.random((ROWS, 1)).astype(np.float32)
    tensors = torch.from_numpy(logits), torch.from_numpy(mask), torch.from_numpy(noise)
    out = {"ludus microseconds": _microseconds(lambda: sample(logits, mask, noise, actions=ACTIONS, greedy=False))}
    with torch.no_grad():
        out["torch microseconds"] = _microseconds(lambda: _torch(*tensors))
        compiled = torch.compile(_torch)
        out["compiled microseconds"] = _microseconds(lambda: compiled(*tensors))
    return out


def main() -> int:
    from benchmarks.lines import Lines

    torch.set_num_threads(1)
    Lines(("ludus", "torch", "numba")).figures(figures())
    return 0


if __name__ == "__main__":
    sys.exit(main())
