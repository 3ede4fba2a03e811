"""A search from many positions at once: one evaluation for all the leaves of a simulation.

    root -> [ select -> expand (model: the moves, then one batch through the network) -> attach -> back up ] × simulations -> answers

Every search starts from the root and depends on its row alone, so that policies that search stay pure; no tree is kept for the next move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError, nearest
from ludus.core.types import Array
from ludus.policies.search import tree as trees
from ludus.policies.search.tree import Formula, Tree


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """simulations: of a search. leaves: of each tree that are evaluated together, 1 for none but the one that is best now; others are kept
    apart by `virtual_loss`, which a visit on its way counts as lost (among Q that are scaled, with `rescale`).

    selection: "puct" (Silver et al. 2018) with its weight init and base, or "gumbel" (Danihelka et al. 2022): at the root `considered`
    actions, drawn without replacement, are halved until one is left, and below visits follow the improved policy. unvisited: what an
    action without visits is worth to PUCT, "zero" or as its "node". rescale: Q to [0, 1] by the least and the greatest in the tree, where
    the range of returns is unknown (Schrittwieser et al. 2020); bounds: that is known of them at least, (low, high). gumbel_visits,
    gumbel_scale: c_visit and c_scale of the Gumbel paper.
    """

    simulations: int = 50
    leaves: int = 1
    selection: Literal["puct", "gumbel"] = "puct"
    init: float = 1.25
    base: float = 19652.0
    unvisited: Literal["zero", "node"] = "zero"
    rescale: bool = False
    bounds: Sequence[float] | None = None
    virtual_loss: float = 1.0
    considered: int = 16
    gumbel_visits: float = 50.0
    gumbel_scale: float = 0.1

    @staticmethod
    def of(config: Mapping[str, Any]) -> SearchSettings:
        """Return the settings in JSON. Raise PolicyError for an unknown key."""
        known = [f.name for f in fields(SearchSettings)]
        for name in config:
            if name not in known:
                raise PolicyError(f"the settings of a search have no {name!r}{nearest(name, known)}")
        return SearchSettings(**config)

    @property
    def formula(self) -> Formula:
        """Return the settings as compiled code takes them."""
        return Formula(
            self.selection == "gumbel",
            self.init,
            self.base,
            self.rescale,
            self.unvisited == "node",
            self.virtual_loss,
            self.gumbel_visits,
            self.gumbel_scale,
        )


class Expanded(NamedTuple):
    """n nodes.

    Attributes:
        states: [n, …], from which the model continues.
        reward: float64[n], of the moves to the nodes, as `Tree` counts them.
        discount: float64[n], of these moves; 0 where a game is over.
        logits: float32[n, A], for the mover; arbitrary where a game is over.
        legal: bool[n, A].
        value: float32[n], for the mover.
    """

    states: Array
    reward: NDArray[np.float64]
    discount: NDArray[np.float64]
    logits: NDArray[np.float32]
    legal: NDArray[np.bool_]
    value: NDArray[np.float32]


class Model(Protocol):
    """What a search steps: a game's rules with a network that evaluates positions, or a network that learned both."""

    def expand(self, states: Array, action: NDArray[np.int32]) -> Expanded:
        """Return the nodes after actions int32[n] in states [n, …]."""
        ...


class RootNoise(NamedTuple):
    """Noise of searches of equal positions: uniforms float32[G, 2]; and, for PUCT, the Dirichlet's concentration and
    its share."""

    uniforms: NDArray[np.float32]
    concentration: float
    share: float


class SearchAnswer(NamedTuple):
    """Result for G roots.

    Attributes:
        policy: float64[G, A], shares of visits, or Gumbel's improved policy.
        value: float64[G].
        best: int32[G], the action to play.
        visits: int32[G, A].
    """

    policy: NDArray[np.float64]
    value: NDArray[np.float64]
    best: NDArray[np.int32]
    visits: NDArray[np.int32]


def search(model: Model, root: Expanded, settings: SearchSettings, noise: RootNoise | None = None) -> SearchAnswer:
    """Search from G roots, of which no game is over."""
    games, actions = root.logits.shape
    rounds = -(-settings.simulations // settings.leaves)
    nodes = 1 + rounds * settings.leaves
    tree, formula = trees.make_tree(games, nodes, actions), settings.formula
    if settings.bounds is not None:
        tree.low[:], tree.high[:] = settings.bounds
    states = np.empty((games, nodes, *root.states.shape[1:]), root.states.dtype)
    states[:, 0] = root.states
    everyone, first = np.arange(games, dtype=np.int32), np.zeros(games, np.int32)
    trees.attach(tree, everyone, first, np.zeros(games), np.ones(games), root.logits, root.legal, root.value)
    wanted = _prepare(tree, settings, noise, rounds)
    place = np.zeros((3, games, settings.leaves), np.int32)
    node, action, leaf = place
    for k in range(rounds):
        trees.select(tree, formula, wanted[k], node, action, leaf)
        game, at = _waiting(tree, everyone, leaf)
        if len(game):
            into = leaf.ravel()[at]
            children = model.expand(states[game, node.ravel()[at]], action.ravel()[at])
            states[game, into] = children.states
            trees.attach(
                tree, game, into, children.reward, children.discount, children.logits, children.legal, children.value
            )
        trees.back_up(tree, leaf)
    out = SearchAnswer(np.zeros((games, actions)), np.zeros(games), first, tree.visits[:, 0].copy())
    trees.answers(tree, formula, out.policy, out.value, out.best)
    return out


def _prepare(tree: Tree, settings: SearchSettings, noise: RootNoise | None, rounds: int) -> NDArray[np.int32]:
    """Add noise at the roots. Return int32[rounds, G]: for Gumbel, the number of visits of the root's next action."""
    games = len(tree.size)
    if settings.selection == "puct":
        if noise is not None and noise.share:
            trees.add_dirichlet(tree, noise.uniforms, noise.concentration, noise.share)
        return np.zeros((rounds, games), np.int32)
    if noise is not None:
        trees.draw_gumbel(tree, noise.uniforms)
    considered = np.minimum((tree.prior[:, 0] >= 0.0).sum(1), settings.considered)
    table = np.array([halving(m, rounds) for m in range(1 + int(considered.max()))], np.int32)
    return np.ascontiguousarray(table[considered].T)


def _waiting(
    tree: Tree, everyone: NDArray[np.int32], leaf: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return (game int32[n], place int64[n] in `leaf`, flat) of the leaves without an evaluation, each once."""
    width = leaf.shape[1]
    game, node = (everyone, leaf[:, 0]) if width == 1 else (np.repeat(everyone, width), leaf.ravel())
    at = np.flatnonzero(tree.kind[game, node] == trees.PENDING)
    if width > 1:
        pair = game[at].astype(np.int64) * tree.kind.shape[1] + node[at]
        at = at[np.unique(pair, return_index=True)[1]]
    return game[at], at


@lru_cache(maxsize=1024)
def halving(considered: int, simulations: int) -> Sequence[int]:
    """Return sequential halving as a list: simulation k visits an action with this number of visits. m actions share
    simulations / log2 m equally, then the better half of them does, and so on, until two are left. (Karnin et al. 2013;
    Danihelka et al. 2022, figure 1.)"""
    if considered <= 1:
        return tuple(range(simulations))
    phases = math.ceil(math.log2(considered))
    left, visits, out = considered, [0] * considered, list[int]()
    while len(out) < simulations:
        for _ in range(max(1, simulations // (phases * left))):
            out += visits[:left]
            visits[:left] = [n + 1 for n in visits[:left]]
        left = max(2, left // 2)
    return tuple(out[:simulations])
