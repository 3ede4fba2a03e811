"""Trees of G parallel searches, as arrays that compiled code walks: select, attach, back up.

A node is a position and its mover; an edge is an action. Everything is counted for who moves at the node:

    Q(s, a) = mean over visits of  r + d v      r: reward of the move, v: what came back for the next mover,
                                                d: -1 to an opponent, 1 to oneself, 0 at the game's end (times a discount)

so one player, and two who win what the other loses, are the same to it. (The convention of DeepMind's mctx.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import inner, kernel
from ludus.core.seeding import mix, uniform

PENDING, OPEN, OVER = 0, 1, 2  # a node that waits for its evaluation, one that may be searched on, the end of a game


class Tree(NamedTuple):
    """G trees of at most N nodes; node 0 is the root. child int32[G, N, A]: -1 none. visits, virtual int32[G, N, A]: that came back, and
    that are on their way. total float64[G, N, A]: summed r + d v. prior float64[G, N, A]: below 0 where illegal.
    parent, via int32[G, N]: where from, by which action. reward, discount float64[G, N]: of the edge to here. value float64[G, N]: of the
    evaluation, for the mover. kind int8[G, N]. size int32[G]: nodes. low, high float64[G]: of all Q so far, or of what they may be.
    noise float64[G, A]: Gumbel noise of the root's actions."""

    child: NDArray[np.int32]
    visits: NDArray[np.int32]
    virtual: NDArray[np.int32]
    total: NDArray[np.float64]
    prior: NDArray[np.float64]
    parent: NDArray[np.int32]
    via: NDArray[np.int32]
    reward: NDArray[np.float64]
    discount: NDArray[np.float64]
    value: NDArray[np.float64]
    kind: NDArray[np.int8]
    size: NDArray[np.int32]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    noise: NDArray[np.float64]


class Formula(NamedTuple):
    """How actions are selected. gumbel: by Danihelka et al.; else by PUCT. init, base: of PUCT's weight of exploration. rescale: Q by the
    least and the greatest in the tree. optimistic: an action without a visit is worth what its node is; else 0. virtual: what a visit on
    its way counts. gumbel_visits, gumbel_scale: of the Gumbel transform."""

    gumbel: bool
    init: float
    base: float
    rescale: bool
    optimistic: bool
    virtual: float
    gumbel_visits: float
    gumbel_scale: float


def make_tree(games: int, nodes: int, actions: int) -> Tree:
    """Return empty trees."""
    edges, places = (games, nodes, actions), (games, nodes)
    return Tree(
        child=np.full(edges, -1, np.int32),
        visits=np.zeros(edges, np.int32),
        virtual=np.zeros(edges, np.int32),
        total=np.zeros(edges),
        prior=np.full(edges, -1.0),
        parent=np.zeros(places, np.int32),
        via=np.zeros(places, np.int32),
        reward=np.zeros(places),
        discount=np.ones(places),
        value=np.zeros(places),
        kind=np.zeros(places, np.int8),
        size=np.ones(games, np.int32),
        low=np.full(games, np.inf),
        high=np.full(games, -np.inf),
        noise=np.zeros((games, actions)),
    )


# --------------------------------------------------------------------------------------------------------------------
# What a node knows of its actions.


@inner
def node_value(tree, g, x):  # type: ignore[no-untyped-def]
    """Return the mean of the node's own evaluation and of all values backed up."""
    n, total = 1, tree.value[g, x]
    for a in range(tree.visits.shape[2]):
        n += tree.visits[g, x, a]
        total += tree.total[g, x, a]
    return total / n


@inner
def _puct(tree, formula, g, x):  # type: ignore[no-untyped-def]
    """Return argmax_a Q + c P √N / (1 + N_a), c = init + log((1 + N + base) / base), N = 1 + Σ N_a. (Silver et al.
    2018, "Methods: Search".)

    A pending visit counts -virtual among Q that are rescaled, if they are: the size of a loss then does not depend on
    the returns.
    """
    actions = tree.prior.shape[2]
    n, away = 1, 0
    for a in range(actions):
        n += tree.visits[g, x, a] + tree.virtual[g, x, a]
        away += tree.virtual[g, x, a]
    explore = (formula.init + math.log((1.0 + n + formula.base) / formula.base)) * math.sqrt(n)
    unvisited = node_value(tree, g, x) if formula.optimistic else 0.0
    spread = tree.high[g] - tree.low[g]
    best, best_score = -1, 0.0
    for a in range(actions):
        prior = tree.prior[g, x, a]
        if prior < 0.0:
            continue
        visits, going = tree.visits[g, x, a], tree.virtual[g, x, a]
        q = tree.total[g, x, a] / visits if visits > 0 else unvisited
        if formula.rescale and (visits > 0 or formula.optimistic):
            if spread > 0.0:
                q = (q - tree.low[g]) / spread
            elif away > 0:
                q = 0.0  # as they are, they would outweigh a visit on its way, or be negligible
        if going > 0:
            q = (visits * q - going * formula.virtual) / (visits + going)
        score = q + explore * prior / (1 + visits + going)
        if best < 0 or score > best_score:
            best, best_score = a, score
    return best


@inner
def completed(tree, formula, g, x, out):  # type: ignore[no-untyped-def]
    """Write out[a] = log P(a) + σ(completed Q(a)), -inf where illegal. Actions without visits have the mixed value

        v_mix = (v + N Σ_{N_a > 0} P_a Q_a / Σ_{N_a > 0} P_a) / (1 + N),   N = Σ N_a,

    then all are scaled to [0, 1] and σ(q) = (visits + max N_a) scale q. (Danihelka et al. 2022, equations 8 and 33, as
    in mctx.)
    """
    actions = tree.prior.shape[2]
    n, most, weight, mixed = 0, 0, 0.0, 0.0
    for a in range(actions):
        visits = tree.visits[g, x, a]
        if visits > 0:
            prior = max(tree.prior[g, x, a], 1e-30)
            n += visits
            most = max(most, visits)
            weight += prior
            mixed += prior * tree.total[g, x, a] / visits
    value = tree.value[g, x]
    if n > 0:
        value = (value + n * mixed / weight) / (1 + n)
    low, high = math.inf, -math.inf
    for a in range(actions):
        visits = tree.visits[g, x, a]
        out[a] = tree.total[g, x, a] / visits if visits > 0 else value
        if tree.prior[g, x, a] >= 0.0:
            low, high = min(low, out[a]), max(high, out[a])
    spread = max(high - low, 1e-8)
    for a in range(actions):
        prior = tree.prior[g, x, a]
        if prior < 0.0:
            out[a] = -math.inf
        else:
            sigma = (formula.gumbel_visits + most) * formula.gumbel_scale * (out[a] - low) / spread
            out[a] = math.log(max(prior, 1e-30)) + sigma


@inner
def to_probabilities(scores):  # type: ignore[no-untyped-def]
    """Apply softmax in place."""
    top, total = -math.inf, 0.0
    for a in range(len(scores)):
        top = max(top, scores[a])
    for a in range(len(scores)):
        scores[a] = math.exp(scores[a] - top)
        total += scores[a]
    for a in range(len(scores)):
        scores[a] /= total


@inner
def _by_completed(tree, formula, g, x, scores):  # type: ignore[no-untyped-def]
    """Return argmax_a π'(a) - N_a / (1 + Σ N_b): visits follow the improved policy. (Danihelka et al. 2022, equation
    14.)"""
    completed(tree, formula, g, x, scores)
    to_probabilities(scores)
    n = 1
    for a in range(len(scores)):
        n += tree.visits[g, x, a]
    best, best_score = -1, 0.0
    for a in range(len(scores)):
        if tree.prior[g, x, a] < 0.0:
            continue
        score = scores[a] - tree.visits[g, x, a] / n
        if best < 0 or score > best_score:
            best, best_score = a, score
    return best


@inner
def _with_visits(tree, formula, g, wanted, scores):  # type: ignore[no-untyped-def]
    """Return argmax of g(a) + log P(a) + σ(Q(a)) over the root's actions with this number of visits. (Danihelka et al.
    2022, algorithm 2.)"""
    completed(tree, formula, g, 0, scores)
    best, best_score = -1, 0.0
    for a in range(len(scores)):
        if tree.prior[g, 0, a] < 0.0 or tree.visits[g, 0, a] != wanted:
            continue
        score = tree.noise[g, a] + scores[a]
        if best < 0 or score > best_score:
            best, best_score = a, score
    return best


# --------------------------------------------------------------------------------------------------------------------
# A simulation.


@kernel
def select(tree, formula, wanted, node, action, leaf):  # type: ignore[no-untyped-def]
    """Walk down every tree, leaf.shape[1] times, to an edge without a node, which gets one, to the end of a game, or to
    a node that already waits for its evaluation.

    Args:
        tree: The trees.
        formula: How actions are selected.
        wanted: int32[G], for Gumbel: number of visits of the root's next action.
        node: int32[G, L], written: where the walk left the tree.
        action: int32[G, L], written: by which action.
        leaf: int32[G, L], written: its last node.
    """
    scores = np.empty(tree.prior.shape[2])
    for g in range(len(leaf)):
        for k in range(leaf.shape[1]):
            x = 0
            while True:
                if not formula.gumbel:
                    a = _puct(tree, formula, g, x)
                elif x == 0:
                    a = _with_visits(tree, formula, g, wanted[g], scores)
                else:
                    a = _by_completed(tree, formula, g, x, scores)
                node[g, k], action[g, k] = x, a
                tree.virtual[g, x, a] += 1
                c = tree.child[g, x, a]
                if c < 0:
                    c = tree.size[g]
                    tree.size[g] = c + 1
                    tree.child[g, x, a], tree.parent[g, c], tree.via[g, c] = c, x, a
                    leaf[g, k] = c
                    break
                if tree.kind[g, c] != OPEN:
                    leaf[g, k] = c
                    break
                x = c


@kernel
def attach(tree, game, node, reward, discount, logits, legal, value):  # type: ignore[no-untyped-def]
    """Store the evaluations of nodes int32[n] of games int32[n]: priors are the softmax of the legal actions' logits
    [n, A]."""
    for i in range(len(game)):
        g, x = game[i], node[i]
        tree.reward[g, x], tree.discount[g, x], tree.value[g, x] = reward[i], discount[i], value[i]
        if discount[i] == 0.0:
            tree.kind[g, x] = OVER
            continue
        tree.kind[g, x] = OPEN
        top, total = -math.inf, 0.0
        for a in range(logits.shape[1]):
            if legal[i, a]:
                top = max(top, float(logits[i, a]))
        for a in range(logits.shape[1]):
            tree.prior[g, x, a] = -1.0
            if legal[i, a]:
                tree.prior[g, x, a] = math.exp(float(logits[i, a]) - top)
                total += tree.prior[g, x, a]
        for a in range(logits.shape[1]):
            if legal[i, a]:
                tree.prior[g, x, a] /= total


@kernel
def back_up(tree, leaf):  # type: ignore[no-untyped-def]
    """Add each leaf's value to the edges up to its root: v ← r + d v."""
    for g in range(len(leaf)):
        for k in range(leaf.shape[1]):
            x = leaf[g, k]
            v = tree.value[g, x]
            while x != 0:
                p, a = tree.parent[g, x], tree.via[g, x]
                v = tree.reward[g, x] + tree.discount[g, x] * v
                tree.visits[g, p, a] += 1
                tree.virtual[g, p, a] -= 1
                tree.total[g, p, a] += v
                q = tree.total[g, p, a] / tree.visits[g, p, a]
                tree.low[g], tree.high[g] = min(tree.low[g], q), max(tree.high[g], q)
                x = p


# --------------------------------------------------------------------------------------------------------------------
# The root: noise before, an answer after.


@inner
def _normal(key, counter):  # type: ignore[no-untyped-def]
    """Return a standard normal from two numbers of a stream. (Box and Muller 1958.)"""
    u, v = 1.0 - uniform(key, counter), uniform(key, counter + np.uint64(1))
    return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * v)


@inner
def _gamma(key, first, shape):  # type: ignore[no-untyped-def]
    """Return (a sample of Gamma(shape), the next number of the stream). (Marsaglia and Tsang 2000.)"""
    d = (shape if shape >= 1.0 else shape + 1.0) - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    at = first
    while True:
        z = _normal(key, at)
        v = (1.0 + c * z) ** 3
        u = 1.0 - uniform(key, at + np.uint64(2))
        at += np.uint64(3)
        if v > 0.0 and math.log(u) < 0.5 * z * z + d - d * v + d * math.log(v):
            break
    if shape < 1.0:
        v *= (1.0 - uniform(key, at)) ** (1.0 / shape)
        at += np.uint64(1)
    return d * v, at


@inner
def _key(first, second):  # type: ignore[no-untyped-def]
    """Return a stream's key from two uniforms float32, of 24 bits each."""
    high, low = np.uint64(first * 16777216.0), np.uint64(second * 16777216.0)
    return mix((high << np.uint64(24)) | low)


@kernel
def add_dirichlet(tree, noise, concentration, share):  # type: ignore[no-untyped-def]
    """Mix noise into the roots' priors: P ← (1 - share) P + share Dirichlet(concentration, …) over each root's legal
    actions; noise float32[G, 2], uniforms. (Silver et al. 2018.)"""
    actions = tree.prior.shape[2]
    gammas = np.empty(actions)
    for g in range(len(noise)):
        key, at, total = _key(noise[g, 0], noise[g, 1]), np.uint64(0), 0.0
        for a in range(actions):
            if tree.prior[g, 0, a] >= 0.0:
                gammas[a], at = _gamma(key, at, concentration)
                total += gammas[a]
        if total == 0.0:  # of a tiny concentration, all may be rounded to 0
            continue
        for a in range(actions):
            if tree.prior[g, 0, a] >= 0.0:
                tree.prior[g, 0, a] = (1.0 - share) * tree.prior[g, 0, a] + share * gammas[a] / total


@kernel
def draw_gumbel(tree, noise):  # type: ignore[no-untyped-def]
    """Sample standard Gumbel noise of each root's actions; noise float32[G, 2], uniforms."""
    for g in range(len(noise)):
        key = _key(noise[g, 0], noise[g, 1])
        for a in range(tree.noise.shape[1]):
            u = uniform(key, np.uint64(a)) + 5e-17
            tree.noise[g, a] = -math.log(-math.log(u))


@kernel
def answers(tree, formula, policy, value, best):  # type: ignore[no-untyped-def]
    """Write each root's result: policy float64[G, A], the shares of the visits, or Gumbel's improved policy; value
    float64[G], the mean of all backed-up values; best int32[G], the action with the most visits, of equal ones that
    with the largest Q and then the first, or for Gumbel the one that is left."""
    scores = np.empty(policy.shape[1])
    for g in range(len(policy)):
        value[g] = node_value(tree, g, 0)
        n, most = 0, 0
        for a in range(policy.shape[1]):
            n += tree.visits[g, 0, a]
            most = max(most, tree.visits[g, 0, a])
        if formula.gumbel:
            best[g] = _with_visits(tree, formula, g, most, scores)
            completed(tree, formula, g, 0, scores)
            to_probabilities(scores)
            for a in range(policy.shape[1]):  # an assignment of arrays would take long to compile
                policy[g, a] = scores[a]
            continue
        best[g], top = -1, 0.0
        for a in range(policy.shape[1]):
            visits = tree.visits[g, 0, a]
            policy[g, a] = visits / n
            if visits == most:
                q = tree.total[g, 0, a] / visits
                if best[g] < 0 or q > top:
                    best[g], top = a, q
