"""Bots by name, and whether one may play a game."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ludus.bots.base import Bot, StateBot
from ludus.errors import ConfigError, PolicyError, ScenarioError, UnknownName
from ludus.parts import build_part
from ludus.types import EnvSpec

BOTS = {
    "ismcts": "ludus.bots.openspiel:ISMCTS",
    "mcts": "ludus.bots.openspiel:MCTS",
    "registered": "ludus.bots.openspiel:Registered",
    "uniform_restricted_actions": "ludus.bots.openspiel:RestrictedActions",
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
                f"bot {self.kind!r} has no methods restart(player, seed) and act(observation, mask), or act_on(state); see ludus.bots.base."
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
        import pyspiel  # most bots are none of these

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


def sees_states(bot: Bot | StateBot) -> bool:
    """Whether it plays by the state of the game, not by observations."""
    return isinstance(bot, StateBot)


def require_fit(name: str, bot: Bot | StateBot, spec: EnvSpec, *, wrapped: bool = False) -> None:
    """Raises ScenarioError, with the bot's name, for a game that it cannot play, or in which it would see more than its player may.

    wrapped: whether wrappers stand between the game and its players, so that its states are not what is played.
    """
    if not sees_states(bot):
        return
    if not spec.id.startswith(_OPENSPIEL) or wrapped:
        what = f"{spec.id} in wrappers" if wrapped else spec.id
        raise ScenarioError(f"{name} plays by the states of OpenSpiel's games, which {what} does not have.")
    from ludus.envs.openspiel_games import load_game

    game = load_game(spec.id)
    check = getattr(bot, "check", None)
    if check is not None:
        try:
            check(game)
        except ScenarioError as error:
            raise ScenarioError(f"{name} cannot play {spec.id}: {error}") from error
        return
    import pyspiel

    if game.get_type().information != pyspiel.GameType.Information.PERFECT_INFORMATION:
        raise ScenarioError(
            f"{name} plays by the whole state, and {spec.id} hides parts of that from its players. Let it play by observations (act), or "
            "give it a method check(game) that says in which games it uses no more than its player may know."
        )


def copy_of(bot: Bot | StateBot) -> Bot | StateBot:
    """Another bot of the same options, from one that has not played."""
    return copy.deepcopy(bot)
