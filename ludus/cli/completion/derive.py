"""What `options.json` has: the arguments of all commands, and the keys of scenarios with their choices.

`make snapshots` writes it; a test compares it with what the parsers and models say.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from ludus.apps.export import FORMATS
from ludus.apps.options.schema import scenario_schema, sweep_schema
from ludus.cli.command import Command
from ludus.cli.completion.lookup import kinds_in
from ludus.core.config import from_yaml
from ludus.core.parts import resolve_name
from ludus.envs.families import FAMILIES
from ludus.envs.registry import list_envs
from ludus.evaluation.run_ratings import RATINGS
from ludus.policies.agents import AGENTS
from ludus.policies.bots import BOTS
from ludus.reporting.trackers import TRACKERS
from ludus.runs.scenario_files import list_presets
from ludus.runtime.inprocess import RUNTIMES

_LONGEST = 72
"""Characters of a description."""
_REF = "#/definitions/"
ENVIRONMENTS = ("gymnasium", "openspiel", "pettingzoo", "mpe2")
"""Families whose names are in the table: those that are listed without delay."""
VALUES: Mapping[str, tuple[str, ...]] = {
    "--algorithm": ("algorithm",),
    "--against": ("policy", "entrant"),
    "--device": ("device",),
    "--dir": ("folder",),
    "--policies": ("policy", "entrant", "safetensors"),
    "--rating": ("rating",),
    "--metric": ("metric",),
    "--root": ("folder",),
    "--run-dir": ("folder",),
    "--runtime": ("runtime",),
    "--start": ("policy", "safetensors"),
    "--to": ("format",),
    "--track": ("tracker",),
    "ENTRANT": ("policy", "entrant", "safetensors"),
    "EXPERIMENT|RUN": ("run", "experiment"),
    "FAMILY|RUN|ZOO|WORD": ("listed",),
    "FILE": ("file",),
    "FILE.html": ("html",),
    "FILE.parquet": ("parquet",),
    "FILE.yaml": ("yaml",),
    "ID": ("environment",),
    "NAME|DIRECTORY": ("folder",),
    "POLICY.safetensors": ("safetensors",),
    "PRESET|FILE.yaml|ENV": ("preset", "environment", "yaml"),
    "NAME[,key=value…]": ("tracker",),
    "RUN": ("run",),
    "RUN[@WHAT]": ("policy",),
    "RUN[@WHAT]|FILE": ("policy", "safetensors"),
    "RUN[@WHAT]|FILE.jsonl": ("policy", "jsonl"),
    "RUN[@WHAT]|FILE.safetensors": ("policy", "safetensors"),
    "RUN|EXPERIMENT": ("run", "experiment"),
    "TARGET": ("folder",),
    "ZOO|hf://ORG/NAME": ("folder", "hub"),
    "ZOO[/NAME]|hf://ORG/NAME": ("zoo", "hub"),
    "key=value": ("override",),
    "resume run": ("run", "experiment"),
}
"""option, COMMAND NAME of a positional, or what the help text calls a value -> what it may be (`candidates.KINDS`)."""


def derive_table(commands: Mapping[str, Command]) -> dict[str, Any]:
    """Return the table that `ludus.cli.completion.candidates` reads.

    Args:
        commands: All commands, by name.

    Returns:
        JSON data: `commands`, `presets`, `parts` (names of each), `groups` (the fields at each place of a scenario), `agents`,
        `families`, `environments`.
    """
    schema = scenario_schema()
    groups, parts = _groups(schema["definitions"]), _parts(schema["definitions"])
    scenarios = schema["properties"]["scenario"]["anyOf"][0]["enum"]
    for name in scenarios:
        groups[f"scenario.{name}"] = {"scenario": {"values": scenarios}, **groups[f"scenario.{name}"]}
    _refine(groups)
    more = {
        "bot": sorted(set(BOTS) - {"registered"} | {"random"}),
        "device": ["auto", "cpu", "cuda"],
        "format": list(FORMATS),
        "metric": groups["scenario.sweep"]["metric"]["values"],
        "rating": sorted(RATINGS),
        "runtime": sorted(RUNTIMES),
        "tracker": sorted(TRACKERS),
    }
    return {
        "commands": {name: _command(command) for name, command in commands.items()},
        "presets": dict(_presets()),
        "parts": {**parts, **more},
        "groups": groups,
        "agents": dict(_agents()),
        "families": {name: family.summary for name, family in sorted(FAMILIES.items())},
        "environments": {name: [id.partition("/")[2] for id in list_envs(name)] for name in ENVIRONMENTS},
    }


def table_text(table: Mapping[str, Any]) -> str:
    """Return the table as JSON, with a line for each command, preset, part and group."""
    sections = []
    for name, section in table.items():
        rows = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in section.items()]
        sections.append(f" {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def _command(command: Command) -> dict[str, Any]:
    options, positionals = {}, []
    for action in command._parser()._actions:
        for name in action.option_strings:
            if name.startswith("--"):
                options[name] = _argument(action, name)
        if not action.option_strings:
            positionals.append({"name": action.dest, **_argument(action, f"{command.name} {action.dest}")})
    return {"help": _short(command.summary), "options": options, "positionals": positionals}


def _argument(action: argparse.Action, name: str) -> dict[str, Any]:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    of = getattr(action.type, "__name__", "")
    values = VALUES.get(name) or VALUES.get(metavar) or {"folder": ("folder",), "Path": ("file",)}.get(of, ())
    choices = [str(choice) for choice in action.choices or ()]
    if not choices and not values and re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", metavar):
        choices = metavar.split("|")
    argument: dict[str, Any] = {"nargs": action.nargs, "help": _short(action.help or "")}
    argument |= {"values": list(values)} if values else {}
    argument |= {"choices": choices} if choices else {}
    return argument | ({"repeats": True} if isinstance(action, argparse._AppendAction) else {})


def _short(text: str) -> str:
    """Return the beginning of a description, on one line."""
    first = re.split(r"(?<=[.;]) | \(", " ".join(text.split()))[0].rstrip(".;:")
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST].rpartition(' ')[0]} …"


def _agents() -> Iterator[tuple[str, str]]:
    """Yield each scheme of agents from elsewhere, and what it plays."""
    for name in sorted(AGENTS):
        doc = inspect.getdoc(resolve_name("agent", name, AGENTS)) or ""
        yield name, _short(doc.partition("\n\n")[0].partition("`, ")[2])


def _presets() -> Iterator[tuple[str, dict[str, Any]]]:
    folder = resources.files("ludus.runs") / "presets"
    for name, what in list_presets().items():
        data = from_yaml((folder / f"{name}.yaml").read_text(encoding="utf-8"), what=name)
        parts = {key: kind for key, kind in kinds_in(data).items() if re.fullmatch(r"[\w./:-]+", kind)}
        yield name, {"help": _short(what), "parts": parts}


# --------------------------------------------------------------------------------------------------------------------
# From the JSON schema of scenarios.


def _groups(definitions: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of each definition that has some, without `kind`, which follows from the name."""
    return {
        name: {
            key: _entry(field, definitions)
            for key, field in one["properties"].items()
            if key not in ("kind", "scenario") or "const" not in field
        }
        for name, one in definitions.items()
        if "properties" in one
    }


def _parts(definitions: Mapping[str, Any]) -> dict[str, list[str]]:
    return {name: names for name, one in definitions.items() if (names := _part_names(one)) is not None}


def _part_names(schema: Mapping[str, Any]) -> list[str] | None:
    """Return the names of a part's kinds; None for what is no part."""
    choices = schema.get("anyOf", ())
    if len(choices) != 2 or "allOf" not in choices[1]:
        return None
    return list(choices[0]["anyOf"][0]["enum"])


def _entry(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return what completion needs of a field: help, values, and the part or group that it holds."""
    entry: dict[str, Any] = {}
    if text := _short(field.get("description", "")):
        entry["help"] = text
    values = list(dict.fromkeys(_values(field)))
    if values and values != ["null"]:
        entry["values"] = values
    choices = [choice for choice in field.get("anyOf", ()) if choice != {"type": "null"}]
    for ref in _refs(field):
        name = ref.removeprefix(_REF)
        if _part_names(definitions[name]) is not None:
            entry["part"] = name
            entry |= {"default": field["default"]} if isinstance(field.get("default"), str) else {}
        elif "properties" in definitions[name] and not any(choice.get("type") == "array" for choice in choices):
            entry["group"] = name
            entry |= {"plain": True} if any("$ref" not in choice for choice in choices) else {}
    return entry


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values that a schema lists."""
    if schema.get("type") == "boolean":
        yield from ("true", "false")
    if schema.get("type") == "null":
        yield "null"
    yield from (value for value in schema.get("enum", ()) if isinstance(value, str))
    for choice in schema.get("anyOf", ()):
        yield from _values(choice)


def _refs(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the definitions that a value may be of."""
    if "$ref" in schema:
        yield schema["$ref"]
    for choice in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from _refs(choice)


def _refine(groups: dict[str, dict[str, Any]]) -> None:
    """Add what a schema does not say: which files, policies and environments a value may be."""
    kinds = {
        "env": ["environment"],
        "opponents": ["policy", "entrant", "safetensors"],
        "start": ["policy", "safetensors"],
    }
    for name, fields in groups.items():
        if name.startswith("scenario."):
            for key, values in kinds.items():
                if key in fields:
                    fields[key]["kinds"] = values
            fields["algorithms"] = {**fields["algorithms"], "group": "algorithms"}
    groups["algorithms"] = {"*": {"part": "algorithm", "default": "ppo"}}
    del groups["Environment"]["source"]  # from Python only
    groups["Environment"]["id"]["kinds"] = ["environment"]
    groups["Environment"]["options"]["group"] = "Options"
    groups["RuntimeChoice"]["kind"]["values"] = sorted(RUNTIMES)
    groups["RuntimeChoice"]["device"]["values"] = ["auto", "cpu", "cuda"]
    options = {"zero_sum": {"values": ["true", "false"]}, "utility_range": {}, "symmetry": {}, "teams": {}}
    groups["Options"] = options
    groups["scenario.sweep"] = {
        **_groups({"sweep": sweep_schema()})["sweep"],
        "scenario": {"kinds": ["preset", "yaml"]},
        "changes": {"group": "scenario.psro"},
    }
    check = {key: field for key, field in groups["Environment"].items() if key not in ("id", "num_envs")}
    groups["scenario.check-env"] = {**check, **options}
