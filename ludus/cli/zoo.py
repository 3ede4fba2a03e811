"""ludus push, ludus pull"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from ludus.cli.command import Command, folder
from ludus.cli.output import facts, rating_cell, table, write
from ludus.core.errors import ConfigError, LudusError, RunError
from ludus.storage.run_dirs import MANIFEST, run_name

if TYPE_CHECKING:
    from ludus.apps.hub.zoo import ZooEntry
    from ludus.envs.config import Environment
    from ludus.storage.manifest import Manifest


_HUB = "hf://"


def _add_push(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policies",
        metavar="RUN[@WHAT]|FILE.safetensors",
        help="the policies to push: RUN (its meta-strategies), RUN@best, RUN@12, RUN@PLAYER/POLICY, or a file",
    )
    parser.add_argument(
        "zoo",
        metavar="ZOO|hf://ORG/NAME",
        type=_zoo,
        help="directory of the entries, created if it is missing; or a repository of Hugging Face's Hub, which is one entry",
    )
    parser.add_argument(
        "--name", help="name of the entry (default: derived from the policies; on the Hub: the repository's)"
    )
    parser.add_argument("--private", action="store_true", help="make a private repository on the Hub")
    parser.add_argument(
        "--note", default="", metavar="TEXT", help="a note in your words, such as a licence or a purpose"
    )
    parser.add_argument(
        "--members",
        action="store_true",
        help="push every policy of the populations, not only the support of the meta-strategies",
    )
    parser.add_argument(
        "--env",
        metavar="PRESET|FILE.yaml|ENV",
        help="the game of a file that belongs to no run: that of a preset or scenario file, or an environment id",
    )
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="changes to --env, such as env.options.sides=both"
    )
    parser.add_argument("--replace", action="store_true", help="replace the entry of the same name")


def _zoo(text: str) -> Path | str:
    """Return a folder, or a place of the Hub as it is."""
    return text if text.startswith(_HUB) else folder(text)


def _push(options: argparse.Namespace) -> int:
    if isinstance(options.zoo, str):
        return _push_to_hub(options)
    if options.private:
        raise ConfigError(
            f"--private was given with the folder {str(options.zoo)!r}; it is for hf://ORG/NAME. Leave it out."
        )
    from ludus.apps.hub.zoo import push

    entry = push(
        options.policies,
        options.zoo,
        name=options.name,
        note=options.note,
        members=options.members,
        env=_game(options),
        replace=options.replace,
    )
    _show(f"pushed {entry.folder}", entry.manifest, _bytes_of(entry))
    where = quote(str(entry.folder))
    write(
        f"`ludus pull {where}` fetches it; `ludus list policies {where}` says how its policies are named where it lies."
    )
    return 0


def _push_to_hub(options: argparse.Namespace) -> int:
    from ludus.apps.hub import hugging_face

    if options.name is not None:
        raise ConfigError(
            f"--name {options.name!r} and {options.zoo!r} were given; an entry of the Hub is called as its repository. Leave it out."
        )
    pushed = hugging_face.push(
        options.policies,
        options.zoo,
        note=options.note,
        members=options.members,
        env=_game(options),
        replace=options.replace,
        private=options.private,
    )
    _show(f"pushed {pushed.place}", pushed.manifest, pushed.size)
    write(f"`ludus pull {pushed.place}` fetches it.")
    return 0


def _bytes_of(entry: ZooEntry) -> int:
    return sum((entry.folder / member.file).stat().st_size for member in entry.manifest.policies)


def _game(options: argparse.Namespace) -> Environment | None:
    """Return what --env names. Raises ConfigError for changes to nothing; else as `load_scenario`."""
    if options.env is not None:
        from ludus.runs.scenario_files import load_scenario

        return load_scenario(options.env, options.overrides).env
    if options.overrides:
        raise ConfigError(
            f"{options.overrides[0]!r} was given without --env, which it changes. Leave it out, or give --env."
        )
    return None


def _add_pull(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "entry",
        metavar="ZOO[/NAME]|hf://ORG/NAME",
        help="an entry, a zoo, to list its entries, or a repository of Hugging Face's Hub (with @REVISION: a branch, tag or commit)",
    )
    parser.add_argument(
        "target", metavar="TARGET", type=folder, nargs="?", help="target directory (default: ./runs/NAME)"
    )
    parser.add_argument(
        "--no-check-env", action="store_true", help="do not build the environment to verify that the policies fit it"
    )
    parser.add_argument("--replace", action="store_true", help="replace an entry that was pulled before")


def _pull(options: argparse.Namespace) -> int:
    from ludus.apps.hub import hugging_face, zoo

    if not options.entry.startswith(_HUB) and not (Path(options.entry) / MANIFEST).is_file() and _is_zoo(options):
        show_zoo(Path(options.entry))
        return 0
    pull = hugging_face.pull if options.entry.startswith(_HUB) else zoo.pull
    entry = pull(options.entry, options.target, check_env=not options.no_check_env, replace=options.replace)
    _show(f"pulled {entry.folder}", entry.manifest, _bytes_of(entry))
    for warning in entry.warnings:
        write(f"warning: {warning}")
    name = quote(run_name(entry.folder))
    plays = f"evaluate {name}" if all(entry.manifest.sizes) else f"tournament {name} random"  # of some players only
    write(f"`ludus list policies {name}` shows it; `ludus {plays}` plays it.")
    return 0


def _is_zoo(options: argparse.Namespace) -> bool:
    """Return whether entries are to be listed. Raises ConfigError for options that belong to one entry."""
    if not Path(options.entry).is_dir():
        return False
    if options.target is not None or options.replace or options.no_check_env:
        raise ConfigError(
            f"{options.entry!r} is a folder of entries, and one was expected: {options.entry.rstrip('/')}/NAME."
        )
    return True


def show_zoo(zoo: Path) -> None:
    """The entries of a zoo, by name. Raises RunError where there are none."""
    from ludus.apps.hub.zoo_files import list_entries

    rows, broken = list[tuple[str, ...]](), list[str]()
    for place, entry in list_entries(zoo):
        if isinstance(entry, LudusError):
            broken.append(f"{place.name}: {entry}")
            continue
        day = time.strftime("%Y-%m-%d", time.localtime(entry.created))
        row = (place.name, entry.game.id, entry.source.algorithm or "-", str(len(entry.policies)), _result(entry))
        rows.append((*row, day, entry.note))
    if rows:
        table(
            ("entry", "game", "algorithm", "policies", "result", "pushed", "note"),
            rows,
            left=(0, 1, 2, 4, 5, 6),
            spare=(6, 2, 5),
        )
    for line in broken:
        write(f"cannot be used: {line}")
    if not rows:
        raise RunError(f"no entry of {str(zoo)!r} can be used.")


def _result(manifest: Manifest) -> str:
    """Return what is known of an entry, in a few words: how exploitable its mixture is, the rating of a policy that is alone, returns."""
    results = manifest.results
    if results.nash_conv is not None:
        return f"NashConv {'' if results.exact else '≥ '}{results.nash_conv:.4g}"
    if len(manifest.policies) == 1 and results.ratings:
        rated = results.ratings[0]
        return f"{rated.name} {rating_cell(rated.unit, rated.rating[0], rated.low[0], rated.high[0])}"
    returns = manifest.policies[-1].returns
    if not results.values and returns is not None and len(manifest.game.players) == 1:
        spread = f" ± {math.sqrt(returns.m2 / (returns.n - 1)):.4g}" if returns.n > 1 else ""
        return f"return {returns.mean:.4g}{spread} in training"
    if results.values:
        return "returns " + ", ".join(f"{round(value, 9) + 0.0:.4g}" for value in results.values)
    return "-"


def _show(title: str, manifest: Manifest, size: int) -> None:
    game, source = manifest.game, manifest.source
    seats = [p for p, n in enumerate(manifest.sizes) if n]
    pairs = [
        ("game", game.id),
        ("policies", f"{len(manifest.policies)}, {_size(size)}, of player {', '.join(map(str, seats))}"),
    ]
    pairs += [("result", _result(manifest))]
    if source.run:
        pairs += [
            ("from", f"run {source.run}, {source.algorithm}, after generation {source.generation}, seed {source.seed}")
        ]
    pairs += [("versions", ", ".join(f"{name} {number}" for name, number in game.packages.items()))]
    pairs += [("note", manifest.note)] if manifest.note else []
    facts(title, pairs)


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


PUSH = Command(
    name="push",
    summary="Copy policies into a zoo, a directory of signed entries that others can train against, evaluate and play.",
    examples=(
        ("ludus push leduc-20261120-120000 zoo", "its meta-strategies and their policies"),
        ("ludus push try1@best zoo --name kuhn-best", "the best policy of each population"),
        ("ludus push try1 zoo --members --note 'CC BY 4.0'", "whole populations, with their payoffs"),
        ("ludus push try1@best hf://me/kuhn-best", "to Hugging Face's Hub, with a model card (after `hf auth login`)"),
        (
            "ludus push cloned.safetensors zoo --env football-5v5",
            "a file that belongs to no run, with the game of a preset",
        ),
    ),
    add_arguments=_add_push,
    execute=_push,
    trusts=True,
)
PULL = Command(
    name="pull",
    summary="List the entries of a zoo, or fetch one after verifying its checksums and environment.",
    examples=(
        ("ludus pull zoo", "list its entries"),
        ("ludus pull zoo/kuhn-best", "to ./runs/kuhn-best; kuhn-best@0/0-3 then names a policy"),
        ("ludus pull /shared/zoo/kuhn-best elsewhere/kuhn", "to another directory"),
        ("ludus pull hf://me/kuhn-best", "from Hugging Face's Hub, to ./runs/kuhn-best"),
    ),
    add_arguments=_add_pull,
    execute=_pull,
    trusts=True,
)
