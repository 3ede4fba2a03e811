"""Enumerates an OpenSpiel game, node by node, into flat lists. Nothing here is hot after compilation.

Simultaneous nodes are expanded: their players move in turn, each without seeing the others' moves.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import sys
import time
from array import array
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError
from ludus.core.packages import require
from ludus.core.parts import module_hint
from ludus.envs.tree.game_files import check_game_file

CHANCE = -1
TERMINAL = -4
_SIMULTANEOUS = -2
_PROBES = 64
_OBSERVATION_BYTES = 1 << 30
_QUIET = 2.0  # seconds until a walk says how far it is; then it waits twice as long each time
_OFTEN = 1024  # nodes between two looks at the clock
_DEPTH = 1000  # states carry their histories, so the memory of a walk grows with the square of its depth


@dataclass(frozen=True, slots=True, eq=False)
class EnumeratedGame:
    """A whole game in the order of a depth-first walk: N nodes, T terminals, P players, I_p information states of player p.

    player int8[N] (CHANCE and TERMINAL are negative), parent int32[N] (-1 at the root), prob float64[N] of the edge into a
    chance node's child (1 below players), info int32[N] local to its player (-1 without), width int8[N] players that move at
    once from this node on (0 inside an expanded simultaneous node), returns float64[T, P] in walking order.
    legal[p][i]: rising legal actions. key[p][i]: OpenSpiel's string. observation[p]: float32[I_p, n], flat. alike[p][i]: the first state
    that has the same legal actions and information state tensor; itself where nothing is hidden, or there are no such tensors.
    """

    player: NDArray[np.int8]
    parent: NDArray[np.int32]
    prob: NDArray[np.float64]
    info: NDArray[np.int32]
    width: NDArray[np.int8]
    returns: NDArray[np.float64]
    legal: list[list[list[int]]]
    key: list[list[str]]
    observation: list[NDArray[np.float32]]
    so_far: NDArray[np.float64] | None  # [N, P] summed rewards at every node, for games with rewards along the way
    alike: list[list[int]]


@dataclass(slots=True)
class _Block:
    """A simultaneous node while it is expanded: who moves, with what, and the moves made so far."""

    players: list[int]
    legal: list[list[int]]
    info: list[int]
    joint: list[int]
    depth: int = 0


def no_way_on(game: Any, moves: int) -> EnvError:
    """Return the error for a state that is not terminal, in which no player can move.

    OpenSpiel 2.0.2 has such states: goofspiel with num_turns = num_cards - 1 after its last turn.

    Args:
        game: OpenSpiel's.
        moves: Of all players, before the state.
    """
    return EnvError(
        f"{display_name(game)} is not over after {moves} moves of the players, and no player has a legal action: with these "
        "parameters OpenSpiel's game has no end. Choose others."
    )


def display_name(game: Any, loaded_by: str = "") -> str:
    """Return OpenSpiel's name of a game with the parameters that were given: `leduc_poker`, `kuhn_poker(players=3)`; of one that a
    module of the user's registers, with that: `my_module:python_game`. The text that it was loaded by, if that says more: OpenSpiel's
    own lacks the file of `nfg_game`, say, and what `restricted_nash_response` restricts."""
    module, text = split(loaded_by)
    module = module or user_module(game)
    name = str(game).removesuffix("()")
    if text:
        import pyspiel  # trees are made and used without OpenSpiel; a game of its needs it

        own_parameters, text_parameters = (pyspiel.game_parameters_from_string(of) for of in (str(game), text))
        if own_parameters["name"] != text_parameters["name"] or not text_parameters.keys() <= own_parameters.keys():
            name = text
    return f"{module}:{name}" if module else name


def split(text: str) -> tuple[str, str]:
    """Return (module, game string) of `my_module:python_game(parameter=value)`; module "" of OpenSpiel's own games."""
    head, bracket, rest = text.strip().partition("(")
    module, _, name = head.rpartition(":")
    return module, f"{name}{bracket}{rest}"


def user_module(game: Any) -> str:
    """Return which module of the user's a game's class is from; "" of OpenSpiel's own, and of what no other process can import."""
    module = type(game).__module__
    if module.partition(".")[0] in ("pyspiel", "open_spiel", "__main__"):
        return ""
    with suppress(ImportError, ValueError):
        return module if importlib.util.find_spec(module) is not None else ""
    return ""


def import_games(module: str) -> None:
    """Import a module that registers games. Raises ConfigError if it cannot be imported."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        hint = module_hint(module) if error.name and f"{module}.".startswith(f"{error.name}.") else ""
        raise ConfigError(
            f"openspiel/{module}:… could not be imported: {error}{hint or f'. {module!r} imports it; install it.'}"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"openspiel/{module}:…: importing {module!r} raised {type(error).__name__}: {error}."
        ) from error


def load(text: str) -> Any:
    """Return the `pyspiel.Game` of a game string, which may begin with the module that registers it. Raises ConfigError for a module
    that cannot be imported, OpenSpiel's included; `pyspiel.SpielError` as OpenSpiel does."""
    module, name = split(text)
    if module:
        import_games(module)
    pyspiel = require("pyspiel", f"openspiel/{text}")
    check_game_file(name)
    return pyspiel.load_game(name)


def refuse_unfit(game: Any) -> None:
    """Raise EnvError for games that have no finite tree of explicit chance and information states."""
    import pyspiel

    kind = game.get_type()
    name = display_name(game)
    if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise EnvError(f"{name} is a mean-field game, which has no tree; use a sequential or simultaneous game.")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise EnvError(
            f"{name} samples its chance events instead of listing them, so it cannot be compiled; use tree=off."
        )
    if not kind.provides_information_state_string:
        raise EnvError(f"{name} provides no information state strings, so it cannot be compiled; use tree=off.")


def exceeds_node_limit(game: Any, node_limit: int) -> bool:
    """Whether the game has more than `node_limit` nodes beyond reasonable doubt, from 64 random walks.

    Knuth's estimate (Math. Comp. 29, 1975) of one walk is unbiased and positive, so for a game within the limit it exceeds
    4 × the limit with probability at most 1/4 (Markov); that 48 of 64 walks do has then a probability below 1e-16.
    """
    rng = random.Random(0)
    return sum(_probe(game, rng, 4.0 * node_limit) for _ in range(_PROBES)) >= 48


def _probe(game: Any, rng: random.Random, bound: float) -> bool:
    import pyspiel

    state, layer, total = game.new_initial_state(), 1.0, 1.0
    while total <= bound and not state.is_terminal():
        if state.is_simultaneous_node():
            joint = []
            for p in range(game.num_players()):
                actions = state.legal_actions(p)
                layer *= max(1, len(actions))
                joint.append(rng.choice(actions) if actions else pyspiel.INVALID_ACTION)
            if all(action == pyspiel.INVALID_ACTION for action in joint):  # `enumerate_game` reports it
                break
            state.apply_actions(joint)
        else:
            actions = state.legal_actions()
            if not actions:  # `enumerate_game` reports it
                break
            layer *= len(actions)
            state.apply_action(rng.choice(actions))
        total += layer
    return total > bound


def enumerate_game(game: Any, *, node_limit: int, observation: str) -> EnumeratedGame:
    """Enumerate `game`. Raises EnvError as soon as more than `node_limit` nodes are seen, or where OpenSpiel refuses."""
    import pyspiel

    walker = _Walker(game, node_limit, observation)
    try:
        walker.run()
    except pyspiel.SpielError as error:
        raise EnvError(f"OpenSpiel stopped the enumeration of {display_name(game)}: {error}") from error
    return walker.result()


def merge_alike(game: EnumeratedGame) -> EnumeratedGame:
    """Return the game with one information state for those of a player that are `alike`; itself where all differ."""
    info, first_states = game.info.copy(), []
    for player, alike in enumerate(game.alike):
        first, place = np.unique(np.array(alike, np.int32), return_inverse=True)
        own = game.player == player
        info[own] = place[info[own]]
        first_states.append(first.tolist())
    if first_states == [list(range(len(alike))) for alike in game.alike]:
        return game
    legal = [[row[i] for i in own] for row, own in zip(game.legal, first_states, strict=True)]
    key = [[row[i] for i in own] for row, own in zip(game.key, first_states, strict=True)]
    observation = [rows[own] for rows, own in zip(game.observation, first_states, strict=True)]
    return replace(game, info=info, legal=legal, key=key, observation=observation)


class _Walker:
    def __init__(self, game: Any, node_limit: int, observation: str) -> None:
        import pyspiel

        self.game = game
        self.name = display_name(game)
        self.limit = node_limit
        self.players = game.num_players()
        self.player, self.parent, self.prob = array("b"), array("i"), array("d")
        self.info, self.width, self.returns = array("i"), array("b"), array("d")
        self.depth = array("i")
        self.ids: list[dict[str, int]] = [{} for _ in range(self.players)]
        self.legal: list[list[list[int]]] = [[] for _ in range(self.players)]
        self.tensor, self.size = _observer(game, observation)
        self.values = [array("f") for _ in range(self.players)]
        kind = game.get_type()
        hides = kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION
        self.has_tensors = hides and kind.provides_information_state_tensor and game.information_state_tensor_size() > 0
        self.looks: list[dict[bytes, int]] = [{} for _ in range(self.players)]
        self.alike: list[list[int]] = [[] for _ in range(self.players)]
        pays_along = kind.reward_model == pyspiel.GameType.RewardModel.REWARDS
        self.so_far: array[float] | None = array("d") if pays_along else None
        # To visit: a state, the move to make in it first, the node above, the chance of it, a block that is being expanded.
        self.stack: list[tuple[Any, int | list[int] | None, int, float, _Block | None]] = []
        self.begun = time.monotonic()
        self.due = self.begun + _QUIET
        self.no_move = pyspiel.INVALID_ACTION

    def run(self) -> None:
        stack = self.stack
        stack.append((self.game.new_initial_state(), None, -1, 1.0, None))
        while stack:
            state, move, parent, prob, block = stack.pop()
            if move is not None:
                state = _after(state, move)
            node = len(self.player)
            if node % _OFTEN == 0:
                self._tell(node)
            depth = self.depth[parent] + 1 if node else 0
            if node + len(stack) >= self.limit or depth > _DEPTH:
                raise self._too_large(depth)
            self.depth.append(depth)
            self.parent.append(parent)
            self.prob.append(prob)
            if self.so_far is not None:
                self.so_far.extend(state.returns())
            if block is not None:
                self._block(state, node, block)
                continue
            player = state.current_player()
            if player >= 0:
                self._decision(state, node, player)
            elif player == TERMINAL:
                self._add(player, -1, 0)
                self.returns.extend(state.returns())
            elif player == CHANCE:
                self._chance(state, node)
            else:
                self._block(state, node, self._open(state, player))

    def _tell(self, node: int) -> None:
        """Print the progress to standard error: games in Python may take a minute."""
        now = time.monotonic()
        if now < self.due:
            return
        self.due += now - self.begun
        with suppress(OSError, ValueError, AttributeError):  # the stream may be closed
            sys.stderr.write(
                f"compiling the tree of {self.name}: {node:,} nodes after {now - self.begun:.0f} s (at most {self.limit:,})\n"
            )
            sys.stderr.flush()

    def _too_large(self, depth: int) -> EnvError:
        what = f"is more than {_DEPTH} moves deep" if depth > _DEPTH else f"has more than {self.limit} nodes"
        return EnvError(
            f"{self.name} {what}, too much to compile; raise node_limit, use a smaller variant of the game, or tree=off."
        )

    def _add(self, player: int, info: int, width: int) -> None:
        self.player.append(player)
        self.info.append(info)
        self.width.append(width)

    def _decision(self, state: Any, node: int, player: int) -> None:
        actions = state.legal_actions()
        self._add(player, self._information(state, player, actions), 1)
        for action in reversed(actions):
            self.stack.append((state, action, node, 1.0, None))

    def _chance(self, state: Any, node: int) -> None:
        self._add(CHANCE, -1, 0)
        for action, prob in reversed(state.chance_outcomes()):
            self.stack.append((state, action, node, prob, None))

    def _open(self, state: Any, player: int) -> _Block:
        if player != _SIMULTANEOUS:
            raise EnvError(f"{self.name} has a node of kind {player}, which a game tree cannot hold; use tree=off.")
        legal = [state.legal_actions(p) for p in range(self.players)]
        players = [p for p in range(self.players) if legal[p]]
        if not players:
            raise no_way_on(state.get_game(), len(state.history()))
        info = [self._information(state, p, legal[p]) for p in players]
        return _Block(players, [legal[p] for p in players], info, [self.no_move] * self.players)

    def _block(self, state: Any, node: int, block: _Block) -> None:
        depth, players = block.depth, block.players
        self._add(players[depth], block.info[depth], 0 if depth else len(players))
        for action in reversed(block.legal[depth]):
            joint = list(block.joint)
            joint[players[depth]] = action
            if depth + 1 < len(players):
                self.stack.append((state, None, node, 1.0, _Block(players, block.legal, block.info, joint, depth + 1)))
            else:
                self.stack.append((state, joint, node, 1.0, None))

    def _information(self, state: Any, player: int, actions: list[int]) -> int:
        """Return the local id of the player's information state; its tensor is computed once, when it is new."""
        key = state.information_state_string(player)
        ids = self.ids[player]
        known = ids.get(key)
        if known is None:
            known = ids[key] = len(ids)
            self.legal[player].append(actions)
            self.alike[player].append(self._first_alike(state, player, actions, known))
            if self.tensor is not None:
                self.values[player].fromlist(self.tensor(state, player))
                self._check_memory(known)
        elif self.legal[player][known] != actions:
            raise EnvError(
                f"{self.name} gives player {player} different legal actions in one information state ({key!r}): "
                f"{self.legal[player][known]} and {actions}; it cannot be compiled, use tree=off."
            )
        return known

    def _first_alike(self, state: Any, player: int, actions: list[int], known: int) -> int:
        if not self.has_tensors:
            return known
        look = array("d", [*state.information_state_tensor(player), *actions]).tobytes()
        return self.looks[player].setdefault(blake2b(look, digest_size=16).digest(), known)

    def _check_memory(self, known: int) -> None:
        if known % 256 == 0 and 4 * sum(map(len, self.values)) > _OBSERVATION_BYTES:
            raise EnvError(
                f"the observation tensors of {self.name} ({self.size} numbers each) would take more than a gigabyte; "
                "choose another observation, a lower node_limit, or tree=off."
            )

    def result(self) -> EnumeratedGame:
        return EnumeratedGame(
            player=np.array(self.player, np.int8),
            parent=np.array(self.parent, np.int32),
            prob=np.array(self.prob, np.float64),
            info=np.array(self.info, np.int32),
            width=np.array(self.width, np.int8),
            returns=np.array(self.returns, np.float64).reshape(-1, self.players),
            legal=self.legal,
            key=[list(ids) for ids in self.ids],
            observation=self._observations(),
            so_far=None if self.so_far is None else np.array(self.so_far, np.float64).reshape(-1, self.players),
            alike=self.alike,
        )

    def _observations(self) -> list[NDArray[np.float32]]:
        counts = [len(ids) for ids in self.ids]
        if self.tensor is not None:
            return [np.array(v, np.float32).reshape(n, self.size) for v, n in zip(self.values, counts, strict=True)]
        width = max(counts)
        if 4 * width * sum(counts) > _OBSERVATION_BYTES:
            raise EnvError(
                f"{self.name} has {width} information states of one player, too many for one-hot observations; "
                "choose observation='information_state' or 'observation', or tree=off."
            )
        return [np.eye(n, width, dtype=np.float32) for n in counts]


def _after(state: Any, move: int | list[int]) -> Any:
    if isinstance(move, int):
        return state.child(move)
    after = state.clone()
    after.apply_actions(move)
    return after


def _observer(game: Any, observation: str) -> tuple[Any, int]:
    """Return (tensor function or None for one-hot, its size): what `observation` asks for, or the best that the game has."""
    kind = game.get_type()
    offered = {
        "information_state": kind.provides_information_state_tensor and game.information_state_tensor_size() > 0,
        "observation": kind.provides_observation_tensor and game.observation_tensor_size() > 0,
        "one_hot": True,
    }
    if observation != "auto" and not offered.get(observation, False):
        allowed = ", ".join(["auto", *(name for name, provided in offered.items() if provided)])
        raise EnvError(f"{display_name(game)} has no observation {observation!r}; choose one of: {allowed}.")
    chosen = observation if observation != "auto" else next(name for name, provided in offered.items() if provided)
    if chosen == "information_state":
        return lambda state, player: state.information_state_tensor(player), game.information_state_tensor_size()
    if chosen == "observation":
        return lambda state, player: state.observation_tensor(player), game.observation_tensor_size()
    return None, 0
