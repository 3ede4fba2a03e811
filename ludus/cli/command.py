"""Commands, and the parsing of their arguments."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ludus.cli.output import aligned
from ludus.cli.trust import add_trust
from ludus.core.errors import ConfigError, nearest

if TYPE_CHECKING:
    from ludus.runs.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Command:
    """summary: one line. examples: (line, what it does). trusts: it takes --trust, since it may import what stored files
    name. `execute` returns the exit code and raises LudusError for bad input."""

    name: str
    summary: str
    examples: tuple[tuple[str, str], ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    execute: Callable[[argparse.Namespace], int]
    trusts: bool = False

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Return options and positionals in any order. Raises ConfigError; `--help` prints and raises SystemExit."""
        parser = self._parser()
        options, unknown = parser.parse_known_intermixed_args(list(argv))
        if unknown:
            known = [text for action in parser._actions for text in action.option_strings]
            option = unknown[0].partition("=")[0]
            if not option.startswith("-"):
                raise ConfigError(f"ludus {self.name} has no use for {option!r}. See `ludus {self.name} --help`.")
            near = nearest(option, known)
            if any(action.dest == "overrides" for action in parser._actions):
                near = _as_a_key(unknown[0], list(argv), near) or near
                near += f" See `ludus {self.name} --help`." if near.startswith(".") else ""
            raise ConfigError(f"ludus {self.name} has no option {option!r}{near}")
        return options

    def _parser(self) -> argparse.ArgumentParser:
        parser = _Parser(
            prog=f"ludus {self.name}",
            description=self.summary,
            epilog="\n".join(["examples:", *aligned(self.examples, gap=3)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.add_arguments(parser)
        if self.trusts:
            add_trust(parser)
        return parser


def _as_a_key(option: str, argv: list[str], near: str) -> str:
    """Return what to type for a key of a scenario that was given with dashes; "" where an option is nearer."""
    from ludus.envs.config import Environment
    from ludus.runs.scenario_files import LENGTHS  # only where something is wrong
    from ludus.runs.scenario_runtime import RuntimeChoice

    key, is_whole, value = option.lstrip("-").replace("-", "_").partition("=")
    parts = {"runtime": RuntimeChoice.model_fields, "env": Environment.model_fields, "response": LENGTHS}
    part = next((name for name, fields in parts.items() if key in fields), "")
    if near.startswith(";") and not part:
        return ""
    after = argv[argv.index(option) + 1 :]
    value = value if is_whole else after[0] if after and not after[0].startswith("-") else "VALUE"
    return f". Keys of a scenario are given without dashes: {f'{part}.{key}' if part else key}={value}."


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}. See `{self.prog} --help`.")


def whole_number(text: str) -> int:
    """Parse an option that counts: 0, 1, 2 …"""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} was given, a whole number from 0 on was expected")
    return value


def seconds(text: str) -> float:
    """Parse an option in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} was given, a number of seconds was expected")
    return value


def probability(text: str) -> float:
    """Parse an option between 0 and 1, both excluded."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} was given, a probability between 0 and 1 was expected")
    return value


def folder(text: str) -> Path:
    """Parse an option that names a folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' was given, a folder was expected")
    return Path(text)


def positive_number(text: str) -> int:
    """Parse an option that counts: 1, 2, 3 …"""
    if whole_number(text) == 0:
        raise argparse.ArgumentTypeError("0 was given, at least 1 was expected")
    return int(text)


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Add the option that shows where a run's time went."""
    parser.add_argument("--profile", action="store_true", help="print a breakdown of the time by component at the end")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that prints the results for programs."""
    parser.add_argument(
        "--json", action="store_true", help="print the results as JSON; standard output has nothing else"
    )


def add_page(parser: argparse.ArgumentParser) -> None:
    """Add the option that opens the page of a run."""
    parser.add_argument(
        "--ui",
        action="store_true",
        help="open the run's page in the browser; in a terminal, it stays open after the run ends, until Ctrl-C",
    )


def refuse_page(options: argparse.Namespace) -> None:
    """Raise ConfigError where the page of one run was asked for, and there are several."""
    if options.ui:
        raise ConfigError("--ui is for one run. `ludus ui` in another terminal shows all runs of an experiment.")


def add_rating(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the option that names ratings; `parse_ratings` reads them."""
    parser.add_argument(
        "--rating",
        metavar="NAME",
        action="append",
        default=[],
        help=f"rate by NAME, NAME,NAME… or NAME,key=value… (see `ludus list ratings`); the first rating orders the table ({default})",
    )


def add_parallel(parser: argparse.ArgumentParser) -> None:
    """Add the option that sets how many runs of an experiment run in parallel."""
    parser.add_argument(
        "--parallel",
        type=positive_number,
        metavar="N",
        help="number of runs of an experiment that run at a time (default: one per core; with --runtime processes or ray: 1)",
    )


_RUNTIME = {"runtime": "kind", "workers": "workers", "mode": "mode", "device": "device", "address": "address"}


def add_runtime(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a run's parts run."""
    group = parser.add_argument_group("runtime options")
    group.add_argument(
        "--runtime",
        metavar="KIND",
        help="inprocess, processes, ray, or module:Class (default: that of the scenario or run, else inprocess)",
    )
    group.add_argument("--workers", type=positive_number, metavar="N", help="number of rollout worker processes")
    group.add_argument(
        "--mode",
        metavar="sync|async",
        help="sync: update after all workers finish; async: update as soon as any worker finishes (default: that of the scenario or run, "
        "else sync)",
    )
    add_device(group)
    group.add_argument(
        "--address", metavar="HOST:PORT", help="address of a running Ray cluster; auto: the cluster of this machine"
    )


def add_device(group: argparse._ActionsContainer, *, what: str = "for the learners") -> None:
    """Add the option of `add_runtime` that other commands have, too. what: the device is for."""
    group.add_argument("--device", metavar="DEVICE", help=f"device {what}: auto (default), cpu, cuda, cuda:N")


def runtime_overrides(options: argparse.Namespace) -> list[str]:
    """Return the options of `add_runtime`, those that there are, as changes to a scenario."""
    values = {key: getattr(options, name, None) for name, key in _RUNTIME.items()}
    return [f"runtime.{key}={value}" for key, value in values.items() if value is not None]


def prepare_processes(options: argparse.Namespace) -> None:
    """Start what `--runtime processes` forks its processes from, so that it loads libraries while this process loads its own.

    Args:
        options: Those of `add_runtime`.
    """
    if options.runtime == "processes":
        from ludus.runs.preloads import PLAYING
        from ludus.runtime.fork_server import prepare

        prepare(PLAYING)  # whether there are networks, too, the scenario says once it is read


def add_track(parser: argparse.ArgumentParser) -> None:
    """Add the option that names trackers."""
    parser.add_argument(
        "--track",
        metavar="NAME[,key=value…]",
        action="append",
        help="send the run's records to a tracker, once for each: wandb, mlflow, tensorboard or module:Class, with options such as "
        "wandb,project=leduc,mode=offline or mlflow,tracking_uri=sqlite:///mlflow.db (`ludus list trackers`); none: to none",
    )


def track_overrides(options: argparse.Namespace, key: str = "track") -> list[str]:
    """Return the option of `add_track` as a change to a scenario."""
    if options.track is None:
        return []
    import json

    from ludus.reporting.trackers import parse_trackers

    return [f"{key}={json.dumps(parse_trackers(options.track))}"]


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a scenario and change it."""
    parser.add_argument(
        "scenario",
        metavar="PRESET|FILE.yaml|ENV",
        help="a preset (`ludus list presets`), a scenario file, or an environment id (`ludus list envs`; uses that environment's default "
        "scenario)",
    )
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="changes to the scenario, such as algorithm.learning_rate=3e-4",
    )
    parser.add_argument("--algorithm", metavar="NAME", help="the same as algorithm=NAME (`ludus list algorithms`)")
    parser.add_argument("--seed", type=whole_number, help="seed of all random streams")


def scenario_of(options: argparse.Namespace, *changes: str) -> Scenario:
    """Return what the arguments of `add_scenario` name. changes: `key=value` that come before the user's own."""
    from ludus.runs.scenario_files import load_scenario

    return load_scenario(options.scenario, [*changes, *changes_of(options)], options.seed)


def changes_of(options: argparse.Namespace) -> list[str]:
    """Return what the arguments of `add_scenario` change, as `key=value`."""
    chosen = [] if options.algorithm is None else [f"algorithm={options.algorithm}"]
    return [*chosen, *options.overrides]


def run_and_policies(
    text: str, named: Sequence[str], option: str = "--policies", *, who: str = "who plays"
) -> tuple[Path, list[str]]:
    """Return a run's directory, and the policies that RUN@WHAT or an option names; [] where nothing does. Raises ConfigError for both."""
    from ludus.evaluation.policies import split_name
    from ludus.storage.run_dirs import find_run

    run_dir, what = split_name(text, find_run)
    if what and named:
        raise ConfigError(f"{text!r} and {option} were given, and both say {who}. Leave one out.")
    return run_dir, list(named) or ([what] if what else [])


def check_new(option: str, path: Path, options: argparse.Namespace) -> None:
    """Raise ConfigError for a file that is there, without --overwrite."""
    if path.exists() and not options.overwrite:
        raise ConfigError(f"{option} {str(path)!r} is there already; --overwrite replaces it.")


def without_window() -> None:
    """For pygame: images are wanted, no window."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
