"""The kinds of inputs of `benchmarks.fuzz`: their seeds, how they are mutated, how Ludus reads them, and which commands do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import fuzz_http
from benchmarks import fuzz_mutators as m
from benchmarks.fuzz_judge import ALLOWANCE, Wrong
from benchmarks.fuzz_seeds import CORPUS

SEEDS = CORPUS / "seeds"
Mutate = Callable[[Random, bytes, Path], bytes]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input.

    Attributes:
        name: Of the kind.
        seeds: Returns whole inputs.
        mutate: Changes one; it may write into the folder.
        place: Puts an input where Ludus reads it, in a box as `fill` makes it.
        parse: Reads it there. Raises what Ludus raises, and Wrong.
        commands: Command lines that read it.
        stranger: Whether it may come from somebody else; then it leads to no file outside of its own folder.
        allowance: Bytes of address space.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    place: Callable[[bytes, Path], None]
    parse: Callable[[Path], object]
    commands: tuple[str, ...] = ()
    stranger: bool = True
    allowance: int = ALLOWANCE


def fill(box: Path) -> None:
    """Make a folder as somebody has it who works with Ludus: a run, an entry of a zoo, files."""
    box.mkdir(parents=True, exist_ok=True)
    for path in box.iterdir():  # the folder itself stays: it is where a process is
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (box / "runs").mkdir()
    shutil.copytree(SEEDS / "run", box / "runs" / "r")
    shutil.copytree(SEEDS / "entry", box / "zoo" / "entry")
    (box / "tmp").mkdir()
    decoy = box.parent / "decoy"
    if not decoy.exists():
        decoy.mkdir(exist_ok=True)
        shutil.copy(SEEDS / "policies" / "r.safetensors", decoy / "policy.safetensors")


def _bytes(*names: str) -> Callable[[], Sequence[bytes]]:
    return lambda: [path.read_bytes() for name in names for path in sorted(SEEDS.glob(name))]


def _simple(mutate: Callable[[Random, bytes], bytes]) -> Mutate:
    return lambda rng, data, _: mutate(rng, data)


def _at(name: str) -> Callable[[bytes, Path], None]:
    def place(data: bytes, box: Path) -> None:
        path = box / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return place


# --------------------------------------------------------------------------------------------------------------------
# What users write.


def _presets() -> Sequence[bytes]:
    from importlib import resources

    files = [path for path in (resources.files("ludus.runs") / "presets").iterdir() if path.name.endswith(".yaml")]
    return [
        (SEEDS / "run" / "scenario.yaml").read_bytes(),
        *(path.read_bytes() for path in sorted(files, key=lambda p: p.name)),
    ]


def _scenario(box: Path) -> None:
    from ludus.runs.scenario_files import parse_scenario, read_scenario

    scenario = read_scenario(str(box / "s.yaml"))
    text = scenario.to_yaml()
    if parse_scenario(text).to_yaml() != text:
        raise Wrong("the scenario that was written is another than the one that was read")


def _experiment(box: Path) -> None:
    from ludus.apps.common.experiments import read_experiment

    read_experiment(box / "runs" / "many")


def _sweep(box: Path) -> None:
    from ludus.apps.experiments.sweep import load_sweep

    load_sweep(box / "sweep.yaml").check()


def _expr(box: Path) -> None:
    from ludus.contrib.malib import read_expr
    from ludus.runs.scenario_files import parse_scenario

    parse_scenario(read_expr(box / "expr.yaml").as_yaml())


LINES = (
    "list presets leduc", "list policies r", "list envs openspiel kuhn", "runs", "runs rename r r2", "runs rm r --yes", "status r",
    "config kuhn generations=3 --seed 1", "config leduc algorithm.learning_rate=3e-4 algorithm.entropy.start=0.1",
    "report r --out r.html", "compare r --json", "verify r", "copy r c",
    "evaluate r@best --episodes 20 --policies @meta random --rating elo", "doctor --no-speed",
    "tournament r@best random --episodes 2 --dir cup --seed 3", "record r@best game.html --steps 20 --seed 2", "pull zoo/entry",
    "list zoo zoo", "push r@best zoo --name other --note text", "debug r --script see;next;see --steps 20", "resume r", "pause r",
    "throttle r 0.5", "stop r", "check-env openspiel/kuhn_poker --seconds 0 --steps 10 --episodes 2",
    "record r --trajectories d.parquet --episodes 2", "train kuhn generations=1 --name t algorithm.steps=1 --seed 2",
    "sweep sweep.yaml trials=1", "help train", "--version",
)  # fmt: skip


def _lines() -> Sequence[bytes]:
    return [json.dumps(line.split()).encode() for line in LINES]


def _words(box: Path) -> None:
    from ludus.cli.main import COMMANDS
    from ludus.core.errors import UnknownName

    words = json.loads((box / "words.json").read_bytes())
    if not words:
        return
    if words[0] not in COMMANDS:
        raise UnknownName("command", words[0], COMMANDS)
    try:
        COMMANDS[words[0]].parse(words[1:])
    except SystemExit as done:  # of --help
        if done.code:
            raise Wrong(f"the parser of arguments left with {done.code}") from done


# --------------------------------------------------------------------------------------------------------------------
# What strangers may send: weights, runs, entries, trajectories, replays.


def _policy(box: Path) -> None:
    from ludus.policies.file import load_policy, spec_in

    policy = load_policy(box / "p.safetensors")
    spec_in((box / "p.safetensors").read_bytes())
    if any(not bool((array == array).all()) for array in policy.weights().values()):
        raise Wrong("weights that are no numbers were loaded")


def _named(box: Path) -> str:
    (folder,) = (path for path in (box / "runs" / "r" / "checkpoint").iterdir() if not path.name.startswith("."))
    return folder.name


def _place_checkpoint(file: str) -> Callable[[bytes, Path], None]:
    """Put one of a checkpoint's files there, under the name that its content has then, in the database too."""

    def place(data: bytes, box: Path) -> None:
        import sqlite3
        from contextlib import closing

        from ludus.storage import checkpoint

        folder = box / "runs" / "r" / "checkpoint"
        shutil.rmtree(folder.parent)
        shutil.copytree(SEEDS / "run", folder.parent)
        old = folder / _named(box)
        (old / file).write_bytes(data)
        content = [(old / name).read_bytes() for name in ("state.json", "arrays.safetensors")]
        name = f"{old.name.partition('-')[0]}-{checkpoint._digest(*content)}"
        old.rename(folder / name)
        with closing(sqlite3.connect(box / "runs" / "r" / "ludus.db", isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("UPDATE checkpoints SET id = ? WHERE id = ?", (name, old.name))

    return place


def _checkpoint(box: Path) -> None:
    from ludus.runs.resumable_run import read_run
    from ludus.storage import checkpoint

    checkpoint.load(box / "runs" / "r" / "checkpoint", _named(box))
    read_run(box / "runs" / "r")


def _database(box: Path) -> None:
    from ludus.apps.hub.copies import verify_run
    from ludus.apps.ui.report import collect
    from ludus.runs.resumable_run import read_run
    from ludus.storage.reader import Reader
    from ludus.storage.stored_run import StoredRun

    folder = box / "runs" / "r"
    errors = [error for read in (verify_run, StoredRun, read_run) if (error := _raised(read, folder)) is not None]
    with Reader(folder) as reader:
        for read in (
            reader.info,
            reader.summary,
            reader.state,
            reader.cause,
            reader.sessions,
            reader.checkpoints,
            reader.position,
        ):
            if (error := _raised(read)) is not None:
                errors.append(error)
        collect(reader)
    if errors:
        raise errors[0]


def _raised(act: Callable[..., object], *arguments: Any) -> Exception | None:
    from ludus.core.errors import LudusError

    try:
        act(*arguments)
    except LudusError as error:
        return error
    return None


def _place_log(data: bytes, box: Path) -> None:
    import sqlite3
    from contextlib import closing

    path = box / "runs" / "r" / "ludus.db"
    for name in ("ludus.db-wal", "ludus.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    shutil.copy(SEEDS / "run" / "ludus.db", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
    path.with_name("ludus.db-wal").write_bytes(data)


def _cup(box: Path) -> None:
    import sqlite3
    from contextlib import closing

    from ludus.tournament.tournament_store import TournamentStore

    try:
        with closing(sqlite3.connect(box / "cup" / "tournament.db")) as db:
            facts = {str(key): str(value) for key, value in db.execute("SELECT key, value FROM tournament")}
        seed = int(facts["seed"])
    except (sqlite3.Error, KeyError, ValueError):
        facts, seed = {}, 0
    with TournamentStore(box / "cup", game=facts.get("game", ""), seed=seed, entrants={}) as store:
        store.stored()
        store.played()


def _people(box: Path) -> None:
    from ludus.apps.play.people import People
    from ludus.apps.play.standings import people_view
    from ludus.core.jsonable import to_json

    people = People(box / "runs" / "people.db")
    to_json(people_view(people.games()))
    people.replay(f"{1:016x}")


def _trajectories(box: Path) -> None:
    from ludus.replay.parquet import read_trajectories

    read_trajectories(box / "d.parquet")


def _episode(box: Path) -> None:
    from ludus.apps.episodes.debugger import RecordedEpisode

    episode = RecordedEpisode(box / "episode.jsonl")
    for number in range(len(episode.episode.steps)):
        episode.state(number)


REPLAY = "954c5fe8973a29c6"


def _replay(box: Path) -> None:
    from ludus.apps.play import replays
    from ludus.apps.ui.static_page import replay_file

    replay = replays.read(box / "runs" / "r", REPLAY)
    replays.line_of(REPLAY, replay)
    replays.title_of(replay)
    replays.safe_name(replay)
    replay_file((box / "runs" / "r" / "replays" / f"{REPLAY}.json").read_bytes(), ".html")
    replays.film(replay, ".gif")


def _manifest(box: Path) -> None:
    from ludus.apps.hub.zoo import check_entry
    from ludus.storage.manifest import read_manifest
    from ludus.storage.reader import Reader

    manifest = read_manifest(box / "zoo" / "entry")
    with Reader(box / "zoo" / "entry") as reader:
        for read in (reader.info, reader.policies, reader.generations, reader.matches, reader.payoffs):
            read()
    check_entry(box / "zoo" / "entry", manifest)


def _live_seeds() -> Sequence[bytes]:
    from dataclasses import asdict

    from ludus.runs.control import FORMAT, LiveOrder, Status
    from ludus.runtime.base import PartState

    parts = (PartState("worker", "worker 0", "host", 2, "alive", 1.5, 0),)
    status = Status("a" * 16, "host", 1, "0.2.0", 1.0, 2.0, generation=3, generations=9, fraction=0.5, parts=parts)
    return [
        json.dumps({"format": FORMAT, **asdict(value)}).encode() for value in (status, LiveOrder("a" * 16, speed=0.5))
    ]


def _place_live(data: bytes, box: Path) -> None:
    for name in ("status.json", "control.json"):
        (box / "runs" / "r" / name).write_bytes(data)


def _live(box: Path) -> None:
    from ludus.apps.ui.server.live_status import live_status, read_live
    from ludus.core.jsonable import to_json
    from ludus.runs.control import describe_state, read_order, read_status

    read_order(box / "runs" / "r")
    status = read_status(box / "runs" / "r")
    if status is not None:
        describe_state(status)
        to_json(live_status(status))
    read_live(box / "runs" / "r")


def _game(kind: str, name: str) -> Callable[[Path], object]:
    def parse(box: Path) -> None:
        from ludus.envs.config import Environment

        env = Environment(id=f"openspiel/{kind}(filename={box / name})", num_envs=1).make(num_envs=1)
        env.close()

    return parse


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("scenario", _presets, _simple(m.mutate_yaml), _at("s.yaml"), _scenario, ("config s.yaml",), stranger=False),
        Kind("experiment", _bytes("experiment.yaml"), _simple(m.mutate_yaml), _at("runs/many/experiment.yaml"), _experiment,
             ("status many", "compare many")),
        Kind("sweep", _bytes("sweep.yaml"), _simple(m.mutate_yaml), _at("sweep.yaml"), _sweep, stranger=False),
        Kind("malib", _bytes("expr.yaml"), _simple(m.mutate_yaml), _at("expr.yaml"), _expr, stranger=False),
        Kind("command", _lines, _simple(m.mutate_words), _at("words.json"), _words, ("",), stranger=False),
        Kind("policy", _bytes("policies/*"), _simple(m.mutate_safetensors), _at("p.safetensors"), _policy,
             ("tournament p.safetensors random --env openspiel/kuhn_poker --episodes 2",
              "push p.safetensors zoo --env openspiel/kuhn_poker")),
        Kind("state", _bytes("run/checkpoint/*/state.json"), _simple(m.mutate_json), _place_checkpoint("state.json"), _checkpoint,
             ("resume r generations=3", "verify r")),
        Kind("arrays", _bytes("run/checkpoint/*/arrays.safetensors"), _simple(m.mutate_safetensors),
             _place_checkpoint("arrays.safetensors"), _checkpoint, ("resume r generations=3", "verify r")),
        Kind("database", _bytes("run/ludus.db"), m.mutate_sqlite, _at("runs/r/ludus.db"), _database,
             ("status r", "report r", "verify r", "evaluate r --episodes 10", "list policies r", "copy r c", "compare r", "runs",
              "resume r", "record r x.json", "push r zoo --name new")),
        Kind("log", _bytes("ludus.db-wal"), _simple(m.mutate_bytes), _place_log, _database,
             ("status r", "report r", "verify r", "resume r")),
        Kind("tournament", _bytes("tournament.db"), m.mutate_sqlite, _at("cup/tournament.db"), _cup,
             ("tournament r@best random --episodes 4 --dir cup",)),
        Kind("people", _bytes("people.db"), m.mutate_sqlite, _at("runs/people.db"), _people),
        Kind("parquet", _bytes("demonstrations.parquet"), m.mutate_parquet, _at("d.parquet"), _trajectories,
             ("clone d.parquet openspiel/kuhn_poker --out c.safetensors --epochs 1",)),
        Kind("episode", _bytes("episode.jsonl"), _simple(m.mutate_json_lines), _at("episode.jsonl"), _episode,
             ("debug episode.jsonl --script see;next;see;where", "record episode.jsonl x.json")),
        Kind("replay", _bytes("run/replays/*"), _simple(m.mutate_json), _at(f"runs/r/replays/{REPLAY}.json"), _replay, ("report r",)),
        Kind("manifest", _bytes("entry/manifest.json"), _simple(m.mutate_manifest), _at("zoo/entry/manifest.json"), _manifest,
             ("pull zoo/entry", "list zoo zoo", "evaluate zoo/entry --episodes 10", "list policies zoo/entry")),
        Kind("live", _live_seeds, _simple(m.mutate_json), _place_live, _live, ("status r", "pause r")),
        Kind("request", fuzz_http.seeds, _simple(fuzz_http.mutate), _at("request.json"), fuzz_http.parse, ("ui",), allowance=1 << 30),
        Kind("nfg", _bytes("game.nfg"), _simple(m.mutate_text), _at("game.nfg"), _game("nfg_game", "game.nfg"),
             ("check-env openspiel/nfg_game(filename=game.nfg) --seconds 0 --steps 5",)),
        Kind("efg", _bytes("game.efg"), _simple(m.mutate_text), _at("game.efg"), _game("efg_game", "game.efg"),
             ("check-env openspiel/efg_game(filename=game.efg) --seconds 0 --steps 5",)),
    )
}  # fmt: skip


_PACKAGES = (
    "core", "policies", "algorithms", "metagame", "envs", "runs", "storage", "replay", "rollout", "evaluation", "tournament", "apps", "cli",
    "contrib",
)  # fmt: skip


def warm() -> None:
    """Import what Ludus imports when it needs it: under a limit of memory nothing can be."""
    import pkgutil
    from contextlib import suppress
    from importlib import import_module

    import ludus

    for package in _PACKAGES:
        for found in pkgutil.walk_packages(import_module(f"ludus.{package}").__path__, f"ludus.{package}."):
            if found.name.rpartition(".")[2] != "__main__" and ".ray" not in found.name:
                with suppress(Exception):  # what a machine lacks
                    import_module(found.name)
    del ludus


def case(kind: Kind, number: int, folder: Path) -> bytes:
    """Return the input of a case: a mutation of one of the kind's seeds, or of a mutation; the same for the same number."""
    rng = Random(f"{kind.name}:{number}")
    seeds = kind.seeds()
    data = rng.choice(seeds)
    return kind.mutate(rng, data, folder)


def remember_seeds(kind: Kind) -> Kind:
    """Return the kind, whose seeds are read once."""
    seeds = kind.seeds()
    return replace(kind, seeds=lambda: seeds)
