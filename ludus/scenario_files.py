"""Scenarios from presets and YAML files."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from ludus.config import from_yaml, override
from ludus.errors import ConfigError, UnknownName
from ludus.registry import load
from ludus.scenario import Scenario
from ludus.scenario_registry import SCENARIOS


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
        raise ConfigError(f"unknown key {wrong[0]!r}: the keys of a scenario are words such as env and oracle.")
    changes = [*(overrides or []), *([] if seed is None else [f"seed={seed}"])]
    before = str(data.get("scenario", "psro"))
    data = override(data, [change for change in changes if change.partition("=")[0].strip() == "scenario"])
    kind = _kind(str(data.get("scenario", "psro")))
    if str(data.get("scenario", "psro")) != before:
        theirs = _kind(before).model_fields.keys() - kind.model_fields.keys()
        data = {key: value for key, value in data.items() if key not in theirs}
    data = override({**_parts(kind), **data}, changes, names={"env": "id"})
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
    """The parts that a scenario has by default, so that an override such as `oracle.batch=500` has something to change."""
    fields = scenario.model_fields
    return {
        name: fields[name].default for name in ("oracle", "meta_solver", "responses", "past", "rules") if name in fields
    }


def list_presets() -> dict[str, str]:
    """name -> what it is (the first line of its file)."""
    files = {p.name.removesuffix(".yaml"): p for p in _presets().iterdir() if p.name.endswith(".yaml")}
    return {name: files[name].read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name in sorted(files)}


def _presets() -> Any:
    return resources.files("ludus") / "presets"


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
