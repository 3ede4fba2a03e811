"""ludus completion"""

from __future__ import annotations

import argparse
from importlib import resources

from ludus.cli.command import Command
from ludus.cli.output import write

SHELLS = ("bash", "zsh", "fish")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="bash|zsh|fish", help="the shell that the script is for")


def _execute(options: argparse.Namespace) -> int:
    write(script(options.shell))
    return 0


def script(shell: str) -> str:
    """Return the script that a shell reads: it asks `ludus completion --candidates` what may follow."""
    return (resources.files("ludus.cli.completion") / f"{shell}.sh").read_text(encoding="utf-8")


COMMAND = Command(
    name="completion",
    summary="Print the script by which a shell completes commands, options, presets, keys of scenarios, runs, policies and files. "
    'In bash and zsh, `eval "$(ludus completion SHELL)"` loads it at once; in fish, `ludus completion fish | source`.',
    examples=(
        (
            "ludus completion bash > ~/.local/share/bash-completion/completions/ludus",
            "bash with the package bash-completion, from the next shell on",
        ),
        ("ludus completion bash >> ~/.bashrc", "bash without it"),
        ("ludus completion zsh > ~/.zfunc/_ludus", "zsh, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc"),
        ("ludus completion fish > ~/.config/fish/completions/ludus.fish", "fish, at once"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
