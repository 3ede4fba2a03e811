"""Value decomposition in plain NumPy and float64: one joint step at a time, agent by agent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


def weights_of(team):
    """A `TeamModel`'s parameters by name."""
    return {name: t.detach().numpy().astype(np.float64) for name, t in team.state_dict().items()}


class Moment(NamedTuple):
    """What n agents may do: q [n, A] by each network's name, legal [n, A], present [n], state [S]."""

    q: dict[str, np.ndarray]
    legal: np.ndarray
    present: np.ndarray
    state: np.ndarray | None


def perceptron(weights, name, x):
    """Linear layers with ReLU between them, or one."""
    if f"{name}.weight" in weights:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]
    places = sorted(int(key.split(".")[-2]) for key in weights if key.startswith(f"{name}.") and key.endswith("weight"))
    for k in places:
        x = weights[f"{name}.{k}.weight"] @ x + weights[f"{name}.{k}.bias"]
        x = np.maximum(x, 0) if k != places[-1] else x
    return x


def best_of(q, legal):
    """Each agent's best legal action."""
    return np.where(legal, q, -np.inf).argmax(axis=1)


def team_value(kind, weights, mixer, q, action, moment):
    """The team's value of a joint action, by a mixer of this kind whose weights have this name."""
    n, actions = q.shape
    chosen = np.where(moment.present, q[np.arange(n), action], 0.0)
    state = moment.state
    if kind == "sum":
        return chosen.sum()
    if kind == "central":
        seen = np.concatenate([chosen, state])
        return perceptron(weights, f"{mixer}.advantage", seen)[0] + perceptron(weights, f"{mixer}.value", state)[0]
    if kind == "monotonic":
        first = np.abs(perceptron(weights, f"{mixer}.first", state).reshape(n, -1))
        hidden = chosen @ first + perceptron(weights, f"{mixer}.bias", state)
        hidden = np.where(hidden > 0, hidden, np.exp(hidden) - 1)
        second = np.abs(perceptron(weights, f"{mixer}.second", state))
        return hidden @ second + perceptron(weights, f"{mixer}.last", state)[0]
    best = np.where(moment.present, q[np.arange(n), best_of(q, moment.legal)], 0.0)
    w = np.abs(perceptron(weights, f"{mixer}.weight", state))
    joint = np.zeros((n, actions))
    for i in np.flatnonzero(moment.present):
        joint[i, action[i]] = 1.0
    key = np.abs(perceptron(weights, f"{mixer}.key", state))
    by_state = perceptron(weights, f"{mixer}.by_state", state).reshape(len(key), n)
    by_actions = perceptron(weights, f"{mixer}.by_actions", np.concatenate([state, joint.ravel()])).reshape(len(key), n)
    total = perceptron(weights, f"{mixer}.bias", state)[0]
    for i in range(n):
        attention = sum(
            key[k] / (1 + np.exp(-by_state[k, i])) / (1 + np.exp(-by_actions[k, i])) for k in range(len(key))
        )
        total += w[i] * best[i] + attention * w[i] * (chosen[i] - best[i])
    return total


class Judged(NamedTuple):
    """Of one joint step; central and weight: of weighted QMIX."""

    value: float
    target: float
    central: float | None
    weight: float


def judged(config, online, target, now, after, *, action, reward, discount):
    """What learning compares. online, target: weights; networks of moments: "online", "target", and of weighted QMIX "central" and
    "central target"."""
    value = team_value(config.mixer, online, "mixer", now.q["online"], action, now)
    best = best_of(after.q["online" if config.double else "target"], after.legal)
    if config.weighting == "none":
        following = team_value(config.mixer, target, "mixer", after.q["target"], best, after)
        return Judged(value, reward + discount * following, None, 1.0)
    mixer = "central.mixer"
    y = reward + discount * team_value("central", target, mixer, after.q["central target"], best, after)
    central = team_value("central", online, mixer, now.q["central"], action, now)
    if config.weighting == "optimistic":
        return Judged(value, y, central, 1.0 if value < y else config.least_weight)
    greedy = best_of(now.q["online"], now.legal)
    of_greedy = team_value("central", target, mixer, now.q["central target"], greedy, now)
    whole = (greedy == action)[now.present].all() or y > of_greedy
    return Judged(value, y, central, 1.0 if whole else config.least_weight)


def huber(error, delta):
    """½ e² within delta, and a straight line beyond."""
    size = abs(error)
    return 0.5 * size**2 if size <= delta else delta * (size - 0.5 * delta)


def loss_of(steps, *, delta):
    """Mean over joint steps of the weighted error of the value, and of Q*'s."""
    each = [
        s.weight * huber(s.value - s.target, delta) + (0.0 if s.central is None else huber(s.central - s.target, delta))
        for s in steps
    ]
    return np.mean(each)
