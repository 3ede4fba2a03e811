"""The compiled parts of `ludus.envs.adapters.magent2_vector`."""

from __future__ import annotations

from numba import njit


@njit(cache=True)
def hand_out(given, slot, legal, out):  # type: ignore[no-untyped-def]
    """Copy actions int[n] to int32 `out`. legal: int32[agents], how many actions each agent has. Returns the first row whose action is
    none of them, or -1."""
    agents = len(legal)
    for i in range(len(given)):
        action = given[i]
        if action < 0 or action >= legal[slot[i] % agents]:
            return i
        out[i] = action
    return -1


@njit(cache=True)
def tally(alive, reward):  # type: ignore[no-untyped-def]
    """bool[n], float32[n] -> how many live, and the sum of all rewards."""
    living = 0
    total = 0.0
    for i in range(len(alive)):
        living += alive[i]
        total += reward[i]
    return living, total
