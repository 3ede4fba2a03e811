"""Configuration models: frozen, closed to unknown keys, and clear about what is wrong. YAML in and out, and overrides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from ludus.core.errors import ConfigError, UnknownName, nearest

LONGEST = 1e9
"""Seconds that an option may say at most, 31 years: no lock can be waited for much longer."""


class Config(BaseModel):
    """Base of every configuration model. It is constructed with keywords.

    Raises:
        ConfigError: For an unknown keyword, with the nearest right one, and for a value that does not fit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain(error, type(self))) from None

    @field_validator("*", mode="wrap")
    @classmethod
    def _located(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        """Says in which field a model below this one was wrong; true and false are no numbers."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and _is_number(annotation):
            raise ConfigError(f"{info.field_name}: a number was expected (given: {value}).")
        if (
            isinstance(value, list | tuple)
            and any(isinstance(each, bool) for each in value)
            and _are_numbers(annotation)
        ):
            raise ConfigError(f"{info.field_name}: numbers were expected (given: {value}).")
        try:
            return handler(value)
        except UnknownName:
            raise
        except ConfigError as error:
            raise ConfigError(f"{info.field_name}: {error}") from None
        except TypeError:  # a model takes keywords
            if key := _strange_key(value):
                raise ConfigError(f"{info.field_name}: unknown key {key[0]!r}; keys are words.") from None
            raise


def _strange_key(value: Any) -> list[Any]:
    """Return the first key that is no text, of the mappings in a value; [] if there is none."""
    if isinstance(value, Mapping):
        if strange := [key for key in value if not isinstance(key, str)]:
            return strange[:1]
        value = list(value.values())
    return next((key for each in value if (key := _strange_key(each))), []) if isinstance(value, list | tuple) else []


_stored: ContextVar[bool] = ContextVar("stored", default=False)


@contextmanager
def as_stored() -> Iterator[None]:
    """What is read was accepted once: an option that nothing reads did no harm, and does none now."""
    token = _stored.set(True)
    try:
        yield
    finally:
        _stored.reset(token)


def is_stored() -> bool:
    """Return whether `as_stored` holds."""
    return _stored.get()


def refuse_unread(options: Config, read: Mapping[str, tuple[bool, str]]) -> None:
    """Raise ValueError for options that were changed and that nothing reads, but `as_stored`. read: per option, whether anything does, and
    with what."""
    fields = type(options).model_fields
    unread = [
        f"{name} (of {wants})"
        for name, (used, wants) in read.items()
        if not used and getattr(options, name) != fields[name].default
    ]
    if unread and not _stored.get():
        raise ValueError(f"nothing reads {', '.join(unread)} here; leave it out")


def _is_number(annotation: Any) -> bool:
    kinds = set(get_args(annotation)) if isinstance(annotation, UnionType) else {annotation}
    return bool(kinds & {int, float}) and kinds <= {int, float, NoneType}


def _are_numbers(annotation: Any) -> bool:
    """Return whether it is a tuple of numbers, whatever else it may be."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    parts = [get_args(kind) for kind in kinds if get_origin(kind) is tuple]
    plain = [[get_args(part)[0] if get_origin(part) is Annotated else part for part in each] for each in parts]
    return any(all(part is Ellipsis or _is_number(part) for part in each) for each in plain)


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Return one line per problem: where, what was given, what is allowed."""
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known, key = _fields_at(model, problem["loc"][:-1]), str(problem["loc"][-1])
            below = [f"{name}.{key}" for name in known if key in _fields_at(model, (*problem["loc"][:-1], name))]
            near = nearest(key, below or known) if known else f": {model.__name__} has no options."
            lines.append(f"unknown key {where!r}{near}")
        else:
            # A model's own check names what it means.
            whole = isinstance(problem["input"], Mapping) and problem["type"] == "value_error"
            value = "" if whole or problem["type"] == "missing" else f" (given: {problem['input']!r})"
            missing = "it is needed, and was not given"
            text = missing if problem["type"] == "missing" else problem["msg"].removeprefix("Value error, ")
            lines.append(f"{where or model.__name__}: {text}{value}")
    return "; ".join(lines)


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        info = model.model_fields.get(str(part))
        annotation = info.annotation if info else None
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return list(model.model_fields)


Filled = Callable[[Mapping[str, Any], Sequence[str]], Mapping[str, Any]]


def override(
    base: Mapping[str, Any],
    assignments: list[str],
    names: Mapping[str, str] | None = None,
    filled: Filled = lambda _data, _path: {},
) -> dict[str, Any]:
    """`base` with `a.b=value` assignments applied; values are YAML. A part given by its name (`algorithm: ppo`) keeps it when one of
    its options is set: as its `kind`, or what `names` says for it. filled(data, path): what stands for a part that `data` gives as
    something else than a mapping, or not at all. The last one counts; a part that is given whole comes before its options wherever it
    stands, or it would undo them. Raises ConfigError if an assignment has no `=`, or goes into a list."""
    result: dict[str, Any] = _copy(base)
    for assignment in _parts_first(assignments):
        path, separator, text = assignment.partition("=")
        if not separator or not path:
            raise ConfigError(
                f"{assignment!r} is not an override; expected key=value, for example algorithm.learning_rate=3e-4."
            )
        target = result
        *parents, last = path.split(".")
        for depth, part in enumerate(parents):
            if isinstance(target.get(part), str):
                target[part] = {(names or {}).get(part, "kind"): target[part]}
            elif isinstance(target.get(part), list) and [*parents, last][depth + 1].isdigit():
                whole = ".".join(parents[: depth + 1])
                raise ConfigError(
                    f"{assignment!r} was given, and {whole} is a list, which is given whole: {whole}=[…]."
                )
            elif not isinstance(target.get(part), dict):
                target[part] = _copy(filled(result, parents[: depth + 1]))
            target = target[part]
        target[last] = from_yaml(text, what=repr(text))
    return result


def _parts_first(assignments: Sequence[str]) -> list[str]:
    """`runtime.workers=2 runtime=processes` as `runtime=processes runtime.workers=2`."""
    ordered: list[str] = []
    for assignment in assignments:
        inside = assignment.partition("=")[0] + "."
        place = next((k for k, other in enumerate(ordered) if other.startswith(inside)), len(ordered))
        ordered.insert(place, assignment)
    return ordered


def from_yaml(text: str, *, what: str, source: str = "") -> Any:
    """Return the value of YAML text. Raises ConfigError if `what` is not YAML, gives a key twice or contains itself. source: its file."""
    try:
        try:
            value = yaml.load(text, Loader=_FastLoader if _is_shallow(text) else _Loader)
        except yaml.YAMLError:  # the parser in Python says more exactly what is wrong, and where
            value = yaml.load(text, Loader=_Loader)
        _check_shape(value)
        return value
    except yaml.YAMLError as error:
        raise ConfigError(f"{what} is not valid YAML: {_located_problem(error, source)}") from error
    except (RecursionError, ValueError) as error:  # YAML such as 2026-99-99 is a date that there is not
        detail = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{what} is not valid YAML: {detail}{f' ({source})' if source else ''}") from error


def _is_shallow(text: str) -> bool:
    """Return whether `text` surely nests few collections: libyaml's parser recurses on the C stack, which nothing limits."""
    return len(text) < 100_000 and sum(map(text.count, "[{-?")) < 1000  # indented ones take a square of their depth


def _located_problem(error: yaml.YAMLError, source: str) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return f"{error}{f' ({source})' if source else ''}"
    mark = error.problem_mark
    where = f"{source}, " if source else ""
    what = f"{error.problem} {error.context}" if error.context else error.problem
    return f"{what} ({where}line {mark.line + 1}, column {mark.column + 1})"


def to_yaml(value: Any) -> str:
    """Return YAML text from which `from_yaml` gives an equal value."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True))


class _Constructor(yaml.constructor.SafeConstructor):
    """Numbers are those of YAML 1.2: 3e-4 is one, 010 is ten and not eight, 1:30 is text. A key that is given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is given twice", key.start_mark
                    )
                keys.add(key.value)
        return super().construct_mapping(node, deep)


class _Loader(_Constructor, yaml.SafeLoader):
    """PyYAML's parser in Python."""


class _FastLoader(_Constructor, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml's parser, where PyYAML was built with it."""


class _Dumper(yaml.SafeDumper):
    """Quotes strings that `_Loader` would take for numbers."""


_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")
_WHOLE = re.compile(r"([-+]?\d[\d_]*|0o[0-7]+|0x[\da-fA-F]+)$")
_INT = "tag:yaml.org,2002:int"


def _whole(loader: Any, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


for _yaml in (_Loader, _FastLoader, _Dumper):
    _yaml.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _INT]
        for first, known in _yaml.yaml_implicit_resolvers.items()
    }
    _yaml.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
    _yaml.add_implicit_resolver(_INT, _WHOLE, list("-+0123456789"))
_Constructor.add_constructor(_INT, _whole)


_DEEPEST = 100  # collections within each other, of which no setting has more than ten


def _check_shape(value: Any, inside: tuple[int, ...] = ()) -> None:
    """Raise RecursionError if a mapping or list contains itself, as YAML's aliases allow, or is nested too deeply."""
    if not isinstance(value, Mapping | list):
        return
    if id(value) in inside or len(inside) > _DEEPEST:
        raise RecursionError
    for item in value.values() if isinstance(value, Mapping) else value:
        _check_shape(item, (*inside, id(value)))


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value
