"""Every `ludus …` on the pages is one that the commands understand, and every option is on a page."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

import pages
import pytest

from ludus.cli.list_command import KINDS
from ludus.cli.main import COMMANDS
from ludus.runs.scenario_files import list_presets, load_scenario

CALL = re.compile(r"(?:PYTHONPATH=\S+ |\.venv/bin/|.*; do )*ludus ([a-z].*)")


def calls() -> Iterator[tuple[str, str]]:
    """(page, what follows `ludus`) of each command line in a block, and of each line of help."""
    for page in pages.PAGES:
        for block in pages.blocks(page, "bash"):
            for line in block.splitlines():
                if found := CALL.match(line):
                    yield pages.name(page), found[1]
    for command in COMMANDS.values():
        for line, _ in command.examples:
            yield f"ludus {command.name} --help", line.removeprefix("ludus ")


def options_of(command: str) -> set[str]:
    parser: argparse.ArgumentParser = COMMANDS[command]._parser()
    return {text for action in parser._actions for text in action.option_strings} - {"-h", "--help"}


@pytest.mark.usefixtures("examples")
def test_command_lines_are_understood() -> None:
    seen = 0
    for where, call in calls():
        name, *words = shlex.split(re.split(r" [>|]|; done", call)[0].replace("$seed", "0"), comments=True)
        assert name in COMMANDS, f"{where}: {call}"
        try:
            options = COMMANDS[name].parse(words)
            if getattr(options, "scenario", None) in list_presets():
                load_scenario(options.scenario, options.overrides, options.seed)
            elif name == "resume" and not str(options.overrides).startswith("['trials="):  # which a sweep has
                load_scenario("kuhn", options.overrides)
        except Exception as error:  # which line it was
            error.add_note(f"{where}: ludus {call}")
            raise
        seen += 1
    assert seen > 100


def test_commands_in_the_text_have_the_options_that_are_named() -> None:
    wrong = []
    for page in pages.PRESENT:
        for span in pages.spans(page):
            if found := re.match(r"(?:xvfb-run -a )?ludus ([a-z-]+)\b(.*)", span):
                name, rest = found.groups()
                right = name in COMMANDS and set(re.findall(r" (--[a-z-]+)", rest)) <= options_of(name) | {"--help"}
                kind = re.match(r" ([a-z-]+)", rest) if name == "list" else None
                if not right or (kind and kind[1] not in KINDS):
                    wrong.append(f"{pages.name(page)}: {span}")
    assert not wrong, "\n".join(wrong)


def test_tables_of_options_have_those_of_their_command() -> None:
    wrong = []
    for page in pages.PRESENT:
        for heading, *rows in pages.tables(page):
            if found := re.fullmatch(r"option of `ludus ([a-z-]+)`", heading[0]):
                named = {option for row in rows for option in re.findall(r"`(--[a-z-]+)`", row[0])}
                wrong += [f"{pages.name(page)}: ludus {found[1]} {option}" for option in named - options_of(found[1])]
    assert not wrong, "\n".join(wrong)


def test_every_command_is_on_its_page_and_every_argument_has_a_help_text() -> None:
    """The site's reference of commands is made of the help texts."""
    page = pages.text("docs/start/commands.md")
    assert {name for name in COMMANDS if f"ludus {name}" not in page} == set()
    for name, command in COMMANDS.items():
        assert [action.dest for action in command._parser()._actions if not action.help] == [], name


def test_every_list_is_on_a_page() -> None:
    where = "".join(pages.text(page) for page in pages.PRESENT)
    assert {kind for kind in KINDS if f"ludus list {kind}" not in where} == set()
