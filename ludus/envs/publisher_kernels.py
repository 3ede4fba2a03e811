"""The compiled parts of publishing. Slots are environment × agents + index of the agent, of one player."""

from __future__ import annotations

import numpy as np

from ludus.core import seeding
from ludus.core.arrays import flat_at, inner, kernel, rows_at

NOT_FINITE, NOTHING_LEGAL, NO_TRUTH = 1, 2, 3
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@kernel
def episode_seed(seed, episode):  # type: ignore[no-untyped-def]
    """Return the seed of one episode of an environment, a function of both numbers alone. OpenSpiel's games and compiled trees take it
    for the key of all chance in the episode: counter c of it is for the c-th event, so that both play the same episodes under the same
    seeds."""
    return seeding.mix(seed ^ seeding.mix(_GOLDEN * (episode + np.uint64(1))))


@inner(fastmath={"reassoc"})
def all_finite(values):  # type: ignore[no-untyped-def]
    """Whether all of float[n] are finite. The sum, which is fast, is not finite if an entry is not, but also if they are too large
    together."""
    total = values.dtype.type(0)
    for i in range(len(values)):
        total += values[i]
    if np.isfinite(total):
        return True
    for i in range(len(values)):  # noqa: SIM110  compiled
        if not np.isfinite(values[i]):
            return False
    return True


@kernel
def impossible(mask, starts):  # type: ignore[no-untyped-def]
    """Whether a number of an action has no legal value in one row of a mask. starts: as in `Choices`."""
    for k in range(len(starts)):
        end = starts[k + 1] if k + 1 < len(starts) else len(mask)
        if not mask[starts[k] : end].any():
            return True
    return False


@kernel
def first_without_legal(mask, due, starts):  # type: ignore[no-untyped-def]
    """Return the first due slot without a legal action, or -1. starts: as in `Choices`."""
    for s in range(len(due)):
        if due[s] and impossible(mask[s], starts):
            return s
    return -1


@kernel
def first_not_finite(reward, observation, due, final, agents, gone, over, is_open):  # type: ignore[no-untyped-def]
    """Return the first slot with a reward that is not finite, or that is due with such an observation, or that closes now with such a
    final one, or -1. observation, final: float[S, n]."""
    for s in range(len(reward)):
        if not np.isfinite(reward[s]) or (due[s] and not all_finite(observation[s])):
            return s
        if is_open[s] and (gone[s] != 0 or over[s // agents] != 0) and not all_finite(final[s]):
            return s
    return -1


@kernel
def first_illegal(actions, count, mask):  # type: ignore[no-untyped-def]
    """Return the first row whose action is not in 0 … count - 1, or not in the mask (None: without one), or -1."""
    for i in range(len(actions)):
        action = actions[i]
        if action < 0 or action >= count:
            return i
        if mask is not None and not mask[i, action]:
            return i
    return -1


@kernel
def put_row(observation, mask, starts, slot, table):  # type: ignore[no-untyped-def]
    """Write the observation of an agent that must act, and its legal actions (None: without masks), into row `slot` of its player's
    arrays, unless one is invalid. starts: as in `Choices`. table: addresses of observations of the same dtype, masks, and who is due.
    Returns NOT_FINITE, NO_TRUTH (of a mask with something else than 0 and 1), NOTHING_LEGAL or 0."""
    flat = np.ascontiguousarray(observation).reshape(-1)
    for value in flat:
        if not np.isfinite(value):
            return NOT_FINITE
    if mask is not None:
        for a in range(len(mask)):
            if mask[a] != 0 and mask[a] != 1:
                return NO_TRUTH
        if impossible(mask, starts):
            return NOTHING_LEGAL
        legal, at = flat_at(table, 1, np.bool_), slot * len(mask)
        for a in range(len(mask)):
            legal[at + a] = mask[a] != 0
    target, at = flat_at(table, 0, observation.dtype), slot * len(flat)
    for i in range(len(flat)):
        target[at + i] = flat[i]
    flat_at(table, 2, np.bool_)[slot] = True
    return 0


@kernel
def start_episodes(over, episode, quota, idle, ended, more):  # type: ignore[no-untyped-def]
    """Write the environments whose episode is over to `ended`, those of them that play another to `more`; the others become idle.
    Returns how many of each."""
    count = 0
    going_on = 0
    for e in range(len(over)):
        if over[e] != 0:
            ended[count] = e
            count += 1
            if episode[e] + 1 != quota[e]:
                more[going_on] = e
                going_on += 1
            else:
                idle[e] = True
    return count, going_on


@kernel
def update_decisions(tables, agents, tick, now, ended, counts):  # type: ignore[no-untyped-def]
    """Reward, close and open the decisions of all players, and finish the episodes of the environments `ended`, whose counts begin again.
    counts int64[P, 2]: written, due rows and closed rows of each player. tables: of each player, addresses of what is read here.
    """
    for p in range(len(agents)):
        counts[p, 0], counts[p, 1] = _settle_player(tables[p], agents[p], tick, now, p, len(agents))
    if len(ended):
        _finish(tables[0], ended, tick, len(agents))


@inner
def _settle_player(table, agents, tick, now, player, players):  # type: ignore[no-untyped-def]
    due, reward, gone = flat_at(table, 0, np.bool_), flat_at(table, 1, np.float64), flat_at(table, 2, np.uint8)
    pending, is_open = flat_at(table, 3, np.float64), flat_at(table, 4, np.bool_)
    known, decided = flat_at(table, 5, np.bool_), flat_at(table, 6, np.int8)
    slot, due_reward, first = flat_at(table, 7, np.int32), flat_at(table, 8, np.float32), flat_at(table, 9, np.bool_)
    end_slot, end_reward = flat_at(table, 10, np.int32), flat_at(table, 11, np.float32)
    end_terminated, over = flat_at(table, 12, np.bool_), flat_at(table, 13, np.uint8)
    returns, stamp, length = flat_at(table, 14, np.float64), flat_at(table, 15, np.int64), flat_at(table, 16, np.int32)
    rows = 0
    closed = 0
    for s in range(len(due)):
        e = s // agents
        earned = reward[s]
        if earned != 0.0:
            returns[e * players + player] += earned
            reward[s] = 0.0
        how = gone[s]
        if over[e] != 0 and how == 0:
            how = over[e]
        if is_open[s]:
            pending[s] += earned
            if how != 0:
                end_slot[closed] = s
                end_reward[closed] = pending[s]
                end_terminated[closed] = how == 1
                closed += 1
                is_open[s] = False
        if how != 0:
            known[s] = False
            gone[s] = 0
        if due[s]:
            slot[rows] = s
            due_reward[rows] = pending[s] if is_open[s] else 0.0
            first[rows] = not known[s]
            rows += 1
            pending[s] = 0.0
            is_open[s] = True
            known[s] = True
            decided[s] = now
            if stamp[e] != tick:
                stamp[e] = tick
                length[e] += 1
    return rows, closed


@inner
def _finish(table, ended, tick, players):  # type: ignore[no-untyped-def]
    over, returns = flat_at(table, 13, np.uint8), flat_at(table, 14, np.float64)
    stamp, length, episode = flat_at(table, 15, np.int64), flat_at(table, 16, np.int32), flat_at(table, 17, np.int64)
    end_environment, end_returns = flat_at(table, 18, np.int32), flat_at(table, 19, np.float64)
    end_terminated, end_length = flat_at(table, 20, np.bool_), flat_at(table, 21, np.int32)
    for i in range(len(ended)):
        e = ended[i]
        begun = stamp[e] == tick  # its next episode has a decision already
        end_environment[i] = e
        for p in range(players):
            end_returns[i * players + p] = returns[e * players + p]
            returns[e * players + p] = 0.0
        end_terminated[i] = over[e] == 1
        end_length[i] = length[e] - begun
        length[e] = begun
        over[e] = 0
        episode[e] += 1


@kernel
def update_single_agent(observation, reward, terminated, truncated, resting, now, table):  # type: ignore[no-untyped-def]
    """Do the work of `start_episodes` and `update_decisions` and gather both kinds of rows in one pass, for one agent that is due in
    each step of its episodes, in environments that rest for a step after each. Returns (due rows, closed rows), or -1 and leaves the
    state as it is if nothing would be due, or if a number is not finite. observation: [E, n]. table: addresses, of what is read off it
    here, and of the observations' dtype."""
    n, width, count, closed, fine = len(resting), observation.shape[1], 0, 0, True
    idle, slot, due_reward = flat_at(table, 0, np.bool_), flat_at(table, 9, np.int32), flat_at(table, 10, np.float32)
    first, rows = flat_at(table, 11, np.bool_), rows_at(table, 19, observation.dtype, width)
    end_slot, end_reward = flat_at(table, 12, np.int32), flat_at(table, 13, np.float32)
    end_rows = rows_at(table, 20, observation.dtype, width)
    for e in range(n):
        if idle[e]:
            continue
        if resting[e] or not (terminated[e] or truncated[e]):
            slot[count], first[count], due_reward[count] = e, resting[e], 0.0 if resting[e] else reward[e]
            fine &= np.isfinite(due_reward[count])
            for j in range(width):
                rows[count, j] = observation[e, j]
                fine &= np.isfinite(observation[e, j])
            count += 1
        else:
            end_slot[closed], end_reward[closed] = e, reward[e]
            fine &= np.isfinite(end_reward[closed])
            for j in range(width):
                end_rows[closed, j] = observation[e, j]
                fine &= np.isfinite(observation[e, j])
            closed += 1
    if count == 0 or not fine:
        return -1, 0
    _settle_state(slot[:count], first, end_slot[:closed], reward, terminated, resting, now, table)
    return count, closed


@inner
def _settle_state(acting, first, ending, reward, terminated, resting, now, table):  # type: ignore[no-untyped-def]
    idle, quota, episode = flat_at(table, 0, np.bool_), flat_at(table, 1, np.int64), flat_at(table, 2, np.int64)
    due, is_open, known = flat_at(table, 3, np.bool_), flat_at(table, 4, np.bool_), flat_at(table, 5, np.bool_)
    decided, returns, length = flat_at(table, 6, np.int8), flat_at(table, 7, np.float64), flat_at(table, 8, np.int32)
    for i in range(len(acting)):
        e = acting[i]
        due[e] = is_open[e] = known[e] = True
        resting[e] = False
        decided[e] = now
        returns[e] += reward[e] if not first[i] else 0.0
        length[e] += 1
    end_terminated, over_environment = flat_at(table, 14, np.bool_), flat_at(table, 15, np.int32)
    over_returns, over_terminated = flat_at(table, 16, np.float64), flat_at(table, 17, np.bool_)
    over_length = flat_at(table, 18, np.int32)
    for i in range(len(ending)):
        e = ending[i]
        over_environment[i], over_returns[i], over_length[i] = e, returns[e] + reward[e], length[e]
        end_terminated[i] = over_terminated[i] = terminated[e]
        due[e] = is_open[e] = known[e] = False
        resting[e] = True
        returns[e] = 0.0
        length[e] = 0
        episode[e] += 1
        idle[e] = episode[e] == quota[e]
