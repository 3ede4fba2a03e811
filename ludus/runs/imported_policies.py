"""Policies and bots from elsewhere that a run's learners meet: read when it begins, and members of its populations from then on.

names, weights ── read_imported ──► members, and the mixture over them ── ImportedPolicies.admit ──► store, scheduler, a first barrier

Nothing of a run depends on where policies came from after that. Of a bot, or a Policy of the user's own, the run has name and options.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec, Mixture, PolicyRef
from ludus.envs.config import Environment
from ludus.evaluation.policies import (
    FORMS,
    NamedSeats,
    PolicyQuery,
    SampledPolicy,
    bots_of,
    incompatibility,
    parse_policy_name,
    policies_of,
    require_same_game,
)
from ludus.metagame.population.base import Lineage, seats_in
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy
from ludus.policies.file import digest_of
from ludus.runs.driver import Driver
from ludus.schedulers.base import Scheduler, TakesOpponents
from ludus.storage.run_dirs import find_run
from ludus.storage.stored_run import open_run


@dataclass(frozen=True, slots=True, eq=False)
class ImportedPolicies:
    """members: (ref, policy, where it was) in the order in which they join. mixture: over members, those and the first ones. lacking: seats
    that no policy was given for."""

    members: tuple[tuple[PolicyRef, Policy, str], ...]
    mixture: Mixture
    lacking: tuple[int, ...]

    def admit(self, driver: Driver) -> None:
        """Make them members, behind the first policies, and tell a scheduler that meets them by weight. They are durable, by a barrier,
        when this returns."""
        for ref, policy, source in self.members:
            driver.manager.add(
                ref.population,
                ref.policy,
                policy.spec,
                policy.weights(),
                mode=ref.mode,
                lineage=Lineage(start=source),
            )
            driver.work.admit(ref)
        if isinstance(driver.scheduler, TakesOpponents):
            driver.scheduler.set_opponents(self.mixture, lacking=self.lacking)
        driver.checkpoint({})


def read_imported(
    names: Sequence[tuple[str, float]],
    spec: EnvSpec,
    *,
    env: Environment,
    population: tuple[int, ...],
    scheduler: Scheduler,
    deadline: float,
    why_no_bots: str,
    instead_of_tree: Sequence[str],
) -> ImportedPolicies:
    """Read policies and bots that a run's learners are to meet, in the game `spec`.

    names: with weights, as `ScheduleOptions.imported`. why_no_bots: why none may be a bot; "" where it may. instead_of_tree: settings with
    which nothing is computed on the game's tree; none where nothing is. Raises ConfigError for a name of nobody, ScenarioError for a policy
    of another game or one that cannot be played or evaluated where it is to be, and for a seat that is to have one and has none;
    PolicyError for a bot that cannot be made; whatever reading runs and files raises.
    """
    opened = lru_cache(maxsize=None)(open_run)
    forms = f"{FORMS}, random, bot:NAME, module:Class or an agent, such as command:PROGRAM"
    queries = [
        (parse_policy_name(text, find_run, opened, what="opponent", forms=forms), weight) for text, weight in names
    ]
    bots = [wanted for wanted, _ in queries if wanted.bot]
    if bots and why_no_bots:
        raise ScenarioError(f"opponents: {bots[0].text!r} was given, and {why_no_bots}")
    if bots and env.workers and env.options.get("openings"):
        raise ScenarioError(
            f"opponents: {bots[0].text!r} may have to know how an episode began, and openings are drawn in subprocesses, env.workers. "
            "Set env.workers=0, or leave env.options.openings out."
        )
    seats_of = dict(zip(bots, bots_of(bots, spec, wrapped=bool(env.wrappers), deadline=deadline), strict=True))
    entries: list[tuple[PolicyQuery, float, NamedSeats]] = []
    for wanted, weight in queries:
        require_same_game(wanted, env, "this scenario")
        entries.append((wanted, weight, seats_of[wanted] if wanted.bot else policies_of(wanted, spec)))
    if isinstance(scheduler, TakesOpponents):
        _require_seats(entries, scheduler.opponent_seats, spec)
    elif spec.num_players == 1:
        raise ScenarioError(
            f"opponents were given, and {spec.id} is a task of one player, who meets nobody. Leave them out."
        )
    return _Members(population, spec, instead_of_tree).imported(entries)


def _require_seats(
    entries: Sequence[tuple[PolicyQuery, float, NamedSeats]], opponent_seats: Sequence[int], spec: EnvSpec
) -> None:
    """Require that every imported policy plays, and that there is one for each seat that needs one."""
    if not opponent_seats:
        raise ScenarioError(
            f"opponents were given, and in {spec.id} the learners meet nobody: all of its players are theirs, one each. Leave them out."
        )
    has = [[p for p, policies in enumerate(seats) if policies] for _, _, seats in entries]
    listing = ", ".join(
        f"{wanted.text!r} plays {_seats(own_seats)}" for (wanted, _, _), own_seats in zip(entries, has, strict=True)
    )
    for seat in opponent_seats:
        if not any(seat in own_seats for own_seats in has):
            raise ScenarioError(
                f"opponents: nobody was given for seat {seat} of {spec.id} ({listing}). Add a policy of that seat, a whole run, or random."
            )
    for (wanted, _, _), own_seats in zip(entries, has, strict=True):
        if not set(own_seats) & set(opponent_seats):
            raise ScenarioError(
                f"opponents: {wanted.text!r} plays {_seats(own_seats)}, where the learners meet nobody; they do in "
                f"{_seats(opponent_seats)}. Leave it out."
            )


def _seats(seats: Sequence[int]) -> str:
    return f"seat{'s' if len(seats) > 1 else ''} {', '.join(map(str, seats))}"


class _Members:
    """Who joins which population: a policy that is named twice joins once."""

    def __init__(self, population: tuple[int, ...], spec: EnvSpec, instead_of_tree: Sequence[str]) -> None:
        self._population, self._spec, self._instead_of_tree = population, spec, instead_of_tree
        self._refs: dict[tuple[int, str, str], PolicyRef] = {}  # by population, digest and mode
        self._names: set[tuple[int, str]] = set()
        self._members: list[tuple[PolicyRef, Policy, str]] = []

    def imported(self, entries: Sequence[tuple[PolicyQuery, float, NamedSeats]]) -> ImportedPolicies:
        marginals, lacking = {}, []
        for seat, population in enumerate(self._population):
            shares: dict[PolicyRef, float] = {}
            for wanted, weight, seats in entries:
                total = sum(choice.prob for choice in seats[seat])
                for choice in seats[seat]:
                    ref = self._ref(wanted, choice, seat)
                    shares[ref] = shares.get(ref, 0.0) + weight * choice.prob / total
            if not shares:
                lacking.append(seat)
                shares = {_first(population): 1.0}
            whole = sum(shares.values())
            marginals[seat] = (list(shares), [share / whole for share in shares.values()])
        return ImportedPolicies(tuple(self._members), Mixture.product(marginals), tuple(lacking))

    def _ref(self, wanted: PolicyQuery, choice: SampledPolicy, seat: int) -> PolicyRef:
        population = self._population[seat]
        if choice.policy.spec.kind == "random":
            return _first(population)
        key = (population, digest_of(choice.policy), choice.mode)
        if key not in self._refs:
            self._require_fit(wanted, choice, population)
            ref = PolicyRef(population, self._name(wanted, choice, population), mode=choice.mode)
            self._refs[key] = ref
            self._members.append((ref, choice.policy, _source(wanted, choice)))
        return self._refs[key]

    def _require_fit(self, wanted: PolicyQuery, choice: SampledPolicy, population: int) -> None:
        """Require that it can play, and be evaluated, in all seats of its population: members do."""
        spec, needed = self._spec, self._instead_of_tree
        name = f"{wanted.text} {choice.name}" if wanted.several else wanted.text
        seats = seats_in(self._population, population)
        for seat in seats:
            if wrong := incompatibility(choice.policy, spec, seat, choice.mode):
                shared = f" Members of population {population} play {_seats(seats)}; share=never gives each seat its own population."
                raise ScenarioError(
                    f"opponents: {name!r} cannot play seat {seat} of {spec.id}: {wrong}{shared if len(seats) > 1 else ''}"
                )
            if needed and choice.policy.tabulate(spec.enumeration, seat, mode=choice.mode) is None:  # type: ignore[arg-type]
                why = f"is of kind {choice.policy.spec.kind!r}, which in mode {choice.mode} depends on more than the information state"
                if isinstance(choice.policy, BotPolicy):
                    why = "is a bot, and what it would play in each information state is not known before it is asked"
                raise ScenarioError(
                    f"opponents: {name!r} {why}; on the tree of {spec.id} that cannot be computed with. Set {' and '.join(needed)}."
                )

    def _name(self, wanted: PolicyQuery, choice: SampledPolicy, population: int) -> str:
        """Return a name that no member has, and no learner will: those are POPULATION-NUMBER."""
        owner = "file" if wanted.run is None or choice.ref is None else wanted.run.folder.resolve().name
        if wanted.bot:
            owner = "bot" if isinstance(choice.policy, BotPolicy) else "own"
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{owner}.{choice.name}").lstrip(".-")
        k, name = 1, stem
        while (population, name) in self._names:
            k, name = k + 1, f"{stem}-{k + 1}"
        self._names.add((population, name))
        return name


def _first(population: int) -> PolicyRef:
    """Return the member that every population begins with, which plays uniformly at random."""
    return PolicyRef(population, f"{population}-0")


def _source(wanted: PolicyQuery, choice: SampledPolicy) -> str:
    """Return where it was, for its lineage."""
    if wanted.bot:
        return wanted.text
    if wanted.file is not None:
        return str(wanted.file)
    assert wanted.run is not None
    assert choice.ref is not None
    return str(wanted.run.file(choice.ref))
