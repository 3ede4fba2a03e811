"""ludus new"""

from __future__ import annotations

import argparse
from shlex import quote

from ludus.apps.skeletons.kinds import KINDS
from ludus.cli.command import Command, folder
from ludus.cli.output import facts
from ludus.core.errors import UnknownName

_MEANINGS = (
    "env: a game for two; task: an environment for one player; algorithm; solver: a meta-solver; scheduler; bot; stopper; "
    "project: a game, an algorithm and a bot"
)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="|".join(KINDS), help=_MEANINGS)
    parser.add_argument("name", metavar="NAME", help="name of the folder and of its distribution, such as my-game")
    parser.add_argument("--dir", type=folder, default=".", help="where the folder is made (default: here)")


def _execute(options: argparse.Namespace) -> int:
    if options.kind not in KINDS:
        raise UnknownName("kind of skeleton", options.kind, KINDS)
    from ludus.apps.skeletons.new import files_of, new_skeleton

    place = new_skeleton(options.kind, options.name, options.dir)
    facts("New", [("folder", str(place)), *(("file", path) for path in sorted(files_of(options.kind, options.name)))])
    next_commands = [f"cd {quote(str(place))}", "pip install -e '.[test]'", "pytest", "ludus train scenario.yaml"]
    facts("Next", [("", command) for command in next_commands])
    return 0


COMMAND = Command(
    name="new",
    summary="Make a package that extends Ludus: code, a scenario that uses it, and tests, which pass at once.",
    examples=(
        ("ludus new env my-game", "a game for two in ./my-game, whose package is my_game"),
        ("ludus new algorithm my-ppo --dir ~/code", "an algorithm; installed, it is also called my_ppo"),
        ("ludus new project my-project", "a game, an algorithm and a bot"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
