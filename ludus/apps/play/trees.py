"""A compiled game, opened node by node under a profile: who reaches what, what it is worth, and what each player regrets.

    profile --tabulate--> a table for each player --two sweeps over the tree's arrays--> Analysis --look(path)--> NodeView

The sweeps are made once for a profile; a click then reads a few numbers. Counterfactual regret is as in Zinkevich et al. (2007): at an
information state I of player i, the sum over its nodes h of the others' and chance's reach of h times (value of h after action a - value of
h). Nobody can gain where all of them are 0 or less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.apps.episodes.schemas import Board
from ludus.apps.play.boards import board_of, chance_label, label_of
from ludus.apps.play.run_game import PERSON, RunGame, check_name
from ludus.core.arrays import kernel
from ludus.core.errors import ConfigError, LudusError, ScenarioError
from ludus.envs.tree.game_tree import GameTree
from ludus.envs.tree.walk import CHANCE, TERMINAL
from ludus.evaluation.policies import META

Players: TypeAlias = NDArray[np.int8]
Ints: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]

_MOST_PATH = 4096  # characters
_NOTHING = 1e-6  # of the largest return; values below are shown as 0
_JOINT = "The run's meta-strategy draws players together; here each draws on its own, as often as there."
_KINDS = {CHANCE: "chance", TERMINAL: "terminal"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    node: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildView:
    """A child of a node. probability: that it comes next. value: [P]. regret: counterfactual, of its action; None where it is no player's.
    leaves: ends of the game below it."""

    node: str
    label: str
    probability: float
    value: Sequence[float]
    regret: float | None
    kind: str
    player: int | None
    leaves: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node of a game's tree. node: its path, actions joined by dots; "" of the root. seats: [P] names of who plays. reach: [P + 1] how
    likely each player, and chance (last), is to do its part in getting here. value: [P] expected returns from here. regret: [children]
    counterfactual, None where no player decides. exploitability: NashConv by the number of players; gains: [P] what each player's best
    response would earn more. nodes: of the whole tree. note: what else is to be said of the profile; ""."""

    seats: Sequence[str]
    node: str
    path: Sequence[PathStep]
    kind: str
    player: int | None
    information: str
    board: Board
    reach: Sequence[float]
    value: Sequence[float]
    regret: Sequence[float] | None
    children: Sequence[ChildView]
    nash_conv: float
    exploitability: float
    gains: Sequence[float]
    nodes: int
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """A profile's sweeps. prob: float64[N], of each node under its parent. reach: float64[N, P + 1]. value: float64[N, P]. regret:
    float64[I, A], counterfactual. leaves: int64[N]. gains: float64[P]."""

    prob: NDArray[np.float64]
    reach: NDArray[np.float64]
    value: NDArray[np.float64]
    regret: NDArray[np.float64]
    leaves: NDArray[np.int64]
    gains: NDArray[np.float64]


def analyze(tree: GameTree, tables: Sequence[NDArray[np.float64]]) -> Analysis:
    """Of a profile, tables[p] float64[I_p, A]."""
    nodes, players = tree.arrays.nodes, tree.num_players
    count, actions = len(nodes.player), tree.num_actions
    policy = np.concatenate([np.asarray(table, np.float64).reshape(-1, actions) for table in tables])
    prob, reach = np.ones(count), np.ones((count, players + 1))
    value, leaves = np.zeros((count, players)), np.zeros(count, np.int64)
    regret = np.zeros((len(tree.enumeration.mask), actions))
    legal = _legal_actions(tree)
    _down(nodes.player, nodes.info, nodes.child, nodes.degree, nodes.cumulative, legal, policy, prob, reach)
    _up(nodes.child, nodes.degree, nodes.terminal, tree.arrays.returns, prob, value, leaves)
    _regrets(nodes.player, nodes.info, nodes.child, nodes.degree, legal, reach, value, regret)
    plans = [tree.realization(p, table) for p, table in enumerate(tables)]
    return Analysis(prob, reach, value, regret, leaves, tree.exploitability(plans).gain)


def _legal_actions(tree: GameTree) -> NDArray[np.int32]:
    """Return int32[I, A]: the k-th legal action of each information state, -1 behind the last."""
    rank = tree.arrays.rank
    legal = np.full(rank.shape, -1, np.int32)
    rows, columns = np.nonzero(rank >= 0)
    legal[rows, rank[rows, columns]] = columns
    return legal


@kernel
def _down(
    player: Players,
    info: Ints,
    child: Ints,
    degree: Ints,
    cumulative: Floats,
    legal: Ints,
    policy: Floats,
    prob: Floats,
    reach: Floats,
) -> None:
    """Probabilities under the parent, and reaches, parents first. prob and reach are ones."""
    chance = reach.shape[1] - 1
    for x in range(len(player)):
        for k in range(degree[x]):
            c = child[x] + k
            if player[x] >= 0:
                who = player[x]
                prob[c] = policy[info[x], legal[info[x], k]]
            else:
                who = chance
                prob[c] = cumulative[c] - (cumulative[c - 1] if k > 0 else 0.0)
            for p in range(chance + 1):
                reach[c, p] = reach[x, p]
            reach[c, who] *= prob[c]


@kernel
def _up(
    child: Ints,
    degree: Ints,
    terminal: Ints,
    returns: Floats,
    prob: Floats,
    value: Floats,
    leaves: NDArray[np.int64],
) -> None:
    """Expected returns and ends below each node, children first. value and leaves are zeros."""
    for x in range(len(degree) - 1, -1, -1):
        if degree[x] == 0:
            leaves[x] = 1
            for p in range(value.shape[1]):
                value[x, p] = returns[terminal[x], p]
        for k in range(degree[x]):
            c = child[x] + k
            leaves[x] += leaves[c]
            for p in range(value.shape[1]):
                value[x, p] += prob[c] * value[c, p]


@kernel
def _regrets(
    player: Players, info: Ints, child: Ints, degree: Ints, legal: Ints, reach: Floats, value: Floats, regret: Floats
) -> None:
    """Add up counterfactual regrets, which are zeros."""
    for x in range(len(player)):
        p = player[x]
        if p >= 0:
            others = 1.0
            for q in range(reach.shape[1]):
                if q != p:
                    others *= reach[x, q]
            for k in range(degree[x]):
                regret[info[x], legal[info[x], k]] += others * (value[child[x] + k, p] - value[x, p])


# --------------------------------------------------------------------------------------------------------------------


class TreeExplorer:
    """The tree of a run's game under one profile."""

    def __init__(self, game: RunGame, who: Sequence[str]) -> None:
        """who: [P] names, as `ludus.evaluation.policies` takes them. Raises ScenarioError for a game without a compiled tree, and a policy
        that cannot be tabulated; ConfigError for other names."""
        if game.tree is None:
            raise ScenarioError(
                f"{game.spec.id} has no compiled tree to look into: it is too large, its run has tree=off, or it is played in wrappers."
            )
        self._tree = game.tree
        self.seats = tuple(who)
        self._analysis = analyze(self._tree, tables_of(game, who))
        self._root = _root(game)
        joint = f"@{META}" in who and game.run.solution.joint is not None
        self._note = _JOINT if joint else ""

    def look(self, path: str) -> NodeView:
        """Return the node at a path. Raises ConfigError for one that there is not."""
        at, state, joint = 0, self._root.clone(), list[int]()
        steps = [PathStep(node="", label="start")]
        done = list[int]()
        for action in _actions(path):
            choices = self._choices(at, state)
            if action not in choices:
                raise ConfigError(
                    f"{path[:80]!r} leads to no node: {action} cannot follow {'.'.join(map(str, done)) or 'the start'}."
                )
            place, label = choices[action]
            at = int(self._tree.arrays.nodes.child[at]) + place
            state, joint = self._after(state, joint, action)
            done.append(action)
            steps.append(PathStep(node=".".join(map(str, done)), label=label))
        return self._view(at, state, steps)

    def _view(self, at: int, state: Any, steps: Sequence[PathStep]) -> NodeView:
        tree, analysis = self._tree, self._analysis
        nodes, player = tree.arrays.nodes, int(tree.arrays.nodes.player[at])
        regret = analysis.regret[nodes.info[at]] if player >= 0 else None
        children = []
        for action, (place, label) in self._choices(at, state).items():
            child, prefix = int(nodes.child[at]) + place, f"{steps[-1].node}." if steps[-1].node else ""
            kind = int(nodes.player[child])
            children.append(
                ChildView(
                    node=f"{prefix}{action}",
                    label=label,
                    probability=float(analysis.prob[child]),
                    value=analysis.value[child].tolist(),
                    regret=None if regret is None else float(regret[action]),
                    kind=_KINDS.get(kind, "decision"),
                    player=kind if kind >= 0 else None,
                    leaves=int(analysis.leaves[child]),
                )
            )
        nash_conv = float(analysis.gains.sum())
        return NodeView(
            seats=self.seats,
            node=steps[-1].node,
            path=steps,
            kind=_KINDS.get(player, "decision"),
            player=player if player >= 0 else None,
            information=tree.enumeration.key[int(nodes.info[at])] if player >= 0 else "",
            board=board_of(state, eyes=range(tree.num_players)),
            reach=analysis.reach[at].tolist(),
            value=analysis.value[at].tolist(),
            regret=None if regret is None else [child.regret or 0.0 for child in children],
            children=children,
            nash_conv=nash_conv,
            exploitability=nash_conv / tree.num_players,
            gains=analysis.gains.tolist(),
            nodes=len(nodes.player),
            note=self._note,
        )

    def _choices(self, at: int, state: Any) -> Mapping[int, tuple[int, str]]:
        """Return what can follow a node, in the order of its children: action -> (place, label)."""
        player = int(self._tree.arrays.nodes.player[at])
        if player == TERMINAL:
            return {}
        if player == CHANCE:
            outcomes = [action for action, _ in state.chance_outcomes()]
            return {action: (k, chance_label(state, action)) for k, action in enumerate(outcomes)}
        legal = state.legal_actions(player)
        return {action: (k, label_of(state, player, action)) for k, action in enumerate(legal)}

    def _after(self, state: Any, joint: list[int], action: int) -> tuple[Any, list[int]]:
        """Return the state, and what players have chosen of a simultaneous move so far, after an action."""
        if not state.is_simultaneous_node():
            return state.child(action), []
        movers = [p for p in range(self._tree.num_players) if state.legal_actions(p)]
        chosen = [*joint, action]
        if len(chosen) < len(movers):
            return state, chosen
        moves = [-1] * self._tree.num_players
        for player, move in zip(movers, chosen, strict=True):
            moves[player] = move
        after = state.clone()
        after.apply_actions(moves)
        return after, []


class MoveValues:
    """What a player's moves are worth in a compiled tree: it plays as one name says, all others play the mixture. The sweeps are made
    when they are first asked for."""

    def __init__(self, game: RunGame, player: int, who: str) -> None:
        """who: as `tables_of` takes it."""
        self._game, self._player, self._who = game, player, who
        self._tree = game.tree
        self._swept: tuple[Analysis, NDArray[np.float64]] | None = None

    def at(self, ids: NDArray[Any]) -> tuple[Floats, Floats] | None:
        """Return expected returns of information states.

        Args:
            ids: int32[n], as the tree's enumeration counts them.

        Returns:
            (float64[n, A] after each action, NaN of what is not legal or never reached by the others; float64[n] before it); None without a
            tree, or where somebody's play has no table.
        """
        if self._tree is None:
            return None
        try:
            analysis, weight = self._swept = self._swept or self._sweep(self._tree)
        except LudusError:  # a policy that remembers, or a player for whom there is no mixture
            self._tree = None
            return None
        nodes, rows = self._tree.arrays.nodes, []
        for info in ids.tolist():
            at = np.flatnonzero((nodes.info == info) & (nodes.player == self._player))
            rows.append(self._row(info, at, analysis, weight))
        return np.stack([after for after, _ in rows]), np.array([before for _, before in rows])

    def _sweep(self, tree: GameTree) -> tuple[Analysis, NDArray[np.float64]]:
        """Return the analysis, and float64[N], how likely the others and chance are to do their part in reaching each node."""
        who = [self._who if p == self._player else f"@{META}" for p in range(tree.num_players)]
        analysis = analyze(tree, tables_of(self._game, who))
        return analysis, np.delete(analysis.reach, self._player, axis=1).prod(axis=1)

    def _row(
        self, info: int, at: NDArray[np.int64], analysis: Analysis, weight: NDArray[np.float64]
    ) -> tuple[Floats, float]:
        assert self._tree is not None
        nodes, after = self._tree.arrays.nodes, np.full(self._tree.num_actions, np.nan)
        share = weight[at]
        if not share.sum() > 0:
            return after, math.nan
        legal = np.flatnonzero(self._tree.enumeration.mask[info])
        children = nodes.child[at][:, None] + np.arange(len(legal))
        after[legal] = share @ analysis.value[children, self._player] / share.sum()
        before = share @ analysis.value[at, self._player] / share.sum()
        nothing = _NOTHING * np.abs(self._tree.arrays.returns).max()  # rounding, where several moves are worth the same
        return np.where(np.abs(after) < nothing, 0.0, after), 0.0 if abs(before) < nothing else float(before)


def _root(game: RunGame) -> Any:
    from ludus.envs.openspiel.games import load_game

    return load_game(game.spec.id).new_initial_state()


def _actions(path: str) -> list[int]:
    """Raises ConfigError for a text that is no path."""
    parts = path.split(".") if path else []
    if len(path) > _MOST_PATH or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ConfigError(f"{path[:80]!r} is no node; actions joined by dots, such as 0.1, are expected.")
    return [int(part) for part in parts]


def tables_of(game: RunGame, who: Sequence[str]) -> list[NDArray[np.float64]]:
    """Return [P] float64[I_p, A]: what each player plays in every information state; mixtures as the behaviour that does the same (Kuhn
    1953). Raises ScenarioError for a policy that has no table, such as a bot; ConfigError for names that are wrong or cannot play there."""
    tree, players = game.tree, game.spec.num_players
    assert tree is not None
    if len(who) != players:
        raise ConfigError(f"{len(who)} players were named; one name for each of {players} is needed.")
    tables = []
    for player, name in enumerate(who):
        if name == PERSON:
            raise ConfigError("a person has no table of probabilities. Name a policy.")
        check_name(name)
        sampled = game.named.seats(name)[player]
        if not sampled:
            raise ConfigError(f"{name!r} cannot play as player {player}. Name another policy there.")
        plan = np.zeros(tree.num_sequences(player))
        for one in sampled:
            table = one.policy.tabulate(tree.enumeration, player, mode=one.mode)
            if table is None:
                raise ScenarioError(
                    f"{one.name} remembers, searches or follows a script, and has no table of probabilities. Name another."
                )
            plan += one.prob * tree.realization(player, table)
        tables.append(tree.behavior(player, plan))
    return tables
