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

from pydantic.fields import FieldInfo

from ludus.algorithms.common.config import Schedule
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.core.config import from_yaml, is_stored, override
from ludus.core.errors import ConfigError, LudusError, UnknownName, nearest
from ludus.core.parts import resolve_name
from ludus.envs.config import Environment, with_import
from ludus.envs.families import FAMILIES, is_openspiel_game
from ludus.runs.scenario import SCENARIOS, AlgorithmChoice, Scenario
from ludus.runs.scenario_defaults import changed, complete, env_spec


def load_scenario(
    name_or_path: str | PathLike[str], overrides: Sequence[str] | None = None, seed: int | None = None, **changes: Any
) -> Scenario:
    """Return a scenario in full; settings left out follow from the environment (`ludus.runs.scenario_defaults`).

    Args:
        name_or_path: A preset, a YAML file, or the id of an environment, for which `first_scenario` makes one.
        overrides: `key=value` texts.
        seed: Of the run.
        changes: Values of keys, as objects or data, which count where overrides give the same keys. Overrides may change something in
            names and mappings (`algorithm.batch=500`).

    Raises:
        ConfigError: With the nearest right name.
        LudusError: Whatever making the environment raises.
    """
    return complete(read_scenario(name_or_path, overrides, seed, **changes))


def read_scenario(
    name_or_path: str | PathLike[str], overrides: Sequence[str] | None = None, seed: int | None = None, **changes: Any
) -> Scenario:
    """Return a scenario as `load_scenario` does, without what follows from the environment of a preset or a file, which need not be
    installed."""
    name, texts = str(name_or_path), _texts(overrides or [])
    if _is_environment(name):
        return first_scenario({"id": name}, texts, changes, seed)
    source, text = _read(name)
    return parse_scenario(text, texts, seed, source=source, **changes)


def to_scenario(source: Any, overrides: Sequence[str] = (), **changes: Any) -> Scenario:
    """Return the scenario that was given, changed, or what `load_scenario` makes of a name, in full. Raises ConfigError for anything
    else."""
    if isinstance(source, str | PathLike):
        return load_scenario(source, overrides, **changes)
    if not isinstance(source, Scenario) and _is_made_of(source):
        return first_scenario({"source": source}, _texts(overrides), changes, None)
    if not isinstance(source, Scenario):
        hint = (
            f"; {source.__name__} is a class: give its options, {source.__name__}(env=…)"
            if isinstance(source, type) and issubclass(source, Scenario)
            else ""
        )
        raise ConfigError(
            f"{source!r} was given{hint}. Expected a scenario such as ludus.PSRO(env=…), a preset (`ludus list presets`), a path ending in "
            ".yaml, the id of an environment, an environment, or a function that makes one."
        )
    if overrides:
        raise ConfigError(
            f"overrides {list(overrides)} were given with a {type(source).__name__} object; they are for presets, files and ids. Give "
            "keywords: generations=5, algorithm=…"
        )
    return complete(changed(source, changes) if changes else source)


def _texts(overrides: Sequence[str]) -> list[str]:
    if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
        raise ConfigError(
            f'overrides {overrides!r} were given; expected a list of key=value texts, ["generations=5"] say.'
        )
    return list(overrides)


def _is_made_of(source: Any) -> bool:
    """Return whether it is an environment, or may make some."""
    if isinstance(source, type):
        return not issubclass(source, Scenario) and hasattr(source, "reset") and hasattr(source, "step")
    return callable(source) or (hasattr(source, "reset") and hasattr(source, "step")) or is_openspiel_game(source)


def parse_scenario(
    text: str, overrides: list[str] | None = None, seed: int | None = None, *, source: str = "", **changes: Any
) -> Scenario:
    """Return the scenario that YAML text describes. source: the file it was read from. changes: as of `load_scenario`. Where `overrides`
    ask for another kind, keys of the text that only its own kind has are left out."""
    data = from_yaml(text, what="the scenario", source=source)
    if not isinstance(data, dict):
        kind = "nothing" if data is None else type(data).__name__
        raise ConfigError(
            f"a scenario is a mapping of keys to values; given {kind}{f' ({source})' if source else ''}. "
            "`ludus config PRESET` prints one."
        )
    if wrong := [key for key in data if not isinstance(key, str)]:
        raise ConfigError(f"unknown key {wrong[0]!r}: the keys of a scenario are words such as env and algorithm.")
    return _scenario(data, list(overrides or []), changes, seed=seed)


def _scenario(data: dict[str, Any], overrides: list[str], changes: Mapping[str, Any], *, seed: int | None) -> Scenario:
    texts = [*overrides, *([] if seed is None else [f"seed={seed}"])]
    texts = [text for text in texts if not _is_replaced(text, changes)]
    before = str(data.get("scenario", "psro"))
    data = override(data, [text for text in texts if text.partition("=")[0].strip() == "scenario"])
    data = {**data, **{key: value for key, value in changes.items() if key == "scenario"}}
    kind = _kind(str(data.get("scenario", "psro")))
    if str(data.get("scenario", "psro")) != before:
        former_only = _kind(before).model_fields.keys() - kind.model_fields.keys()
        data = {key: value for key, value in data.items() if key not in former_only}
    if isinstance(named := data.get("algorithms"), Mapping):
        data = {**data, "algorithms": {str(name): part for name, part in named.items()}}
    parts = _parts(kind, texts)
    later = [
        text for text in texts if text.startswith(("algorithm.", "algorithms."))
    ]  # what is in there follows from the rest
    texts = [*(text for text in texts if text not in later), *later]

    def settings(data: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
        return _settings(kind, {**data, **changes}, path)

    data = override({**parts, **data, **changes}, texts, names={"env": "id"}, filled=settings)
    for text in overrides:
        _refuse_bare(text.partition("=")[0].strip(), kind, data)
    data.pop("scenario", None)
    return kind(**data)


def _is_replaced(text: str, changes: Mapping[str, Any]) -> bool:
    """Return whether an argument gives what an override changes: the whole of it, or an object."""
    key, _, inner = text.partition("=")[0].strip().partition(".")
    return key in changes and not (inner and isinstance(changes[key], str | Mapping))


LENGTHS = ("decisions", "episodes", "seconds", "updates")
"""Of a response's training: what people mean who give one of these alone."""


def _refuse_bare(key: str, kind: type[Scenario], data: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option of the algorithm, or a response's length, that was given as if it were the scenario's own."""
    if "." in key or key in kind.model_fields or key == "scenario":
        return
    algorithm = data.get("algorithm")
    name = algorithm.get("kind") if isinstance(algorithm, Mapping) else algorithm
    known = [f"response.{key}"] if key in LENGTHS and "response" in kind.model_fields else []
    with suppress(LudusError):  # another algorithm is refused where it is made
        if isinstance(name, str) and key in getattr(resolve_name("algorithm", name, ALGORITHMS), "model_fields", {}):
            known.append(f"algorithm.{key}")
    if known:
        raise ConfigError(f"unknown key {key!r}; did you mean {' or '.join(map(repr, known))}?")


def _kind(name: str) -> type[Scenario]:
    kind = resolve_name("scenario", name, SCENARIOS, expected=())
    if not (isinstance(kind, type) and issubclass(kind, Scenario)):
        raise ConfigError(
            f"scenario {name!r} is no class of scenarios; one of your own is a subclass of ludus.Scenario."
        )
    return kind


def _parts(scenario: type[Scenario], texts: Sequence[str]) -> dict[str, Any]:
    """Return the parts that a scenario has by default, where an override such as `algorithm.batch=500` changes something in them."""
    fields = scenario.model_fields
    return {
        name: fields[name].default
        for name in ("algorithm", "meta_solver", "responses", "past", "rules")
        if name in fields and any(text.startswith(f"{name}.") for text in texts)
    }


def _settings(kind: type[Scenario], data: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    """Return what an override of one setting of an algorithm's part leaves as it is: the rest of what the algorithm has there (a schedule),
    or the start of a schedule that was given as a number; of `algorithms.1.batch`, all else that everybody's algorithm has."""
    what, *parts = path
    value: Any = data
    if what == "algorithms" and parts:
        value = {parts[0]: data.get(what, {}).get(parts[0], data.get("algorithm", "ppo"))}
        what, *parts = parts
        if not parts:
            return {"kind": value[what]} if isinstance(value[what], str) else dict(value[what])
    elif what != "algorithm":
        return {}
    if not parts or not isinstance(value[what], Mapping) or not isinstance(value[what].get("kind"), str):
        return {}
    try:
        model = resolve_name("algorithm", value[what]["kind"], ALGORITHMS)
    except LudusError:
        return {}  # another one may be given later; else it is refused when it is made
    for before, part in pairwise([what, *parts]):
        value = value[before]
        model = _field(model, part).annotation
    if not _is_schedule(model):
        return {}
    if isinstance(value.get(path[-1]), int | float):
        return {"start": value[path[-1]]}
    return _schedule(kind, data, path) if path[-1] not in value else {}


def _schedule(kind: type[Scenario], data: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    """Return what a schedule is where it is not given: as the environment has it, or, of a run that is stored, as the class does."""
    scenario = kind(**{key: value for key, value in data.items() if key != "scenario"})
    part: Any = scenario if is_stored() else complete(scenario)
    for name in path:
        part = part[name] if isinstance(part, Mapping) else getattr(part, name)
    return part.model_dump(mode="json") if isinstance(part, Schedule) else {}


def _is_schedule(annotation: Any) -> bool:
    """Return whether a field is, or may be, a schedule."""
    return annotation is Schedule or any(_is_schedule(part) for part in get_args(annotation))


def _field(model: Any, name: str) -> FieldInfo:
    fields: Mapping[str, FieldInfo] = getattr(model, "model_fields", {})
    return fields.get(name, FieldInfo())


def list_presets() -> dict[str, str]:
    """Return the description of each preset, by name.

    Returns:
        The first line of each preset's file.
    """
    files = {name: _presets() / f"{name}.yaml" for name in preset_names()}
    return {name: file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, file in files.items()}


def needs_of_presets() -> dict[str, str]:
    """name -> the extras that it needs, or the command that brings its environment where no extra does; "" of what the core trains."""
    return {name: _needs((_presets() / f"{name}.yaml").read_text(encoding="utf-8")) for name in preset_names()}


def _needs(text: str) -> str:
    from ludus.envs.registry import extra_needed  # presets are listed by name without it

    env = from_yaml(text, what="a preset")["env"]
    extras = (extra_needed(env["id"] if isinstance(env, Mapping) else env), "parquet" if ".parquet" in text else "")
    return ", ".join(filter(None, extras))


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(p.name.removesuffix(".yaml") for p in _presets().iterdir() if p.name.endswith(".yaml"))


def _presets() -> Any:
    return resources.files("ludus.runs") / "presets"


def _read(name_or_path: str) -> tuple[str, str]:
    """Return (file, text)"""
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
    """Return the ids of all listed environments."""
    from ludus.envs.registry import list_envs  # a scenario can be read without loading what it runs on

    return [
        id for family, entry in sorted(FAMILIES.items()) if entry.installed and entry.quick for id in list_envs(family)
    ]


# --------------------------------------------------------------------------------------------------------------------
# A scenario for an environment of which only the id is known.


def _is_environment(name: str) -> bool:
    """Return whether it is the id of an environment, and no file."""
    if name.endswith((".yaml", ".yml")):
        return False
    family, slash, _ = name.partition("/")
    return family in FAMILIES and not Path(name).exists() if slash else ":" in name


def first_scenario(
    played: Mapping[str, Any], texts: list[str], changes: Mapping[str, Any], seed: int | None
) -> Scenario:
    """Return a scenario for an environment: one player learns by `fixed_opponents`, of whom there are none, the players of a game by
    `psro`; `scenario=` chooses another kind. played: its `id`, or from Python its `source`. Raises what making the environment raises."""
    wanted = {**override({"env": dict(played)}, texts, names={"env": "id"}), **changes}
    env = None
    if "scenario" not in wanted:
        if wanted.get("import") is not None:
            wanted["env"] = with_import(wanted["env"], wanted["import"])
        chosen = Environment.of(wanted["env"])
        env = env_spec(chosen if isinstance(chosen, Environment) else Environment(**chosen))
        wanted["scenario"] = "fixed_opponents" if env.num_players == 1 else "psro"
    data = {"scenario": wanted["scenario"], "env": dict(played)}
    return complete(_scenario(data, texts, changes, seed=seed), env)


# --------------------------------------------------------------------------------------------------------------------
# Files that a scenario names, by their whole paths.


def with_files(scenario: Scenario) -> Scenario:
    """Return the scenario with whole paths of the policies that `start` and `warm_start` name, and of demonstrations: a run may be resumed
    from another folder, and a name stays the same policy when the run that it is of is resumed. Raises ConfigError for a name of nobody, or
    of several policies."""
    changes: dict[str, object] = {}
    if isinstance(start := getattr(scenario, "start", None), str):
        changes["start"] = _policy_file(start)
    rules = getattr(scenario, "warm_start", ())
    if any(rule.path is not None for rule in rules):
        changes["warm_start"] = tuple(
            rule if rule.path is None else rule.model_copy(update={"path": _policy_file(rule.path)}) for rule in rules
        )
    changes |= {"algorithm": _with_demonstrations(scenario.algorithm)}
    changes |= {"algorithms": {name: _with_demonstrations(part) for name, part in scenario.algorithms.items()}}
    return scenario.model_copy(update=changes)


def _with_demonstrations(part: AlgorithmChoice) -> AlgorithmChoice:
    """Return an algorithm whose demonstrations are found from anywhere."""
    reward = getattr(part, "learned_reward", None)
    if reward is None or not reward.from_recorded or not hasattr(reward, "demonstrations"):
        return part
    file = str(Path(reward.demonstrations).absolute())
    return part.model_copy(update={"learned_reward": reward.model_copy(update={"demonstrations": file})})


def _policy_file(text: str) -> str:
    """Return the whole path of a policy's file."""
    from ludus.evaluation.policies import FORMS, parse_policy_name, policy_probabilities  # most scenarios name none
    from ludus.storage.run_dirs import find_run, run_name
    from ludus.storage.stored_run import open_run

    if text.endswith(".safetensors"):
        return str(Path(text).resolve())
    wanted = parse_policy_name(text, find_run, open_run, what="policy to start from", forms=FORMS)
    if wanted.run is None:
        raise ConfigError(
            f"{text!r} has no weights to start from. Expected a file, or one policy of a run, RUN@PLAYER/POLICY."
        )
    named = {ref for shares in policy_probabilities(wanted, wanted.run) for ref, _ in shares}
    if len(named) > 1:
        raise ConfigError(
            f"{text!r} stands for {len(named)} policies, and learners start from one. Name it, such as "
            f"{run_name(wanted.run.folder)}@{wanted.run.name(min(named))}."
        )
    return str(wanted.run.file(*named).resolve())
