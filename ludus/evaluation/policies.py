"""Policies by what a user writes: one way to name them, for tournaments and for opponents.

RUN                       the run's last meta-strategies, a policy drawn per episode
RUN:newest                the newest policy of each population
RUN:POLICY                a policy by name, or RUN:POPULATION/POLICY
FILE.safetensors          a policy's file
random, bot:random        uniform over the legal actions
bot:NAME, module:Class    a bot, which is none of these: what is asked for is passed on
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ludus.core.errors import ConfigError, LudusError, PolicyError, ScenarioError, article, nearest
from ludus.core.types import EnvSpec, PolicyRef
from ludus.envs.options import Environment
from ludus.envs.spaces import Choices
from ludus.policies.base import Policy
from ludus.policies.file import load_policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.population.base import PolicyRecord
from ludus.storage.database import FILE
from ludus.storage.stored_run import META, StoredRun

# --------------------------------------------------------------------------------------------------------------------
# What makes two games the same.


def game_description(settings: Environment, other: Environment) -> str:
    """The id; with all that matters, where another game has the same id."""
    return settings.id if name_of(settings) != name_of(other) else f"{settings.id} {identity(settings)}"


def name_of(settings: Environment) -> str:
    """The id; of OpenSpiel's games with all parameters written out."""
    if not settings.id.startswith("openspiel/"):
        return settings.id
    from ludus.envs.openspiel.games import load_game

    game = load_game(settings.id)
    parameters = ",".join(f"{key}={value}" for key, value in sorted(game.get_parameters().items()))
    return f"openspiel/{game.get_type().short_name}({parameters})"


def identity(settings: Environment) -> str:
    """What makes two games the same: id, options and wrappers, as JSON."""
    parts = {"id": name_of(settings), "options": settings.options, "wrappers": list(settings.wrappers)}
    return json.dumps({key: value for key, value in parts.items() if value}, sort_keys=True, default=str)


NEWEST = "newest"
_BOT = "bot:"
_RANDOM = "random"
_FILE = ".safetensors"
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(,.*)?")

FindRun = Callable[[str], Path]
"""The directory of a run by its name or path; raises RunError."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text that was taken apart. run: of a run's policy (policy: its name, or "" for what the run has), or that a file lies in."""

    text: str
    run: StoredRun | None = None
    policy: str = ""
    file: Path | None = None
    bot: str = ""
    random: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A policy that is drawn with probability `prob`. name: in its run, or of its file. ref: in its run, if it is from one."""

    name: str
    policy: Policy
    mode: str = "explore"
    prob: float = 1.0
    ref: PolicyRef | None = None


NamedSeats: TypeAlias = tuple[tuple[Drawn, ...], ...]
"""[P]: who may play each player; nobody where what was named cannot."""


def take_apart(
    text: str,
    find_run: FindRun,
    open_run: Callable[[Path], StoredRun],
    *,
    what: str = "entrant",
    forms: str = "RUN, RUN:POLICY, FILE.safetensors, bot:NAME or module:Class",
) -> Wanted:
    """What a text names. what, forms: in the error. Raises ConfigError for a text that names nothing, RunError for a run that cannot be
    read."""
    if text in (_RANDOM, _BOT + _RANDOM):
        return Wanted(text, random=True)
    if text.startswith(_BOT):
        return Wanted(text, bot=text.removeprefix(_BOT))
    if text.endswith(_FILE):
        file = Path(text)
        owner = file.resolve().parent.parent.parent
        known = (owner / FILE).is_file() and file.resolve().parent.parent.name == "policies"
        return Wanted(text, run=open_run(owner) if known else None, file=file)
    name, _, policy = text.partition(":")
    try:
        folder = find_run(name)
    except LudusError as error:
        if _CLASS.fullmatch(text):
            return Wanted(text, bot=text)
        raise ConfigError(f"{text!r} is no {what}: {error} {article(what).capitalize()} is {forms}.") from error
    return Wanted(text, run=open_run(folder), policy=policy or META)


def policies_of(wanted: Wanted, spec: EnvSpec) -> NamedSeats:
    """Who plays each player of a game; it must be what the run plays. Raises ConfigError for a name that the run does not have,
    ScenarioError for another number of players, PolicyError for a file that is unreadable or fits nobody."""
    if wanted.random:
        policies = [build_policy(random_spec(spec.agents_of(p)[0].action), {}) for p in range(spec.num_players)]
        return tuple((Drawn(_RANDOM, policy),) for policy in policies)
    if wanted.file is not None:
        return _of_file(wanted, wanted.file, spec)
    assert wanted.run is not None
    return _of_run(wanted, wanted.run, spec)


def _of_file(wanted: Wanted, file: Path, spec: EnvSpec) -> NamedSeats:
    policy, mode, plays = load_policy(file), "explore", list(range(spec.num_players))
    record = _recorded(wanted.run, file)
    if wanted.run is not None and record is not None:
        mode = record.ref.mode
        plays = [p for p, population in enumerate(wanted.run.population) if population == record.ref.population]
    drawn = Drawn(file.stem, policy, mode, ref=None if record is None else record.ref)
    why = [
        misfit(policy, spec, p, mode) if p in plays else "its run had it play another player."
        for p in range(spec.num_players)
    ]
    if all(why):
        raise PolicyError(f"policy file {wanted.text!r} does not fit {spec.id}: {why[0]}")
    return tuple(() if wrong else (drawn,) for wrong in why)


def _of_run(wanted: Wanted, run: StoredRun, spec: EnvSpec) -> NamedSeats:
    if len(run.population) != spec.num_players:
        raise ScenarioError(f"{wanted.text!r} has {len(run.population)} players; {spec.id} has {spec.num_players}.")
    return tuple(
        tuple(Drawn(ref.policy, run.policy(ref), ref.mode, prob, ref) for ref, prob in drawn)
        for drawn in _choose(wanted, run)
    )


_Shares: TypeAlias = Sequence[tuple[PolicyRef, float]]


def _choose(wanted: Wanted, run: StoredRun) -> list[_Shares]:
    """Per player, who may play and how often."""
    if wanted.policy == META:
        return [_meta(wanted, run, p) for p in range(len(run.population))]
    if wanted.policy == NEWEST:
        return [[(run.members[population][-1].ref, 1.0)] for population in run.population]
    population, slash, name = wanted.policy.rpartition("/")
    found = [ref for ref in run.records if ref.policy == name and (not slash or str(ref.population) == population)]
    if not found:
        known = [META, NEWEST, *(ref.policy for ref in run.records)]
        raise ConfigError(f"{wanted.text!r}: the run has no policy {wanted.policy!r}{nearest(wanted.policy, known)}")
    if len(found) > 1:
        raise ConfigError(
            f"{wanted.text!r}: {len(found)} populations have a policy {name!r}; say which, such as {found[0].population}/{name}."
        )
    return [[(found[0], 1.0)] if found[0].population == mine else [] for mine in run.population]


def _meta(wanted: Wanted, run: StoredRun, player: int) -> _Shares:
    strategies = run.solution.strategies
    if player >= len(strategies) or not (strategies[player] > 0).any():
        raise ConfigError(
            f"{wanted.text!r}: the run's last generation has no meta-strategy of player {player}; name a policy, or RUN:{NEWEST}."
        )
    members = run.members[run.population[player]]
    return [(members[int(i)].ref, float(strategies[player][i])) for i in np.flatnonzero(strategies[player] > 0)]


def _recorded(run: StoredRun | None, file: Path) -> PolicyRecord | None:
    """What a run knows of a file in its folder."""
    if run is None:
        return None
    place = (file.parent.name, file.stem)
    return next((record for ref, record in run.records.items() if (str(ref.population), ref.policy) == place), None)


def misfit(policy: Policy, spec: EnvSpec, player: int, mode: str) -> str:
    """Why a policy cannot play for a player: it is asked once. Empty if it can."""
    agent = spec.agents_of(player)[0]
    choices = Choices.of(agent.action)
    try:
        if spec.enumeration is not None and policy.tabulate(spec.enumeration, player, mode=mode) is not None:
            return ""
        if policy.takes_ids:
            raise PolicyError("it plays by ids of a game that is compiled (tree=on), and this one is not.")
        observation = np.zeros((1, *(agent.observation.shape or ())), agent.observation.dtype)
        if spec.enumeration is not None:
            observation = spec.enumeration.observation[:1]
        mask = None if choices is None else np.ones((1, choices.width), np.bool_)
        memory = None if policy.memory_shape is None else np.zeros((1, *policy.memory_shape), np.float32)
        act = policy.act(observation, mask, memory, np.zeros((1, policy.noise_width), np.float32), mode=mode)
        if act.action.shape[1:] != (agent.action.shape or ()):
            raise PolicyError(f"it answers with actions of shape {act.action.shape[1:]}, {agent.action} is expected.")
    except Exception as error:  # noqa: BLE001  whatever is wrong, it cannot play there
        return " ".join(str(error).split())
    return ""
