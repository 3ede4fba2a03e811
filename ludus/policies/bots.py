"""Bots: what plays a game by search or by a script, one decision at a time; by name, and as members of populations.

A bot is no `Policy`: it is asked beside the environments, slot by slot (`ludus.rollout.bot_players`), in training, evaluation and
tournaments alike. In a population `BotPolicy` stands for it. A script that plays flat batches is a `Policy` of the user's own, named in
the same way.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn, Protocol, runtime_checkable

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr

from ludus.core.config import LONGEST, Config
from ludus.core.errors import ConfigError, PolicyError, ScenarioError, UnknownName, one_line
from ludus.core.packages import install_command, is_installed
from ludus.core.parts import Expected, Registry, build_part, own_name_hint, resolve_name, source_of
from ludus.core.types import Array, Enumeration, EnvSpec, PolicyOutput, PolicySpec, Weights
from ludus.core.user_code import describe_user_error
from ludus.policies.agents import (
    AGENTS,
    AgentContext,
    AgentGame,
    ExternalAgent,
    quoted,
    scheme_of,
    split_options,
    unquoted,
)
from ludus.policies.base import entry

# --------------------------------------------------------------------------------------------------------------------
# What plays one seat of one environment by search or by a script, episode after episode.
#
#     Bot        sees what a policy sees: the observation and the legal actions of its player
#     StateBot   sees the whole state of the game, so only where that is no more than its player may know
#
# A bot is a class whose options are its constructor's keywords, named `module:Class`; an instance plays one slot. All
# of its chance comes from the seed of `restart`, so that an episode can be played again.


@runtime_checkable
class Bot(Protocol):
    """A bot that plays by its player's observations. In games of several steps it may remember what it observed since
    `restart`."""

    def restart(self, player: int, seed: int) -> None:
        """Begin an episode in which it plays for `player`. seed: 0 to 2**31 - 1, another one in each episode."""
        ...

    def act(self, observation: Array, mask: NDArray[np.bool_] | None) -> Any:
        """Return an action. observation: of the environment's space; a game's information state as its tensor. mask
        bool[A]: the legal actions, None if all always are."""
        ...


@runtime_checkable
class StateBot(Protocol):
    """A bot that plays by the state of the game: a `pyspiel.State`, or the object of an environment in Python (a copy
    of the Gymnasium or PettingZoo environment, say).

    Where players know less than the state, or their knowledge is not specified, it needs a method `check(game)`, too,
    which raises ScenarioError for a game in which it would use more than it may; game: a `pyspiel.Game`, or the
    `EnvSpec` of others. A bot without that method plays only OpenSpiel's games of perfect information.
    """

    def restart(self, player: int, seed: int) -> None: ...

    def act_on(self, state: Any) -> Any:
        """Return a legal action in `state`, in which its player is to move. It may modify the state."""
        ...


@runtime_checkable
class SupportsMoveStatistics(Protocol):
    """A `StateBot` whose search can be looked into, for inspection. Playing does not use it."""

    def restart(self, player: int, seed: int) -> None: ...

    def move_statistics(self, state: Any) -> Mapping[int, tuple[float, float]]:
        """Return action -> (share of the simulations, mean return of the player who is to move in `state`)."""
        ...


_KINDS: Expected = (Bot, StateBot, ("act", "tabulate", "weights"))
"""What a bot of one's own may be; the last is a `Policy`."""

# --------------------------------------------------------------------------------------------------------------------
# Bots by name, and whether one may play a game.

_OWN: Mapping[str, str] = {}  # those that there are lie in `ludus.contrib`
BOTS: Final = Registry("bot", "ludus.bots", _OWN)
"""By name. Installed distributions add to them by entry points."""
OPENSPIEL = "openspiel/"
_SIMULATIONS = re.compile(r"(mcts|ismcts)-(\d+)")


@dataclass(frozen=True, slots=True)
class BotSpec:
    """kind: a name of `BOTS`, `module:Class`, or `SCHEME:WHAT` of an agent. options: the class's keywords, JSON scalars."""

    kind: str
    options: Mapping[str, Any]

    @property
    def text(self) -> str:
        """Return the text from which `parse_bot` makes an equal spec."""
        kind, options = self.kind, dict(self.options)
        if kind == "registered" and "name" in options:
            kind = str(options.pop("name"))
        if self.external:
            scheme, _, what = kind.partition(":")
            kind = f"{scheme}:{quoted(what)}"
        return ",".join([kind, *(f"{key}={_shown(value)}" for key, value in options.items())])

    @property
    def external(self) -> bool:
        """Return whether it is an agent from elsewhere (`ludus.policies.agents`)."""
        return bool(scheme_of(self.kind))

    @property
    def own(self) -> bool:
        """Return whether it is a custom class, or one of another distribution, which may do anything."""
        return self.kind not in BOTS or bool(source_of(self.kind, BOTS))

    @property
    def name(self) -> str:
        """Return its name among policies: `bot:mcts`, `my.module:Class`."""
        return self.text if ":" in self.kind else f"bot:{self.text}"

    def make(self) -> Bot | StateBot | ExternalAgent:
        """Make a bot for one slot, or an agent for all. Raise UnknownName or ConfigError with the nearest right name,
        PolicyError for a class that is no bot."""
        try:
            if scheme := scheme_of(self.kind):
                part = {"kind": scheme, "what": self.kind.partition(":")[2], **self.options}
                bot = build_part("agent", part, AGENTS)
            else:
                bot = build_part("bot", {"kind": self.kind, **self.options}, BOTS, _KINDS)
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise PolicyError(f"bot {self.text!r} could not be made: {what_raised(error)}.") from error
        if not isinstance(bot, Bot | StateBot | ExternalAgent):
            raise PolicyError(
                f"bot {self.text!r} has no methods restart(player, seed) and act(observation, mask), or act_on(state), and is no Policy "
                "either; see ludus.policies.bots and ludus.policies.base."
            )
        return bot

    def policy_spec(self) -> PolicySpec | None:
        """Return the spec of a class that is a `Policy` (`ludus.policies.base`) and no bot, with the options as its
        config; else None."""
        if self.external:
            return None
        cls = resolve_name("bot", self.kind, BOTS, expected=_KINDS)
        return (
            PolicySpec(self.kind, dict(self.options)) if hasattr(cls, "tabulate") and hasattr(cls, "weights") else None
        )

    def identity(self) -> dict[str, Any]:
        """Return what distinguishes it from others, as JSON values: all options, and for a custom class the SHA-256 of
        its source file."""
        options = dict(self.options)
        if self.policy_spec() is None:
            bot: Any = self.make()
            if dataclasses.is_dataclass(bot):
                options = {f.name: getattr(bot, f.name) for f in dataclasses.fields(bot) if f.init}
        identity: dict[str, Any] = {"kind": self.kind, "options": options}
        if self.external:
            identity |= bot.identity()
        elif self.own:
            source = inspect.getsourcefile(resolve_name("bot", self.kind, BOTS, expected=_KINDS))
            identity["source"] = hashlib.sha256(Path(source).read_bytes()).hexdigest() if source else ""
        return identity


def parse_bot(text: str) -> BotSpec:
    """Return the spec in a text: `mcts`, `mcts-1000` or `mcts,simulations=1000`, `my.module:Class,depth=3`; a
    registered bot of OpenSpiel by its name; an agent, `command:./agent.py,timeout=2`. Raise UnknownName or ConfigError for options that
    are not `key=value`."""
    scheme = scheme_of(text)
    kind, *pairs = split_options(text) if scheme else text.split(",")
    if scheme:
        kind = f"{scheme}:{unquoted(kind[len(scheme) + 1 :])}"
    if kind == "random" and pairs:
        raise ConfigError(f"bot {text!r}: bot:random has no options.")
    options: dict[str, Any] = {}
    if short := _SIMULATIONS.fullmatch(kind):
        kind, options = short[1], {"simulations": int(short[2])}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ConfigError(f"bot {text!r}: {pair!r} was given, key=value was expected, as in mcts,simulations=1000.")
        if key in options:
            raise ConfigError(f"bot {text!r}: {key} was given twice; give it once.")
        options[key] = _scalar(text, value)
    if kind not in BOTS and ":" not in kind:
        registered = registered_bots()
        if kind not in registered:
            hint = own_name_hint("bot")
            if not is_installed("openspiel"):
                hint = f"OpenSpiel registers more; `{install_command('pyspiel')}` brings them. {hint}"
            raise UnknownName("bot", kind, {"random", *BOTS, *registered} - {"registered"}, hint=hint)
        kind, options = "registered", {"name": kind, **options}
    return BotSpec(kind, options)


def registered_bots() -> list[str]:
    """Return the names of OpenSpiel's bots; none where it is not installed."""
    if not is_installed("openspiel"):
        return []
    import pyspiel

    names: list[str] = pyspiel.registered_bots()
    return names


def _scalar(text: str, value: str) -> Any:
    try:
        scalar = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        scalar = value
    if scalar is not None and not isinstance(scalar, str | bool | int | float):
        raise ConfigError(
            f"bot {text!r}: {value!r} was given for an option; a number, a word, true or false was expected."
        )
    return scalar


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(value)
    )


def what_raised(error: BaseException) -> str:
    """Return a description of a bot's error: with class, method, file and line if it is the user's code."""
    return describe_user_error(error) or f"{type(error).__name__}: {one_line(error)}"


def require_fit(name: str, bot: Bot | StateBot | ExternalAgent, spec: EnvSpec, *, wrapped: bool = False) -> None:
    """Raise ScenarioError, with the bot's name, for a game that it cannot play, or in which it would see more than its
    player may. An agent is begun, and closed.

    wrapped: whether wrappers modify the game for its players, so that its states are not what is played.
    """
    if isinstance(bot, ExternalAgent):
        try:
            bot.begin(AgentGame.of(spec), AgentContext(name.strip("'\"")))
        finally:
            bot.close()
    if not isinstance(bot, StateBot) and not (isinstance(bot, ExternalAgent) and bot.wants_states):
        return
    if wrapped:
        raise ScenarioError(
            f"{name} plays by the states of the game, and {spec.id} is played in wrappers, which change it."
        )
    check, game = getattr(bot, "check", None), spec if not spec.id.startswith(OPENSPIEL) else _openspiel(spec)
    if check is not None:
        try:
            check(game)
        except ScenarioError as error:
            raise ScenarioError(f"{name} cannot play {spec.id}: {error}") from error
        except Exception as error:
            raise ScenarioError(f"{name} cannot say whether it can play {spec.id}: {what_raised(error)}.") from error
        return
    if isinstance(game, EnvSpec) or not _is_open(game):
        why = (
            "does not say that its players know it"
            if isinstance(game, EnvSpec)
            else "hides parts of that from its players"
        )
        raise ScenarioError(
            f"{name} plays by the whole state, and {spec.id} {why}. Let it play by observations (act), or give it a method check(game) "
            "that says in which games it uses no more than its player may know."
        )


def _openspiel(spec: EnvSpec) -> Any:
    from ludus.envs.openspiel.games import load_game  # not everybody who plays has OpenSpiel's games

    return load_game(spec.id)


def _is_open(game: Any) -> bool:
    """Whether players know the state of an OpenSpiel game."""
    import pyspiel

    return bool(game.get_type().information == pyspiel.GameType.Information.PERFECT_INFORMATION)


DEADLINE = 60.0  # seconds


class BotSettings(Config):
    """Where bots play.

    Attributes:
        processes: Bot processes per worker, started if there are bots; 0: in the worker itself, where they cannot be
            stopped.
        restarts: How often each of these processes is replaced when it dies; by default as `runtime.restarts` says. Never
            where the decisions of its open episodes take more than 32 MiB.
        deadline: Seconds without an answer for a move after which a bot's process is killed; to be made it has 10 at
            least. (`runtime.deadline` is of a worker of the run, `env.deadline` of a step of an environment.)
    """

    processes: int = Field(1, ge=0)
    restarts: int | None = Field(None, ge=0)
    deadline: float = Field(DEADLINE, gt=0, le=LONGEST)
    _folder: str = PrivateAttr("")

    @property
    def folder(self) -> str:
        """Return the folder for the logs of agents; "" where there is none."""
        return self._folder

    def in_folder(self, folder: str) -> BotSettings:
        """Return the same with a folder for the logs of agents, which no scenario names."""
        settings = self.model_copy()
        settings._folder = folder
        return settings


# --------------------------------------------------------------------------------------------------------------------
# A bot among policies.


class BotPolicy:
    """Kind `bot`: stands for a bot in a population, in files and on the way to workers, and has no weights. Config:
    `bot`, its kind, and `options`. Workers call the bot itself."""

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    noise_width = 2
    memory_shape: tuple[int, ...] | None = None
    takes_ids = False

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        """Raises PolicyError for a config that names no bot."""
        del weights  # it has none
        kind, options = entry(spec, "bot"), spec.config.get("options", {})
        if not isinstance(kind, str) or not isinstance(options, Mapping):
            raise PolicyError(
                f"policy spec 'bot': bot is {kind!r} and options {options!r}; expected a name and a mapping."
            )
        self.spec = spec
        self.bot = BotSpec(kind, options)

    @staticmethod
    def of(bot: BotSpec) -> BotPolicy:
        """Return the policy that stands for this bot."""
        return BotPolicy(PolicySpec("bot", {"bot": bot.kind, "options": dict(bot.options)}), {})

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Raise PolicyError."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PolicyError(
            f"bot {self.bot.text!r} is asked beside the environment that it plays in, and cannot be given observations alone. Play it by "
            "matches, a tournament, a recording or a run."
        )

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return None: a bot's play can be observed, not computed."""
        return None

    def weights(self) -> Weights:
        return {}
