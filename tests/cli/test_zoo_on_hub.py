"""Entries on Hugging Face's Hub, which a folder stands for here; with the package and a server in test_zoo_on_hub_server.py."""

from __future__ import annotations

import fnmatch
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import ludus
from ludus.apps.hub import hugging_face
from ludus.apps.hub.hugging_face import Place, _refusals, parse_place, pull, push
from ludus.apps.hub.model_card import model_card
from ludus.cli.main import main
from ludus.core.errors import ConfigError, LudusError, RunError
from ludus.storage.manifest import read_manifest


class Folder:
    """A client whose Hub is a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fetched: list[str] = []

    def create_repo(self, repo_id: str, *, private: bool | None, exist_ok: bool) -> None:
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)

    def file_exists(self, repo_id: str, filename: str, *, revision: str | None = None) -> bool:
        return (self.root / repo_id / filename).exists()

    def upload_folder(self, **options: Any) -> None:
        repo, source = self.root / options["repo_id"], Path(options["folder_path"])
        shutil.rmtree(repo / "policies", ignore_errors=True)
        for path in source.rglob("*"):
            name = str(path.relative_to(source))
            if path.is_file() and any(fnmatch.fnmatch(name, pattern) for pattern in options["allow_patterns"]):
                (repo / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, repo / name)

    def snapshot_download(self, repo_id: str, **options: Any) -> None:
        repo = self.root / repo_id
        if not repo.is_dir():
            raise FileNotFoundError(f"404: there is no repository {repo_id}.")
        for name in options["allow_patterns"]:
            self.fetched.append(name)
            if (repo / name).is_file():
                (Path(options["local_dir"]) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(repo / name, Path(options["local_dir"]) / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the run "mine"."""
    folder = tmp_path_factory.mktemp("hub")
    kuhn = ludus.PSRO(env="openspiel/kuhn_poker", algorithm="exact", generations=2)
    ludus.run(kuhn, run_dir=folder / "runs" / "mine", report=False)
    return folder


@pytest.fixture
def hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(folder)
    client = Folder(tmp_path / "hub")
    monkeypatch.setattr(hugging_face, "_client", lambda: client)
    return client


def test_push_and_pull(hub: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", "mine", "hf://me/kuhn", "--note", "CC BY 4.0"]) == 0
    shown = capsys.readouterr().out
    assert "pushed hf://me/kuhn" in shown
    assert "`ludus pull hf://me/kuhn` fetches it." in shown
    files = {
        str(path.relative_to(hub.root / "me/kuhn")) for path in (hub.root / "me/kuhn").rglob("*") if path.is_file()
    }
    manifest = json.loads((hub.root / "me/kuhn/manifest.json").read_text())
    assert files == {"manifest.json", "README.md", *(member["file"] for member in manifest["policies"])}
    assert main(["pull", "hf://me/kuhn", str(tmp_path / "copy")]) == 0
    assert f"pulled {tmp_path / 'copy'}" in capsys.readouterr().out
    assert set(hub.fetched) == files - {"README.md"}
    assert ludus.evaluate_run(tmp_path / "copy", episodes=20).matches


def test_an_entry_is_replaced_only_when_asked(hub: Folder) -> None:
    push("mine@best", "hf://me/best")
    before = (hub.root / "me/best/manifest.json").read_bytes()
    with pytest.raises(RunError, match=r"has an entry already, and nothing was changed\. .*--replace"):
        push("mine", "hf://me/best")
    assert (hub.root / "me/best/manifest.json").read_bytes() == before
    push("mine", "hf://me/best", members=True, replace=True)
    manifest = json.loads((hub.root / "me/best/manifest.json").read_text())
    assert len(list((hub.root / "me/best/policies").rglob("*.safetensors"))) == len(manifest["policies"]) == 6


def test_what_is_pulled_is_checked_as_a_strangers(hub: Folder, tmp_path: Path) -> None:
    push("mine@best", "hf://me/checked")
    repo = hub.root / "me/checked"
    (policy, *_) = repo.rglob("*.safetensors")
    content = policy.read_bytes()
    policy.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match="was changed or damaged"):
        pull("hf://me/checked", tmp_path / "copy")
    policy.write_bytes(content)
    text = (repo / "manifest.json").read_text()
    (repo / "manifest.json").write_text(text.replace("openspiel/kuhn_poker", "openspiel/leduc_poker"))
    with pytest.raises(LudusError, match="manifest"):
        pull("hf://me/checked", tmp_path / "copy")
    (repo / "manifest.json").unlink()
    with pytest.raises(RunError, match="nothing was pushed there by Ludus"):
        pull("hf://me/checked", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_manifest_that_is_too_large_is_not_read(hub: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push("mine@best", "hf://me/large")
    monkeypatch.setattr(hugging_face, "_LARGEST", 100)
    with pytest.raises(RunError, match="which is not read"):
        pull("hf://me/large", tmp_path / "copy")


def test_what_the_hub_refuses_is_one_sentence(hub: Folder, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"'hf://me/gone' cannot be read: 404: .* `hf auth login` or HF_TOKEN"):
        pull("hf://me/gone", tmp_path / "copy")
    hub.root.mkdir(exist_ok=True)
    (hub.root / "file").touch()
    with pytest.raises(RunError, match="'hf://file/entry' cannot be written"):
        push("mine@best", "hf://file/entry")


@pytest.mark.parametrize(
    "text", ["hf://", "hf://me", "hf://me/a/b", "hf://me/..", "hf://me/a b", "hf://me/a@", "hf:/me/a"]
)
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="names no repository of the Hub"):
        parse_place(text)


def test_a_place_with_a_revision() -> None:
    place = parse_place("hf://me/kuhn@refs/pr/1")
    assert (place.repo, place.revision, str(place)) == ("me/kuhn", "refs/pr/1", "hf://me/kuhn@refs/pr/1")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["push", "mine", "zoo", "--private"], "--private was given with the folder 'zoo'"),
        (["push", "mine", "hf://me/x", "--name", "y"], "an entry of the Hub is called as its repository"),
        (["push", "bot:random", "hf://me/x"], "has no weights to push"),
    ],
)
def test_options_that_do_not_fit(
    hub: Folder, line: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    assert message in capsys.readouterr().err
    assert not hub.root.exists()


def test_the_card_has_the_facts_and_no_markup_of_others(hub: Folder) -> None:
    push("mine", "hf://me/card", note="see <b>[here](x)</b>")
    card = (hub.root / "me/card/README.md").read_text()
    _, header, body = card.split("---\n", 2)
    facts = yaml.safe_load(header)
    manifest = json.loads((hub.root / "me/card/manifest.json").read_text())
    assert facts["library_name"] == "ludus"
    assert {"ludus", "openspiel-kuhn-poker", "multi-agent-reinforcement-learning"} <= set(facts["tags"])
    (metrics,) = [result["metrics"] for result in facts["model-index"][0]["results"]]
    assert metrics[0] == {"type": "NashConv", "name": "NashConv", "value": manifest["results"]["nash_conv"]}
    assert "see \\<b\\>\\[here\\](x)\\</b\\>" in body
    assert "after generation 2, seed 0" in body
    assert "ludus pull hf://me/card" in body
    assert "| 95% interval |" in body
    assert body.count("| `0/") >= 1


def test_a_card_of_one_player_has_the_interval_of_its_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = ludus.load_scenario("gymnasium/CartPole-v1", ["generations=1", "response.decisions=2000"])
    result = ludus.run(scenario, run_dir="run", report=False)
    entry = ludus.push(f"{result.run_dir}@newest", "zoo", name="pole")
    manifest = read_manifest(entry.folder)
    card = model_card(manifest, "me/pole")
    returns = manifest.policies[-1].returns
    assert returns is not None
    assert f"{returns.mean:.4g} ± " in card
    assert "ludus evaluate pole" in card


def test_a_network_that_is_not_there_is_not_taken_for_a_missing_token() -> None:
    error = ValueError("no route.")
    error.__cause__ = ConnectionRefusedError(111, "refused")
    expected = "cannot be read: no route. Is the network there, and HF_ENDPOINT"
    with pytest.raises(RunError, match=expected), _refusals(Place("me", "kuhn"), "read"):
        raise error
