"""Bots: what plays a game by search or by a script, in evaluation; by name, and in a vector of environments."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyspiel
import yaml
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, EnvError, PolicyError, ScenarioError, UnknownName
from ludus.core.parts import build_part
from ludus.core.types import Array, EnvSpec
from ludus.envs.openspiel.games import load_game
from ludus.envs.openspiel.states import Luck, OpenSpielGame
from ludus.envs.spaces import Choices

# --------------------------------------------------------------------------------------------------------------------
# What plays one seat of one environment by search or by a script, episode after episode. Bot sees what a policy
# sees: the observation and the legal actions of its player StateBot sees the whole state of an OpenSpiel game, so
# only where that is no more than its player may know A bot is a class whose options are its constructor's keywords,
# named `module:Class`; an instance plays one slot. All of its chance comes from the seed of `restart`, so that an
# episode can be played again.


@runtime_checkable
class Bot(Protocol):
    """Plays by what its player observes. In games of several steps it may remember what it saw since `restart`."""

    def restart(self, player: int, seed: int) -> None:
        """An episode begins, in which it plays for `player`. seed: 0 to 2**31 - 1, another one in each episode."""
        ...

    def act(self, observation: Array, mask: NDArray[np.bool_] | None) -> Any:
        """An action. observation: of the environment's space; a game's information state as its tensor. mask bool[A]: the legal actions,
        None if all always are."""
        ...


@runtime_checkable
class StateBot(Protocol):
    """Plays by the state of an OpenSpiel game. Where players know less than the state, it needs a method `check(game)` too, which raises
    ScenarioError for a game in which it would use more than it may; one without that method plays games of perfect information only."""

    def restart(self, player: int, seed: int) -> None:
        """As `Bot.restart`."""
        ...

    def act_on(self, state: Any) -> int:
        """A legal action in `state`, a `pyspiel.State` in which its player is to move. The state must not be changed."""
        ...


# --------------------------------------------------------------------------------------------------------------------
# Bots by name, and whether one may play a game.

BOTS = {
    "ismcts": "ludus.evaluation.openspiel_bots:ISMCTS",
    "mcts": "ludus.evaluation.openspiel_bots:MCTS",
    "registered": "ludus.evaluation.openspiel_bots:Registered",
    "uniform_restricted_actions": "ludus.evaluation.openspiel_bots:RestrictedActions",
}
_OPENSPIEL = "openspiel/"


@dataclass(frozen=True, slots=True)
class BotSpec:
    """kind: a name of `BOTS`, or `module:Class`. options: the class's keywords, JSON scalars."""

    kind: str
    options: Mapping[str, Any]

    def make(self) -> Bot | StateBot:
        """A bot for one slot. Raises UnknownName or ConfigError with the nearest right name, PolicyError for a class that is no bot."""
        try:
            bot = build_part("bot", {"kind": self.kind, **self.options}, BOTS)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise PolicyError(f"bot {self.kind!r} could not be made: {type(error).__name__}: {error}") from error
        if not isinstance(bot, Bot | StateBot):
            raise PolicyError(
                f"bot {self.kind!r} has no methods restart(player, seed) and act(observation, mask), or act_on(state); see "
                "ludus.evaluation.bots."
            )
        return bot

    def identity(self) -> dict[str, Any]:
        """What tells it from others, as JSON values: all options, and of a class of the user's own the SHA-256 of its source file."""
        bot: Any = self.make()
        options = dict(self.options)
        if dataclasses.is_dataclass(bot):
            options = {f.name: getattr(bot, f.name) for f in dataclasses.fields(bot) if f.init}
        found: dict[str, Any] = {"kind": self.kind, "options": options}
        if self.kind not in BOTS:
            source = inspect.getsourcefile(type(bot))
            found["source"] = hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else ""
        return found


def parse_bot(text: str) -> BotSpec:
    """`mcts`, `mcts,simulations=1000`, `my.module:Class,depth=3`; a registered bot of OpenSpiel by its own name. Raises UnknownName or
    ConfigError for options that are not `key=value`."""
    kind, *pairs = text.split(",")
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"bot {text!r}: {pair!r} was given, key=value was expected, as in mcts,simulations=1000.")
        options[key] = _scalar(text, value)
    if kind not in BOTS and ":" not in kind:
        registered = pyspiel.registered_bots()
        if kind not in registered:
            raise UnknownName(
                "bot",
                kind,
                {"random", *BOTS, *registered} - {"registered"},
                hint="A bot of your own is named module:Class",
            )
        kind, options = "registered", {**options, "name": kind}
    return BotSpec(kind, options)


def _scalar(text: str, value: str) -> Any:
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError:
        found = value
    if isinstance(found, list | dict):
        raise ConfigError(
            f"bot {text!r}: {value!r} was given for an option; a number, a word, true or false was expected."
        )
    return found


def require_fit(name: str, bot: Bot | StateBot, spec: EnvSpec, *, wrapped: bool = False) -> None:
    """Raises ScenarioError, with the bot's name, for a game that it cannot play, or in which it would see more than its player may.

    wrapped: whether wrappers stand between the game and its players, so that its states are not what is played.
    """
    if not isinstance(bot, StateBot):
        return
    if not spec.id.startswith(_OPENSPIEL) or wrapped:
        what = f"{spec.id} in wrappers" if wrapped else spec.id
        raise ScenarioError(f"{name} plays by the states of OpenSpiel's games, which {what} does not have.")
    game = load_game(spec.id)
    check = getattr(bot, "check", None)
    if check is not None:
        try:
            check(game)
        except ScenarioError as error:
            raise ScenarioError(f"{name} cannot play {spec.id}: {error}") from error
        return
    if game.get_type().information != pyspiel.GameType.Information.PERFECT_INFORMATION:
        raise ScenarioError(
            f"{name} plays by the whole state, and {spec.id} hides parts of that from its players. Let it play by observations (act), or "
            "give it a method check(game) that says in which games it uses no more than its player may know."
        )


# --------------------------------------------------------------------------------------------------------------------
# The bots of a vector of environments: one instance for each slot, what it answers checked.

Tell = Callable[[int], None]
"""Called with the number of a bot before it is asked, and with -1 after."""


@dataclass(frozen=True, slots=True)
class NamedBot:
    """A bot by the name that a user gave it."""

    name: str
    spec: BotSpec


class BotPool:
    """Bots by number. Each slot of each player has an instance of its own of the bot that plays there."""

    def __init__(self, spec: EnvSpec, bots: Sequence[NamedBot], tell: Tell | None = None) -> None:
        """tell: hears who is about to be made or asked, so that somebody can watch how long it takes."""
        self._spec, self._bots = spec, tuple(bots)
        self._tell = tell or (lambda _: None)
        self._fresh = [self._made(number) for number in range(len(bots))]
        self._at: dict[tuple[int, int, int], Bot | StateBot] = {}
        self.by_state = [isinstance(bot, StateBot) for bot in self._fresh]
        self._actions = [spec.agents_of(p)[0].action for p in range(spec.num_players)]
        self._choices = [Choices.of(space) for space in self._actions]

    def _made(self, bot: int) -> Bot | StateBot:
        self._tell(bot)
        try:
            return self._bots[bot].spec.make()
        finally:
            self._tell(-1)

    def restart(self, bot: int, player: int, slot: int, seed: int) -> None:
        """An episode begins in this slot, which this bot plays. Raises PolicyError if the bot raises."""
        key = bot, player, slot

        def begin() -> None:
            if key not in self._at:
                self._at[key] = copy.deepcopy(self._fresh[bot])
            self._at[key].restart(player, seed)

        self._ask(bot, player, begin)

    def act(
        self, bot: int, player: int, slot: int, *, observation: Array, mask: NDArray[np.bool_] | None, state: Any = None
    ) -> Array:
        """Its action in this slot. Raises PolicyError, with its name, if it raises or answers with an illegal action."""
        found = self._at[bot, player, slot]
        if isinstance(found, StateBot):
            by_state, legal = found, state.legal_actions(player)
            answer = self._ask(bot, player, lambda: by_state.act_on(state))
        else:
            by_sight = found
            answer = self._ask(bot, player, lambda: by_sight.act(observation, mask))
            choices = self._choices[player]
            values = None if mask is None or choices is None else choices.values(mask)
            if values is not None and not isinstance(self._actions[player], Discrete):
                return self._checked_vector(bot, player, answer, values)
            legal = None if values is None else values[0]
        return self._checked(bot, player, answer, legal)

    def _ask(self, bot: int, player: int, question: Callable[[], Any]) -> Any:
        self._tell(bot)
        try:
            return question()
        except (Exception, SystemExit) as error:
            raise PolicyError(
                f"bot {self._bots[bot].name!r} raised as player {player}: {type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        finally:
            self._tell(-1)

    def _checked_vector(self, bot: int, player: int, answer: Any, values: list[list[int]]) -> Array:
        """values: the legal ones of each number."""
        action = self._checked(bot, player, answer, None)
        if not all(number in legal for number, legal in zip(action.ravel().tolist(), values, strict=True)):
            raise PolicyError(
                f"bot {self._bots[bot].name!r} answered {answer!r} as player {player}; legal are {values}."
            )
        return action

    def _checked(self, bot: int, player: int, answer: Any, legal: list[int] | None) -> Array:
        space = self._actions[player]
        wrong = f"bot {self._bots[bot].name!r} answered {answer!r} as player {player}"
        try:
            action = np.asarray(answer)
        except ValueError as error:
            raise PolicyError(f"{wrong}; an action of {space} was expected.") from error
        if isinstance(space, Discrete):
            if action.shape != () or action.dtype.kind not in "iu":
                raise PolicyError(f"{wrong}; a whole number was expected.")
            known = range(int(space.start), int(space.start + space.n)) if legal is None else legal
            if int(action) not in known:
                raise PolicyError(f"{wrong}; legal are {list(known)}.")
            return action
        if action.dtype.kind not in "iuf" or not space.contains(action.astype(space.dtype)):
            raise PolicyError(f"{wrong}; an action of {space} was expected.")
        return action.astype(space.dtype)


# --------------------------------------------------------------------------------------------------------------------
# The states of OpenSpiel games that a vector of environments plays, for bots that need them. Kept beside the
# vector, whatever it is (compiled trees have none): the same seeds and moves lead to the same states.

_NONE = -1  # the move of a player who has none in a simultaneous node


class BotStates:
    """The first episode of each environment, move by move; only of environments that are asked for."""

    def __init__(self, spec: EnvSpec) -> None:
        self._game = OpenSpielGame(load_game(spec.id))
        self._states: dict[int, Any] = {}

    def reset(self, environments: Sequence[int], seeds: NDArray[np.uint64]) -> None:
        """Begin the first episode of these environments. seeds: uint64[E], of all."""
        self._states = {}
        for e in environments:
            luck = Luck(int(seeds[e]))
            state = self._game.new_state(luck)
            luck.play(state)
            self._states[e] = state, luck

    def __getitem__(self, environment: int) -> Any:
        """The present `pyspiel.State`."""
        return self._states[environment][0]

    def step(self, due: Sequence[Any], actions: Sequence[Array]) -> None:
        """Make the moves of the players that were due. Raises EnvError if they do not fit, so that the vector plays another game."""
        moves: dict[int, dict[int, int]] = {}
        for player, (rows, chosen) in enumerate(zip(due, actions, strict=True)):
            for environment, action in zip(rows.slot.tolist(), chosen.tolist(), strict=True):
                if environment in self._states:
                    moves.setdefault(environment, {})[player] = action
        for environment, made in moves.items():
            state, luck = self._states[environment]
            try:
                if state.is_simultaneous_node():
                    state.apply_actions([made.get(p, _NONE) for p in range(self._game.players)])
                else:
                    state.apply_action_with_legality_check(made[state.current_player()])
            except (pyspiel.SpielError, KeyError) as error:
                raise EnvError(
                    f"environment {environment} is not in the state that its moves lead to: {error}."
                ) from error
            luck.play(state)
