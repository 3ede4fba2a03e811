"""Stands in for `ludus.view.figures` until that is there."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, is_dataclass
from typing import Any

from ludus.storage import live
from ludus.storage.reader import Reader, run_state
from ludus.view import report


def _overview(reader: Reader) -> Any:
    data = report.collect(reader)
    facts = report._facts(data)
    last = reader.last_generation()
    events = [e for e in reader.events() if e.level != "info"][-50:]
    policies = Counter(p.record.ref.population for p in reader.policies())
    info = facts["info"]
    status = live.read_status(reader.run_dir)
    return {
        "info": {
            k: info.get(k)
            for k in (
                "name",
                "scenario",
                "env",
                "algorithm",
                "seed",
                "version",
                "population",
                "zero_sum",
                "generations",
                "text",
            )
        }
        | {"utility_range": [[None if not math.isfinite(x) else x for x in pair] for pair in data.info.utility_range]},
        "state": data.state,
        "summary": facts["summary"],
        "progress": {
            "generation": last.number if last else 0,
            "generations": data.info.generations,
            "fraction": status.fraction if status else None,
            "doing": status.doing if status else "",
            "pace": status.speed if status else None,
            "seconds": last.seconds if last else 0.0,
            "seconds_left": None,
        },
        "tiles": [],
        "notes": [{"time": e.time, "level": e.level, "kind": e.kind, "text": e.text} for e in events],
        "figures": {"policies": [policies[p] for p in data.info.population], "episodes": last.episodes if last else 0},
        "can": {"steer": data.state == "running", "play": True, "tree": False},
    }


def _learning(reader: Reader, **_: str) -> Any:
    data = report.collect(reader)
    return {"learners": data.learning, "learners_in_all": data.learners}


def _strategies(reader: Reader) -> Any:
    return {"over": report.collect(reader).strategies, "last": []}


def _events(reader: Reader, after: str = "0", limit: str = "500") -> Any:
    rows = reader._rows(
        "SELECT seq, time, level, kind, text FROM events WHERE seq > ? ORDER BY seq DESC LIMIT ?",
        int(after),
        int(limit),
    )[::-1]
    return {
        "events": [dict(zip(("seq", "time", "level", "kind", "text"), row, strict=True)) for row in rows],
        "last": rows[-1][0] if rows else int(after),
    }


PANELS = {
    "overview": _overview,
    "convergence": lambda reader: report.collect(reader).convergence,
    "strategies": _strategies,
    "learning": _learning,
    "events": _events,
    "ranking": lambda reader: report.collect(reader).rankings,
    "statistics": lambda reader: report.collect(reader).statistics,
    "parts": lambda reader: {"parts": [], "deaths": []},
}


def version(reader: Reader) -> Any:
    return (
        *tuple(
            reader._rows(f"SELECT COUNT(*) FROM {t}")[0][0]
            for t in (
                "policies",
                "generations",
                "tasks",
                "matches",
                "payoffs",
                "ratings",
                "metrics",
                "curves",
                "events",
            )
        ),
        reader.summary(),
    )


def changed(before: Any, after: Any) -> frozenset[str]:
    return frozenset() if before == after else frozenset(PANELS)


def run_line(reader: Reader, id: str, name: str, group: str | None) -> Any:
    info, summary, last = reader.info(), reader.summary(), reader.last_generation()
    levels = Counter(e.level for e in reader.events())
    notes = [e.text for e in reader.events() if e.level != "info"]
    status = live.read_status(reader.run_dir)
    state = run_state(reader.run_dir, summary)
    return {
        "id": id,
        "name": name,
        "group": group,
        "state": state,
        "game": info.env,
        "algorithm": info.algorithm,
        "scenario": info.scenario,
        "seed": info.seed,
        "players": info.players,
        "policies": len(reader.policies()),
        "generation": last.number if last else 0,
        "generations": info.generations,
        "fraction": None,
        "doing": status.doing if status else "",
        "seconds": last.seconds if last else 0.0,
        "seconds_left": None,
        "episodes": last.episodes if last else 0,
        "began": reader.checkpoints()[0].created if reader.checkpoints() else 0,
        "nash_conv": last.nash_conv if last else None,
        "exact": last.exact if last else True,
        "return": None,
        "warnings": levels["warning"],
        "errors": levels["error"],
        "last_note": notes[-1] if notes else "",
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(value: Any) -> bytes:
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=str).encode(
        "utf-8", "replace"
    )
