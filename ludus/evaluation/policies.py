"""Policies by what a user writes: one way to name them, for whoever evaluates, records, clones, or trains against them.

RUN                       what the run came to: its last meta-strategies, a policy drawn per episode
RUN@meta, RUN@12          the meta-strategies, the last ones or those after generation 12
RUN@best, RUN@newest      of each population the trained policy that earns most against the last meta-strategies, or the newest
RUN@strongest             of each population the policy of the highest rating, bots and imported policies included
RUN@PLAYER/POLICY         one policy, as `ludus list policies RUN` prints it; PLAYER is a number, or the name of an agent or a role
@…                        the same of the run that is at hand, where there is one
FILE.safetensors          a policy's file
ZOO/NAME, ZOO/NAME@…      the same of an entry of a zoo, which reads as a run: what was pushed is all that it has
random, bot:random        uniform over the legal actions
bot:NAME, module:Class    a bot, or a Policy of the user's own, in every seat
SCHEME:WHAT               an agent from elsewhere, in every seat: sb3:FILE.zip, command:PROGRAM …
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import ConfigError, LudusError, PolicyError, RunError, ScenarioError, article, join_or, nearest
from ludus.core.types import EnvSpec, MetaSolution, Mixture, OpponentFactor, PolicyRef
from ludus.core.user_code import short_repr
from ludus.envs.config import NEVER_SEEN, Environment, unseen_options
from ludus.envs.spaces import Choices
from ludus.metagame.population.base import PolicyRecord, seats_in
from ludus.policies.agents import scheme_of
from ludus.policies.base import Policy, team_size_of, teams_for
from ludus.policies.bots import DEADLINE, BotPolicy, parse_bot, require_fit, what_raised
from ludus.policies.categorical import CategoricalPolicy, full_mask
from ludus.policies.file import load_policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import random_spec
from ludus.rollout.bot_process import read_bots
from ludus.storage.run_dirs import find_run, holds_policies, is_entry
from ludus.storage.stored_run import StoredRun, open_run

# --------------------------------------------------------------------------------------------------------------------
# What makes two games the same.


def game_description(settings: Environment, other: Environment) -> str:
    """Return the id; with all that matters, where another game has the same id."""
    return settings.id if name_of(settings) != name_of(other) else f"{settings.id} {identity(settings)}"


def name_of(settings: Environment) -> str:
    """Return the id; of OpenSpiel's games with all parameters written out."""
    if not settings.id.startswith("openspiel/"):
        return settings.id
    from ludus.envs.openspiel.games import load_game

    game = load_game(settings.id)
    parameters = ",".join(f"{key}={value}" for key, value in sorted(game.get_parameters().items()))
    return f"openspiel/{game.get_type().short_name}({parameters})"


def identity(settings: Environment, *, without: Collection[str] = NEVER_SEEN) -> str:
    """Return what makes two games the same: id, options and wrappers, as JSON. without: options that do not; of games that only have to
    look the same to players, `unseen_options()`."""
    options = {name: value for name, value in settings.options.items() if name not in without}
    parts = {"id": name_of(settings), "options": options, "wrappers": list(settings.wrappers)}
    return json.dumps({key: value for key, value in parts.items() if value}, sort_keys=True, default=str)


META, BEST, STRONGEST, NEWEST = WORDS = "meta", "best", "strongest", "newest"
FORMS = "RUN, RUN@meta, RUN@best, RUN@strongest, RUN@newest, RUN@GENERATION, RUN@PLAYER/POLICY, FILE.safetensors"
_BOT = "bot:"
_RANDOM = "random"
_FILE = ".safetensors"
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(,.*)?")

FindRun = Callable[[str], Path]
"""The directory of a run by its name or path; raises RunError."""


@dataclass(frozen=True, slots=True)
class PolicyQuery:
    """A text that was taken apart. run: that it is of, or that a file lies in. what: after the @; "" for what the run came to."""

    text: str
    run: StoredRun | None = None
    what: str = ""
    file: Path | None = None
    bot: str = ""
    random: bool = False

    @property
    def several(self) -> bool:
        """Return whether it names more than one policy of its run."""
        return self.run is not None and self.file is None and "/" not in self.what

    @property
    def solution(self) -> MetaSolution | None:
        """Return the meta-strategies that it names; None if it names single policies. Raises ConfigError for a generation that there is
        not."""
        if self.run is None or self.file is not None:
            return None
        if self.what in ("", META):
            return self.run.solution
        if not self.what.isdecimal():
            return None
        solution = self.run.solution_after(int(self.what))
        if solution is None and is_entry(self.run.folder):
            raise ConfigError(
                f"{self.text!r}: what was pushed is of generation {self.run.generation}; there is no {self.what}."
            )
        if solution is None:
            raise ConfigError(
                f"{self.text!r}: {self.run.folder.name} has the generations 0 to {self.run.generation}; there is no {self.what} yet."
            )
        return solution


@dataclass(frozen=True, slots=True, eq=False)
class SampledPolicy:
    """A policy that is drawn with probability `prob`. name: in its run, or of its file. ref: in its run, if it is from one."""

    name: str
    policy: Policy
    mode: str = "explore"
    prob: float = 1.0
    ref: PolicyRef | None = None


NamedSeats: TypeAlias = tuple[tuple[SampledPolicy, ...], ...]
"""[P]: who may play each player; nobody where what was named cannot."""
PolicyProbabilities: TypeAlias = Sequence[tuple[PolicyRef, float]]
"""Who of a run may play a player, and how often."""


def split_name(text: str, find_run: FindRun) -> tuple[Path, str]:
    """RUN or RUN@WHAT -> the run's directory, and "" or "@WHAT". Raises RunError if there is no such run."""
    head, at, what = text.rpartition("@")
    if not at:
        return find_run(text), ""
    try:
        return find_run(head), at + what
    except RunError:
        with suppress(RunError):  # a path may have an @ of its own
            return find_run(text), ""
        raise


def parse_policy_name(
    text: str,
    find_run: FindRun,
    open_run: Callable[[Path], StoredRun],
    *,
    run: StoredRun | None = None,
    what: str = "entrant",
    forms: str = f"{FORMS}, bot:NAME, module:Class or an agent, such as command:PROGRAM",
) -> PolicyQuery:
    """Return what a text names. run: whose policies are named @…. what, forms: in the error. Raises ConfigError for a text that names
    nothing, RunError for a run that cannot be read."""
    if text in (_RANDOM, _BOT + _RANDOM):
        return PolicyQuery(text, random=True)
    if text.startswith(_BOT):
        return PolicyQuery(text, bot=text.removeprefix(_BOT))
    if scheme_of(text):
        return PolicyQuery(text, bot=text)
    if text.endswith(_FILE):
        file = Path(text)
        owner = file.resolve().parent.parent.parent
        known = holds_policies(owner) and file.resolve().parent.parent.name == "policies"
        return PolicyQuery(text, run=open_run(owner) if known else None, file=file)
    if text.startswith("@"):
        return _of_known(text, run, what=what, forms=forms)
    try:
        folder, named = split_name(text, find_run)
    except LudusError as error:
        if (written := _with_at(text, find_run, open_run, run)) is not None:
            raise ConfigError(f"{text!r} is no {what}: what a run has is named with @. Write {written!r}.") from error
        if _CLASS.fullmatch(text):
            return PolicyQuery(text, bot=text)
        raise ConfigError(f"{text!r} is no {what}: {error} {article(what).capitalize()} is {forms}.") from error
    if named == "@":
        raise _nothing_follows(text, what=what, forms=forms)
    return PolicyQuery(text, run=open_run(folder), what=named[1:])


def _of_known(text: str, run: StoredRun | None, *, what: str, forms: str) -> PolicyQuery:
    """@NAME of a run that is known."""
    if run is None:
        raise ConfigError(f"{text!r} is no {what}: it says of no run. Write RUN{text}.")
    if text == "@":
        raise _nothing_follows(text, what=what, forms=forms)
    return PolicyQuery(text, run=run, what=text[1:])


def _nothing_follows(text: str, *, what: str, forms: str) -> ConfigError:
    return ConfigError(f"{text!r} is no {what}: nothing follows the @. {article(what).capitalize()} is {forms}.")


def _with_at(text: str, find_run: FindRun, open_run: Callable[[Path], StoredRun], run: StoredRun | None) -> str | None:
    """Return how RUN:newest, RUN:POLICY, RUN:POPULATION/POLICY and a name alone, of `run`, are written; None for other texts."""
    name, colon, rest = text.partition(":")
    try:
        run = open_run(find_run(name)) if colon else run
    except LudusError:
        run = None
    if run is None:
        return None
    name, rest = (name, rest) if colon else ("", text)
    population, _, policy = rest.rpartition("/")
    same = [run.name(ref) for ref in run.records if ref.policy == policy and population in ("", str(ref.population))]
    if not same and not colon and rest not in WORDS:
        return None
    return f"{name}@{same[0] if same else rest}"


def require_same_game(query: PolicyQuery, settings: Environment, whose: str) -> None:
    """Raise ScenarioError for a policy of another game, as players see it, than that of these options. whose: they are, in the error."""
    if query.run is None:
        return
    env = query.run.env
    if identity(env.played, without=unseen_options()) != identity(settings.played, without=unseen_options()):
        raise ScenarioError(
            f"{query.text!r} plays {game_description(env, settings)}, and {whose} {game_description(settings, env)}. Give a "
            "policy of the same game."
        )
    if changed := settings.changed_file(env):
        raise ScenarioError(
            f"{query.text!r} plays another game of the same name: the file {changed!r} held something else when its run began than it "
            f"does for {whose}. Give a policy of the same game."
        )


def bots_of(
    queries: Sequence[PolicyQuery], spec: EnvSpec, *, wrapped: bool, deadline: float = DEADLINE
) -> list[NamedSeats]:
    """Return bots, and Policies of the user's own, in every seat. wrapped, deadline: as `read_bots` takes them, which says what is
    raised."""
    bots = read_bots([parse_bot(one.bot) for one in queries], spec, wrapped=wrapped, deadline=deadline)
    return [((SampledPolicy(named.name, named.policy),),) * spec.num_players for named in bots]


def policies_of(query: PolicyQuery, spec: EnvSpec, *, wrapped: bool = False) -> NamedSeats:
    """Return who plays each player of a game; it must be what the run plays. wrapped: whether wrappers stand between the game and its
    players. Raises ConfigError for a name that the run does not have, ScenarioError for another number of players, PolicyError for a file
    that is unreadable or fits nobody; of a bot as `bots_of`."""
    if query.bot:
        return bots_of([query], spec, wrapped=wrapped)[0]
    if query.random:
        policies = [build_policy(random_spec(spec.agents_of(p)[0].action), {}) for p in range(spec.num_players)]
        return tuple((SampledPolicy(_RANDOM, policy),) for policy in policies)
    if query.file is not None:
        return _of_file(query, query.file, spec)
    assert query.run is not None
    return _of_run(query, query.run, spec)


def _of_file(query: PolicyQuery, file: Path, spec: EnvSpec) -> NamedSeats:
    policy, mode, plays = load_policy(file), "explore", tuple(range(spec.num_players))
    record = _recorded(query.run, file)
    if query.run is not None and record is not None:
        mode = record.ref.mode
        plays = seats_in(query.run.population, record.ref.population)
    sampled = SampledPolicy(file.stem, policy, mode, ref=None if record is None else record.ref)
    why = [
        incompatibility(policy, spec, p, mode) if p in plays else "its run had it play another player."
        for p in range(spec.num_players)
    ]
    if all(why):
        raise PolicyError(f"policy file {query.text!r} does not fit {spec.id}: {why[0]}")
    return tuple(() if wrong else (sampled,) for wrong in why)


def _of_run(query: PolicyQuery, run: StoredRun, spec: EnvSpec) -> NamedSeats:
    if len(run.population) != spec.num_players:
        raise ScenarioError(f"{query.text!r} has {len(run.population)} players; {spec.id} has {spec.num_players}.")
    return sampled_policies(run, policy_probabilities(query, run))


def sampled_policies(run: StoredRun, chosen: Sequence[PolicyProbabilities]) -> NamedSeats:
    """Policies of a run, read."""
    return tuple(
        tuple(SampledPolicy(r.policy, run.policy(r), r.mode, prob, r) for r, prob in shares) for shares in chosen
    )


def policy_probabilities(query: PolicyQuery, run: StoredRun) -> list[PolicyProbabilities]:
    """Return [P] who of the run may play each player. Raises ConfigError for what it does not have, with the nearest."""
    if query.file is not None:  # inside the run's folder
        record = _recorded(run, query.file)
        if record is None:
            raise ConfigError(
                f"{query.text!r} is no policy of run {run.folder.name!r}; `ludus list policies` shows them."
            )
        return [[(record.ref, 1.0)] if which == record.ref.population else [] for which in run.population]
    newest = {which: members[-1].ref for which, members in run.members.items() if members}
    if query.what in (BEST, STRONGEST, NEWEST):
        chosen = newest if query.what == NEWEST else run.best if query.what == BEST else run.strongest
        return [[(chosen[which], 1.0)] if which in chosen else [] for which in run.population]
    solution = query.solution
    if solution is None:
        ref = _one(query, run)
        return [[(ref, 1.0)] if which == ref.population else [] for which in run.population]
    shares: list[PolicyProbabilities] = []
    for player, which in enumerate(run.population):
        probs = solution.strategies[player] if player < len(solution.strategies) else np.zeros(0)
        if which not in newest:  # an entry of a zoo, to which nobody of it was pushed
            shares.append([])
            continue
        if not (probs > 0).any() and query.what:
            raise ConfigError(
                f"{query.text!r}: that generation has no meta-strategy of player {player}; name {NEWEST} or a policy after the @."
            )
        played = [(run.members[which][int(i)].ref, float(probs[i])) for i in np.flatnonzero(probs > 0)]
        shares.append(played or [(newest[which], 1.0)])  # a run comes to its newest where it solves nothing
    return shares


def _one(query: PolicyQuery, run: StoredRun) -> PolicyRef:
    """Return the policy PLAYER/POLICY."""
    player, slash, policy = query.what.rpartition("/")
    if slash:
        seats = run.player_names.players([player], what=repr(query.text))
        among = {run.population[seat] for seat in seats}
        same = [ref for ref in run.records if ref.population in among and ref.policy == policy]
        if len(same) > 1:
            alternatives = join_or([f"@{run.name(ref)}" for ref in same])
            raise ConfigError(
                f"{query.text!r} stands for {len(same)} policies, of players who have one each. Name {alternatives}."
            )
        if same:
            return same[0]
        own = [f"@{run.name(ref)}" for ref in run.records if ref.population in among]
        if own and not player.isdecimal():  # the nearest by spelling would be another player's
            raise ConfigError(f"{query.text!r}: {player!r} has no policy {policy!r}; it has {own[0]} to {own[-1]}.")
    known = [*WORDS, *map(run.name, run.records)]
    alike = [name for name in known if name.partition("/")[2] == query.what]
    meant = nearest(query.what, alike or known)
    if not meant.startswith(";"):
        policies = f"policies from {known[len(WORDS)]} to {known[-1]}"
        meant = f"; there are {', '.join(WORDS)}, the generations 0 to {run.generation}, and {policies}."
    raise ConfigError(f"{query.text!r}: {run.folder.name} has no {query.what!r} to be named after the @{meant}")


_CROSSED = 64
"""Profiles that are played where nobody said which, at most."""


class NamedPlayers:
    """Players of a run's game, by name: policies of the run, of other runs of the game, and files.

    Each name stands for a player's policies; `mixture` puts one name per player together, and `policy` finds what it is made of.
    """

    def __init__(self, run: StoredRun, spec: EnvSpec) -> None:
        """spec: of the run's game."""
        self._run, self._spec = run, spec
        self._known: dict[str, tuple[PolicyQuery, NamedSeats]] = {}
        self._others: dict[PolicyRef, Policy] = {}  # that are not of the run

    def seats(self, name: str) -> NamedSeats:
        """Return who may play each player. Raises ConfigError for a name of nobody, ScenarioError for another game; else as
        `policies_of`."""
        return self._read(name)[1]

    def profiles(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return every combination of one name per player, of those that can play it. Of none: the last meta-strategies and the newest
        policies, crossed where that is few; else all of the one, all of the other, and each of the newest among the meta-strategies."""
        choices = []
        for player, which in enumerate(self._run.population):
            known = [f"@{META}", *(f"@{self._run.name(record.ref)}" for record in self._run.members[which][-1:])]
            choices.append([name for name in names if self.seats(name)[player]] or known)
        if names or math.prod(map(len, choices)) <= _CROSSED:
            return list(product(*choices))
        meta, newest = (tuple(known[k] for known in choices) for k in (0, -1))
        alone = ((*meta[:p], newest[p], *meta[p + 1 :]) for p in range(len(choices)))
        return list(dict.fromkeys([meta, newest, *alone]))

    def mixture(self, profile: Sequence[str]) -> Mixture:
        """Return what one name per player stands for; players who are named after one joint distribution are drawn together. Raises
        ConfigError for another number of names, or one that cannot play its player."""
        players = len(self._run.population)
        if len(profile) != players:
            raise ConfigError(
                f"{len(profile)} {'policy was' if len(profile) == 1 else 'policies were'} given; one for each of {players} players is "
                "needed."
            )
        factors, together = list[OpponentFactor](), dict[tuple[Path, int], list[int]]()
        for player, name in enumerate(profile):
            query, seats = self._read(name)
            if not seats[player]:
                own = self._run.members[self._run.population[player]]
                if not own:
                    raise ConfigError(
                        f"policy {name!r} cannot play as player {player}, for whom {self._run.folder.name!r} has nobody. Name somebody who "
                        "can, such as random."
                    )
                can = f"@{self._run.name(own[0].ref)}" + (f" to @{self._run.name(own[-1].ref)}" if len(own) > 1 else "")
                raise ConfigError(f"policy {name!r} cannot play as player {player}; {can} can.")
            if query.run is not None and (solution := query.solution) is not None and solution.joint is not None:
                generation = int(query.what) if query.what.isdecimal() else query.run.generation
                together.setdefault((query.run.folder, generation), []).append(player)
                continue
            refs = [self._ref(query, sampled, player) for sampled in seats[player]]
            factors.append(
                OpponentFactor((player,), tuple((ref,) for ref in refs), tuple(d.prob for d in seats[player]))
            )
        for group in together.values():
            query, _ = self._read(profile[group[0]])
            assert query.run is not None
            assert query.solution is not None
            members = [self._members(query, query.run, player) for player in range(players)]
            factors += query.solution.factors(members, group)
        return Mixture(tuple(sorted(factors, key=lambda factor: factor.seats)))

    def solution(self, name: str) -> MetaSolution:
        """Return what a name of the run stands for, over its members. Raises ConfigError where it has nobody for a player."""
        query, seats = self._read(name)
        if query.run is not self._run:
            raise ConfigError(
                f"{name!r} is not of run {self._run.folder.name!r}; name what it has, such as @{META} or @{BEST}."
            )
        self._run.require_everybody()
        if (solution := query.solution) is not None and (solution.joint is not None or query.what):
            return solution
        marginals = []
        for player, sampled in enumerate(seats):
            probs = np.zeros(len(self._run.members[self._run.population[player]]))
            for one in sampled:
                assert one.ref is not None
                probs[self._run.records[one.ref].index] = one.prob
            if not sampled:
                raise ConfigError(
                    f"{name!r} has nobody for player {player}, and what is asked for needs one policy of each; name a whole run, @{BEST}, "
                    f"@{NEWEST} or a generation."
                )
            marginals.append(probs)
        return MetaSolution(tuple(marginals), np.nan)

    def is_own(self, mixture: Mixture) -> bool:
        """Return whether all are policies of the run."""
        return not any(ref in self._others for factor in mixture.factors for entry in factor.entries for ref in entry)

    def policy(self, ref: PolicyRef) -> Policy:
        """One that a mixture names."""
        return self._others[ref] if ref in self._others else self._run.policy(ref)

    def _read(self, name: str) -> tuple[PolicyQuery, NamedSeats]:
        if name not in self._known:
            query = parse_policy_name(
                name,
                find_run,
                self._open,
                run=self._run,
                what="policy",
                forms=f"{FORMS}, random, bot:NAME, module:Class or an agent, such as command:PROGRAM; of this run, @meta, …",
            )
            require_same_game(query, self._run.env, f"run {self._run.folder.name!r}")
            self._known[name] = (query, policies_of(query, self._spec, wrapped=bool(self._run.env.wrappers)))
        return self._known[name]

    def _open(self, folder: Path) -> StoredRun:
        return self._run if folder.resolve() == self._run.folder.resolve() else open_run(folder)

    def _members(self, query: PolicyQuery, run: StoredRun, player: int) -> list[PolicyRef]:
        members = [record.ref for record in run.members[run.population[player]]]
        if run is self._run:
            return members
        return [self._ref(query, SampledPolicy(r.policy, run.policy(r), r.mode, ref=r), player) for r in members]

    def _ref(self, query: PolicyQuery, sampled: SampledPolicy, player: int) -> PolicyRef:
        """Return its own if it is of the run; else a new one."""
        if query.run is self._run and sampled.ref is not None:
            return sampled.ref
        name = f"{query.text} {sampled.name}" if query.several else query.text
        ref = PolicyRef(self._run.population[player], name, mode=sampled.mode)
        self._others[ref] = sampled.policy
        return ref


def _recorded(run: StoredRun | None, file: Path) -> PolicyRecord | None:
    """Return what a run knows of a file in its folder."""
    if run is None:
        return None
    place = file.resolve()
    return next((record for ref, record in run.records.items() if run.file(ref).resolve() == place), None)


_OFF = 1e-6  # that probabilities may sum to beside 1


def incompatibility(policy: Policy, spec: EnvSpec, player: int, mode: str) -> str:
    """Return why a policy cannot play for a player: it is asked once. Empty if it can, and for a bot of a user's own, which is made
    elsewhere."""
    agent = spec.agents_of(player)[0]
    choices = Choices.of(agent.action)
    try:
        if isinstance(policy, BotPolicy):
            if not policy.bot.own:
                require_fit("it", policy.bot.make(), spec)
            return ""
        own = ":" in policy.spec.kind
        if spec.enumeration is not None and (table := policy.tabulate(spec.enumeration, player, mode=mode)) is not None:
            if own:
                _require_probabilities(table, spec.enumeration.mask[spec.enumeration.ids(player)])
            return ""
        if policy.takes_ids:
            raise PolicyError("it plays by ids of a game that is compiled (tree=on), and this one is not.")
        observation = np.zeros((1, *(agent.observation.shape or ())), agent.observation.dtype)
        if spec.enumeration is not None:
            observation = spec.enumeration.observation[:1]
        mask = None if choices is None else np.ones((1, choices.width), np.bool_)
        memory = None if policy.memory_shape is None else np.zeros((1, *policy.memory_shape), np.float32)
        _require_team(policy, agents=len(spec.agents_of(player)))
        if own and isinstance(policy, CategoricalPolicy):
            legal = full_mask(mask, 1, policy.actions)
            _require_probabilities(policy.probabilities(observation, legal, mode=mode)[0], legal)
        teams = teams_for(policy, np.zeros(1, np.int32))
        act = policy.act(observation, mask, memory, np.zeros((1, policy.noise_width), np.float32), mode=mode, **teams)
        if act.action.shape[1:] != (agent.action.shape or ()):
            raise PolicyError(f"it answers with actions of shape {act.action.shape[1:]}, {agent.action} is expected.")
    except Exception as error:  # noqa: BLE001  whatever is wrong, it cannot play there
        message = str(error) if isinstance(error, LudusError) else f"{what_raised(error)}."
        return " ".join(message.split())
    return ""


def _require_team(policy: Policy, *, agents: int) -> None:
    """Raise PolicyError for a `JointPolicy` of smaller teams."""
    if 0 < (most := team_size_of(policy)) < agents:
        raise PolicyError(f"it plays teams of up to {most} agents, and this player has {agents}.")


def _require_probabilities(probs: Any, legal: NDArray[np.bool_]) -> None:
    """Raise PolicyError, saying what a policy of the user's own answered, unless it is float[n, A] of which each row is a distribution
    over the legal actions."""
    expected = f"an array of {list(legal.shape)} was expected, whose rows are probabilities, 0 for what is not legal"
    if not isinstance(probs, np.ndarray) or probs.shape != legal.shape or probs.dtype.kind != "f":
        shape = f", of shape {list(probs.shape)} and type {probs.dtype}" if isinstance(probs, np.ndarray) else ""
        raise PolicyError(f"it answered {short_repr(probs)}{shape}; {expected}.")
    fine = (
        (probs >= 0).all(axis=1) & (np.abs(probs.sum(axis=1) - 1) < _OFF) & ~(np.nan_to_num(probs) * ~legal).any(axis=1)
    )
    if not fine.all():
        row = int(np.argmin(fine))
        raise PolicyError(f"it answered {short_repr(probs[row])} in row {row}; {expected}.")
