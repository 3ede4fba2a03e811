"""Entries of a zoo on Hugging Face's Hub: each is a repository of models, hf://ORG/NAME, with a card made of its manifest.

What is pulled is somebody else's: of the repository only the files are fetched that the manifest names, and they go through the checks of
`ludus.apps.hub.zoo.pull`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import ludus
from ludus.apps.hub import zoo
from ludus.apps.hub.model_card import model_card
from ludus.core.errors import ConfigError, LudusError, RunError, one_line
from ludus.core.packages import optional
from ludus.envs.config import Environment
from ludus.storage.manifest import Manifest, read_manifest
from ludus.storage.run_dirs import MANIFEST, RUNS

PREFIX = "hf://"
CARD = "README.md"
_PLACE = re.compile(r"hf://([A-Za-z0-9][\w.-]{0,95})/([A-Za-z0-9][\w.-]{0,95})(?:@([\w./-]+))?")
_PACKAGES = ("hf_xet", "httpx", "httpx2", "huggingface_hub", "requests")
"""Whose errors mean that the Hub cannot be reached, or refuses; which client it uses depends on its version."""
_LARGEST = 1 << 26
"""Bytes of a manifest."""


class Client(Protocol):
    """What is used of `huggingface_hub.HfApi`."""

    def create_repo(self, repo_id: str, *, private: bool | None, exist_ok: bool) -> Any:
        """Make the repository, unless it is there."""
        ...

    def file_exists(self, repo_id: str, filename: str, *, revision: str | None = None) -> bool:
        """Return whether it has a file."""
        ...

    def upload_folder(
        self,
        *,
        repo_id: str,
        folder_path: str,
        commit_message: str,
        revision: str | None,
        allow_patterns: list[str],
        delete_patterns: list[str],
    ) -> Any:
        """Commit the files of a folder."""
        ...

    def snapshot_download(
        self, repo_id: str, *, revision: str | None, local_dir: str, allow_patterns: list[str]
    ) -> Any:
        """Fetch files into a folder."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """A repository. revision: a branch, tag or commit; None: the newest."""

    org: str
    name: str
    revision: str | None = None

    @property
    def repo(self) -> str:
        return f"{self.org}/{self.name}"

    def __str__(self) -> str:
        return f"{PREFIX}{self.repo}{f'@{self.revision}' if self.revision else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class HubEntry:
    """What was pushed. size: bytes of the policies."""

    place: Place
    manifest: Manifest
    size: int


def parse_place(text: str) -> Place:
    """Return the repository that hf://ORG/NAME or hf://ORG/NAME@REVISION names. Raises ConfigError."""
    match = _PLACE.fullmatch(text)
    if match is None or ".." in text or text.endswith((".git", ".")):
        raise ConfigError(
            f"{text!r} names no repository of the Hub; expected hf://ORG/NAME, or hf://ORG/NAME@REVISION."
        )
    return Place(*match.groups())


def push(
    policies: str,
    place: str,
    *,
    note: str = "",
    members: bool = False,
    env: Environment | str | None = None,
    replace: bool = False,
    private: bool = False,
    client: Client | None = None,
) -> HubEntry:
    """Push policies into a repository of the Hub, which is made if it is not there, with a card of what is known of them.

    Args:
        policies: As `ludus.push` takes it.
        place: hf://ORG/NAME, or with @BRANCH.
        note: As of `ludus.push`.
        members: As of `ludus.push`.
        env: As of `ludus.push`.
        replace: Replace the entry that is there.
        private: Make a private repository.
        client: Speaks to the Hub; None: huggingface_hub.

    Returns:
        What was pushed.

    Raises:
        ConfigError: As `ludus.push`, for a place that is none, and without huggingface_hub.
        RunError: For a repository that has an entry, and whatever the Hub refuses.
        LudusError: As `ludus.push`.
    """
    target = parse_place(place)
    hub = client or _client()
    with tempfile.TemporaryDirectory(prefix="ludus-hub-") as parent:
        entry = zoo.push(policies, parent, name=target.name, note=note, members=members, env=env)
        (entry.folder / CARD).write_text(model_card(entry.manifest, target.repo), encoding="utf-8")
        with _refusals(target, "written"):
            hub.create_repo(target.repo, private=private or None, exist_ok=True)
            if not replace and hub.file_exists(target.repo, MANIFEST, revision=target.revision):
                raise RunError(
                    f"{str(target)!r} has an entry already, and nothing was changed. Give another name, or --replace it."
                )
            hub.upload_folder(
                repo_id=target.repo,
                folder_path=str(entry.folder),
                commit_message=f"Push {entry.manifest.name} with Ludus {ludus.__version__}",
                revision=target.revision,
                allow_patterns=[MANIFEST, CARD, "policies/**"],
                delete_patterns=["policies/**"],
            )
        size = sum((entry.folder / member.file).stat().st_size for member in entry.manifest.policies)
    return HubEntry(target, entry.manifest, size)


def pull(
    place: str,
    target: Path | str | None = None,
    *,
    check_env: bool = True,
    replace: bool = False,
    client: Client | None = None,
) -> zoo.ZooEntry:
    """Fetch an entry from the Hub, and copy it as `ludus.pull` copies one of a zoo, after the same checks.

    Args:
        place: hf://ORG/NAME, or with @REVISION.
        target: Directory of the copy; default: ./runs/NAME.
        check_env: As of `ludus.pull`.
        replace: As of `ludus.pull`.
        client: Speaks to the Hub; None: huggingface_hub.

    Returns:
        The copied entry, with warnings.

    Raises:
        ConfigError: For a place that is none, and without huggingface_hub.
        RunError: For a repository without an entry, and whatever the Hub refuses.
        LudusError: As `ludus.pull`; TrustError where it names code that this user does not trust.
    """
    source = parse_place(place)
    hub = client or _client()
    with tempfile.TemporaryDirectory(prefix="ludus-hub-") as parent:
        folder = Path(parent) / source.name
        _fetch(hub, source, folder, [MANIFEST])
        manifest = folder / MANIFEST
        if not manifest.is_file():
            raise RunError(f"{str(source)!r} has no {MANIFEST}: nothing was pushed there by Ludus.")
        if manifest.stat().st_size > _LARGEST:
            raise RunError(f"{str(source)!r} has a {MANIFEST} of more than {_LARGEST >> 20} MiB, which is not read.")
        _fetch(hub, source, folder, [member.file for member in read_manifest(folder).policies])
        return zoo.pull(folder, RUNS / source.name if target is None else target, check_env=check_env, replace=replace)


def _fetch(hub: Client, source: Place, folder: Path, files: Sequence[str]) -> None:
    with _refusals(source, "read"):
        hub.snapshot_download(source.repo, revision=source.revision, local_dir=str(folder), allow_patterns=list(files))


def _client() -> Client:
    """Return huggingface_hub's. Its token and address are those of `hf auth login`, HF_TOKEN and HF_ENDPOINT."""
    with optional("hf:// places"):
        from huggingface_hub import HfApi
    return cast(Client, HfApi(library_name="ludus", library_version=ludus.__version__))


def _is_of_network(error: BaseException | None) -> bool:
    """Whether no server was reached, as the error or what caused it says: classes of httpx, requests and Python, by their names."""
    kinds, at = list[str](), error
    while at is not None:
        kinds += [kind.__name__ for kind in type(at).__mro__]
        at = at.__cause__ or at.__context__
    return any("Connect" in name or "Timeout" in name for name in kinds)


@contextmanager
def _refusals(place: Place, what: str) -> Iterator[None]:
    """Give what the Hub or the network refuses as a RunError."""
    try:
        yield
    except LudusError:
        raise
    except Exception as error:
        of_hub = type(error).__module__.partition(".")[0] in _PACKAGES
        if not (of_hub or isinstance(error, OSError | ValueError)):
            raise
        answered = getattr(error, "response", None) is not None
        advice = (
            "A token comes from `hf auth login` or HF_TOKEN."
            if answered or not _is_of_network(error)
            else "Is the network there, and HF_ENDPOINT, if it is set, right?"
        )
        raise RunError(f"{str(place)!r} cannot be {what}: {one_line(error).removesuffix('.')}. {advice}") from error
