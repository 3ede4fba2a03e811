"""What may stand at the end of a command line that is being typed.

It is asked at each press of a key, so it imports the standard library only, and that late. What commands and scenarios take is in
`options.json`, which `ludus.cli.completion.derive` writes from the parsers and models; runs, policies and files are looked up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ludus.cli.completion import lookup


class Candidate(NamedTuple):
    """A word that may stand there. help: what it is. ends: whether the word is complete; else more follows without a space."""

    text: str
    help: str = ""
    ends: bool = True


Spec = Mapping[str, Any]
"""An option or positional of a command: nargs, values (kinds of what it takes), choices, help."""


class Line(NamedTuple):
    """A command line up to its last word. values: of positionals and options, by name. options: those that are there. spec: what the last
    word is of; None: an option's name. table: `options.json`."""

    command: str
    values: Mapping[str, Sequence[str]]
    options: frozenset[str]
    spec: Spec | None
    table: Mapping[str, Any]


@cache
def read_table() -> Mapping[str, Any]:
    """Return `options.json`."""
    import json

    with open(os.path.join(os.path.dirname(__file__), "options.json"), encoding="utf-8") as file:
        return dict(json.load(file))


def complete(words: Sequence[str]) -> list[Candidate]:
    """Return what the last word may become.

    Args:
        words: Of the line after `ludus`, without quotes; the last one, perhaps empty, is completed.

    Returns:
        Candidates that begin with that word, in the order in which they are shown.
    """
    table, (*before, word) = read_table(), words or [""]
    if before[:1] == ["help"]:
        before = before[1:]
        return _commands(table, word) if not before else []
    if not before:
        general = [Candidate("help", "describe a command"), Candidate("--help"), Candidate("--version")]
        return [*_commands(table, word), *(one for one in general if word and one.text.startswith(word))]
    commands = table["commands"]
    if before[0] not in commands:
        return []
    line = _parse(before[0], commands[before[0]], before[1:], table)
    option, is_whole, value = word.partition("=")
    if word.startswith("--") and is_whole:
        spec = commands[before[0]]["options"].get(option)
        if spec is None or spec["nargs"] == 0:
            return []
        return [one._replace(text=f"{option}={one.text}") for one in values(line._replace(spec=spec), value)]
    if word.startswith("-") and "--" not in before:
        return _options(commands[before[0]]["options"], line, word)
    if line.spec is None:
        return _options(commands[before[0]]["options"], line, word) if not word else []
    return values(line, word)


def _commands(table: Mapping[str, Any], word: str) -> list[Candidate]:
    return [Candidate(name, spec["help"]) for name, spec in table["commands"].items() if name.startswith(word)]


def _options(options: Mapping[str, Spec], line: Line, word: str) -> list[Candidate]:
    return [
        Candidate(name, spec["help"])
        for name, spec in options.items()
        if name.startswith(word) and (name not in line.options or spec.get("repeats"))
    ]


def _parse(name: str, command: Mapping[str, Any], words: Sequence[str], table: Mapping[str, Any]) -> Line:
    """Return a line whose last word, which `words` is without, is yet to come."""
    options, positionals = command["options"], command["positionals"]
    values_of: dict[str, list[str]] = {}
    options_there, pending, place, plain = set[str](), None, 0, False
    for word in words:
        if word == "--" and not plain:
            plain, pending = True, None
            continue
        if word.startswith("-") and len(word) > 1 and not plain:
            option, is_whole, value = word.partition("=")
            options_there.add(option)
            spec = options.get(option)
            pending = None if spec is None or spec["nargs"] == 0 or is_whole else option
            if is_whole:
                values_of.setdefault(option, []).append(value)
            continue
        if pending is not None:
            values_of.setdefault(pending, []).append(word)
            pending = pending if options[pending]["nargs"] == "+" else None
            continue
        spec = _at(positionals, place)
        values_of.setdefault(spec["name"] if spec else "", []).append(word)
        place += 1
    return Line(
        name, values_of, frozenset(options_there), options[pending] if pending else _at(positionals, place), table
    )


def _at(positionals: Sequence[Spec], place: int) -> Spec | None:
    """Return the positional that a word stands for; the last one may take several."""
    if place < len(positionals):
        return positionals[place]
    return positionals[-1] if positionals and positionals[-1]["nargs"] in ("*", "+") else None


# --------------------------------------------------------------------------------------------------------------------
# Values.


def values(line: Line, word: str) -> list[Candidate]:
    """Return what a value that begins with `word` may be."""
    assert line.spec is not None
    unique: dict[str, Candidate] = {}
    for choice in line.spec.get("choices", ()):
        if choice.startswith(word):
            unique[choice] = Candidate(choice)
    for kind in line.spec.get("values", ()):
        for one in KINDS[kind](line, word):
            if one.text.startswith(word) and one.text.isprintable():
                unique.setdefault(one.text, one)
    return list(unique.values())


def _presets(line: Line, _: str) -> Iterator[Candidate]:
    for name, preset in line.table["presets"].items():
        yield Candidate(name, preset["help"])


def _environments(line: Line, word: str) -> Iterator[Candidate]:
    families = {**line.table["families"], **dict.fromkeys(lookup.registered("ludus.envs"), "of an installed package")}
    family, slash, _ = word.partition("/")
    if slash:
        for name in line.table["environments"].get(family, ()):
            yield Candidate(f"{family}/{name}")
        return
    for name, what in families.items():
        yield Candidate(f"{name}/", what, ends=False)


def _families(line: Line, _: str) -> Iterator[Candidate]:
    for name, what in line.table["families"].items():
        yield Candidate(name, what)


def _names(part: str, group: str = "") -> Callable[[Line, str], Iterator[Candidate]]:
    """Return the kind of value that is a name of a part, also of one that an installed package registers."""

    def names(line: Line, _: str) -> Iterator[Candidate]:
        for name in line.table["parts"].get(part, ()):
            yield Candidate(name)
        for name in lookup.registered(group) if group else ():
            yield Candidate(name, "of an installed package")

    return names


def _files(*suffixes: str) -> Callable[[Line, str], Iterator[Candidate]]:
    """Return the kind of value that is a file with one of these suffixes (all, where there are none)."""

    def files(_: Line, word: str) -> Iterator[Candidate]:
        for path in lookup.paths(word, suffixes):
            if word or not path.endswith("/"):
                yield Candidate(path, ends=not path.endswith("/"))

    return files


def _folders(_: Line, word: str) -> Iterator[Candidate]:
    for path in lookup.paths(word, None):
        yield Candidate(path, ends=False)


def _runs(line: Line, word: str) -> Iterator[Candidate]:
    for name in lookup.runs(word):
        yield Candidate(name, "run")
    if "/" in word or word.startswith("."):
        yield from _folders(line, word)


def _experiments(_: Line, __: str) -> Iterator[Candidate]:
    for name in lookup.experiments():
        yield Candidate(name, "experiment")


def _zoos(line: Line, word: str) -> Iterator[Candidate]:
    entries = list(lookup.entries(word))
    for name in entries:
        yield Candidate(name, "entry of a zoo")
    yield from (one for one in _folders(line, word) if one.text.rstrip("/") not in entries)


def _policies(line: Line, word: str) -> Iterator[Candidate]:
    """RUN, RUN@WHAT, and of a run that the line names, @WHAT."""
    run, at, _ = word.rpartition("@")
    if at:
        named = run or next((value for name in ("run", "policy") for value in line.values.get(name, ())), "")
        for what, text in lookup.policies(run or named.partition("@")[0]):
            yield Candidate(f"{run}@{what}", text)
        return
    matches = [name for name in lookup.runs(word) if name.startswith(word)]
    for name in matches:
        yield Candidate(name, "run")
    if len(matches) == 1:
        yield Candidate(f"{matches[0]}@", "its policies", ends=False)
    if "/" in word or word.startswith("."):
        yield from _folders(line, word)


def _entrants(line: Line, word: str) -> Iterator[Candidate]:
    """random, bot:NAME, and agents from elsewhere, SCHEME:FILE."""
    scheme, colon, rest = word.partition(":")
    if scheme == "bot" and colon:
        for name in (*line.table["parts"].get("bot", ()), *lookup.registered("ludus.bots")):
            yield Candidate(f"bot:{name}")
        return
    schemes = {**line.table["agents"], **dict.fromkeys(lookup.registered("ludus.agents"), "of an installed package")}
    if colon:
        if scheme in schemes and not scheme.startswith("http"):
            for path in lookup.paths(rest, _SUFFIXES.get(scheme, ())):
                yield Candidate(f"{scheme}:{path}", ends=not path.endswith("/"))
        return
    yield Candidate("random", "uniform over the legal actions")
    yield Candidate("bot:", "a bot by name", ends=False)
    for name, what in schemes.items():
        yield Candidate(f"{name}://" if name.startswith("http") else f"{name}:", what, ends=False)


_SUFFIXES: Mapping[str, Sequence[str]] = {"sb3": (".zip",), "onnx": (".onnx",), "torch": (".pt", ".pt2", ".pth")}
"""Of the files of an agent's scheme; of others any."""


def _listed(line: Line, word: str) -> Iterator[Candidate]:
    """What follows `ludus list KIND`."""
    kind = next(iter(line.values.get("kind", ())), "")
    follows = {"envs": _families, "policies": _runs, "zoo": _folders, "presets": _presets}.get(kind)
    if follows is not None:
        yield from follows(line, word)


# --------------------------------------------------------------------------------------------------------------------
# key=value.


def _overrides(line: Line, word: str) -> Iterator[Candidate]:
    scenario = _Scenario(line)
    key, is_whole, value = word.partition("=")
    *parents, last = key.split(".")
    group = scenario.group(parents)
    if group is None:
        return
    prefix = "".join(f"{parent}." for parent in parents)
    if is_whole:
        for one in _settings(line, group.get(last) or group.get("*", {}), value):
            yield one._replace(text=f"{key}={one.text}")
        return
    for name, field in group.items():
        if not name.startswith(last) or name == "*":
            continue
        if scenario.group([*parents, name]):
            yield Candidate(f"{prefix}{name}.", field.get("help", ""), ends=False)
        if not field.get("group") or field.get("plain"):
            yield Candidate(f"{prefix}{name}=", field.get("help", ""), ends=False)


def _settings(line: Line, field: Mapping[str, Any], word: str) -> Iterator[Candidate]:
    for value in field.get("values", ()):
        yield Candidate(value)
    if "part" in field:
        yield from _names(field["part"], GROUPS.get(field["part"], ""))(line, word)
    for kind in field.get("kinds", ()):
        yield from KINDS[kind](line, word)


class _Scenario:
    """What the line says of the scenario so far: its kind, and those of its parts."""

    def __init__(self, line: Line) -> None:
        self.table = line.table
        self.data = dict(_base(line))
        for text in line.values.get("overrides", ()):
            key, _, value = text.partition("=")
            self._set(key.removesuffix(".kind"), value)
        for value in line.values.get("--algorithm", ()):
            self._set("algorithm", value)

    def _set(self, key: str, value: str) -> None:
        if re.fullmatch(r"[\w.]+", key) and (kind := re.match(r"(?:\{\s*kind:\s*)?([\w.:/-]+)", value)):
            self.data[key] = kind[1]

    def group(self, path: Sequence[str]) -> Mapping[str, Any] | None:
        """Return the fields at a path of keys; None where there are none, or they are not known."""
        groups = self.table["groups"]
        fields = groups.get(f"scenario.{self.data.get('scenario', 'psro')}") or groups["scenario.psro"]
        for depth, key in enumerate(path, 1):
            field = fields.get(key) or fields.get("*")
            if field is None:
                return None
            if "part" in field:
                kind = self.data.get(".".join(path[:depth]), field.get("default", ""))
                name = f"{field['part']}.{kind}"
            else:
                name = field.get("group", "")
            if name == "Options":  # of the environment
                name = f"Options.{self.data.get('env', '').partition('/')[0]}"
                fields = {**groups.get("Options", {}), **groups.get(name, {})}
                continue
            if name not in groups:
                return None
            fields = groups[name]
        return dict(fields)


def _base(line: Line) -> Mapping[str, str]:
    """Return what the preset, file or run of a line says: scenario, env and kinds of parts, by their keys."""
    name = next((value for key in ("scenario", "--env", "run", "id") for value in line.values.get(key, ())), "")
    if name in line.table["presets"]:
        return dict(line.table["presets"][name]["parts"])
    if line.command == "sweep":
        return {"scenario": "sweep"}
    if line.command == "check-env":
        return {"scenario": "check-env", "env": name}
    if line.command == "resume":
        name = os.path.join(lookup.folder_of(name), "scenario.yaml")
    if name.endswith((".yaml", ".yml")):
        return lookup.parts_of(name)
    return {"env": name, "env.id": name}


GROUPS = {
    "algorithm": "ludus.algorithms",
    "meta-solver": "ludus.meta_solvers",
    "learned_reward": "ludus.learned_rewards",
}
"""part -> the entry points that add to its names."""
KINDS: Mapping[str, Callable[[Line, str], Iterable[Candidate]]] = {
    "preset": _presets,
    "environment": _environments,
    "override": _overrides,
    "algorithm": _names("algorithm", "ludus.algorithms"),
    "rating": _names("rating", "ludus.ratings"),
    "runtime": _names("runtime", "ludus.runtimes"),
    "tracker": _names("tracker", "ludus.trackers"),
    "device": _names("device"),
    "format": _names("format"),
    "metric": _names("metric"),
    "run": _runs,
    "experiment": _experiments,
    "policy": _policies,
    "entrant": _entrants,
    "zoo": _zoos,
    "hub": lambda _, __: [Candidate("hf://", "a repository of Hugging Face's Hub", ends=False)],
    "listed": _listed,
    "folder": _folders,
    "file": _files(),
    "yaml": _files(".yaml", ".yml"),
    "parquet": _files(".parquet"),
    "safetensors": _files(".safetensors"),
    "jsonl": _files(".jsonl"),
    "html": _files(".html"),
}
"""What a value may be."""
