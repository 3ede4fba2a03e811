"""ludus list"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.cli.command import Command
from ludus.cli.output import table, write
from ludus.core.errors import ConfigError, UnknownName, nearest
from ludus.storage.run_dirs import find_run, is_entry

if TYPE_CHECKING:
    from ludus.envs.families import Family


def _envs(family: str | None = None, word: str = "") -> None:
    if family is not None:
        _ids(family, word)
        return
    from ludus.envs.families import FAMILIES

    rows = [
        (name, f.example, f.summary, _have(f), f"docs/environments/{name}.md") for name, f in sorted(FAMILIES.items())
    ]
    own = ("", "module:Class", "one of your own, as it is", "", "docs/environments/own.md")
    columns = ("family", "example", "what it is", "installed", "page")
    _say_left_out(table(columns, [*rows, own], left=range(5), spare=(4, 2)), "envs")
    write(
        "`ludus list envs openspiel` lists a family, `ludus list envs gymnasium cart` those with that in their names."
    )


def _have(family: Family) -> str:
    return "yes" if family.installed else family.install


def _ids(family: str, word: str) -> None:
    from ludus.envs.registry import list_envs

    every = list_envs(family)
    matches = [id for id in every if word.lower() in id.partition("/")[2].lower()]
    if not matches:
        close = [id for id in every if get_close_matches(word.lower(), re.split(r"[\W_]", id.lower()), n=1)][:3]
        meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        raise ConfigError(f"no environment of {family} has {word!r} in its name{meant}")
    table(("environment",), [(id,) for id in matches])


def _presets(word: str | None = None) -> None:
    from ludus.runs.scenario_files import list_presets, needs_of_presets

    every = list_presets()
    matches = [(name, what) for name, what in every.items() if (word or "").lower() in f"{name} {what}".lower()]
    if not matches:
        raise ConfigError(f"no preset has {word!r} in its name or in what it is{nearest(word or '', every)}")
    needs = needs_of_presets()
    rows = [(name, what, needs[name]) for name, what in matches]
    _say_left_out(table(("preset", "what it is", "extra"), rows, left=range(3), spare=(2,)), "presets")


def _algorithms() -> None:
    from ludus.algorithms.common.registry import ALGORITHMS

    rows = [(name, *_about(name), target) for name, target in sorted(ALGORITHMS.items())]
    columns = ("algorithm", "actions", "mask", "memory", "data", "paper", "class")
    _say_left_out(table(columns, rows, left=range(7), spare=(6,)), "algorithms")


def _say_left_out(columns: Sequence[str], kind: str) -> None:
    if columns:
        write(f"Too narrow for the columns: {', '.join(columns)}. `ludus list {kind} | cat` has them all.")


def _about(name: str) -> tuple[str, str, str, str, str]:
    from ludus.algorithms.common.registry import ALGORITHMS
    from ludus.core.parts import resolve_name

    about = resolve_name("algorithm", name, ALGORITHMS).about
    yes = ("no", "yes")
    return " ".join(about.actions), yes[about.masks], yes[about.recurrent], about.data, about.paper


def _meta_solvers() -> None:
    from ludus.metagame.solvers.registry import META_SOLVERS

    _parts("meta-solver", META_SOLVERS)


def _scenarios() -> None:
    from ludus.runs.scenario import SCENARIOS

    _parts("scenario", SCENARIOS)


def _processing() -> None:
    from ludus.replay.processing import PROCESSING

    _parts("processing", PROCESSING)


def _learned_rewards() -> None:
    from ludus.algorithms.rewards.registry import LEARNED_REWARDS

    _parts("learned reward", LEARNED_REWARDS)
    write(
        "`algorithm.learned_reward={kind: NAME, …}` of on-policy algorithms, and `rnd` and `icm` of those that replay."
    )


def _selectors() -> None:
    from ludus.replay.selectors import RESERVOIR, SELECTORS

    _parts("selector", {**SELECTORS, RESERVOIR: "(remover only)"})
    write("`algorithm.sampler=NAME` and `algorithm.remover=NAME` of algorithms that replay; docs/guides/replay.md.")


def _ratings() -> None:
    from ludus.evaluation.run_ratings import RATINGS

    _parts("rating", RATINGS)
    write(
        "`--rating NAME` of `ludus tournament` and `ludus evaluate` shows them; docs/concepts/ratings.md says what they need."
    )


def _bots() -> None:
    from ludus.core.packages import install_command, is_installed
    from ludus.policies.agents import AGENTS
    from ludus.policies.bots import BOTS, registered_bots

    named = [(name, target) for name, target in BOTS.items() if name != "registered"]
    others = [(name, "OpenSpiel's") for name in set(registered_bots()) - set(BOTS)]
    table(("bot", "class"), sorted([("random", "uniform over the legal actions"), *named, *others]), left=(0, 1))
    write(
        "`ludus tournament RUN bot:NAME,key=value…` plays them, `ludus train PRESET opponents=bot:NAME,…` trains against them."
    )
    write("A bot of your own is named module:Class.")
    write(
        f"Agents from elsewhere: {', '.join(f'{scheme}:…' for scheme in sorted(AGENTS))}; docs/guides/agents.md has their options."
    )
    if not is_installed("openspiel"):
        write(f"OpenSpiel has more, and its search; `{install_command('pyspiel')}` brings them.")


def _trackers() -> None:
    from dataclasses import fields
    from importlib.util import find_spec

    from ludus.core.packages import install_command
    from ludus.core.parts import resolve_name
    from ludus.reporting.trackers import TRACKERS

    rows = []
    for name in TRACKERS:
        tracker = resolve_name("tracker", name, TRACKERS)
        missing = [package for package in tracker.packages if find_spec(package) is None]
        options = ", ".join(field.name for field in fields(tracker) if field.init)
        rows.append((name, options, install_command(missing[0]) if missing else "yes"))
    table(("tracker", "options", "installed"), rows, left=range(3), spare=(2,))
    write(
        "`--track NAME,key=value…` of `ludus train`, `resume` and `sweep`, and `ludus track RUN NAME…`; docs/guides/track.md."
    )


def _parts(what: str, names: Mapping[str, str]) -> None:
    table((what, "class"), sorted(names.items()), left=(0, 1))


def _policies(text: str | None) -> None:
    if text is None:
        raise ConfigError("of which run? `ludus list policies RUN`; `ludus runs` shows the runs.")
    from ludus.evaluation.policies import BEST, STRONGEST
    from ludus.metagame.population.base import seats_in
    from ludus.storage.stored_run import open_run

    run = open_run(find_run(text))
    words = {BEST: set(run.best.values()), STRONGEST: set(run.strongest.values())}
    rows = []
    for ref, record in run.records.items():
        seats = seats_in(run.population, ref.population)
        played = [run.solution.strategies[p] for p in seats]
        share = sum(float(m[record.index]) if record.index < len(m) else 0.0 for m in played) / len(seats)
        row = (f"{text}@{run.name(ref)}", " ".join(map(str, seats)), record.spec.kind, ref.mode)
        rows.append(
            (*row, str(record.lineage.generation), f"{share:.4f}", ", ".join(w for w in words if ref in words[w]))
        )
    table(("policy", "plays", "kind", "mode", "generation", "in @meta", ""), rows, left=(0, 1, 2, 3, 6), spare=(3, 2))
    if any(name != f"player_{p}" for p, agents in enumerate(run.player_names.agents) for name, _ in agents):
        write(f"Players: {run.player_names}.")
    first, last = "" if is_entry(run.folder) or not run.generation else f"{text}@0 to ", run.generation
    write(
        f"Also {text} (what it came to), {text}@meta, {first}{text}@{last}, {text}@best, {text}@strongest, {text}@newest: of every player."
    )


def _zoo(text: str | None) -> None:
    if text is None:
        raise ConfigError("of which zoo? `ludus list zoo DIRECTORY`; `ludus push RUN DIRECTORY` makes one.")
    from ludus.cli.zoo import show_zoo

    show_zoo(Path(text))


KINDS: dict[str, Callable[..., None]] = {
    "envs": _envs,
    "policies": _policies,
    "presets": _presets,
    "algorithms": _algorithms,
    "meta-solvers": _meta_solvers,
    "scenarios": _scenarios,
    "processing": _processing,
    "learned-rewards": _learned_rewards,
    "selectors": _selectors,
    "ratings": _ratings,
    "trackers": _trackers,
    "bots": _bots,
    "zoo": _zoo,
}
_OF = ("policies", "zoo")
"""The lists of something that has to be named."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind",
        metavar="|".join(KINDS),
        nargs="?",
        help="what to list (default: everything that needs no further argument)",
    )
    parser.add_argument(
        "family",
        metavar="FAMILY|RUN|ZOO|WORD",
        nargs="?",
        help="after envs: a family, to list its environments; after policies: a run; after zoo: a directory; after presets: a word of "
        "their names or descriptions",
    )
    parser.add_argument("word", metavar="WORD", nargs="?", default="", help="after FAMILY: a word of the names")


def _execute(options: argparse.Namespace) -> int:
    if options.kind is None:
        for kind, show in KINDS.items():
            if kind != "envs" and kind not in _OF:
                show()
                write("")
        write("`ludus list envs` lists the families of environments, `ludus list policies RUN` what a run has.")
        return 0
    if options.kind not in KINDS:
        moved = "Runs are listed by `ludus runs`" if options.kind == "runs" else ""
        raise UnknownName("list", options.kind, KINDS, hint=moved)
    if options.kind == "envs":
        _envs(options.family, options.word)
        return 0
    named = options.kind in (*_OF, "presets")
    unused = options.word if named else options.family
    if unused:
        raise ConfigError(f"ludus list {options.kind} has no use for {unused!r}. See `ludus list --help`.")
    KINDS[options.kind](*([options.family] if named else []))
    return 0


COMMAND = Command(
    name="list",
    summary="List environments, presets, algorithms, meta-solvers, scenarios, ratings, bots, a run's policies or a zoo's entries.",
    examples=(
        ("ludus list presets", "what `ludus train` can start"),
        ("ludus list presets leduc", "presets with a word in their names or descriptions"),
        ("ludus list policies try1", "the policies of a run, as commands name them"),
        ("ludus list envs", "the families of environments"),
        ("ludus list envs gymnasium cart", "environments of a family with a word in their names"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
    trusts=True,
)
