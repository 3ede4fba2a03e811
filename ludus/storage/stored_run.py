"""A run directory, opened: the one way to it, for whoever evaluates a run and whoever goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ludus.core import trust
from ludus.core.config import from_yaml
from ludus.core.errors import ConfigError, RunError
from ludus.core.parts import ENVIRONMENTS, resolve_name
from ludus.core.player_names import PlayerNames
from ludus.core.types import MetaSolution, PolicyRef, PolicySpec
from ludus.core.user_code import code_in
from ludus.envs.config import Environment
from ludus.metagame.population.base import PolicyRecord, seats_in
from ludus.metagame.solvers.normal_form import opponent_distribution
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.storage.base import GenerationRecord
from ludus.storage.checkpoint import PolicyFiles
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import find_run, is_entry

T = TypeVar("T")

_EQUAL = 1e-3
"""Values are taken for equal that differ by less, as a share of the payoffs' range: in equilibrium all that is played earns the same."""


_OURS = "ludus.testing."  # small environments, some of which functions make


def refuse_code(part: Any) -> None:
    """Raise ConfigError for a part of a scenario that names code of somebody's own, which somebody else's words must not call with
    arguments of their choice. An environment may be a class that can be imported, since nothing but environments has its methods."""
    values = dict(part) if isinstance(part, Mapping) else {"": part}
    name, called = values.get("id"), ""
    if isinstance(name, str) and ":" in name and "/" not in name and not name.startswith(_OURS):
        called = name  # Ludus's own too, whose functions can do as much
        environment = resolve_name("environment", name, {}, expected=ENVIRONMENTS, functions=True)
        if isinstance(environment, type) and all(
            callable(getattr(environment, method, None)) for method in ("reset", "step")
        ):
            del values["id"]
            called = ""
    if code := called or code_in(PolicySpec("", values)):
        raise ConfigError(
            f"{code!r} is code of somebody's own, which is not run from a zoo, but for an environment's class (reset, step)."
        )


def _environment(options: Any) -> Environment:
    if not isinstance(options, Mapping):
        raise ConfigError(f"{options!r} was given; expected its options, id among them.")
    return Environment(**options)


class StoredRun:
    """What a run directory says of itself, read once; the run may be going on. An entry of a zoo says the same of itself, and may have no
    members for a player. Raises RunError for one that is unreadable.

    check: whether pages and rows are checked; of damaged rows a RunWarning is issued.
    info, checkpoints, policies, summary: as `Reader` gives them. members: of each population, in order. records: by ref.
    """

    def __init__(self, folder: Path, *, check: bool = True) -> None:
        self.folder = folder
        with Reader(folder, check=check) as reader, reader.moment():
            if check:
                reader.warn_of_damage()
            self.info, self.summary = reader.info(), reader.summary()
            self.checkpoints, self.policies = reader.checkpoints(), reader.policies()
            self._last = reader.last_generation()
        self.population = self.info.population
        self.records = {p.record.ref: p.record for p in self.policies}
        self.members: dict[int, list[PolicyRecord]] = {which: [] for which in sorted(set(self.population))}
        for ref, record in self.records.items():
            self.members.setdefault(ref.population, []).append(record)
        self._loaded: dict[PolicyRef, Policy] = {}

    @property
    def lacking(self) -> list[int]:
        """The players for whom nobody is there, which an entry of a zoo may have."""
        return [player for player, which in enumerate(self.population) if not self.members[which]]

    def require_everybody(self) -> None:
        """Raise RunError if there is somebody for some players only."""
        if lacking := self.lacking:
            raise RunError(
                f"{str(self.folder)!r} has nobody for player{'s' if len(lacking) > 1 else ''} {', '.join(map(str, lacking))}, and what is "
                "asked for needs policies of each. Push the whole run, or name others for them with --policies."
            )

    def require_trust(self) -> None:
        """Raise TrustError where the scenario or the spec of a policy names code that this user has neither made nor trusts."""
        trust.require_trust(self.folder, self._documents, folder=self.folder)

    @cached_property
    def _documents(self) -> list[Any]:
        specs = (record.spec for record in self.records.values())
        return [trust.scenario_document(self.info.text), *(trust.spec_document(s.kind, s.config) for s in specs)]

    # ---------------------------------------------------------------------------------------------- of the scenario

    @cached_property
    def env(self) -> Environment:
        """The options of its environment, which make the game that it was when the run began only. Raises RunError as `part` does."""
        return self.part("env", _environment).of_game(self.info.game)

    def part(self, name: str, make: Callable[[Any], T], *, default: Any = None) -> T:
        """Return what `make` makes of a part of the scenario, which the database has with all options written out. default: for a part that
        is not there. Raises RunError for one that is not there and has none, or of which `make` raises ConfigError; and, of an entry of a
        zoo, as `refuse_code`; TrustError as `require_trust`."""
        self.require_trust()
        try:
            data = from_yaml(self.info.text, what="the scenario", source=str(self.folder))
            if name not in data and default is None:
                raise ConfigError("it is not there.")
            if is_entry(self.folder):
                refuse_code(data.get(name))
            return make(data.get(name, default))
        except ConfigError as error:
            raise RunError(
                f"the scenario in the database of {str(self.folder)!r} cannot be used: {name}: {error}"
            ) from error

    @cached_property
    def player_names(self) -> PlayerNames:
        """What its players are called. The environment is made where the run keeps no facts of its game, or wrappers may have put other
        players in its place. Raises as `env`, and what making it raises."""
        if (game := self.info.game) is not None and not self.env.wrappers:
            return PlayerNames.of_agents(self.info.env, [player.agents for player in game.players])
        env = self.env.played.make(num_envs=1)
        try:
            return PlayerNames.of(env.spec)
        finally:
            env.close()

    # ---------------------------------------------------------------------------------------------- generations

    @property
    def generation(self) -> int:
        """The last one that finished. Raises RunError if none has."""
        return self._finished().number

    @cached_property
    def solution(self) -> MetaSolution:
        """The meta-strategies of the last finished generation. Raises RunError if none has, or if policies of theirs are missing."""
        return self._solved(self._finished())

    def solution_after(self, generation: int) -> MetaSolution | None:
        """Return the meta-strategies after a generation; None if the run has no such generation. Raises RunError as `solution`."""
        if self._last is None or generation > self._last.number:
            return None  # nor of one that has finished since this was read
        if generation == self._last.number:
            return self.solution
        with Reader(self.folder, check=False) as reader:
            record = reader.generation(generation)
            return None if record is None else self._solved(record)

    def _solved(self, record: GenerationRecord) -> MetaSolution:
        marginals, joint = tuple(np.array(m) for m in record.marginals), record.joint
        solution = MetaSolution(marginals if joint is None else None, record.solver_gap, joint=joint)
        for player, marginal in enumerate(solution.strategies):
            known = len(self.members.get(self.population[player], []))
            if len(marginal) > known:
                raise RunError(
                    f"the database of {str(self.folder)!r} has {known} policies of player {player}, whose meta-strategy after generation "
                    f"{record.number} is over {len(marginal)}. Rows were removed by hand; restore the database from a copy."
                )
        return solution

    def trained(self, record: PolicyRecord) -> bool:
        """Return whether a task of the run made this policy: it was learned, or computed. An entry of a zoo does not say so, and there
        everybody counts but bots and who plays at random."""
        if is_entry(self.folder):
            return record.spec.kind not in ("bot", "random")
        return bool(record.lineage.task)

    @cached_property
    def best(self) -> dict[int, PolicyRef]:
        """Of each population the `trained` policy that earns most against the last meta-strategies, by the recorded payoffs, over the seats
        that it plays; of those that earn the same, the one that they play most, then the newest. Where no payoffs are recorded, the newest.
        Where nobody was trained, as among opponents that were imported, all count."""
        chosen = {}
        for which, members in self.members.items():
            eligible = [k for k, record in enumerate(members) if self.trained(record)] or list(range(len(members)))
            if members:
                chosen[which] = self._most(which, eligible)
        return chosen

    @cached_property
    def strongest(self) -> dict[int, PolicyRef]:
        """Of each population the policy of the highest rating, whoever it is: bots, imported policies and the first one count.

        The rating is the last Elo that the run has recorded; where there is none (payoffs were computed, not two players, an entry of a
        zoo), what a policy earns against the last meta-strategies, as for `best`."""
        with Reader(self.folder, check=False) as reader:
            stored = {(r.population, r.policy): r.rating for r in reader.ratings(last=True) if np.isfinite(r.rating)}
        chosen = {}
        for which, members in self.members.items():
            rated = [k for k, record in enumerate(members) if (which, record.ref.policy) in stored]
            if rated:
                most = max(rated, key=lambda k: (stored[which, members[k].ref.policy], k))
                chosen[which] = members[most].ref
            elif members:
                chosen[which] = self._most(which, list(range(len(members))))
        return chosen

    @cached_property
    def _earnings(self) -> tuple[list[NDArray[np.float64]], MetaSolution, float]:
        """([P] float64[policies] what each earns against the last meta-strategies; these, over all policies; what differs by less is
        equal)."""
        with Reader(self.folder, check=False) as reader:
            mean = reader.payoffs().mean[(slice(None), *(slice(len(self.members[k])) for k in self.population))]
        solution = _padded(self.solution, mean.shape[1:])
        equal = _EQUAL * float(np.ptp(mean[np.isfinite(mean)])) if np.isfinite(mean).any() else 0.0
        return [_values(values, solution, player) for player, values in enumerate(mean)], solution, equal

    def _most(self, which: int, eligible: Sequence[int]) -> PolicyRef:
        """Return who of these members of a population earns most, as `best` says it. eligible: their places, rising; at least one."""
        worth, solution, equal = self._earnings
        seats = seats_in(self.population, which)
        value = np.mean([worth[p] for p in seats], axis=0)
        share = np.mean([solution.strategies[p] for p in seats], axis=0)
        known = [k for k in eligible if np.isfinite(value[k])]
        top = max((value[k] for k in known), default=0.0)
        good = [k for k in known if value[k] >= top - equal]
        return self.members[which][max(good, key=lambda k: (share[k], k), default=eligible[-1])].ref

    def _finished(self) -> GenerationRecord:
        if self._last is None:
            raise RunError(
                f"{str(self.folder)!r} has no finished generation yet, so nobody in it can be named. Wait for the first one; "
                "`ludus status` says how far it is."
            )
        return self._last

    # ---------------------------------------------------------------------------------------------- policies

    def files(self, refs: Collection[PolicyRef]) -> PolicyFiles:
        """Return the weights of these policies."""
        wanted = [p for p in self.policies if p.record.ref in refs]
        return PolicyFiles(self.folder, {p.record.ref: (p.file, p.sha256) for p in wanted})

    @cached_property
    def _files(self) -> PolicyFiles:
        return self.files(self.records.keys())

    def policy(self, ref: PolicyRef) -> Policy:
        """Return a policy, read when it is first wanted."""
        if ref not in self._loaded:
            self.require_trust()
            self._loaded[ref] = build_policy(self.records[ref].spec, self._files.get(ref))
        return self._loaded[ref]

    def file(self, ref: PolicyRef) -> Path:
        """Return where a policy's weights are."""
        return self.folder / self._files.file(ref)

    def name(self, ref: PolicyRef) -> str:
        """Return PLAYER/POLICY, how a user names it after RUN@: of the first player who shares its population."""
        return f"{self.population.index(ref.population)}/{ref.policy}"

    def names(self, player: int) -> list[str]:
        """Return the policies that can play `player`, the newest last."""
        return [record.ref.policy for record in self.members[self.population[player]]]


def open_run(folder: Path | str) -> StoredRun:
    """Return a run that can be evaluated, by its directory or its name below ./runs. Raises RunError if it is unreadable, or has no
    finished generation."""
    run = StoredRun(find_run(folder))
    _ = run.env, run.solution  # what is wrong with them shows now
    return run


def _padded(solution: MetaSolution, sizes: Sequence[int]) -> MetaSolution:
    """Return the table with zeros for policies that came later. sizes: [P] of all."""
    if solution.joint is not None:
        return replace(
            solution,
            joint=np.pad(solution.joint, [(0, n - k) for n, k in zip(sizes, solution.joint.shape, strict=True)]),
        )
    marginals = (np.pad(probs, (0, n - len(probs))) for probs, n in zip(solution.strategies, sizes, strict=True))
    return replace(solution, marginals=tuple(marginals))


def _values(mean: NDArray[np.float64], solution: MetaSolution, player: int) -> NDArray[np.float64]:
    """Return float64[n_player]: what each policy earns by mean float64[n_0, …] against the others' part of a solution; NaN where a match is
    missing."""
    own, weight = np.moveaxis(mean, player, 0), opponent_distribution(solution, player).ravel()
    support = np.flatnonzero(weight)
    values: NDArray[np.float64] = own.reshape(len(own), weight.size)[:, support] @ weight[support]
    return values
