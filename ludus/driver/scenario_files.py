"""Scenarios from presets and YAML files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo

from ludus.core.config import Config, from_yaml, override
from ludus.core.errors import ConfigError, LudusError, UnknownName
from ludus.core.parts import load
from ludus.driver.scenario import Scenario
from ludus.driver.scenario_kinds import SCENARIOS
from ludus.learners.registry import ALGORITHMS
from ludus.learners.schedule import Schedule


def load_scenario(name_or_path: str, overrides: list[str] | None = None, seed: int | None = None) -> Scenario:
    """A preset or YAML file with `key=value` overrides. Raises ConfigError with the nearest right name."""
    source, text = _read(name_or_path)
    return parse_scenario(text, overrides, seed, source=source)


def parse_scenario(
    text: str, overrides: list[str] | None = None, seed: int | None = None, *, source: str = ""
) -> Scenario:
    """The scenario that YAML text describes. source: the file it was read from. Where `overrides` ask for another kind, keys of the text
    that only its own kind has are left out."""
    data = from_yaml(text, what="the scenario", source=source)
    if not isinstance(data, dict):
        given = "nothing" if data is None else type(data).__name__
        raise ConfigError(
            f"a scenario is a mapping of keys to values; given {given}{f' ({source})' if source else ''}. "
            "`ludus config PRESET` prints one."
        )
    if wrong := [key for key in data if not isinstance(key, str)]:
        raise ConfigError(f"unknown key {wrong[0]!r}: the keys of a scenario are words such as env and algorithm.")
    changes = [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
    before = str(data.get("scenario", "psro"))
    data = override(data, [change for change in changes if change.partition("=")[0].strip() == "scenario"])
    kind = _kind(str(data.get("scenario", "psro")))
    if str(data.get("scenario", "psro")) != before:
        theirs = _kind(before).model_fields.keys() - kind.model_fields.keys()
        data = {key: value for key, value in data.items() if key not in theirs}
    if isinstance(named := data.get("algorithms"), Mapping):
        data = {**data, "algorithms": {str(name): part for name, part in named.items()}}
    data = override({**_parts(kind), **data}, changes, names={"env": "id"}, filled=_settings)
    data.pop("scenario", None)
    return kind(**data)


def _kind(name: str) -> type[Scenario]:
    kind = load("scenario", name, SCENARIOS)
    if not (isinstance(kind, type) and issubclass(kind, Scenario)):
        raise ConfigError(
            f"scenario {name!r} is no class of scenarios; one of your own is a subclass of ludus.Scenario."
        )
    return kind


def _parts(scenario: type[Scenario]) -> dict[str, Any]:
    """The parts that a scenario has by default, so that an override such as `algorithm.batch=500` has something to change."""
    fields = scenario.model_fields
    return {
        name: fields[name].default
        for name in ("algorithm", "meta_solver", "responses", "past", "rules")
        if name in fields
    }


def _settings(data: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    """What an override of one setting of an algorithm's part leaves as it is: the rest of what the algorithm has by default (a schedule,
    NFSP's best response), or the start of a schedule that was given as a number; of `algorithms.1.batch`, all else that everybody's
    algorithm has."""
    what, *parts = path
    given: Any = data
    if what == "algorithms" and parts:
        given, (what, *parts) = {parts[0]: data[what].get(parts[0], data["algorithm"])}, parts
        if not parts:
            return {"kind": given[what]} if isinstance(given[what], str) else dict(given[what])
    elif what != "algorithm":
        return {}
    if not parts or not isinstance(given[what].get("kind"), str):
        return {}
    try:
        model = load("algorithm", given[what]["kind"], ALGORITHMS)
    except LudusError:
        return {}  # another one may be given later; else it is refused when it is made
    default: Any = None
    for before, part in pairwise([what, *parts]):
        given, field = given[before], _field(model, part)
        default = getattr(default, part, None) if isinstance(default, Config) else _default(field)
        model = field.annotation
    if _is_schedule(model) and isinstance(given.get(path[-1]), int | float):
        return {"start": given[path[-1]]}
    return default.model_dump(mode="json") if isinstance(default, Config) and path[-1] not in given else {}


def _is_schedule(annotation: Any) -> bool:
    """Of a field that is one, or may be."""
    return annotation is Schedule or any(_is_schedule(part) for part in get_args(annotation))


def _field(model: Any, name: str) -> FieldInfo:
    fields: Mapping[str, FieldInfo] = getattr(model, "model_fields", {})
    return fields.get(name, FieldInfo())


def _default(field: FieldInfo) -> Any:
    return None if field.default_factory_takes_validated_data else field.get_default(call_default_factory=True)


def list_presets() -> dict[str, str]:
    """name -> what it is (the first line of its file)."""
    files = {p.name.removesuffix(".yaml"): p for p in _presets().iterdir() if p.name.endswith(".yaml")}
    return {name: files[name].read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name in sorted(files)}


def _presets() -> Any:
    return resources.files("ludus.driver") / "presets"


def _read(name_or_path: str) -> tuple[str, str]:
    """(file, text)"""
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        try:
            return name_or_path, Path(name_or_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            detail = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(
                f"scenario file {name_or_path!r} cannot be read: {detail}. `ludus list presets` shows what is there by name."
            ) from error
    presets = list_presets()
    if name_or_path not in presets:
        raise UnknownName("preset", name_or_path, presets, hint="A scenario of your own is a path ending in .yaml")
    return f"{name_or_path}.yaml", str((_presets() / f"{name_or_path}.yaml").read_text(encoding="utf-8"))
