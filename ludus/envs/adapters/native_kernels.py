"""The compiled parts of vectors that step all of their environments themselves, with one agent each."""

from __future__ import annotations

from numba import njit

GOES_ON, TERMINATED, TRUNCATED = 0, 1, 2


@njit(cache=True)
def hand_out(given, slot, actions, bounds):  # type: ignore[no-untyped-def]
    """actions[slot[i]] = bounds[0] + given[i]. Returns the first row that is not in 0 … bounds[1] - 1, or -1."""
    for i in range(len(given)):
        action = given[i]
        if action < 0 or action >= bounds[1]:
            return i
        actions[slot[i]] = action + bounds[0]
    return -1


@njit(cache=True)
def hand_out_masked(given, slot, actions, bounds, mask):  # type: ignore[no-untyped-def]
    """As `hand_out`, with mask bool[n, A]."""
    for i in range(len(given)):
        action = given[i]
        if action < 0 or action >= bounds[1] or not mask[i, action]:
            return i
        actions[slot[i]] = action + bounds[0]
    return -1


@njit(cache=True)
def play(reward, terminated, truncated, rest, idle, resting, due, earned, over):  # type: ignore[no-untyped-def]
    """What a step of all environments means for each. rest: an ended environment takes its next step to restart.

    Writes who is due, what it earned, and how its episode ended. Returns how many are due and how many ended.
    """
    acting = 0
    ended = 0
    for e in range(len(due)):
        due[e] = False
        if idle[e]:
            continue
        if resting[e]:
            resting[e] = False
        else:
            earned[e] += reward[e]
            if terminated[e] or truncated[e]:
                over[e] = TERMINATED if terminated[e] else TRUNCATED
                resting[e] = rest
                ended += 1
                continue
        due[e] = True
        acting += 1
    return acting, ended


@njit(cache=True)
def play_some(ids, reward, terminated, truncated, rest, idle, resting, due, earned, over):  # type: ignore[no-untyped-def]
    """As `play`, of the environments `ids` alone, whose rewards and ends are given in that order. Nobody else is due."""
    acting = 0
    ended = 0
    due[:] = False
    for i in range(len(ids)):
        e = ids[i]
        if idle[e]:
            continue
        if resting[e]:
            resting[e] = False
        else:
            earned[e] += reward[i]
            if terminated[i] or truncated[i]:
                over[e] = TERMINATED if terminated[i] else TRUNCATED
                resting[e] = rest
                ended += 1
                continue
        due[e] = True
        acting += 1
    return acting, ended
