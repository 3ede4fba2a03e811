"""Why a run ended, where that was no end of its own: an error, or a kill."""

from __future__ import annotations

from dataclasses import dataclass

from ludus.core.errors import RunError
from ludus.core.machine import redact_paths
from ludus.runs.control import Status, read_status
from ludus.storage.reader import KILLED, Reader
from ludus.storage.records import Session
from ludus.storage.run_dirs import run_title


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of the end of a run's last session.

    Attributes:
        state: "failed" or "interrupted".
        text: What happened, in a sentence.
        error: Name of the exception's class; "" where none is known.
        place: Method, file and line where it arose; "" where that is not known.
        task: What the run was doing, as far as is known.
        advice: What to do.
        time: When it ended, in seconds since the epoch; for a killed process, when it last wrote its status.
    """

    state: str
    text: str
    error: str
    place: str
    task: str
    advice: str
    time: float


def run_cause(reader: Reader, state: str) -> Cause | None:
    """Return why a run failed or was interrupted; None in another state. state: as `Reader.state`."""
    if state not in ("failed", "interrupted"):
        return None
    session, summary = next(reversed(reader.sessions()), None), reader.summary()
    text = reader.cause() or KILLED
    resume = f"ludus resume {run_title(reader.run_dir)}"
    if summary is not None:  # every response failed, and the schedule went on to its end
        advice = (
            "Change what made the trainings fail, such as the learning rate, and train again; the log has each failure."
        )
    elif state == "failed":
        advice = f"Correct the cause, then run `{resume}`: it continues from the last checkpoint."
    else:
        advice = f"Run `{resume}`: it continues from the last checkpoint."
    status = _last_status(reader)
    task = (session.task if session is not None else None) or (status.doing if status is not None else "")
    return Cause(
        state=state,
        text=redact_paths(text),
        error=(session.error if session is not None else None) or "",
        place=redact_paths((session.place if session is not None else None) or ""),
        task=task,
        advice=advice,
        time=_ended(session, status),
    )


def _last_status(reader: Reader) -> Status | None:
    """Return what a killed driver wrote last: one that ends removes it."""
    try:
        return read_status(reader.run_dir)
    except RunError:
        return None


def _ended(session: Session | None, status: Status | None) -> float:
    if session is not None and session.ended is not None:
        return session.ended
    if status is not None:
        return status.written
    return session.began if session is not None else 0.0
