"""The JSON schema of a scenario's file, from the models that read it: what an editor needs to complete and to check YAML.

It is of draft 7, which editors know best. A part that is a name or a mapping with `kind`, an algorithm say, has the options of that kind; a
part of one's own (`module:Class`) may have any.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from ludus import __version__
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.rewards.registry import LEARNED_REWARDS
from ludus.apps.options.fields import description, fields_of
from ludus.core.parts import resolve_name
from ludus.envs.config import SIDES, Environment, Switch
from ludus.envs.families import FAMILIES
from ludus.envs.wrappers.registry import WRAPPERS
from ludus.metagame.solvers.registry import META_SOLVERS
from ludus.policies.specs import BODIES
from ludus.replay.processing import PROCESSING
from ludus.replay.selectors import RESERVOIR, SELECTORS
from ludus.runs.scenario import SCENARIOS, Scenario
from ludus.schedulers.league import LEAGUE_RULES
from ludus.schedulers.pbt import TUNING_RULES
from ludus.schedulers.response_diversity import DIVERSITIES
from ludus.schedulers.responses import RESPONSES
from ludus.schedulers.self_play import PAST_OPPONENT_RULES
from ludus.training.stopping import STOPPERS

Schema = dict[str, Any]

OWN: Final = r"^[\w.-]+:[A-Za-z_]\w*$"
"""A part of one's own, `module:Class`."""
_REF = "#/definitions/"
_PARTS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "algorithm": ("algorithm", ALGORITHMS),
    "meta_solver": ("meta-solver", META_SOLVERS),
    "responses": ("response rule", RESPONSES),
    "past": ("past", PAST_OPPONENT_RULES),
    "diversity": ("diversity", DIVERSITIES),
    "learned_reward": ("learned reward", LEARNED_REWARDS),
}
"""field -> the part that it holds, by name or as a mapping with `kind`."""
_RULES: Final = {"alphastar": ("league's rules", LEAGUE_RULES), "truncation": ("tuning rules", TUNING_RULES)}
"""Of a field `rules`, by its default."""
_NAMES: Final = {
    "network": tuple(BODIES),
    "body": tuple(BODIES),
    "sampler": tuple(SELECTORS),
    "remover": (*SELECTORS, RESERVOIR),
}
"""field -> names that it takes, besides `module:Class`."""
_SEVERAL: Final = {"opponents", "warm_start", "wrappers", "processing", "callbacks", "learners"}
"""Lists that may be given as their only item."""
_BY_ONE_FIELD: Final = {
    "Schedule": {"type": "number", "minimum": 0},
    "Environment": {"type": "string"},
    "RuntimeChoice": {"type": "string"},
    "Inference": {"enum": ["local", "server"]},
    "Opponent": {"type": "string"},
    "WarmStart": {"enum": ["random", "last", "best"]},
}
"""Models that may be given as the value of one of their fields."""


@cache
def scenario_schema() -> Schema:
    """Return the JSON schema (draft 7) of what `ludus train FILE.yaml` reads.

    Returns:
        JSON data. Of each kind of scenario, algorithm and other named part, `definitions` has the options, as "algorithm.ppo".
    """
    writer = _Writer()
    kinds = {name: writer.named("scenario", name, SCENARIOS) for name in SCENARIOS}
    chosen = [_if("scenario", name, then) for name, then in kinds.items()]
    own: Schema = {"if": {"properties": {"scenario": {"pattern": OWN}}, "required": ["scenario"]}}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Scenario of Ludus {__version__}",
        "type": "object",
        "properties": {"scenario": {**_name(SCENARIOS), "default": "psro", "description": _line(Scenario)}},
        "allOf": [
            *chosen,
            {"if": {"not": {"required": ["scenario"]}}, "then": {"$ref": kinds["psro"]}},
            {**own, "then": {"required": ["env"]}},
        ],
        "definitions": dict(sorted(writer.definitions.items())),
    }


@cache
def sweep_schema() -> Schema:
    """Return the JSON schema (draft 7) of what `ludus sweep FILE.yaml` reads."""
    from ludus.apps.experiments.sweep import PRUNERS, SAMPLERS, Sweep

    writer = _Writer()
    whole = writer.options(Sweep)
    for key, kinds in (("sampler", SAMPLERS), ("pruner", PRUNERS)):
        name = {"enum": sorted(kinds)}
        mapping = {"type": "object", "properties": {"kind": name}}
        whole["properties"][key] = {
            "anyOf": [name, mapping],
            "description": f"Optuna's {key}, by name, with its options.",
        }
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"Sweep of Ludus {__version__}"}
    return {**head, **whole, "definitions": writer.definitions}


class _Writer:
    """Schemas of models, each once."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def named(self, what: str, name: str, table: Mapping[str, Any]) -> str:
        """Return the reference to what a named part is given as: its options, and its name as `kind` (of a scenario: `scenario`)."""
        key = f"{what.replace(' ', '_')}.{name}"
        if key not in self.definitions:
            self.definitions[key] = {}  # a part may hold one of its own kind
            cls = resolve_name(what, name, table)
            whole: Schema = self.options(cls) if isinstance(cls, type) else {"type": "object"}
            properties: Schema = {"scenario" if what == "scenario" else "kind": {"const": name}}
            if what == "scenario":
                properties["import"] = {"type": "string", "description": "A module that registers the environment."}
            whole["properties"] = {**properties, **whole.get("properties", {})}
            self.definitions[key] = whole
        return _REF + key

    def part(self, what: str, table: Mapping[str, Any]) -> Schema:
        """Return the schema of a part by name, or as a mapping with `kind`."""
        key = what.replace(" ", "_")
        if key not in self.definitions:
            self.definitions[key] = {}
            kinds = [_if("kind", name, self.named(what, name, table)) for name in table]
            mapping: Schema = {"type": "object", "properties": {"kind": _name(table)}, "required": ["kind"]}
            mapping |= {"allOf": kinds} if kinds else {}
            self.definitions[key] = {"anyOf": [_name(table), mapping]}
        return {"$ref": _REF + key}

    def stopper(self) -> Schema:
        """Return the schema of {episodes: 20000}, {nash_conv: {value: 0.1, patience: 3}}, or several of them."""
        if "stopper" not in self.definitions:
            self.definitions["stopper"] = {}
            each = {}
            for name in STOPPERS:
                cls = resolve_name("stopper", name, STOPPERS)
                options = self.definitions[f"stopper.{name}"] = self.options(cls)
                setting = _without_words(options["properties"][cls.setting])
                each[name] = {"description": _line(cls), "anyOf": [setting, {"$ref": f"{_REF}stopper.{name}"}]}
            self.definitions["stopper"] = {
                "type": "object",
                "properties": each,
                "patternProperties": {OWN: {}},
                "additionalProperties": False,
                "minProperties": 1,
            }
        return {"$ref": _REF + "stopper"}

    def options(self, cls: type) -> Schema:
        """Return the schema of a model's or dataclass's options."""
        fields = fields_of(cls)
        if not fields:
            return {"type": "object", "description": _line(cls), "additionalProperties": not _is_closed(cls)}
        whole = TypeAdapter(cls).json_schema(ref_template=_REF + "{model}")
        types = whole.get("properties", {})
        properties = {name: self._field(cls, name, info, types.get(name, {})) for name, info in fields.items()}
        if required := whole.get("required"):
            return {**_object(cls, properties), "required": required}
        return _object(cls, properties)

    def _field(self, cls: type, name: str, info: FieldInfo, plain: Schema) -> Schema:
        for model in _models(info.annotation):
            if model.__name__ not in self.definitions:
                self.definitions[model.__name__] = {}
                self.definitions[model.__name__] = self.options(model)
        schema = self._special(cls, name, info, plain) or _loosened(plain)
        if Switch in info.metadata:
            schema = {"anyOf": [{"type": "boolean"}, schema]}
        if name in _SEVERAL and schema.get("type") == "array":
            schema = {"anyOf": [schema["items"], schema, {"type": "null"}]}
        words = {"description": text} if (text := description(cls, name, info)) else {}
        default = {"default": plain["default"]} if plain.get("default") is not None else {}
        schema = {"allOf": [schema]} if "$ref" in schema else schema  # what stands next to a reference does not count
        return {**_without_words(schema), **words, **default}

    def _special(self, cls: type, name: str, info: FieldInfo, plain: Schema) -> Schema | None:
        """Return the schema of a field whose type says less than what reads it."""
        null: list[Schema] = [{"type": "null"}] if info.default is None or name in ("stop", "response") else []
        if name == "rules" and info.default in _RULES:
            return self.part(*_RULES[info.default])
        if name in ("response", "stop") and issubclass(cls, Scenario):
            return {"anyOf": [self.stopper(), *null]}
        if name in _PARTS and not is_typed(plain):
            return {"anyOf": [self.part(*_PARTS[name]), *null]}
        if name in _NAMES and "enum" not in plain and "const" not in plain:
            mapping = {"type": "object", "required": ["kind"]}
            return {"anyOf": [_name(_NAMES[name]), *([mapping] if name in ("network", "body") else []), *null]}
        return self._several(cls, name)

    def _several(self, cls: type, name: str) -> Schema | None:
        """Return the schema of a field that holds several parts."""
        if name == "algorithms":
            return {"type": "object", "additionalProperties": self.part("algorithm", ALGORITHMS)}
        if name == "processing":
            return {"type": "array", "items": self.part("processing", PROCESSING)}
        if name == "callbacks":
            return {"type": "array", "items": self.part("callback", {})}
        if name == "wrappers":
            return {"type": "array", "items": {"anyOf": [_name(WRAPPERS), _wrapper()]}}
        if name == "of" and cls.__name__ in ("AllOf", "AnyOf"):
            return {"type": "array", "items": self.stopper()}
        if cls is Environment and name == "id":
            return {"type": "string", "examples": [family.example for family in FAMILIES.values()]}
        if cls is Environment and name == "options":
            return {"type": "object", "properties": {side: {} for side in SIDES}}
        return None


def is_typed(schema: Schema) -> bool:
    """Return whether pydantic's schema of a field says what it takes."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return any(key in schema for key in ("type", "enum", "const", "$ref")) or (bool(choices) and all(choices))


def _object(cls: type, properties: Schema) -> Schema:
    return {
        "type": "object",
        "description": _line(cls),
        "properties": properties,
        "additionalProperties": not _is_closed(cls),
    }


def _is_closed(cls: type) -> bool:
    """Return whether unknown keys are refused: of a dataclass they are."""
    return not issubclass(cls, BaseModel) or cls.model_config.get("extra") == "forbid"


def _wrapper() -> Schema:
    return {"type": "object", "properties": {"kind": _name(WRAPPERS)}, "required": ["kind"]}


def _name(table: Mapping[str, Any] | tuple[str, ...]) -> Schema:
    """Return the schema of one of these names, or of a part of one's own."""
    own = {"type": "string", "pattern": OWN}
    return {"anyOf": [{"enum": sorted(table)}, own]} if table else own


def _if(word: str, name: str, then: str) -> Schema:
    return {"if": {"properties": {word: {"const": name}}, "required": [word]}, "then": {"$ref": then}}


def _line(cls: type) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join((cls.__doc__ or "").partition("\n\n")[0].split())


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)


def _loosened(schema: Any) -> Any:
    """Return pydantic's schema as one of draft 7, where models that a single value stands for take that, too."""
    if isinstance(schema, list):
        return [_loosened(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    loose = {key: _loosened(value) for key, value in schema.items()}
    if "prefixItems" in loose:
        loose |= {"items": loose.pop("prefixItems"), "additionalItems": False}
    model = str(loose.get("$ref", "")).removeprefix(_REF)
    return {"anyOf": [_BY_ONE_FIELD[model], {"$ref": _REF + model}]} if model in _BY_ONE_FIELD else loose


def _without_words(schema: Schema) -> Schema:
    """Return a schema without the words that its field says itself."""
    return {key: value for key, value in schema.items() if key not in ("title", "description", "default")}


def is_own(name: object) -> bool:
    """Return whether a name is of a part of one's own."""
    return isinstance(name, str) and re.search(OWN, name) is not None
