"""The game of a run, ready to be played: who may sit where, and episodes of any profile."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gymnasium.spaces import Discrete

from ludus.apps.episodes.human_policy import HumanPolicy
from ludus.apps.episodes.played_episode import PlayedEpisode, bots_of_run
from ludus.apps.episodes.recording import one_environment
from ludus.apps.play.controls import action_names_of, keys_of
from ludus.core.errors import ConfigError, LudusError
from ludus.core.types import EnvSpec, PolicyRef
from ludus.envs.base import VectorEnv
from ludus.envs.tree.game_tree import find_tree
from ludus.envs.wrappers.registry import wrap
from ludus.evaluation.policies import BEST, META, NEWEST, STRONGEST, NamedPlayers
from ludus.metagame.population.base import seats_in
from ludus.policies.base import Policy
from ludus.policies.bots import SupportsMoveStatistics, parse_bot, require_fit
from ludus.storage.stored_run import open_run

PERSON = "person"
MOST_STEPS = 2000
"""Of an episode that people play or that is shown to them."""
MOST_BYTES = 64 * 2**20
MOST_MEMBERS = 1000
_OFFERED = ("mcts-50", "mcts-500", "ismcts-50", "ismcts-500", "football_built_in", "football_script")
_KNOWN = re.compile(
    r"@(meta|best|strongest|newest|[0-9]{1,9}|[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,200}(?<!\.safetensors))|random|bot:[A-Za-z0-9_-]{1,60}"
)
"""What a page may name: policies of the run, and bots without options; no files, no other runs, no code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Somebody who can play. name: in the grammar of `ludus.evaluation.policies`. players: whom it can play. advises: whether it can give
    hints."""

    name: str
    label: str
    players: Sequence[int]
    advises: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSeat:
    player: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """Possible occupants of the seats. run: name of the run, or of the entry of a zoo. defaults: [P] those that play by default; hints: [P]
    whose hints are given by default. human: whether a person can play it here. keys: of a keyboard (`KeyboardEvent.key`) to actions; None
    where there are none."""

    run: str
    players: Sequence[PlayerSeat]
    members: Sequence[Member]
    defaults: Sequence[str]
    hints: Sequence[str]
    family: str
    human: bool
    keys: Mapping[str, int] | None


def check_name(who: str) -> None:
    """Raise ConfigError for what a page may not name."""
    if who != PERSON and _KNOWN.fullmatch(who) is None:
        raise ConfigError(
            f"{who[:80]!r} was given for a seat; {PERSON}, @meta, @best, @strongest, @newest, @GENERATION, @PLAYER/POLICY, random or "
            "bot:NAME without options, such as bot:mcts-1000, is expected."
        )


class RunGame:
    """A run's game and policies. Raises RunError for a run that is unreadable or has no finished generation."""

    def __init__(self, folder: Path, *, name: str = "") -> None:
        """name: how the run is called."""
        self.run = open_run(folder)
        self.name = name or folder.name
        self._settings = self.run.env.played
        env = self._make()
        self.tree = None if self._settings.wrappers else find_tree(env)
        played = wrap(env, self._settings.wrappers)
        self.spec: EnvSpec = played.spec
        played.close()
        self.named = NamedPlayers(self.run, self.spec)

    def _make(self, rendering: bool = False) -> VectorEnv:
        return one_environment(self._settings, rendering=rendering)

    @property
    def family(self) -> str:
        """Return what stands before the / of its id; "" where nothing does."""
        return self.spec.id.partition("/")[0] if "/" in self.spec.id else ""

    @cached_property
    def _choices(self) -> tuple[str, ...]:
        """Return names of the first player's actions; () where there are none."""
        env = self._make()
        try:
            return action_names_of(env)
        finally:
            env.close()

    @cached_property
    def keys(self) -> Mapping[str, int] | None:
        """Of a keyboard, to actions."""
        space = self.spec.agents[0].action
        return keys_of(self.spec.id, self._choices, int(space.n)) if isinstance(space, Discrete) else None

    def action_name(self, action: int, label: str) -> str:
        """Return what an action is called, where the environment has no name for it."""
        return self._choices[action] if label == str(action) and action < len(self._choices) else label

    # ------------------------------------------------------------------------------------------ who can play

    @cached_property
    def seats(self) -> Seats:
        """Return who can sit where."""
        players = range(self.spec.num_players)
        agents = [self.spec.agents_of(p) for p in players]
        names = [
            group[0].name if len(group) == 1 else f"player {p}, {len(group)} agents"
            for p, group in zip(players, agents, strict=True)
        ]
        words = self._words()
        mixed = next((word.players for word in words if word.name == f"@{META}"), ())
        return Seats(
            run=self.name,
            players=[PlayerSeat(player=p, name=names[p]) for p in players],
            members=[*words, *self._members(), *self._bots()],
            defaults=[PERSON, *(f"@{META}" if p in mixed else "random" for p in players[1:])],
            hints=[self.default_hints(p) for p in players],
            family=self.family,
            human=True,
            keys=self.keys,
        )

    def _words(self) -> list[Member]:
        labels = {
            META: "the mixture: one is drawn for each game",
            BEST: "the best policy",
            STRONGEST: "the strongest member, bots included",
            NEWEST: "the newest policy",
        }
        members = []
        for word, label in labels.items():
            with suppress(LudusError):  # a run that solves nothing has no mixture
                able = [p for p, sampled in enumerate(self.named.seats(f"@{word}")) if sampled]
                members.append(Member(name=f"@{word}", label=label, players=able))
        return members

    def _members(self) -> list[Member]:
        newest = sorted(self.run.policies, key=lambda p: p.record.lineage.generation, reverse=True)[:MOST_MEMBERS]
        return [
            Member(
                name=f"@{self.run.name(stored.record.ref)}",
                label=f"{stored.record.ref.policy}, generation {stored.record.lineage.generation}",
                players=list(seats_in(self.run.population, stored.record.ref.population)),
            )
            for stored in newest
        ]

    def _bots(self) -> list[Member]:
        everybody = list(range(self.spec.num_players))
        members = [Member(name="random", label="any legal action", players=everybody, advises=False)]
        for text in _OFFERED:
            with suppress(LudusError):  # a bot that does not fit the game is not offered
                bot = parse_bot(text).make()
                require_fit(text, bot, self.spec, wrapped=bool(self.run.env.wrappers))
                advises = isinstance(bot, SupportsMoveStatistics) and not self.run.env.wrappers
                members.append(Member(name=f"bot:{text}", label=f"a bot, {text}", players=everybody, advises=advises))
        return members

    def default_hints(self, player: int) -> str:
        """Return whose hints a player is given by default: those of the mixture, unless all of its policies were
        not trained, such as the random one of the start; then of the best policy that was; of an entry of a zoo without either, ""."""
        which = self.run.population[player]
        if self.run.members[which]:
            probs = self.run.solution.strategies[player]
            played = [record for record, prob in zip(self.run.members[which], probs, strict=False) if prob > 0]
            return f"@{META}" if any(map(self.run.trained, played)) else f"@{BEST}"
        return ""

    @cached_property
    def discount(self) -> float | None:
        """Return what the run's learners discount future rewards by; None where its algorithm has no such option."""
        algorithm = self.run.part("algorithm", lambda data: data, default={})
        gamma = algorithm.get("gamma") if isinstance(algorithm, Mapping) else None
        return gamma if isinstance(gamma, float) else None

    # ------------------------------------------------------------------------------------------ episodes

    def episode(
        self, who: Sequence[str], *, seed: int, people: Mapping[int, HumanPolicy] | None = None, steps: int = MOST_STEPS
    ) -> PlayedEpisode:
        """Return an episode of this profile, [P] names; one that is shorter is for all. people: who answers for the seats that are named
        "person". It waits for them. Raises as `NamedPlayers.mixture`, and ConfigError for a person whom nobody answers for."""
        people = people or {}
        players = range(self.spec.num_players)
        who = list(who) * len(players) if len(who) == 1 else list(who)
        if missing := [p for p, name in enumerate(who) if name == PERSON and p not in people]:
            raise ConfigError(
                f"a person was given for player {missing[0]}, who is asked at a table only. Name a policy."
            )
        mixture = self.named.mixture(["random" if name == PERSON else name for name in who])
        refs: dict[PolicyRef, HumanPolicy] = {}
        for player, person in people.items():
            ref = PolicyRef(self.run.population[player], f"person {player}")
            refs[ref] = person
            mixture = mixture.with_seat_fixed(player, ref)

        def policy(ref: PolicyRef) -> Policy:
            return refs[ref] if ref in refs else self.named.policy(ref)

        return PlayedEpisode(
            self._make,
            mixture,
            policy,
            seed=seed,
            steps=steps,
            size=MOST_BYTES,
            wrappers=self._settings.wrappers,
            shown=lambda: self._make(rendering=True),
            name=lambda ref: f"@{self.run.name(ref)}" if ref in self.run.records else ref.policy,
            waits=lambda due: any(player in people and not people[player].ready for player in due),
            bots=bots_of_run(self.run),
        )
