"""The question whether code is trusted that a stored file names, and the option that answers it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder

from ludus.core.errors import escape_controls
from ludus.core.trust import asking, trusting

_SHOWN = 20
"""Names in a question."""


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add the option that trusts what is opened."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import the code that a run, experiment, zoo entry or policy file names, though it was made elsewhere; kept in it",
    )


@contextmanager
def trusted_as(options: argparse.Namespace) -> Iterator[None]:
    """Trust what is opened meanwhile with --trust; else ask, where there is a terminal."""
    terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    with trusting(getattr(options, "trust", False)):
        if not (terminal and hasattr(options, "trust")):
            yield
            return
        with asking(_ask):
            yield


def _ask(place: str, names: Sequence[str]) -> bool:
    """Ask at the terminal; anything but yes is no."""
    lines = [f"{place} names code, and has no mark that you made or trusted it here. It would import:"]
    lines += [f"  {name}  {place_of(name)}" for name in names[:_SHOWN]]
    lines += [f"  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    sys.stderr.write(escape_controls("\n".join(lines)) + "\nImport and run it? [y/N] ")
    sys.stderr.flush()
    try:
        answer = sys.stdin.readline()
    except (OSError, UnicodeDecodeError):
        answer = ""
    if not answer:  # the end of the input
        sys.stderr.write("\n")
    return answer.strip().lower() in ("y", "yes")


def place_of(name: str) -> str:
    """Return where a name would be imported from, as far as that can be known without importing anything, its packages included."""
    module = name.removeprefix("import: ").partition(":")[0]
    path: Sequence[str] | None = None
    spec = None
    *parents, _ = parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        if any(not part for part in parts):
            return "(no module)"
        spec = PathFinder.find_spec(".".join(parts[:depth]), path)
        if spec is None:
            return "(not found on Python's path)"
        if depth <= len(parents):
            path = list(spec.submodule_search_locations or ())
    origin = None if spec is None else spec.origin
    return f"from {os.path.abspath(origin)}" if origin and os.path.exists(origin) else "(a folder, or compiled)"
