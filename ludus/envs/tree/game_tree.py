"""Games small enough to be enumerated, as flat arrays: exact best responses, payoffs and exploitability.

    OpenSpiel game --enumerate_game--> lists --build--> Arrays --> GameTree (exact answers) --> TreeVectorEnv (tree/vector.py)

Policies come in two forms. A *table*, float64[I_p, A], holds a player's action probabilities by information state (local ids,
`enumeration.ids(p)` shifted to 0). A *plan*, float64[S_p], holds products of own probabilities along sequences; mixing policies at
the root of the game is mixing their plans.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core.errors import EnvError, PolicyError
from ludus.core.packages import require
from ludus.core.types import AgentSpec, Enumeration, EnvSpec, Exploitability
from ludus.envs.game_facts import file_digests
from ludus.envs.tree import sweeps
from ludus.envs.tree.sweeps import Contraction, expand, plan_contraction
from ludus.envs.tree.tree_arrays import Arrays, Nodes, build
from ludus.envs.tree.walk import (
    CHANCE,
    TERMINAL,
    EnumeratedGame,
    display_name,
    enumerate_game,
    exceeds_node_limit,
    load,
    merge_alike,
    refuse_unfit,
)

__all__ = ["GameTree", "PlanStack", "compile_tree", "try_compile"]

# --------------------------------------------------------------------------------------------------------------------
# What a compiled game tells the rest of Ludus about itself.

_SYMMETRY_NODES = 50_000  # larger trees are not searched for symmetry; each player then stands alone


def describe(game: Any, name: str, *, walked: EnumeratedGame, arrays: Arrays) -> EnvSpec:
    """Return the `EnvSpec` of a compiled game, with its enumeration. name: its `display_name`."""
    import pyspiel  # trees are made and used without OpenSpiel; a game of its needs it

    players = len(walked.legal)
    enumeration = Enumeration(
        observation=np.concatenate(walked.observation),
        mask=arrays.rank >= 0,
        offset=tuple(int(n) for n in np.cumsum([0, *map(len, walked.legal)])),
        key=tuple(key for keys in walked.key for key in keys),
    )
    utility = game.get_type().utility
    low, high = _bounds(enumeration.observation)
    space = Box(low, high, enumeration.observation.shape[1:], np.float32)
    action = Discrete(enumeration.mask.shape[1])
    return EnvSpec(
        id=f"openspiel/{name}",
        agents=tuple(AgentSpec(f"player_{p}", p, space, action) for p in range(players)),
        utility_range=_utility(game, arrays),
        symmetry=_groups(enumeration, arrays),
        zero_sum=utility in (pyspiel.GameType.Utility.ZERO_SUM, pyspiel.GameType.Utility.CONSTANT_SUM),
        enumeration=enumeration,
        max_decisions=arrays.max_decisions,
    )


def _utility(game: Any, arrays: Arrays) -> tuple[tuple[float, float], ...]:
    """Return OpenSpiel's bounds, widened where a terminal is outside of them (cliff_walking with a short horizon, say)."""
    low = np.minimum(arrays.returns.min(axis=0), game.min_utility())
    high = np.maximum(arrays.returns.max(axis=0), game.max_utility())
    return tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))


def _bounds(observation: Any) -> tuple[float, float]:
    """Return the bounds of all observations as one pair of numbers, which are never equal."""
    return min(0.0, float(observation.min(initial=0.0))), max(1.0, float(observation.max(initial=1.0)))


def _groups(enumeration: Enumeration, arrays: Arrays) -> tuple[tuple[int, ...], ...]:
    """Return groups of interchangeable players: swapping two of them maps the tree onto itself, with equal tensors under equal local
    ids."""
    groups: list[list[int]] = []
    for player in range(len(enumeration.offset) - 1):
        for group in groups:
            if _interchangeable(enumeration, arrays, group[0], player):
                group.append(player)
                break
        else:
            groups.append([player])
    return tuple(tuple(group) for group in groups)


def _interchangeable(enumeration: Enumeration, arrays: Arrays, first: int, second: int) -> bool:
    if len(arrays.nodes.player) > _SYMMETRY_NODES:
        return False
    a, b = enumeration.ids(first), enumeration.ids(second)
    same = np.array_equal(enumeration.observation[a], enumeration.observation[b])
    if not same or not np.array_equal(enumeration.mask[a], enumeration.mask[b]):
        return False
    swap = list(range(len(enumeration.offset) - 1))
    swap[first], swap[second] = second, first
    pairs = [(0, 0)]
    while pairs:
        more = _mirror(enumeration, arrays, swap, *pairs.pop())
        if more is None:
            return False
        pairs += more
    return True


def _mirror(enumeration: Enumeration, arrays: Arrays, swap: list[int], x: int, y: int) -> list[tuple[int, int]] | None:
    """Return pairs of nodes that must be mirror images if x and y are; None if these two are not. Chance events map to themselves."""
    nodes = arrays.nodes
    kind = int(nodes.player[x])
    if nodes.width[x] != nodes.width[y] or nodes.degree[x] != nodes.degree[y]:
        return None
    if kind < 0 and kind != nodes.player[y]:
        return None
    if arrays.so_far is not None and not np.array_equal(arrays.so_far[x], arrays.so_far[y][swap]):
        return None
    if kind == TERMINAL:
        returns_x, returns_y = arrays.returns[nodes.terminal[x]], arrays.returns[nodes.terminal[y]]
        return [] if np.array_equal(returns_x, returns_y[swap]) else None
    if kind == CHANCE:
        children, mirror_children = _children(nodes, x), _children(nodes, y)
        same = np.array_equal(nodes.cumulative[children], nodes.cumulative[mirror_children])
        return list(zip(children, mirror_children, strict=True)) if same else None
    return _mirror_block(enumeration, nodes, swap, x, y)


def _mirror_block(
    enumeration: Enumeration, nodes: Nodes, swap: list[int], x: int, y: int
) -> list[tuple[int, int]] | None:
    """Do the same as `_mirror` where one player moves, or several simultaneously."""
    chains = [[node] for node in (x, y)]
    for chain in chains:
        while len(chain) < nodes.width[x]:
            chain.append(int(nodes.child[chain[-1]]))
    nodes_x, nodes_y = ({int(nodes.player[n]): n for n in chain} for chain in chains)
    if {swap[p] for p in nodes_x} != set(nodes_y):
        return None
    for p, node in nodes_x.items():
        local_id, mirror_id = (
            nodes.info[node] - enumeration.offset[p],
            nodes.info[nodes_y[swap[p]]] - enumeration.offset[swap[p]],
        )
        if local_id != mirror_id:
            return None
    pairs = []
    for moves in itertools.product(*(range(nodes.degree[n]) for n in chains[0])):
        by_player = {swap[p]: move for p, move in zip(nodes_x, moves, strict=True)}
        pairs.append((_after(nodes, x, moves), _after(nodes, y, tuple(by_player[q] for q in nodes_y))))
    return pairs


def _children(nodes: Nodes, node: int) -> list[int]:
    return list(range(int(nodes.child[node]), int(nodes.child[node] + nodes.degree[node])))


def _after(nodes: Nodes, node: int, moves: tuple[int, ...]) -> int:
    for move in moves:
        node = int(nodes.child[node]) + move
    return node


Table: TypeAlias = NDArray[np.float64]
Plan: TypeAlias = NDArray[np.float64]

_EMPTY = np.zeros(0)


def compile_tree(game: Any, *, node_limit: int = 1_000_000, observation: str = "auto") -> GameTree:
    """Compile an OpenSpiel game into arrays.

    A repeated call with a name returns the same object, as long as the files that the name names do not change.

    Args:
        game: A `pyspiel.Game`, which may be made in memory and have the name of another one, or a game string;
            `my_module:python_game` if your module registers it.
        node_limit: Nodes of the largest tree that is compiled.
        observation: "information_state" or "observation" (OpenSpiel's tensors, flat), "one_hot" (of the local id), or "auto": the first of
            these that the game has.

    Returns:
        The compiled game.

    Raises:
        EnvError: The game is unknown, larger than `node_limit` nodes, of imperfect recall, or without a finite tree.
        ConfigError: OpenSpiel, or the module that registers the game, is missing.
    """
    if not isinstance(game, str):
        return _build(game, display_name(game), node_limit, observation)
    pyspiel = require("pyspiel", f"openspiel/{game}")
    contents = tuple(file_digests(f"openspiel/{game}").items())
    try:
        loaded = load(game)
    except pyspiel.SpielError as error:
        raise EnvError(f"OpenSpiel cannot load the game {game!r}: {error}") from error
    compiled = _compile(display_name(loaded, game), node_limit, observation, contents)
    if isinstance(compiled, str):
        raise EnvError(compiled)
    return compiled


def try_compile(game: Any, *, node_limit: int = 1_000_000, observation: str = "auto") -> tuple[GameTree | None, str]:
    """Compile as `compile_tree` does, without raising EnvError.

    Returns:
        (tree, "") or (None, the reason). Games far beyond the limit are recognised in about a millisecond.
    """
    try:
        return compile_tree(game, node_limit=node_limit, observation=observation), ""
    except EnvError as error:
        return None, str(error)


@lru_cache(maxsize=4)
def _compile(name: str, node_limit: int, observation: str, _contents: tuple[tuple[str, str], ...]) -> GameTree | str:
    """Return the tree, or why there is none: that a game in Python is too large may take a minute to find out. _contents: of files, by
    which games of one name are told apart."""
    try:
        return _build(load(name), name, node_limit, observation)
    except EnvError as error:
        return str(error)


def _build(game: Any, name: str, node_limit: int, observation: str) -> GameTree:
    refuse_unfit(game)
    if exceeds_node_limit(game, node_limit):
        raise EnvError(
            f"{name} has far more than {node_limit} nodes, too many to compile; use a smaller variant of the game, or tree=off."
        )
    enumerated = enumerate_game(game, node_limit=node_limit, observation=observation)
    if not any(enumerated.legal):
        raise EnvError(f"no player ever moves in {name}, which is decided by chance only; choose a game with players.")
    walked = merge_alike(enumerated)
    try:
        arrays = build(walked, num_actions=game.num_distinct_actions(), name=name)
    except EnvError:  # its tensors forget more than its strings
        if walked is enumerated:
            raise
        walked, arrays = enumerated, build(enumerated, num_actions=game.num_distinct_actions(), name=name)
    return GameTree(arrays, describe(game, name, walked=walked, arrays=arrays))


class GameTree:
    """A compiled game: P players, I_p information states, S_p sequences (the empty one first), A actions.

    Everything is exact up to rounding, in float64. Arguments named `plans` hold one plan per player.

    Attributes:
        arrays: The flat arrays, read-only by agreement.
        spec: The `EnvSpec` of its vector environment, with the enumeration.
        sides: Of two players, (own sequence int32[U], the other's int32[U], own weight float64[U]) of each, by rising own sequence, so
            that a sweep writes in order.
    """

    def __init__(self, arrays: Arrays, spec: EnvSpec) -> None:
        assert spec.enumeration is not None
        self.arrays = arrays
        self.spec = spec
        self.enumeration = spec.enumeration
        self.num_players = spec.num_players
        self.num_actions = int(self.enumeration.mask.shape[1])
        self._outcomes = arrays.outcomes
        self._contractions: dict[tuple[int, ...], Contraction] = {}
        weight = self._outcomes.weight
        self._negated = self.num_players == 2 and bool(np.array_equal(weight[0], -weight[1]))
        self.sides = tuple(self._side(p) for p in range(2)) if self.num_players == 2 else ()

    def __repr__(self) -> str:
        return f"GameTree({self.spec.id!r}, {len(self.arrays.nodes.player)} nodes)"

    def num_sequences(self, player: int) -> int:
        """Return S_p."""
        return self.arrays.sequences[player].count

    # ---------------------------------------------------------------------------------- tables and plans

    def uniform(self, player: int) -> Table:
        """Return the table float64[I_p, A] that plays every legal action with equal probability."""
        mask = self.enumeration.mask[self.enumeration.ids(player)]
        table: Table = mask / mask.sum(axis=1, keepdims=True, dtype=np.float64)
        return table

    def realization(self, player: int, table: Table) -> Plan:
        """Convert a table to a plan.

        Args:
            player: p.
            table: float64[I_p, A], action probabilities by information state.

        Returns:
            float64[S_p], the products of the player's own probabilities along sequences.

        Raises:
            PolicyError: A row is not a distribution over legal actions.
        """
        form = self.arrays.sequences[player]
        table = np.ascontiguousarray(table, dtype=np.float64)
        expected = (len(form.parent), self.num_actions)
        if table.shape != expected:
            raise PolicyError(
                f"a table of player {player} of {self.spec.id} has shape {table.shape}; expected {expected}."
            )
        plan = np.empty(form.count)
        bad = int(sweeps.realize(form.parent, form.start, form.action, table, plan))
        if bad >= 0:
            key = self.enumeration.key[self.enumeration.offset[player] + bad]
            raise PolicyError(
                f"the table of player {player} of {self.spec.id} holds {table[bad].tolist()} at information state {key!r}; "
                "expected probabilities of the legal actions that sum to 1."
            )
        return plan

    def behavior(self, player: int, plan: Plan) -> Table:
        """Convert a plan to a table.

        Args:
            player: p.
            plan: float64[S_p].

        Returns:
            float64[I_p, A], uniform over legal actions at states that the plan does not reach.
        """
        form = self.arrays.sequences[player]
        table = np.zeros((len(form.parent), self.num_actions))
        sweeps.behave(form.start, form.action, self._plan(player, plan), table)
        return table

    def realisation(self, player: int, table: Table) -> Plan:
        """Return `realization`; a former name."""
        warnings.warn("GameTree.realisation is called realization now.", DeprecationWarning, stacklevel=2)
        return self.realization(player, table)

    def behaviour(self, player: int, plan: Plan) -> Table:
        """Return `behavior`; a former name."""
        warnings.warn("GameTree.behaviour is called behavior now.", DeprecationWarning, stacklevel=2)
        return self.behavior(player, plan)

    def _plan(self, player: int, plan: Plan | None) -> Plan:
        checked = np.ascontiguousarray([] if plan is None else plan, dtype=np.float64)
        if checked.shape != (self.num_sequences(player),):
            raise PolicyError(
                f"a plan of player {player} of {self.spec.id} has shape {checked.shape}; "
                f"expected ({self.num_sequences(player)},)."
            )
        return checked

    def _profile(self, plans: Sequence[Plan | None], *, without: int = -1) -> list[Plan]:
        if len(plans) != self.num_players:
            raise PolicyError(f"{len(plans)} plans were given for the {self.num_players} players of {self.spec.id}.")
        return [_EMPTY if p == without else self._plan(p, plan) for p, plan in enumerate(plans)]

    # ---------------------------------------------------------------------------------- best responses

    def best_response(self, player: int, plans: Sequence[Plan | None]) -> tuple[float, Table]:
        """Compute a best response to the others' plans.

        Every information state gets its best action against the others' reach of it, off the path too. Equals (as `ludus.core.ties` has
        it) go to the lowest action, and so do states that the others never reach. The value is the best one; the table earns it except for
        what equals differ by.

        Args:
            player: p.
            plans: One per player, float64[S_q]; `plans[player]` is ignored (None, say).

        Returns:
            (value, deterministic table float64[I_p, A]).
        """
        return self.best_response_joint(player, (plans,), (1.0,))

    def best_response_joint(
        self, player: int, profiles: Sequence[Sequence[Plan | None]], probs: Sequence[float]
    ) -> tuple[float, Table]:
        """Compute a best response to a correlated distribution of the others' plans; see `best_response`.

        Args:
            player: p.
            profiles: Profiles of plans.
            probs: The probability of each profile.

        Returns:
            (value, deterministic table float64[I_p, A]).
        """
        self._check_joint(profiles, probs)
        form = self.arrays.sequences[player]
        gradient, stake = np.zeros(form.count), np.zeros(form.count)
        for plans, prob in zip(profiles, probs, strict=True):
            self._add_stakes(player, plans, float(prob), gradient, stake)
        table = np.zeros((len(form.parent), self.num_actions))
        value = sweeps.respond(form.parent, form.start, form.action, gradient, stake, table)
        return float(value), table

    def _best_value(self, player: int, plans: Sequence[Plan | None]) -> float:
        """Return the value of `best_response` without the table; two players need no stakes for it."""
        if self.num_players != 2:
            return self.best_response(player, plans)[0]
        form, (own, other, weight) = self.arrays.sequences[player], self.sides[player]
        gradient = np.zeros(form.count)
        sweeps.gradient_two(own, other, weight, self._profile(plans, without=player)[1 - player], 1.0, gradient)
        return float(sweeps.climb(form.parent, form.start, gradient))

    def _check_joint(self, profiles: Sequence[object], probs: Sequence[float]) -> None:
        if len(profiles) != len(probs) or not len(probs):
            raise PolicyError(
                f"{len(profiles)} profiles and {len(probs)} probabilities; expected one each, at least one."
            )

    def _add_stakes(
        self, player: int, profile: Sequence[Plan | None], prob: float, gradient: Plan, stake: NDArray[np.float64]
    ) -> None:
        plans = self._profile(profile, without=player)
        if self.num_players == 2:
            own, other, weight = self.sides[player]
            sweeps.stakes_two(own, other, weight, plans[1 - player], prob, gradient, stake)
            return
        offset = np.cumsum([0, *map(len, plans)])
        out = self._outcomes
        everyones = np.concatenate(plans)
        sweeps.stakes_many(player, out.sequence, out.weight[player], everyones, offset, prob, gradient, stake)

    def _side(self, player: int) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
        """Return one of `sides`."""
        out = self._outcomes
        order = np.lexsort((out.sequence[1 - player], out.sequence[player]))
        return out.sequence[player][order], out.sequence[1 - player][order], out.weight[player][order]

    # ---------------------------------------------------------------------------------- values and payoffs

    def values(self, plans: Sequence[Plan]) -> NDArray[np.float64]:
        """Compute the expected returns float64[P] of a profile of plans."""
        plans = self._profile(plans)
        out = self._outcomes
        if self.num_players == 2:
            result = np.empty(2)
            sweeps.value_two(out.sequence[0], out.sequence[1], out.weight, plans[0], plans[1], result)
            return result
        reach = np.ones(out.sequence.shape[1])
        for sequence, plan in zip(out.sequence, plans, strict=True):
            reach *= plan[sequence]
        return out.weight @ reach

    def payoffs(self, populations: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Compute the expected returns of every profile of stacked plans.

        Args:
            populations: populations[p] float64[n_p, S_p].

        Returns:
            float64[P, n_0, …].
        """
        return self.payoffs_slice(0, populations[0], populations)

    def payoffs_slice(
        self, player: int, plans: NDArray[np.float64], stacks: Sequence[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Compute the part of `payoffs` for new policies of one player.

        With two players, the work grows with k × (terminals merged by sequences + n × S), never with terminals × policies².

        Args:
            player: Whose policies are new.
            plans: float64[k, S_p] or [S_p].
            stacks: The others' plans; `stacks[player]` is ignored.

        Returns:
            float64[P, n_0, …], with k in the player's place.

        Raises:
            PolicyError: Plans have another shape.
        """
        all_stacks = [np.atleast_2d(plans if p == player else stacks[p]) for p in range(self.num_players)]
        for p, stack in enumerate(all_stacks):
            if stack.ndim != 2 or stack.shape[1] != self.num_sequences(p):
                raise PolicyError(
                    f"stacked plans of player {p} of {self.spec.id} have shape {stack.shape}; "
                    f"expected (policies, {self.num_sequences(p)})."
                )
        order = (player, *(p for p in range(self.num_players) if p != player))
        plan = self._contraction(order)
        table = expand(plan.weight[:1] if self._negated else plan.weight, plan.levels, all_stacks)
        if self._negated:
            table = np.concatenate([table, -table])
        return np.ascontiguousarray(np.moveaxis(table, 1, 1 + player))

    def _contraction(self, order: tuple[int, ...]) -> Contraction:
        known = self._contractions.get(order)
        if known is None:
            known = self._contractions[order] = plan_contraction(self._outcomes, order)
        return known

    # ---------------------------------------------------------------------------------- exploitability

    def exploitability(self, plans: Sequence[Plan]) -> Exploitability:
        """Compute what each player's best response gains over a profile of (mixed) plans; NashConv is the sum."""
        value = self.values(plans)
        best = np.array([self._best_value(p, plans) for p in range(self.num_players)])
        return Exploitability(gain=best - value, value=value)


def find_tree(env: object) -> GameTree | None:
    """Return the compiled tree of the game that a vector of environments plays; None where it has none."""
    tree = getattr(env, "tree", None)
    return tree if isinstance(tree, GameTree) else None


class PlanStack:
    """Plans that are added one by one, in memory that grows by doubling: float64[n, S] without a copy per policy."""

    def __init__(self, sequences: int) -> None:
        self._memory = np.empty((16, sequences))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, plan: Plan) -> None:
        """Add one plan float64[S]."""
        if self._count == len(self._memory):
            self._memory = np.concatenate([self._memory, np.empty_like(self._memory)])
        self._memory[self._count] = plan
        self._count += 1

    @property
    def array(self) -> NDArray[np.float64]:
        """Return float64[n, S], a view."""
        return self._memory[: self._count]

    def mixture(self, weights: NDArray[np.float64]) -> Plan:
        """Return the plan of playing policy k with probability weights[k], drawn once per game; policies without a weight are not
        played."""
        return np.asarray(weights, np.float64) @ self.array[: len(weights)]
