"""Scenarios from presets and YAML files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import resources
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pydantic.fields import FieldInfo

from ludus.core.config import Config, from_yaml, override
from ludus.core.errors import ConfigError, LudusError, UnknownName, nearest
from ludus.core.parts import build_part, load
from ludus.core.types import EnvSpec
from ludus.driver.scenario import Scenario
from ludus.driver.scenario_kinds import SCENARIOS
from ludus.envs.families import FAMILIES, GivenObject, is_openspiel_game
from ludus.envs.options import Environment, with_import
from ludus.learners.base import Algorithm, ComputedOracle
from ludus.learners.registry import ALGORITHMS
from ludus.learners.schedule import Schedule
from ludus.policies.specs import tabulates


def load_scenario(
    name_or_path: str | PathLike[str], overrides: Sequence[str] | None = None, seed: int | None = None, **changes: Any
) -> Scenario:
    """A preset, a YAML file, or the scenario that `first_scenario` makes for the id of an environment; with `key=value` overrides, and
    with values of keys as objects or data. Raises ConfigError with the nearest right name."""
    name, texts = str(name_or_path), _texts(overrides or [])
    if _is_environment(name):
        return _scenario(*first_scenario({"id": name}, texts, changes), seed=seed)
    source, text = _read(name)
    return parse_scenario(text, texts, seed, source=source, **changes)


def to_scenario(given: Any, overrides: Sequence[str] = (), **changes: Any) -> Scenario:
    """The scenario that was given, changed, or what `load_scenario` makes of a name. Raises ConfigError for anything else."""
    if isinstance(given, str | PathLike):
        return load_scenario(given, overrides, **changes)
    if not isinstance(given, Scenario) and _is_made_of(given):
        return _scenario(*first_scenario({"source": given}, _texts(overrides), changes), seed=None)
    if not isinstance(given, Scenario):
        hint = (
            f"; {given.__name__} is a class: give its options, {given.__name__}(env=…)"
            if isinstance(given, type) and issubclass(given, Scenario)
            else ""
        )
        raise ConfigError(
            f"{given!r} was given{hint}. Expected a scenario such as ludus.PSRO(env=…), a preset (`ludus list presets`), a path ending in "
            ".yaml, the id of an environment, an environment, or a function that makes one."
        )
    if overrides:
        raise ConfigError(
            f"overrides {list(overrides)} were given with a {type(given).__name__} object; they are for presets, files and ids. Give "
            "keywords: generations=5, algorithm=…"
        )
    if not changes:
        return given
    return type(given)(**{**{name: getattr(given, name) for name in type(given).model_fields}, **changes})


def _texts(overrides: Sequence[str]) -> list[str]:
    if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
        raise ConfigError(
            f'overrides {overrides!r} were given; expected a list of key=value texts, ["generations=5"] say.'
        )
    return list(overrides)


def _is_made_of(given: Any) -> bool:
    """Whether it is an environment, or may make some."""
    if isinstance(given, type):
        return not issubclass(given, Scenario) and hasattr(given, "reset") and hasattr(given, "step")
    return callable(given) or (hasattr(given, "reset") and hasattr(given, "step")) or is_openspiel_game(given)


def parse_scenario(
    text: str, overrides: list[str] | None = None, seed: int | None = None, *, source: str = "", **changes: Any
) -> Scenario:
    """The scenario that YAML text describes. source: the file it was read from. changes: as of `load_scenario`. Where `overrides` ask for
    another kind, keys of the text that only its own kind has are left out."""
    data = from_yaml(text, what="the scenario", source=source)
    if not isinstance(data, dict):
        given = "nothing" if data is None else type(data).__name__
        raise ConfigError(
            f"a scenario is a mapping of keys to values; given {given}{f' ({source})' if source else ''}. "
            "`ludus config PRESET` prints one."
        )
    if wrong := [key for key in data if not isinstance(key, str)]:
        raise ConfigError(f"unknown key {wrong[0]!r}: the keys of a scenario are words such as env and algorithm.")
    return _scenario(data, list(overrides or []), changes, seed=seed)


def _scenario(data: dict[str, Any], overrides: list[str], changes: Mapping[str, Any], *, seed: int | None) -> Scenario:
    texts = [*overrides, *([] if seed is None else [f"seed={seed}"])]
    before = str(data.get("scenario", "psro"))
    data = override(data, [text for text in texts if text.partition("=")[0].strip() == "scenario"])
    data = {**data, **{key: value for key, value in changes.items() if key == "scenario"}}
    kind = _kind(str(data.get("scenario", "psro")))
    if str(data.get("scenario", "psro")) != before:
        theirs = _kind(before).model_fields.keys() - kind.model_fields.keys()
        data = {key: value for key, value in data.items() if key not in theirs}
    if isinstance(named := data.get("algorithms"), Mapping):
        data = {**data, "algorithms": {str(name): part for name, part in named.items()}}
    data = override({**_parts(kind), **data}, texts, names={"env": "id"}, filled=_settings)
    for text in overrides:
        _refuse_bare(text.partition("=")[0].strip(), kind, data)
    data = {**data, **changes}
    data.pop("scenario", None)
    return kind(**data)


LENGTHS = ("decisions", "episodes", "seconds", "updates")
"""Of a response's training: what people mean who give one of these alone."""


def _refuse_bare(key: str, kind: type[Scenario], data: Mapping[str, Any]) -> None:
    """Raises ConfigError for an option of the algorithm, or a response's length, that was given as if it were the scenario's own."""
    if "." in key or key in kind.model_fields or key == "scenario":
        return
    given = data.get("algorithm")
    name = given.get("kind") if isinstance(given, Mapping) else given
    known = [f"response.{key}"] if key in LENGTHS and "response" in kind.model_fields else []
    with suppress(LudusError):  # another algorithm is refused where it is made
        if isinstance(name, str) and key in getattr(load("algorithm", name, ALGORITHMS), "model_fields", {}):
            known.append(f"algorithm.{key}")
    if known:
        raise ConfigError(f"unknown key {key!r}; did you mean {' or '.join(map(repr, known))}?")


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
    files = {name: _presets() / f"{name}.yaml" for name in preset_names()}
    return {name: file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, file in files.items()}


def preset_names() -> list[str]:
    """Sorted."""
    return sorted(p.name.removesuffix(".yaml") for p in _presets().iterdir() if p.name.endswith(".yaml"))


def _presets() -> Any:
    return resources.files("ludus.driver") / "presets"


def _read(name_or_path: str) -> tuple[str, str]:
    """(file, text)"""
    if name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        try:
            return name_or_path, Path(name_or_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            detail = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            family, _, name = name_or_path.partition("/")
            near = get_close_matches(family, FAMILIES, n=1) if name and not Path(family).exists() else []
            other = f" Or is {f'{near[0]}/{name}'!r} meant, an environment?" if near else ""
            raise ConfigError(
                f"scenario file {name_or_path!r} cannot be read: {detail}. `ludus list presets` shows what is there by name.{other}"
            ) from error
    presets = list_presets()
    if name_or_path not in presets:
        every = [*presets, *_ids()]
        known = every if nearest(name_or_path, every).startswith(";") else presets
        hint = "A scenario of your own is a path ending in .yaml, an environment family/name or module:Class"
        raise UnknownName("preset", name_or_path, known, hint=hint)
    return f"{name_or_path}.yaml", str((_presets() / f"{name_or_path}.yaml").read_text(encoding="utf-8"))


def _ids() -> list[str]:
    """Of the environments that come with Ludus: to list the others' may take long."""
    from ludus.envs.registry import list_envs  # a scenario can be read without loading what it runs on

    return [id for family, entry in FAMILIES.items() if entry.installed and not entry.extra for id in list_envs(family)]


# --------------------------------------------------------------------------------------------------------------------
# A first scenario for an environment of which only the id is known: what usually works, as a place to start from.

_Q: Mapping[str, Any] = {
    "rollout_unit": "decisions",
    "rollout": 128,
    "hidden": [256, 256],
    "gamma": 0.99,
    "n_step": 5,
    "updates_per_decision": 0.5,
    "batch": 128,
    "learning_rate": {"start": 1e-3, "end": 0.0},
    "epsilon": {"start": 1.0, "end": 0.1, "over": 0.16},
    "target_period": 256,
}
_ALONE: Mapping[str, Mapping[str, Any]] = {
    "ppo": {
        "batch_unit": "decisions",
        "batch": 2048,
        "epochs": 10,
        "minibatches": 32,
        "activation": "tanh",
        "value_network": "separate",
        "learning_rate": {"start": 3e-4, "end": 0.0},
        "entropy": 0.0,
        "clip": 0.2,
        "gamma": 0.99,
        "max_gradient_norm": 0.5,
    },
    "dqn": _Q,
    "iqn": _Q,
    "munchausen_dqn": _Q,
    "qr_dqn": _Q,
}
"""Options of algorithms for one player. Their own defaults suit the information states of a small card game."""
_TOGETHER: Mapping[str, Mapping[str, Any]] = {
    "ppo": {
        "batch": 256,
        "epochs": 4,
        "minibatches": 8,
        "hidden": [128, 128],
        "learning_rate": {"start": 1e-3, "end": 0.0},
        "entropy": 0.01,
        "clip": 0.2,
        "max_gradient_norm": 0.5,
    }
}
"""The same for games that are no tree in memory."""


def _is_environment(name: str) -> bool:
    """Whether it is the id of an environment, and no file."""
    if name.endswith((".yaml", ".yml")):
        return False
    family, slash, _ = name.partition("/")
    return family in FAMILIES and not Path(name).exists() if slash else ":" in name


def first_scenario(
    played: Mapping[str, Any], overrides: Sequence[str], changes: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """A scenario for an environment, as data, and the overrides and changes that are still to be made. The environment is made once, to see
    what it is. played: its `id`, or from Python its `source`.

    One player learns by `fixed_opponents`, of whom there are none; the players of a game by `psro`; `scenario=` chooses another kind.
    Raises what making the environment raises.
    """
    texts, own = list(overrides), dict(changes)
    wanted = {**override({"env": dict(played), "algorithm": "ppo"}, texts, names={"env": "id"}), **own}
    if wanted.get("import") is not None:
        wanted["env"] = with_import(wanted["env"], wanted["import"])
    name = wanted["algorithm"]
    if isinstance(name, str):  # it is said here, with the options that go with it
        texts = [text for text in texts if text.partition("=")[0].strip() != "algorithm"]
        own.pop("algorithm", None)
    elif isinstance(name, Mapping):  # a text that says the name alone would take all other options away again
        name = name.get("kind", "ppo")
        texts = [text for text in texts if not _names_algorithm(text)]
    algorithm = build_part("algorithm", name, ALGORITHMS)
    environment = Environment(**{**wanted["env"], "workers": 0, "deadline": None, "restarts": 0})
    whole = isinstance(environment.source, GivenObject)  # which is as many environments as it is
    env = environment.make() if whole else environment.make(num_envs=1)
    try:
        spec = env.spec
    finally:
        env.close()
    kind = str(wanted.get("scenario", "fixed_opponents" if spec.num_players == 1 else "psro"))
    data = {
        "scenario": kind,
        "env": dict(played),
        "algorithm": name,
        **_of_game(spec, computed=isinstance(algorithm, ComputedOracle)),
    }
    if isinstance(algorithm, Algorithm):
        learned = _of_learner(environment.id, spec, algorithm, name if isinstance(name, str) else "")
        data = {**data, **learned, "env": {**({} if whole else learned["env"]), **data["env"]}}
    known = _kind(kind).model_fields
    return {key: value for key, value in data.items() if key in known or key == "scenario"}, texts, own


def _names_algorithm(text: str) -> bool:
    """Whether an override says which algorithm, and no options of it."""
    key, _, value = text.partition("=")
    return key.strip() == "algorithm" and "{" not in value


def _of_game(spec: EnvSpec, *, computed: bool) -> dict[str, Any]:
    """Meta-solver and length. computed: the policies are, so that the solver's tolerance is all that is left of NashConv."""
    if spec.num_players == 1:
        return {"generations": 1, "mode": "greedy"}
    if spec.num_players == 2 and spec.zero_sum:
        solver = {"kind": "nash", **({"tolerance": 1e-9} if computed else {})}
        return {"meta_solver": solver, "generations": 40, "stop": {"nash_conv": 1e-6} if computed else None}
    return {"meta_solver": "projected_replicator_dynamics", "generations": 20}


def _of_learner(id: str, spec: EnvSpec, algorithm: Algorithm, name: str) -> dict[str, Any]:
    """What an algorithm needs that learns. name: it has; "" for an object."""
    alone, tree = spec.num_players == 1, spec.enumeration is not None
    if tree:
        with suppress(LudusError):  # which is told when the parts are checked
            tree = tabulates(algorithm.policy(spec, (0,)), mode="greedy")
    options = {} if tree else dict((_ALONE if alone else _TOGETHER).get(name, {}))
    space = spec.agents[0].observation
    if len(space.shape or ()) == 3 and space.dtype == np.uint8:
        options |= {key: "nature" for key in ("network", "body") if key in getattr(type(algorithm), "model_fields", {})}
    out: dict[str, Any] = {"algorithm": {"kind": name, **options}} if options and name else {}
    if alone:
        on_policy = getattr(getattr(algorithm, "about", None), "data", "on-policy") == "on-policy"
        out |= {"response": {"decisions": 200_000 if on_policy else 50_000}, "checkpoints": {"iterations": 1000}}
        return {**out, "env": {"num_envs": 8 if on_policy else 1}}
    board = id.startswith("openspiel/")
    out |= {"generations": 20 if tree else 10, "warm_start": "last", "stop": None}
    out |= {"response": {"episodes": 10_000 if board else 2_000}, "evaluation": {"episodes": 400 if board else 100}}
    return {
        **out,
        "env": {"num_envs": 512} if tree else {"num_envs": 256, "tree": "off"} if board else {"num_envs": 16},
    }
