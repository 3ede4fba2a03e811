"""A zoo entry's `manifest.json`: what the policies beside it are, where they come from, and what is known of them.

NAME/manifest.json                                   signed: `sha256` is of all that it says
NAME/policies/<population>/<policy>-<sha>.safetensors  named in it, with the SHA-256 of each

A zoo is a folder of such entries. `Reader` gives an entry's facts as those of a run, so all that reads runs reads entries.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator, model_validator

from ludus.core.config import Config
from ludus.core.errors import ConfigError, RunError, one_line
from ludus.core.types import PolicySpec
from ludus.core.user_code import code_in
from ludus.envs.game_facts import GameFacts
from ludus.storage.base import RunInfo
from ludus.storage.database import APPLICATION_ID, TABLES, VERSION
from ludus.storage.run_dirs import MANIFEST

FORMAT = 1
_FILE = re.compile(r"policies/\d+/[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Source(Config):
    """Where the policies come from. of: what was named after the @. run: its name. generation: after which. code: Ludus's version when the
    run began."""

    run: str
    of: str = ""
    generation: int = 0
    scenario: str = ""
    algorithm: str = ""
    seed: int = 0
    code: str = ""


class Returns(Config):
    """Of n episodes: the mean, and m2, the sum of squared deviations."""

    n: int
    mean: float
    m2: float


class Member(Config):
    """A policy. file: relative to the entry. generation: that it was made in. trained: what its training counted. returns: of the newest
    episodes of its training, against whom it met there."""

    population: int = Field(ge=0)
    policy: str
    version: int = 0
    mode: str = "explore"
    kind: str
    config: dict[str, Any] = Field(default_factory=dict)
    file: str
    sha256: str
    generation: int = 0
    trained: dict[str, int] = Field(default_factory=dict)
    returns: Returns | None = None

    @field_validator("file")
    @classmethod
    def _inside(cls, file: str) -> str:
        if not _FILE.fullmatch(file):
            raise ConfigError(f"{file!r} is no file of an entry; expected policies/POPULATION/NAME.safetensors.")
        return file

    @field_validator("sha256")
    @classmethod
    def _whole(cls, sha256: str) -> str:
        if not _DIGEST.fullmatch(sha256):
            raise ConfigError(f"{sha256!r} is no SHA-256.")
        return sha256

    @model_validator(mode="after")
    def _known(self) -> Member:
        if code := code_in(PolicySpec(self.kind, self.config)):
            raise ConfigError(
                f"{code!r} is code of somebody's own, which no zoo carries and which is not run from one."
            )
        return self


class MetaStrategy(Config):
    """marginals: [P] over the pushed policies of each player's population; nothing for a player for whom nobody was pushed.
    profiles, probs: of a joint one."""

    marginals: tuple[tuple[float, ...], ...]
    profiles: tuple[tuple[int, ...], ...] = ()
    probs: tuple[float, ...] = ()


class Payoff(Config):
    """A profile of pushed policies whose returns were computed."""

    profile: tuple[int, ...]
    mean: tuple[float, ...]


class Counted(Config):
    """Statistics of episodes beside their returns, [P][S] by `names`, as `NamedStatistics` has them."""

    names: tuple[str, ...]
    n: tuple[tuple[int, ...], ...]
    mean: tuple[tuple[float, ...], ...]
    m2: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _table(self) -> Counted:
        columns = self.n, self.mean, self.m2
        if len({len(rows) for rows in columns}) > 1 or any(
            len(row) != len(self.names) for rows in columns for row in rows
        ):
            raise ConfigError("its numbers are not one for each player and name.")
        return self


class Played(Config):
    """All episodes of one profile, as `Match` has them."""

    profile: tuple[int, ...]
    n: int
    mean: tuple[float, ...]
    m2: tuple[float, ...]
    wins: tuple[tuple[int, int, int], ...] = ()
    statistics: Counted | None = None


class Rated(Config):
    """A rating of each of `policies`, among all policies that its run had, with 95% intervals; NaN where nothing is known."""

    name: str
    unit: str
    rating: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class Results(Config):
    """gains, values: [P] as `GenerationRecord` has them, of the meta-strategy; None or empty where they are not known. values: of the
    profile where one policy of each was pushed. exact: they were computed."""

    nash_conv: float | None = None
    gains: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    exact: bool = True
    payoffs: tuple[Payoff, ...] = ()
    matches: tuple[Played, ...] = ()
    ratings: tuple[Rated, ...] = ()


class Manifest(Config):
    """A zoo entry. created: seconds since the epoch. utility_range, zero_sum: of the game. scenario: the resolved one, as YAML."""

    format: int = FORMAT
    name: str
    note: str = ""
    created: float = Field(ge=0, le=1e11)
    source: Source
    game: GameFacts
    utility_range: tuple[tuple[float, float], ...]
    zero_sum: bool
    policies: tuple[Member, ...] = Field(min_length=1)
    meta_strategy: MetaStrategy
    results: Results = Results()
    scenario: str

    @model_validator(mode="after")
    def _together(self) -> Manifest:
        players, sizes = len(self.game.players), self.sizes
        marginals, profiles = self.meta_strategy.marginals, [p.profile for p in self.results.payoffs]
        profiles += [p.profile for p in self.results.matches] + [*self.meta_strategy.profiles]
        if len(self.utility_range) != players or [len(row) for row in marginals] != [sizes[p] for p in range(players)]:
            raise ConfigError("its players, policies and meta_strategy do not belong together.")
        if any(len(p) != players or any(not 0 <= k < n for k, n in zip(p, sizes, strict=True)) for p in profiles):
            raise ConfigError("a profile of its results lies outside its policies.")
        if any(len(row) != players for row in self._by_player):
            raise ConfigError(f"its results are not of {players} players.")
        if any({len(r.rating), len(r.low), len(r.high)} != {len(self.policies)} for r in self.results.ratings):
            raise ConfigError("its ratings are not of its policies.")
        if len(self.meta_strategy.profiles) != len(self.meta_strategy.probs):
            raise ConfigError("its meta_strategy has another number of profiles than of probs.")
        return self

    @property
    def _by_player(self) -> Iterator[Sequence[Any]]:
        """What its results tell of each player."""
        results = self.results
        yield from (row for row in (results.gains, results.values) if row)
        yield from (payoff.mean for payoff in results.payoffs)
        for match in results.matches:
            yield from (match.mean, match.m2)
            if match.wins:
                yield match.wins
            if match.statistics is not None:
                yield match.statistics.n

    @property
    def sizes(self) -> tuple[int, ...]:
        """[P] policies that can play each player."""
        return tuple(sum(m.population == p.population for m in self.policies) for p in self.game.players)

    def signed(self) -> bytes:
        """Return the file's content."""
        data = json.loads(self.model_dump_json())
        if not self.game.files:  # an older Ludus knows no such key
            del data["game"]["files"]
        return _text({**data, "sha256": _digest(data)}).encode()


def read_manifest(folder: Path) -> Manifest:
    """Return what an entry says of itself. Raises RunError, saying what is wrong, for one that is missing, changed, or of another
    format."""
    path = folder / MANIFEST
    try:
        data = json.loads(path.read_bytes())
        form = data.get("format")
    except OSError as error:
        raise RunError(
            f"{str(folder)!r} is no entry of a zoo: {MANIFEST} cannot be read ({error.strerror})."
        ) from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise RunError(
            f"{str(path)!r} is not a manifest: {' '.join(str(error).split())}. Push or pull it again."
        ) from error
    if isinstance(form, int) and form > FORMAT:
        raise RunError(
            f"{str(path)!r} was written by a newer Ludus (format {form}; this one reads {FORMAT}). Upgrade ludus."
        )
    if form != FORMAT:
        raise RunError(f"{str(path)!r} is no manifest of a zoo: its format is {form!r}, {FORMAT} was expected.")
    sha256 = data.pop("sha256", None)
    if sha256 != _digest(data):
        raise RunError(
            f"{str(path)!r} was changed since it was signed, or is damaged: its SHA-256 is not what it says. Restore it, or push it again."
        )
    try:
        return Manifest(**data)
    except ConfigError as error:
        raise RunError(f"{str(path)!r} cannot be used: {error}") from error


def _digest(data: Mapping[str, Any]) -> str:
    """Return the digest of the contents, however they are laid out."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _text(data: Mapping[str, Any]) -> str:
    """Return JSON for people and for `git diff`: a line for each record."""

    def laid_out(value: Any, depth: int) -> str:
        inside, outside = "  " * depth, "  " * (depth - 1)
        if isinstance(value, dict) and value and depth < 3:
            lines = [f"{inside}{json.dumps(key)}: {laid_out(item, depth + 1)}" for key, item in value.items()]
            return "{\n" + ",\n".join(lines) + f"\n{outside}}}"
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(f"{inside}{json.dumps(item)}" for item in value) + f"\n{outside}]"
        return json.dumps(value)

    return laid_out(data, 1) + "\n"


# --------------------------------------------------------------------------------------------------------------------
# As the database of a run that has these policies and one generation.


def open_database(folder: Path) -> sqlite3.Connection:
    """Return a database in memory. Raises RunError as `read_manifest`, and for numbers that no database holds."""
    manifest = read_manifest(folder)
    try:
        return _database(manifest, folder)
    except OverflowError as error:
        raise RunError(f"{str(folder / MANIFEST)!r} cannot be used: {one_line(error)}.") from error


def _database(manifest: Manifest, folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.executescript(f"{TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};")
    _add(connection, "run", {"key": "info", "value": json.dumps({**asdict(_info(manifest, folder)), "run_dir": ""})})
    if not manifest.game.wrappers:  # the facts of a run are of its game without them
        _add(connection, "run", {"key": "game", "value": manifest.game.model_dump_json()})
    members: dict[int, list[Member]] = {}
    for member in manifest.policies:
        place = len(members.setdefault(member.population, []))
        members[member.population].append(member)
        row = member.model_dump(include={"population", "version", "mode", "kind", "file", "sha256", "generation"})
        row |= {"id": member.policy, "config": json.dumps(member.config), "place": place, "start": "zoo", "task": ""}
        _add(connection, "policies", {**row, "created": manifest.created})
    _add_generation(connection, manifest)
    for k, match in enumerate(manifest.results.matches):
        refs = [members[player.population][k] for player, k in zip(manifest.game.players, match.profile, strict=True)]
        seats = json.dumps([(m.population, m.policy, m.version, m.mode) for m in refs])
        row = {"id": f"zoo/{k}", "generation": 0, "profile": json.dumps(match.profile), "seats": seats, "n": match.n}
        row |= {"mean": _blob(match.mean), "m2": _blob(match.m2), "wins": json.dumps(match.wins), "exact": 0}
        _add(connection, "matches", {**row, "created": manifest.created})
        if match.statistics is not None:
            _add_statistics(connection, f"zoo/{k}", match.statistics)
    if known := manifest.results.payoffs:
        profiles = np.array([payoff.profile for payoff in known], "<i4").tobytes()
        row = {"generation": 0, "players": len(manifest.game.players), "profiles": profiles}
        _add(connection, "payoffs", {**row, "mean": _blob([value for payoff in known for value in payoff.mean])})
    connection.commit()
    return connection


def _info(manifest: Manifest, folder: Path) -> RunInfo:
    source = manifest.source
    return RunInfo(
        name=folder.resolve().name,
        run_dir=Path(),
        scenario=source.scenario,
        env=manifest.game.id,
        algorithm=source.algorithm,
        seed=source.seed,
        version=source.code,
        population=tuple(player.population for player in manifest.game.players),
        utility_range=manifest.utility_range,
        zero_sum=manifest.zero_sum,
        text=manifest.scenario,
    )


def _add_generation(connection: sqlite3.Connection, manifest: Manifest) -> None:
    results, strategy, number = manifest.results, manifest.meta_strategy, manifest.source.generation
    row: dict[str, Any] = {"number": number, "seconds": 0.0, "episodes": 0, "nash_conv": results.nash_conv}
    row |= {"gains": json.dumps(results.gains), "vals": json.dumps(results.values), "responses": "[]"}
    row |= {
        "sizes": json.dumps(manifest.sizes),
        "marginals": _blob([p for marginal in strategy.marginals for p in marginal]),
    }
    row |= {"solver_gap": None, "solver_seconds": 0.0, "exact": results.exact, "created": manifest.created}
    _add(connection, "generations", row)
    if strategy.profiles:
        profiles = np.array(strategy.profiles, "<i4").tobytes()
        row = {"generation": number, "players": len(manifest.game.players), "profiles": profiles}
        _add(connection, "joints", {**row, "probs": _blob(strategy.probs)})


def _add_statistics(connection: sqlite3.Connection, match: str, counted: Counted) -> None:
    for player, (n, mean, m2) in enumerate(zip(counted.n, counted.mean, counted.m2, strict=True)):
        for place, name in enumerate(counted.names):
            row = {"match": match, "player": player, "place": place, "name": name, "n": n[place]}
            _add(connection, "statistics", {**row, "mean": mean[place] if n[place] else None, "m2": m2[place]})


def _add(connection: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    values = dict(row) if table == "run" else {**row, "barrier": 0}
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


def _blob(values: Any) -> bytes:
    return np.array(values, "<f8").tobytes()
