"""Who takes part in a tournament: policies of runs, policy files, bots, by what a user writes.

RUN                       the run's last meta-strategies, a policy drawn per episode
RUN:newest                the newest policy of each population
RUN:POLICY                a policy by name, or RUN:POPULATION/POLICY
FILE.safetensors          a policy's file
bot:random, bot:mcts,simulations=100, bot:NAME,key=value…
module:Class,key=value…   a bot of the user's own (see `ludus.bots.base`)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ludus.bots.cast import Named
from ludus.bots.registry import parse_bot, require_fit
from ludus.envs.base import VectorEnv
from ludus.errors import ConfigError, LudusError, PolicyError, RunError, ScenarioError, nearest
from ludus.evaluation.stored import META, StoredRun
from ludus.evaluation.tournament.arena import Player
from ludus.evaluation.tournament.exam import examine
from ludus.evaluation.tournament.field import Entrant, Field, Seat, digest_of, identity, sha256, told
from ludus.observe.schema import FILE
from ludus.policies.base import Policy
from ludus.policies.file import load_policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.population.base import PolicyRecord
from ludus.scenario import Environment
from ludus.types import EnvSpec, PolicyRef

DEADLINE = 60.0  # seconds
NEWEST = "newest"
_BOT = "bot:"
_RANDOM = "random"
_FILE = ".safetensors"
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(,.*)?")

FindRun = Callable[[str], Path]
"""The directory of a run by its name or path; raises RunError."""


_Drawn: TypeAlias = list[tuple[PolicyRef, float]]


@dataclass(frozen=True, slots=True)
class _Given:
    """A text that was taken apart. run: of a run's policy (policy: its name, or "" for what the run has), or that a file lies in."""

    text: str
    run: StoredRun | None = None
    policy: str = ""
    file: Path | None = None
    bot: str = ""


def run_at(path: str) -> Path:
    """The directory of a run, by its path. Raises RunError if it is none."""
    if not (Path(path) / FILE).is_file():
        raise RunError(f"{path!r} is not a run: it has no {FILE}.")
    return Path(path)


def read_field(
    texts: Sequence[str], *, env: Environment | None, find_run: FindRun, deadline: float = DEADLINE
) -> Field:
    """The entrants that these texts name. env: the game, for entrants that belong to no run. deadline: seconds that a bot may take to be
    made (10 at least).

    Raises ConfigError for a text that names nothing, or that comes twice, and for entrants of different games; whatever reading runs and
    files raises; ScenarioError for a bot that cannot play the game; PolicyError for one that cannot be made.
    """
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice:
        raise ConfigError(f"{twice[0]!r} was given twice; give each entrant once.")
    open_run = lru_cache(maxsize=None)(StoredRun)
    given = [_take_apart(text, find_run, open_run) for text in texts]
    settings = _common_game(given, env)
    made = settings.make(num_envs=1)
    try:
        reader = _Reader(made, settings, deadline)
        reader.examine(given)
        entrants = tuple(reader.entrant(one) for one in given)
    finally:
        made.close()
    return Field(settings, made.spec, entrants)


def _take_apart(text: str, find_run: FindRun, open_run: Callable[[Path], StoredRun]) -> _Given:
    if text.startswith(_BOT):
        return _Given(text, bot=text.removeprefix(_BOT))
    if text.endswith(_FILE):
        file = Path(text)
        owner = file.resolve().parent.parent.parent
        known = (owner / FILE).is_file() and file.resolve().parent.parent.name == "policies"
        return _Given(text, run=open_run(owner) if known else None, file=file)
    name, _, policy = text.partition(":")
    try:
        folder = find_run(name)
    except LudusError as error:
        if _CLASS.fullmatch(text):
            return _Given(text, bot=text)
        raise ConfigError(
            f"{text!r} is no entrant: {error} An entrant is RUN, RUN:POLICY, FILE.safetensors, bot:NAME or module:Class."
        ) from error
    return _Given(text, run=open_run(folder), policy=policy or META)


def _common_game(given: Sequence[_Given], env: Environment | None) -> Environment:
    """A run's, where there is one: it says more than an id."""
    found = [(repr(one.text), one.run.scenario.env) for one in given if one.run is not None]
    found += [("--env", env)] if env is not None else []
    if not found:
        raise ConfigError(
            "nobody given belongs to a run, so the game is not known; say which with --env, such as --env openspiel/connect_four."
        )
    (first, settings), *others = found
    for name, other in others:
        if identity(other) != identity(settings):
            raise ConfigError(
                f"a tournament is of one game: {first} plays {told(settings, other)}, and {name} plays {told(other, settings)}."
            )
    return settings


class _Reader:
    """Makes entrants of a game. env: one environment of it."""

    def __init__(self, env: VectorEnv, settings: Environment, deadline: float) -> None:
        self._spec, self._settings, self._deadline = env.spec, settings, deadline
        self._examined: dict[str, str] = {}
        self._digests: dict[tuple[Any, ...], str] = {}

    def examine(self, given: Sequence[_Given]) -> None:
        """Make the bots that are of the user's own, elsewhere."""
        own = [Named(one.text, parse_bot(one.bot)) for one in given if ":" in one.bot.partition(",")[0]]
        wrapped = bool(self._settings.wrappers)
        self._examined = examine(own, self._spec, wrapped=wrapped, deadline=self._deadline)

    def entrant(self, given: _Given) -> Entrant:
        if given.bot:
            return self._bot(given)
        if given.file is not None:
            return self._file(given, given.file)
        assert given.run is not None
        return self._of_run(given, given.run)

    def _bot(self, given: _Given) -> Entrant:
        name, options, _ = given.bot.partition(",")
        if name == _RANDOM and options:
            raise ConfigError(f"{given.text!r}: bot:random has no options.")
        if name == _RANDOM:
            return self._random(given.text)
        spec = parse_bot(given.bot)
        found = self._examined.get(given.text)
        if found is None:
            require_fit(f"{given.text!r}", spec.make(), self._spec, wrapped=bool(self._settings.wrappers))
            found = json.dumps(spec.identity(), sort_keys=True)
        seat = Seat((Player(given.text, bot=Named(given.text, spec)),), (1.0,))
        return Entrant(given.text, (seat,) * self._spec.num_players, sha256(found.encode()), found)

    def _random(self, name: str) -> Entrant:
        seats = []
        for p in range(self._spec.num_players):
            policy = build_policy(random_spec(self._spec.agents_of(p)[0].action), {})
            seats.append(Seat((Player(name, policy),), (1.0,)))
        return Entrant(name, tuple(seats), sha256(b"random"), "uniform over the legal actions")

    def _file(self, given: _Given, file: Path) -> Entrant:
        policy, mode, plays = load_policy(file), "explore", list(range(self._spec.num_players))
        record = _recorded(given.run, file)
        if given.run is not None and record is not None:
            mode = record.ref.mode
            plays = [p for p, population in enumerate(given.run.population) if population == record.ref.population]
        why = []
        seats: list[Seat | None] = []
        for p in range(self._spec.num_players):
            wrong = _misfit(policy, self._spec, p, mode) if p in plays else "its run had it play another player."
            why.append(wrong)
            seats.append(None if wrong else Seat((Player(given.text, policy, mode),), (1.0,)))
        if not any(seats):
            raise PolicyError(f"policy file {given.text!r} does not fit {self._spec.id}: {why[0]}")
        digest = sha256(f"{self._digest(policy, (given.text,))} {mode}".encode())
        return Entrant(given.text, tuple(seats), digest, f"{policy.spec.kind}, {mode}")

    def _of_run(self, given: _Given, run: StoredRun) -> Entrant:
        if len(run.population) != self._spec.num_players:
            raise ScenarioError(
                f"{given.text!r} has {len(run.population)} players; {self._spec.id} has {self._spec.num_players}."
            )
        chosen = self._choose(given, run)
        seats: list[Seat | None] = []
        parts: list[Any] = []
        for drawn in chosen:
            if drawn is None:
                seats.append(None)
                parts.append(None)
                continue
            players = tuple(Player(f"{given.text} {ref.policy}", run.policy(ref), ref.mode) for ref, _ in drawn)
            seats.append(Seat(players, tuple(prob for _, prob in drawn)))
            parts.append([[self._digest(run.policy(ref), (run.folder, ref)), ref.mode, prob] for ref, prob in drawn])
        what = f"{given.policy} of {run.folder.name} after generation {run.generation}"
        return Entrant(given.text, tuple(seats), sha256(json.dumps(parts).encode()), what)

    def _choose(self, given: _Given, run: StoredRun) -> list[_Drawn | None]:
        """Per player, who may play and how often; None where this entrant cannot."""
        if given.policy == META:
            return [self._meta(given, run, p) for p in range(len(run.population))]
        if given.policy == NEWEST:
            return [[(run.members[population][-1].ref, 1.0)] for population in run.population]
        population, slash, name = given.policy.rpartition("/")
        found = [ref for ref in run.records if ref.policy == name and (not slash or str(ref.population) == population)]
        if not found:
            known = [META, NEWEST, *(ref.policy for ref in run.records)]
            raise ConfigError(f"{given.text!r}: the run has no policy {given.policy!r}{nearest(given.policy, known)}")
        if len(found) > 1:
            raise ConfigError(
                f"{given.text!r}: {len(found)} populations have a policy {name!r}; say which, such as {found[0].population}/{name}."
            )
        return [[(found[0], 1.0)] if found[0].population == mine else None for mine in run.population]

    def _meta(self, given: _Given, run: StoredRun, player: int) -> _Drawn:
        strategies = run.solution.strategies
        if player >= len(strategies) or not (strategies[player] > 0).any():
            raise ConfigError(
                f"{given.text!r}: the run's last generation has no meta-strategy of player {player}; name a policy, or RUN:{NEWEST}."
            )
        members = run.members[run.population[player]]
        return [(members[int(i)].ref, float(strategies[player][i])) for i in np.flatnonzero(strategies[player] > 0)]

    def _digest(self, policy: Policy, key: tuple[Any, ...]) -> str:
        if key not in self._digests:
            self._digests[key] = digest_of(policy)
        return self._digests[key]


def _recorded(run: StoredRun | None, file: Path) -> PolicyRecord | None:
    """What a run knows of a file in its folder."""
    if run is None:
        return None
    place = (file.parent.name, file.stem)
    return next((record for ref, record in run.records.items() if (str(ref.population), ref.policy) == place), None)


def _misfit(policy: Policy, spec: EnvSpec, player: int, mode: str) -> str:
    """Why a policy cannot play for a player: it is asked once. Empty if it can."""
    agent = spec.agents_of(player)[0]
    actions = getattr(agent.action, "n", None)
    try:
        if spec.enumeration is not None and policy.tabulate(spec.enumeration, player, mode=mode) is not None:
            return ""
        if policy.takes_ids:
            raise PolicyError("it plays by ids of a game that is compiled (tree=on), and this one is not.")
        observation = np.zeros((1, *(agent.observation.shape or ())), agent.observation.dtype)
        if spec.enumeration is not None:
            observation = spec.enumeration.observation[:1]
        mask = None if actions is None else np.ones((1, int(actions)), np.bool_)
        memory = None if policy.memory_shape is None else np.zeros((1, *policy.memory_shape), np.float32)
        act = policy.act(observation, mask, memory, np.zeros((1, policy.noise_width), np.float32), mode=mode)
        if act.action.shape[1:] != (agent.action.shape or ()):
            raise PolicyError(f"it answers with actions of shape {act.action.shape[1:]}, {agent.action} is expected.")
    except Exception as error:  # noqa: BLE001  whatever is wrong, it cannot play there
        return " ".join(str(error).split())
    return ""
