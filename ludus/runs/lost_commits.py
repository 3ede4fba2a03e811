"""Whether a run's database has lost commits, as what else the run wrote shows: apart, since `ludus status` asks and imports little."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from ludus.core.errors import LudusError
from ludus.runs.control import read_status
from ludus.storage.database import FILE
from ludus.storage.reader import Reader
from ludus.storage.run_dirs import is_running

_CHECKPOINT = re.compile(r"(\d{6,})-[0-9a-f]{16}")


def lost_commits(folder: Path) -> str:
    """Return that the database has lost what was committed last, in a sentence; "" where nothing shows it.

    Whatever kills a process or a machine loses no commit, so each of the two witnesses, which are looked at before the database, is proof:
    `status.json` names a checkpoint after its commit; and a checkpoint that is whole was begun after the commit of the one before it.
    """
    status = None if is_running(folder) else read_status(folder)
    names = [path.name for path in (folder / "checkpoint").glob("*-*") if _CHECKPOINT.fullmatch(path.name)]
    with Reader(folder, check=False) as reader:
        ids = [record.id for record in reader.checkpoints()]
    last = _number(ids[-1]) if ids else 0
    committed = max(last, status.barrier if status else 0)
    for name in sorted(names, key=_number, reverse=True):
        if _number(name) - 1 <= committed:
            break
        from ludus.storage import checkpoint  # rarely, and it takes as long to import as all else here

        with suppress(LudusError, ValueError):
            checkpoint.load(folder / "checkpoint", name)
            committed = _number(name) - 1
    if committed == last:
        return ""
    again = "`ludus resume` does what is missing again"
    if not any((folder / "checkpoint" / name).is_dir() for name in ids):
        again = "the checkpoints that it names are gone, so the run needs a copy of the database"
    return (
        f"the database {str(folder / FILE)!r} has lost its last commits: it ends with checkpoint {last}, and checkpoint {committed} was "
        f"committed. {FILE}-wal was cut or removed, or {FILE} is an older copy; {again}."
    )


def _number(name: object) -> int:
    """Return the number in a checkpoint's id; 0 for another name."""
    known = _CHECKPOINT.fullmatch(str(name))
    return int(known[1]) if known else 0
