"""Policies for others: `push` copies what a name of a run stands for into a zoo, a plain folder; `pull` fetches and checks it.

RUN@… ── push ──► ZOO/NAME: manifest and weights, signed ── pull ──► runs/NAME: the same, checked against the game as it is here

An entry is named as a run is, in the zoo or pulled: ZOO/NAME@best, ZOO/NAME@0/0-3. So there is no other way to use one.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ludus
from ludus.apps.hub.zoo_files import check_name, check_zoo, find_entry, read_content, write_entry
from ludus.core import trust
from ludus.core.config import from_yaml, to_yaml
from ludus.core.errors import ConfigError, DataError, PolicyError, RunError, ScenarioError, SolverError
from ludus.core.recorders import last
from ludus.core.types import Curve, EnvSpec, Match, MetaSolution, NamedStatistics, PolicyRef
from ludus.core.user_code import code_in
from ludus.envs.config import Environment
from ludus.envs.families import FAMILIES
from ludus.envs.game_facts import GameFacts, difference, file_digests, player_facts
from ludus.evaluation.policies import (
    FORMS,
    META,
    PolicyProbabilities,
    incompatibility,
    parse_policy_name,
    policies_of,
    policy_probabilities,
)
from ludus.evaluation.run_ratings import rate_run
from ludus.metagame.population.base import Lineage, Payoffs, PolicyRecord, populations_of, seats_in
from ludus.metagame.population.match_log import merge_statistics
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy
from ludus.policies.file import load_policy
from ludus.storage.base import GenerationRecord
from ludus.storage.manifest import (
    Counted,
    Manifest,
    Member,
    MetaStrategy,
    Payoff,
    Played,
    Rated,
    Results,
    Returns,
    Source,
    read_manifest,
)
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import EXPERIMENT, RUNS, find_run, is_entry
from ludus.storage.stored_run import StoredRun, open_run, refuse_code

_RATINGS = ("elo", "mean_payoff")
_NEWEST = 100  # episodes of a training that say what it came to, as in reports
_ALWAYS = ("torch", "numpy")
_UNNAMED = "policy"  # a file of which no letter can stand in a name here


@dataclass(frozen=True, slots=True, eq=False)
class ZooEntry:
    """An entry of a zoo.

    Attributes:
        folder: Its directory.
        manifest: Its manifest.
        warnings: What may make its policies play differently on this machine.
    """

    folder: Path
    manifest: Manifest
    warnings: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------------------------
# Push.


def push(
    policies: str,
    zoo: Path | str,
    *,
    name: str | None = None,
    note: str = "",
    members: bool = False,
    env: Environment | str | None = None,
    replace: bool = False,
) -> ZooEntry:
    """Copy policies into a zoo, with everything that is known of them.

    The entry is durable when this returns; an error leaves the zoo as it was.

    Args:
        policies: A name, as `ludus.evaluation.policies` reads it; of a mixture, the policies with weight.
        zoo: Directory of the zoo; created if it is missing.
        name: Name of the entry; default: derived from the policies.
        note: A note in the user's words, such as a licence.
        members: Push every policy of the populations of a run or generation, not only those with weight.
        env: The game, or its id, for a file that belongs to no run.
        replace: Replace the entry of the same name.

    Returns:
        The new entry.

    Raises:
        ConfigError: For an unknown name, and for policies without weights.
        RunError: For a run that cannot be read, a zoo that cannot be written, and a name that is taken.
        ScenarioError: For a game that others could not have.
        PolicyError: For policies that need the user's own code, or files of others.
    """
    wanted = parse_policy_name(policies, find_run, open_run, what="policy", forms=FORMS)
    if wanted.bot or wanted.random:
        raise ConfigError(f"{policies!r} has no weights to push; who wants it names it so. Expected {FORMS}.")
    if members and (wanted.file is not None or wanted.solution is None):
        raise ConfigError(
            f"--members was given, and {policies!r} names no whole run or generation. Leave it out, or push the run."
        )
    if env is not None and wanted.run is not None:
        raise ConfigError(f"--env was given, and {policies!r} is of a run, which says what it plays. Leave it out.")
    entry = _entry_name(name, wanted.run, wanted.what, wanted.file)
    check_zoo(Path(zoo))
    if wanted.run is None:
        assert wanted.file is not None
        pushed = _of_file(wanted.file, policies, env)
    else:
        shares = policy_probabilities(wanted, wanted.run)
        what = (
            wanted.what if wanted.file is None else next(wanted.run.name(ref) for group in shares for ref, _ in group)
        )
        pushed = _of_run(wanted.run, what, shares, None if wanted.file is not None else wanted.solution, members)
    manifest = Manifest(name=entry, note=note, created=time.time(), **pushed.facts)
    write_entry(
        Path(zoo) / entry, manifest, lambda member: _read(pushed.files[member.sha256], member.sha256), replace=replace
    )
    trust.mark(Path(zoo) / entry, [trust.scenario_document(manifest.scenario)])
    return ZooEntry(Path(zoo) / entry, manifest)


@dataclass(frozen=True, slots=True, eq=False)
class _Pushed:
    """facts: fields of the manifest. files: of policies, by their digests."""

    facts: Mapping[str, Any]
    files: Mapping[str, Path]


def _entry_name(name: str | None, run: StoredRun | None, what: str, file: Path | None) -> str:
    if name is not None:
        check_name(name)
        return name
    parts = [_name_of(run)] if run is not None else []
    parts += [file.stem] if file is not None else [what] if what not in ("", META) else []
    proposed = _plain("-".join(parts)).lstrip("._-")[:100]
    if not proposed:
        raise ConfigError(f"{'-'.join(parts)!r} has nothing that can name an entry of a zoo. Give a name with --name.")
    check_name(proposed)
    return proposed


def _plain(text: str) -> str:
    """As part of a file's name; empty where nothing of it can stand there."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).lstrip(".-")


def _name_of(run: StoredRun) -> str:
    """Of a run, EXPERIMENT/RUN where it is of one, whose runs are called the same everywhere."""
    folder = run.folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if (folder.parent / EXPERIMENT).is_file() else folder.name


def _of_run(
    run: StoredRun, what: str, shares: Sequence[PolicyProbabilities], solution: MetaSolution | None, everybody: bool
) -> _Pushed:
    """shares: who is named. solution: what they play, where that is a generation's. everybody: of the populations, too."""
    named = {ref for group in shares for ref, _ in group}
    chosen = {which: [r.ref for r in members if everybody or r.ref in named] for which, members in run.members.items()}
    stored = {policy.record.ref: policy for policy in run.policies}
    with Reader(run.folder) as reader:
        source, training = _source(run, what), _training(run, reader)
        record = next((r for r in reader.generations() if r.number == source.generation), None)
        results = _results(run, reader.payoffs(), chosen, reader, record if solution is not None else None)
    policies, files = list[Member](), dict[str, Path]()
    for ref in (ref for members in chosen.values() for ref in members):
        member = _member(stored[ref].record, stored[ref].sha256)
        policies.append(member.model_copy(update=training.get((ref.population, ref.policy), {})))
        files[member.sha256] = run.file(ref)
    facts: dict[str, Any] = {"source": source, "policies": tuple(policies), "results": results}
    facts |= {"game": _game(run.env.played, run.population), "scenario": _without_folders(run.info.text)}
    facts |= {"meta_strategy": _strategy(run, shares, chosen, solution)}
    facts |= {"utility_range": run.info.utility_range, "zero_sum": run.info.zero_sum}
    return _Pushed(facts, files)


def _without_folders(text: str) -> str:
    """Return the scenario's text; of files that it names, which do not come along, the names alone: where they lay is nobody's business.
    Those of the environment stay, since it is made from them."""

    def redacted(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: redacted(part) for key, part in value.items()}
        if isinstance(value, list):
            return [redacted(part) for part in value]
        return os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value

    settings = from_yaml(text, what="the scenario")
    return to_yaml({key: part if key == "env" else redacted(part) for key, part in settings.items()})


def _source(run: StoredRun, what: str) -> Source:
    """Of what an entry has: where that came from."""
    if is_entry(run.folder):
        first = read_manifest(run.folder).source
        return first.model_copy(update={"of": what} if what not in ("", META) else {})
    return Source(
        run=_name_of(run),
        of=what,
        generation=int(what) if what.isdecimal() else run.generation,
        scenario=run.info.scenario,
        algorithm=run.info.algorithm,
        seed=run.info.seed,
        code=run.info.version,
    )


def _training(run: StoredRun, reader: Reader) -> dict[tuple[int, str], dict[str, Any]]:
    """Return fields of `Member` that tell of the training of a policy, by population and name."""
    if is_entry(run.folder):
        members = read_manifest(run.folder).policies
        return {(m.population, m.policy): {"trained": m.trained, "returns": m.returns} for m in members}
    known: dict[tuple[int, str], dict[str, Any]] = {
        (task.population, task.policy): {"trained": dict(task.counters)}
        for task in reader.tasks()
        if task.population is not None and task.policy is not None
    }
    for stored in reader.curves():
        known.setdefault((stored.population, stored.policy), {})["returns"] = _returns(stored.curve)
    return known


def _of_file(file: Path, text: str, env: Environment | str | None) -> _Pushed:
    """A policy of no run, for all players whom it fits."""
    if env is None:
        raise ConfigError(
            f"{text!r} is of no run, so its game is not known; say which with --env, such as --env openspiel/leduc_poker."
        )
    settings = (env if isinstance(env, Environment) else Environment(id=env)).played
    vector = _alone(settings).make(num_envs=1)
    spec = vector.spec
    vector.close()
    wanted = parse_policy_name(text, find_run, open_run)
    seats = policies_of(wanted, spec)
    population = populations_of(spec)
    fits = sorted({which for which, some in zip(population, seats, strict=True) if some})
    (sampled, *_) = [one for some in seats for one in some]
    data = file.read_bytes()
    name = _plain(file.stem) or _UNNAMED
    records = [PolicyRecord(PolicyRef(which, name), 0, sampled.policy.spec, Lineage()) for which in fits]
    policies = tuple(_member(record, hashlib.sha256(data).hexdigest()) for record in records)
    marginals = tuple((1.0,) if which in fits else () for which in population)
    facts: dict[str, Any] = {"source": Source(run="", of=file.name), "game": _game(settings, population)}
    facts |= {"policies": policies, "meta_strategy": MetaStrategy(marginals=marginals)}
    facts |= {"scenario": to_yaml({"env": settings.model_dump(mode="json")})}
    facts |= {"utility_range": spec.utility_range, "zero_sum": spec.zero_sum}
    return _Pushed(facts, {policies[0].sha256: file})


def _read(path: Path, sha256: str) -> bytes:
    """A run's file, as its database has it. Raises RunError for one that is missing or was changed."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"policy file {str(path)!r} cannot be read: {error.strerror}.") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RunError(f"policy file {str(path)!r} was changed or damaged since its run wrote it. Nothing was pushed.")
    return data


def _member(record: PolicyRecord, sha256: str) -> Member:
    """sha256: of its file. Raises PolicyError for a policy that is code, or is not whole in its file."""
    ref, spec = record.ref, record.spec
    if code := code_in(spec):
        raise PolicyError(
            f"policy {ref.policy!r} is code of your own, {code!r}, and a zoo has weights and no code. Push others, such as "
            "RUN@PLAYER/POLICY."
        )
    if spec.kind == "bot" and (bot := BotPolicy(spec, {}).bot).own:
        raise PolicyError(
            f"policy {ref.policy!r} is the bot {bot.text!r}, which may read files that a zoo does not have. Push others, such as "
            "RUN@PLAYER/POLICY, or the policy's own file, FILE.safetensors."
        )
    name = _plain(ref.policy) or _UNNAMED
    return Member(
        population=ref.population,
        policy=ref.policy,
        version=ref.version or 0,
        mode=ref.mode,
        kind=spec.kind,
        config=dict(spec.config),
        file=f"policies/{ref.population}/{name}-{sha256[:12]}.safetensors",
        sha256=sha256,
        generation=record.lineage.generation,
    )


def _returns(curve: Curve) -> Returns | None:
    if not len(curve):
        return None
    newest = last(curve, episodes=_NEWEST)
    if not np.isfinite(newest["mean"][0]):
        return None
    return Returns(n=int(newest["n"][0]), mean=float(newest["mean"][0]), m2=float(newest["m2"][0]))


def _strategy(
    run: StoredRun,
    shares: Sequence[PolicyProbabilities],
    chosen: Mapping[int, Sequence[PolicyRef]],
    solution: MetaSolution | None,
) -> MetaStrategy:
    """Return over the policies that are pushed."""
    marginals = []
    for which, group in zip(run.population, shares, strict=True):
        probs = dict(group)
        marginals.append(tuple(probs.get(ref, 0.0) for ref in chosen[which]))
    if solution is None or solution.joint is None:
        return MetaStrategy(marginals=tuple(marginals))
    place = {ref: k for refs in chosen.values() for k, ref in enumerate(refs)}
    profiles = np.argwhere(solution.joint > 0)
    stored_profiles = [
        tuple(place[run.members[which][int(k)].ref] for which, k in zip(run.population, profile, strict=True))
        for profile in profiles
    ]
    probs = solution.joint[tuple(profiles.T)].tolist()
    return MetaStrategy(marginals=tuple(marginals), profiles=tuple(stored_profiles), probs=tuple(probs))


# ---------------------------------------------------------------------------------------------- what is known of them


def _results(
    run: StoredRun,
    payoffs: Payoffs,
    chosen: Mapping[int, Sequence[PolicyRef]],
    reader: Reader,
    record: GenerationRecord | None,
) -> Results:
    """record: of the generation whose meta-strategies are pushed."""
    places = {which: [run.records[ref].index for ref in refs] for which, refs in chosen.items()}
    part = payoffs.part(places)
    exact, count = part.exact, part.count
    mean, m2 = np.moveaxis(part.mean, 0, -1), np.moveaxis(part.m2, 0, -1)  # [profile, P]
    computed = [Payoff(profile=k, mean=tuple(mean[k].tolist())) for k in map(tuple, np.argwhere(exact).tolist())]
    profiles = list(map(tuple, np.argwhere((count > 0) & ~exact).tolist()))
    stored_profiles = {k: tuple(places[run.population[p]][i] for p, i in enumerate(k)) for k in profiles}
    wins, counted = reader.wins(list(stored_profiles.values())), _counted(reader.counted())
    played = [
        Played(
            profile=k,
            n=int(count[k]),
            mean=tuple(mean[k].tolist()),
            m2=tuple(m2[k].tolist()),
            wins=wins.get(stored_profiles[k], ()),
            statistics=counted.get(stored_profiles[k]),
        )
        for k in profiles
    ]
    known: dict[str, Any] = {}
    if record is not None:
        values = record.values if np.isfinite(record.values).all() else ()  # of learners alone nothing was evaluated
        known = {"nash_conv": record.nash_conv, "gains": record.gains, "values": values, "exact": record.exact}
    elif exact.size == 1 and (exact.any() or count.any()):  # one policy of each
        known = {"values": tuple(mean.ravel().tolist()), "exact": bool(exact.all())}
    ratings = tuple(rated for kind in _RATINGS if (rated := _rated(run, kind, chosen)) is not None)
    return Results(payoffs=tuple(computed), matches=tuple(played), ratings=ratings, **known)


def _counted(matches: Sequence[Match]) -> dict[tuple[int, ...], Counted]:
    """Of each profile, the statistics of all its matches together."""
    parts: dict[tuple[int, ...], list[NamedStatistics | None]] = {}
    for match in matches:
        parts.setdefault(match.profile, []).append(match.statistics)
    merged = {profile: merge_statistics(statistics) for profile, statistics in parts.items()}
    return {
        profile: Counted(names=s.names, n=_rows(s.n), mean=_rows(s.mean), m2=_rows(s.m2))
        for profile, s in merged.items()
        if s is not None
    }


def _rows(array: NDArray[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, array.tolist()))


def _rated(run: StoredRun, kind: str, chosen: Mapping[int, Sequence[PolicyRef]]) -> Rated | None:
    """Return None where what is stored cannot be rated so, as computed payoffs by Elo."""
    try:
        ratings = rate_run(run.folder, [kind])
    except (DataError, SolverError):
        return None
    (table,) = ratings.tables.values()
    offsets = np.cumsum([0, *table.sizes])
    places = [
        offsets[which] + run.records[ref].index if run.records[ref].index < table.sizes[which] else None
        for which, refs in chosen.items()
        for ref in refs
    ]

    def column(values: Any) -> tuple[float, ...]:
        return tuple(np.nan if place is None else float(values[place]) for place in places)

    return Rated(
        name=kind, unit=table.unit, rating=column(table.rating), low=column(table.low), high=column(table.high)
    )


# --------------------------------------------------------------------------------------------------------------------
# The game, as it is here.


def _alone(settings: Environment) -> Environment:
    """Return the game itself, in this process."""
    return settings.played.of_game(None).model_copy(update={"workers": 0, "deadline": None, "restarts": 0})


def _game(settings: Environment, population: Sequence[int]) -> GameFacts:
    """Raises ScenarioError for a game that only one program has; what making it raises."""
    if settings.unnamed:
        raise ScenarioError(
            f"the policies play {settings.id!r}, an object of the program that trained them, which nobody else can make. Train in one that "
            "can be imported, `module:Class`."
        )
    try:
        refuse_code(settings.model_dump())
    except ConfigError as error:
        raise ScenarioError(f"{settings.id} cannot be pushed: {error}") from error
    env = _alone(settings).make(num_envs=1)
    try:
        return _described(settings, env.spec, population)
    finally:
        env.close()


def _described(settings: Environment, spec: EnvSpec, population: Sequence[int]) -> GameFacts:
    tree, package = spec.enumeration, _package(settings.id)
    return GameFacts(
        id=settings.id,
        options=settings.options,
        wrappers=settings.wrappers,
        players=player_facts(spec, population),
        states="" if tree is None else hashlib.sha256("\n".join(tree.key).encode()).hexdigest(),
        package=package,
        packages=_versions(package),
        files=file_digests(settings.id),
    )


@cache
def _package(id: str) -> str:
    """Return the distribution that brings an environment; "" where that is not known."""
    family, slash, _ = id.partition("/")
    module = FAMILIES[family].needs if slash and family in FAMILIES else id.partition(":")[0].partition(".")[0]
    return next(iter(packages_distributions().get(module, ())), "")


def _versions(package: str) -> dict[str, str]:
    versions = {"ludus": ludus.__version__}
    for name in (*_ALWAYS, *([package] if package else [])):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


# --------------------------------------------------------------------------------------------------------------------
# Pull.


def pull(
    entry: Path | str, target: Path | str | None = None, *, check_env: bool = True, replace: bool = False
) -> ZooEntry:
    """Copy an entry of a zoo to this machine, after verifying its signature, checksums and environment.

    Args:
        entry: ZOO/NAME.
        target: Target directory; default: ./runs/NAME, so that its policies are named NAME@best.
        check_env: Build the environment and verify that spaces, information states and policies fit it. Another version of the
            environment's package is a warning if everything fits.
        replace: Replace an entry that exists.

    Returns:
        The copied entry, with warnings.

    Raises:
        RunError: For an entry that is missing, unsigned, damaged or of an unknown format, and for a target that exists.
        ScenarioError: If the environment is another game here.
        PolicyError: For policies that cannot be loaded or played.
    """
    folder = find_entry(str(entry))
    manifest = read_manifest(folder)
    name = folder.resolve().name
    check_name(name)
    destination = RUNS / name if target is None else Path(target)
    if destination.resolve() == folder.resolve():
        raise RunError(f"{str(destination)!r} is the entry itself. Give another target.")
    warnings = check_entry(folder, manifest, check_env=check_env)
    write_entry(destination, manifest, lambda member: read_content(folder, member), replace=replace)
    if check_env:  # which has asked
        trust.mark(destination, [trust.scenario_document(manifest.scenario)])
    return ZooEntry(destination, manifest, warnings)


def check_entry(folder: Path, manifest: Manifest, *, check_env: bool = True) -> tuple[str, ...]:
    """Read all of an entry; answer with warnings, and raise as `pull` does for what must not be used."""
    loaded = []
    for member in manifest.policies:
        read_content(folder, member)
        policy = load_policy(folder / member.file, member.sha256)
        loaded.append((member, policy))
    if not check_env:
        return ()
    run = open_run(folder)
    settings = _alone(run.env)
    try:
        env = settings.make(num_envs=1)
    except ConfigError as error:
        raise ScenarioError(
            f"{str(folder)!r} plays {manifest.game.id}, which cannot be made here: {error} --no-check-env copies it all the same."
        ) from error
    try:
        _require_same(manifest.game, _described(settings, env.spec, run.population))
        _require_fit(loaded, env.spec, run.population)
    finally:
        env.close()
    return _warnings(manifest, env.spec)


def _require_same(entry: GameFacts, local: GameFacts) -> None:
    """Raise ScenarioError, with the first thing that differs."""
    wrong = _difference(entry, local)
    if wrong:
        raise ScenarioError(
            f"the entry's policies were trained on another game than {entry.id} is here: {wrong} {_other_version(entry)}"
        )


def _difference(entry: GameFacts, local: GameFacts) -> str:
    if entry.id != local.id:
        return f"its scenario makes {local.id}."
    if wrong := difference(entry.players, local.players, "the entry", bounds=True):
        return wrong
    if changed := [name for name, digest in entry.files.items() if local.files.get(name, digest) != digest]:
        return f"the file {changed[0]!r} holds something else than when the entry was pushed."
    if entry.states and entry.states != local.states:
        return "its information states are others than in the entry, and policies play by their ids."
    return ""


def _require_fit(loaded: Sequence[tuple[Member, Policy]], spec: EnvSpec, population: Sequence[int]) -> None:
    for member, policy in loaded:
        for player in seats_in(population, member.population):
            if wrong := incompatibility(policy, spec, player, member.mode):
                raise PolicyError(
                    f"policy {member.policy!r} of the entry cannot play player {player} of {spec.id} here: {wrong}"
                )


def _other_version(game: GameFacts) -> str:
    """Return a sentence where the environment's package has another version here."""
    was, is_ = game.packages.get(game.package, ""), _versions(game.package).get(game.package, "")
    return f"It was pushed with {game.package} {was}, and {is_} is installed." if was and is_ and was != is_ else ""


def _warnings(manifest: Manifest, spec: EnvSpec) -> tuple[str, ...]:
    """Of what fits."""
    warnings = []
    if other := _other_version(manifest.game):
        warnings.append(
            f"{other} All spaces fit; the game may still play otherwise, and its results are of the other version."
        )
    was, now = manifest.utility_range, spec.utility_range
    if not np.allclose(was, now) or manifest.zero_sum != spec.zero_sum:
        warnings.append(
            f"It pays otherwise here: returns lie in {_ranges(now, spec.zero_sum)}, and in {_ranges(was, manifest.zero_sum)} in the entry, "
            "whose results are of those."
        )
    return tuple(warnings)


def _ranges(ranges: Sequence[tuple[float, float]], zero_sum: bool) -> str:
    """Of all players; once where they are alike."""
    texts = dict.fromkeys(f"[{low:g}, {high:g}]" for low, high in ranges)
    return " and ".join(texts) + (" (zero-sum)" if zero_sum else "")
