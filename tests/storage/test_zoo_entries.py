"""A zoo's entries: what a manifest says, by hand; what is refused; and that an entry is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.apps.hub import zoo_files
from ludus.core.errors import ConfigError, RunError, TrustError
from ludus.core.trust import trusting
from ludus.core.types import PolicyRef
from ludus.policies.file import save_policy
from ludus.policies.specs import random_spec
from ludus.storage.manifest import Manifest, read_manifest
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import MANIFEST, find_run, zoo_entries
from ludus.storage.stored_run import StoredRun

GAME = "gymnasium/CartPole-v1"  # nothing is made of it here


def manifest(tmp_path: Path, **changes: Any) -> tuple[Manifest, bytes]:
    """Two players who share a population of two, both uniformly random, and the content of both files."""
    import gymnasium

    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "one.safetensors"
    sha256 = save_policy(path, random_spec(gymnasium.spaces.Discrete(2)), {})
    content = path.read_bytes()
    path.unlink()
    agent = {"name": "a", "role": "default", "observation": "Box([4], float32, -1 to 1)", "action": "Discrete(2)"}
    member = {"population": 0, "kind": "random", "config": {"actions": 2}, "sha256": sha256}
    facts: dict[str, Any] = {
        "name": "pair",
        "note": "CC0",
        "created": 1.5e9,
        "source": {
            "run": "try1",
            "generation": 7,
            "scenario": "mine",
            "algorithm": "PPO",
            "seed": 3,
            "code": "ludus 0.1.0",
        },
        "game": {"id": GAME, "players": [{"population": 0, "agents": [agent]}, {"population": 0, "agents": [agent]}]},
        "utility_range": [(-1.0, 1.0), (float("-inf"), float("inf"))],
        "zero_sum": False,
        "policies": [
            {
                **member,
                "policy": "0-1",
                "file": "policies/0/0-1-a.safetensors",
                "generation": 1,
                "trained": {"decisions": 64},
            },
            {**member, "policy": "0-2", "file": "policies/0/0-2-a.safetensors", "mode": "greedy"},
        ],
        "meta_strategy": {"marginals": [(0.25, 0.75), (1.0, 0.0)]},
        "results": {
            "nash_conv": 0.5,
            "gains": (0.25, 0.25),
            "values": (0.125, 0.0),
            "exact": False,
            "payoffs": [{"profile": (1, 0), "mean": (2.0, 3.0)}],
            "matches": [
                {
                    "profile": (0, 1),
                    "n": 4,
                    "mean": (0.5, -0.5),
                    "m2": (1.0, 2.0),
                    "wins": [(3, 0, 1), (1, 0, 3)],
                    "statistics": {
                        "names": ("goals", "passes"),
                        "n": [(4, 0), (4, 3)],
                        "mean": [(1.5, float("nan")), (0.25, 2.0)],
                        "m2": [(5.0, 0.0), (0.75, 6.0)],
                    },
                }
            ],
        },
        "scenario": f"seed: 3\nenv: {{id: {GAME}, options: {{low: -.inf}}}}\n",
    }
    return Manifest(**{**facts, **changes}), content


def write(folder: Path, **changes: Any) -> Path:
    made, content = manifest(folder.parent, **changes)
    zoo_files.write_entry(folder, made, lambda member: content, replace=False)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------------------------------- what it says


def test_an_entry_reads_as_a_run_that_has_these_policies(tmp_path: Path) -> None:
    folder = write(tmp_path / "pair")
    with Reader(folder) as reader:
        info, (generation,), payoffs = reader.info(), reader.generations(), reader.payoffs()
        (match,) = reader.matches()
        assert reader.wins([(0, 1)]) == {(0, 1): ((3, 0, 1), (1, 0, 3))}
    assert (info.name, info.env, info.population, info.seed, info.version) == ("pair", GAME, (0, 0), 3, "ludus 0.1.0")
    assert info.utility_range == ((-1.0, 1.0), (float("-inf"), float("inf")))
    assert (generation.number, generation.nash_conv, generation.exact) == (7, 0.5, False)
    assert (generation.gains, generation.values) == ((0.25, 0.25), (0.125, 0.0))
    assert payoffs.mean[:, 1, 0].tolist() == [2.0, 3.0]
    assert payoffs.exact.tolist() == [[False, False], [True, False]]
    assert payoffs.count.tolist() == [[0, 4], [0, 0]]
    assert payoffs.m2[:, 0, 1].tolist() == [1.0, 2.0]
    assert match.match.seats == (PolicyRef(0, "0-1"), PolicyRef(0, "0-2", mode="greedy"))
    counted = match.match.statistics
    assert counted is not None
    assert (counted.names, counted.n.tolist()) == (("goals", "passes"), [[4, 0], [4, 3]])
    np.testing.assert_array_equal(counted.mean, [[1.5, np.nan], [0.25, 2.0]])
    assert counted.m2.tolist() == [[5.0, 0.0], [0.75, 6.0]]
    run = StoredRun(folder)
    assert [m.tolist() for m in run.solution.strategies] == [[0.25, 0.75], [1.0, 0.0]]
    assert run.env.options == {"low": float("-inf")}
    assert run.policy(PolicyRef(0, "0-1")).spec.kind == "random"
    assert run.file(PolicyRef(0, "0-1")) == folder / "policies/0/0-1-a.safetensors"
    assert (run.lacking, run.generation) == ([], 7)


def test_a_joint_meta_strategy_comes_back(tmp_path: Path) -> None:
    strategy = {"marginals": [(0.5, 0.5), (0.5, 0.5)], "profiles": [(0, 1), (1, 0)], "probs": (0.5, 0.5)}
    run = StoredRun(write(tmp_path / "pair", meta_strategy=strategy))
    assert run.solution.joint is not None
    assert run.solution.joint.tolist() == [[0.0, 0.5], [0.5, 0.0]]


def test_the_signature_is_of_what_is_said_and_not_of_how(tmp_path: Path) -> None:
    """As it is by hand; line ends and indentation, which a repository may change, do not matter."""
    path = write(tmp_path / "pair") / MANIFEST
    data = json.loads(path.read_text())
    signed = data.pop("sha256")
    assert signed == hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    before = read_manifest(path.parent).signed()
    path.write_text(json.dumps({"sha256": signed, **data}, indent=7).replace("\n", "\r\n"))
    assert read_manifest(path.parent).signed() == before


def resigned(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    """Changed, and signed again: what somebody else wrote."""

    def changed(text: str) -> str:
        data = json.loads(text)
        del data["sha256"]
        change(data)
        said = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return json.dumps({**data, "sha256": hashlib.sha256(said.encode()).hexdigest()})

    return changed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("0.75", "0.85"), "was changed since it was signed, or is damaged"),
        (lambda text: text[:200], "is not a manifest: "),
        (lambda text: "[1, 2]", "is not a manifest: "),
        (lambda text: "[" * 100_000, "is not a manifest: "),
        (lambda text: text.replace('"format": 1', '"format": 2'), r"by a newer Ludus \(format 2; this one reads 1\)"),
        (lambda text: "{}", "is no manifest of a zoo: its format is None, 1 was expected"),
        (resigned(lambda data: data.pop("game")), "game: it is needed, and was not given"),
        (resigned(lambda data: data.update(gane=1)), "unknown key 'gane'; did you mean 'game'"),
        (resigned(lambda data: data["policies"][0].update(kind="os:System")), "'os:System' is code of somebody's own"),
        (
            resigned(lambda data: data["policies"][0].update(file="policies/0/../x.safetensors")),
            "is no file of an entry",
        ),
        (resigned(lambda data: data["policies"][0].update(file="/etc/passwd")), "'/etc/passwd' is no file of an entry"),
        (resigned(lambda data: data["policies"][0].update(sha256="0")), "'0' is no SHA-256"),
        (resigned(lambda data: data["policies"].clear()), "policies: "),
        (resigned(lambda data: data["policies"].pop()), "do not belong together"),
        (resigned(lambda data: data["results"]["payoffs"][0].update(profile=[2, 0])), "lies outside its policies"),
        (resigned(lambda data: data["results"]["payoffs"][0].update(mean=[2.0])), "results are not of 2 players"),
        (resigned(lambda data: data["results"].update(gains=[0.5])), "results are not of 2 players"),
        (resigned(lambda data: data["results"]["matches"][0].update(m2=[])), "results are not of 2 players"),
        (
            resigned(lambda data: data["results"]["matches"][0]["statistics"].update(n=[[1, 1]])),
            "numbers are not one for each player and name",
        ),
        (resigned(lambda data: data["meta_strategy"].update(profiles=[[0, 0]])), "another number of profiles"),
        (resigned(lambda data: data.update(created=1e30)), "created: "),
        (
            resigned(
                lambda data: data["results"].update(
                    ratings=[{"name": "elo", "unit": "", "rating": [1], "low": [], "high": []}]
                )
            ),
            "ratings are not of its policies",
        ),
    ],
)
def test_a_manifest_that_cannot_be_used(tmp_path: Path, change: Callable[[str], str], words: str) -> None:
    folder = write(tmp_path / "pair")
    path = folder / MANIFEST
    path.write_text(change(path.read_text()))
    with pytest.raises(RunError, match=words):
        read_manifest(folder)
    with pytest.raises(RunError, match=words):
        StoredRun(folder)
    ((there, error),) = zoo_files.list_entries(tmp_path)
    assert (there, type(error)) == (folder, RunError)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/a", "a@b", "a:b", "-a", ".a", "a b", "ä", "a.", "x" * 101, "a.safetensors"]
)
def test_names_are_safe(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name an entry of a zoo"):
        zoo_files.check_name(name)
    zoo_files.check_name("Leduc_5-a.b")


def test_a_file_of_a_policy_is_what_was_signed(tmp_path: Path) -> None:
    folder = write(tmp_path / "pair")
    first, second = read_manifest(folder).policies
    assert zoo_files.read_content(folder, first) == (folder / first.file).read_bytes()
    with (folder / first.file).open("ab") as file:
        file.write(b"x")
    with pytest.raises(RunError, match="was changed or damaged: its SHA-256 is"):
        zoo_files.read_content(folder, first)
    with pytest.raises(RunError, match="was changed or damaged"):
        StoredRun(folder).policy(PolicyRef(0, "0-1"))
    (folder / second.file).unlink()
    with pytest.raises(RunError, match=r"cannot be read \(No such file or directory\), and the manifest names it"):
        zoo_files.read_content(folder, second)


def test_a_file_that_names_code_is_not_opened(tmp_path: Path) -> None:
    """Whatever the manifest says of it."""
    header = json.dumps({"__metadata__": {"ludus": json.dumps({"format": 2, "kind": "os:System", "config": {}})}})
    content = len(header).to_bytes(8, "little") + header.encode()
    made, _ = manifest(tmp_path)
    member = made.policies[0].model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
    (tmp_path / member.file).parent.mkdir(parents=True)
    (tmp_path / member.file).write_bytes(content)
    with pytest.raises(RunError, match="names code, 'os:System', which is not run from a zoo"):
        zoo_files.read_content(tmp_path, member)


# ---------------------------------------------------------------------------------------------- how it is written


@pytest.mark.parametrize(
    "env",
    [
        {"id": "subprocess:Popen", "options": {"args": ["touch", "called"]}},
        {"id": "os:system"},
        {"id": "ludus.core.machine:write_file", "options": {"path": "called", "content": "1"}},
        {"id": GAME, "wrappers": [{"kind": "timeit:timeit", "setup": "1"}]},
        {"id": "pettingzoo/mpe", "options": {"teams": "os:system"}},
    ],
)
def test_code_that_a_scenario_names_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write(tmp_path / "pair", scenario=json.dumps({"env": env, "algorithm": {"kind": "os:system"}}))
    run = StoredRun(folder)
    with pytest.raises(TrustError):
        _ = run.env
    with trusting():
        with pytest.raises(
            RunError,
            match=r"is code of somebody's own, which is not run from a zoo|belongs to Python|is a function of Ludus",
        ):
            _ = run.env
        with pytest.raises(RunError, match="'os:system' is code"):
            run.part("algorithm", lambda options: options)
    assert not (tmp_path / "called").exists()


def test_a_scenario_without_options_of_its_environment(tmp_path: Path) -> None:
    folder = write(tmp_path / "pair", scenario="env: 3")
    with pytest.raises(RunError, match="env: 3 was given; expected its options"):
        _ = StoredRun(folder).env


def test_an_environment_of_one_s_own_is_a_class(tmp_path: Path) -> None:
    folder = write(tmp_path / "pair", scenario=json.dumps({"env": {"id": "gymnasium.core:Env"}}))
    with trusting():
        assert StoredRun(folder).env.id == "gymnasium.core:Env"


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "pair")
    before = contents(folder)
    made, content = manifest(tmp_path, note="another")
    with pytest.raises(RunError, match=r"there is an entry .* already, and nothing was changed"):
        zoo_files.write_entry(folder, made, lambda member: content, replace=False)
    assert contents(folder) == before
    alone = {"policies": made.policies[:1], "meta_strategy": {"marginals": [(1.0,), (1.0,)]}, "results": {}}
    one, _ = manifest(tmp_path, **alone)
    zoo_files.write_entry(folder, one, lambda member: content, replace=True)
    assert sorted(contents(folder)) == [MANIFEST, "policies/0/0-1-a.safetensors"]  # what the old one had is gone


def test_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    made, content = manifest(tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    for replace in (False, True):
        with pytest.raises(RunError, match=r"is not empty: it holds thesis\.tex"):
            zoo_files.write_entry(folder, made, lambda member: content, replace=replace)
    assert contents(folder) == {"thesis.tex": b"years of work"}


def test_failed_write_leaves_no_entry(tmp_path: Path) -> None:
    made, content = manifest(tmp_path)

    def second_fails(member: Any) -> bytes:
        if member.policy == "0-2":
            raise RunError("it is gone")
        return content

    with pytest.raises(RunError, match="it is gone"):
        zoo_files.write_entry(tmp_path / "deep" / "zoo" / "pair", made, second_fails, replace=False)
    assert list(tmp_path.iterdir()) == []
    folder = write(tmp_path / "pair")
    before = contents(folder)
    with pytest.raises(RunError, match="it is gone"):
        zoo_files.write_entry(folder, made, second_fails, replace=True)
    assert contents(folder) == before


def test_links_are_not_followed(tmp_path: Path) -> None:
    """In a folder that several people write, one may lead to what is yours."""
    made, content = manifest(tmp_path)
    mine = tmp_path / "mine" / "0"
    mine.mkdir(parents=True)
    (mine / "thesis.tex").write_text("years of work")
    for name, link in (("a", "policies"), ("b", "policies/0")):
        folder = write(tmp_path / name)
        shutil.rmtree(folder / link)
        (folder / link).symlink_to(mine.parent if link == "policies" else mine)
        with pytest.raises(RunError, match="is a link, to"):
            zoo_files.write_entry(folder, made, lambda member: content, replace=True)
    assert contents(mine.parent) == {"0/thesis.tex": b"years of work"}


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, content = manifest(tmp_path)
    folder = write(tmp_path / "pair")
    before = contents(folder)

    def full(path: Path, content: bytes, *, durable: bool = True) -> None:
        path.write_bytes(content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zoo_files, "write_file", full)
    with pytest.raises(RunError, match=r"cannot be written: No space left on device\. What was there is as it was"):
        zoo_files.write_entry(folder, made, lambda member: content, replace=True)
    assert contents(folder) == before


@pytest.mark.parametrize("locks", [True, False])
def test_of_two_that_come_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool) -> None:
    """Also where the file system has no locks."""
    made, content = manifest(tmp_path)
    if not locks:
        monkeypatch.setattr(
            zoo_files.fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(37, "No locks available"))
        )
    both, started, over = threading.Barrier(2), threading.Event(), threading.Event()
    results = list[object]()

    def held(member: Any) -> bytes:
        if locks:
            started.set()
            assert over.wait(10)
        elif member.policy == "0-2":
            both.wait(10)
        return content

    def attempt(note: str) -> None:
        one = made.model_copy(update={"note": note})
        try:
            zoo_files.write_entry(tmp_path / "pair", one, held, replace=False)
            results.append(note)
        except RunError as error:
            results.append(error)

    threads = [threading.Thread(target=attempt, args=(note,)) for note in ("a", "b")]
    threads[0].start()
    if locks:
        assert started.wait(10)
    threads[1].start()
    if locks:
        threads[1].join(10)
        over.set()
    for thread in threads:
        thread.join(10)
    (winner,) = [result for result in results if isinstance(result, str)]
    (error,) = [result for result in results if isinstance(result, RunError)]
    assert ("another process is writing" if locks else "there is an entry") in str(error)
    assert json.loads((tmp_path / "pair" / MANIFEST).read_text())["note"] == winner


def test_a_zoo_is_a_folder_of_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write(Path("zoo/pair"))
    Path("zoo/half/policies/0").mkdir(parents=True)  # what a kill may leave
    assert zoo_entries(Path("zoo")) == [folder]
    assert find_run("zoo/pair") == folder
    for text, words in (
        ("zoo", "'zoo' is a zoo, and one of its entries was expected: zoo/pair"),
        ("zoo/pare", "did you mean 'zoo/pair'"),
        ("zoo/pair@best", "a whole run is wanted here. Give 'zoo/pair'"),
    ):
        with pytest.raises(RunError, match=words):
            find_run(text)
    with pytest.raises(RunError, match="is an entry of a zoo: its policies can be played"):
        find_run("zoo/pair", zoo=False)
    with pytest.raises(RunError, match="did you mean 'pair'"):
        zoo_files.find_entry("zoo/pear")
    with pytest.raises(RunError, match=r"there is no entry of a zoo at 'other/pair'"):
        zoo_files.find_entry("other/pair")
    with pytest.raises(
        RunError, match=r"there is no zoo in 'other': nothing was pushed there. `ludus push RUN other` makes one"
    ):
        zoo_files.list_entries(Path("other"))
    with pytest.raises(RunError, match="is a run or an entry, and a zoo was expected"):
        zoo_files.check_zoo(folder)
    Path("file").touch()
    with pytest.raises(RunError, match=r"'file/zoo' cannot be written: '.*/file' is not a folder"):
        zoo_files.check_zoo(Path("file/zoo"))
