"""`new_skeleton`: a folder with a package that extends Ludus, which is installed, tested and trained with at once."""

from __future__ import annotations

import builtins
import importlib.machinery
import keyword
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final

import ludus
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.apps.skeletons.kinds import KINDS, PARTS, Kind
from ludus.core.errors import ConfigError, RunError, UnknownName
from ludus.core.machine import write_file
from ludus.core.packages import DISTRIBUTION
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.policies.bots import BOTS

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST: Final = 50
_TABLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "ludus.algorithms": ALGORITHMS,
    "ludus.meta_solvers": META_SOLVERS,
    "ludus.bots": BOTS,
}


def new_skeleton(kind: str, name: str, parent: Path | str = ".") -> Path:
    """Make the folder of a package that extends Ludus. It appears as a whole, or not at all.

    Args:
        kind: One of `ludus.apps.skeletons.kinds.KINDS`.
        name: Of the distribution and the folder; small letters, digits and dashes. The package is called so with underscores.
        parent: Where the folder is made.

    Returns:
        The folder.

    Raises:
        UnknownName: For an unknown kind.
        ConfigError: For a name that cannot name a package, or is another one's.
        RunError: Where something of that name is, or nothing can be written.
    """
    if kind not in KINDS:
        raise UnknownName("kind of skeleton", kind, KINDS)
    _check_name(name, kind)
    folder = Path(parent) / name
    if os.path.lexists(folder):
        raise RunError(
            f"{str(folder)!r} is there already, and nothing was written. Give another name, or another --dir."
        )
    try:
        Path(parent).mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
        try:
            for path, text in files_of(kind, name).items():
                (part / path).parent.mkdir(parents=True, exist_ok=True)
                write_file(part / path, text.encode())
            part.chmod(0o777 & ~_umask())
            os.rename(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise RunError(f"{str(folder)!r} cannot be written: {error.strerror}. Give another --dir.") from error
    return folder


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _check_name(name: str, kind: str) -> None:
    """Raise ConfigError for what cannot name a new package."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            f"{name!r} cannot name a package; use small letters, digits and dashes, a letter first, {_LONGEST} at most: my-game."
        )
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or keyword.issoftkeyword(package) or hasattr(builtins, package):
        raise ConfigError(f"{name!r} is a word of Python. Give another name.")
    for part in KINDS[kind].parts:
        if package in _TABLES.get(PARTS[part].group, {}):
            raise ConfigError(f"Ludus has the {part} {package!r} itself. Give another name.")
    if package in sys.stdlib_module_names or package in sys.modules or _is_installed(package):
        raise ConfigError(f"there is a Python package {package!r} already. Give another name.")


def _is_installed(package: str) -> bool:
    """Return whether the name is of a package on Python's path; one in the working directory is seen where the folder is made."""
    here = [entry for entry in sys.path if entry and Path(entry).resolve() != Path.cwd()]
    return importlib.machinery.PathFinder.find_spec(package, here) is not None


def files_of(kind: str, name: str) -> dict[str, str]:
    """Return the files of a skeleton, by their paths in its folder."""
    skeleton, package = KINDS[kind], name.replace("-", "_")
    classes = {part: _class_name(name) if len(skeleton.parts) == 1 else PARTS[part].default for part in skeleton.parts}
    game = f"{package}.env:{classes['env']}" if "env" in classes else "openspiel/kuhn_poker"
    words = {"name": name, "package": package, "summary": skeleton.summary, "bot_game": game, **classes}
    words |= {"env": classes["task"]} if "task" in classes else {}
    words |= {"short": "\n".join(f'    "{change}",' for change in skeleton.short)}
    words |= {"requirement": f"{DISTRIBUTION}{f'[{skeleton.extra}]' if skeleton.extra else ''}>={ludus.__version__}"}
    words |= {
        "entry_points": "".join(_entry_points(skeleton, package, classes)),
        "files": "\n".join(_rows(skeleton, package)),
    }
    files = {
        "pyproject.toml": _text("pyproject.toml", words),
        "README.md": _text("README.md", words),
        ".gitignore": _text("gitignore", words),
        "scenario.yaml": f"# {skeleton.summary}\n{Template(skeleton.scenario).substitute(words)}",
        f"{package}/__init__.py": f'"""{skeleton.summary}"""\n',
        "tests/test_scenario.py": _text("test_scenario.py", words),
    }
    for part in skeleton.parts:
        module = _module(part)
        files[f"{package}/{module}.py"] = _text(f"{part}.py", words)
        files[f"tests/test_{module}.py"] = _text(f"test_{part}.py", words)
    return files


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in re.split("[-_]", name))


def _module(part: str) -> str:
    return "env" if part == "task" else part


def _text(template: str, words: Mapping[str, str]) -> str:
    text = (resources.files("ludus.apps.skeletons") / "templates" / f"{template}.txt").read_text(encoding="utf-8")
    return Template(text).substitute(words)


def _entry_points(skeleton: Kind, package: str, classes: Mapping[str, str]) -> Iterator[str]:
    for part in skeleton.parts:
        if group := PARTS[part].group:
            yield f'\n[project.entry-points."{group}"]\n{package} = "{package}.{part}:{classes[part]}"\n'


def _rows(skeleton: Kind, package: str) -> Iterator[str]:
    for part in skeleton.parts:
        short = f"; installed, it is also called `{package}`" if PARTS[part].group else ""
        yield f"| `{package}/{_module(part)}.py` | {PARTS[part].meaning}{short} |"
