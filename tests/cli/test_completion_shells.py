"""Shells at a terminal in which somebody presses Tab. This needs zsh and fish: apt-get install zsh fish."""

from __future__ import annotations

import os
import pty
import shutil
import sys
from pathlib import Path

import pytest
import synthetic_run as synthetic

from ludus.cli.completion.command import script

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source SCRIPT\nludus() { printf '<%s>' \"$@\"; echo; }\n"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "autoload -Uz compinit; compinit -u -D\nsource SCRIPT\nludus() { printf '<%s>' \"$@\"; echo }\n",
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        "source SCRIPT\nfunction ludus; printf '<%s>' $argv; echo; end\n",
    ),
}
"""How each starts, and what it reads first: the script, and a command that prints its arguments in place of `ludus`."""
LINES = {
    "ludus stat\t": "<status>",
    "ludus train leduc algorithm=qr\t": "<train><leduc><algorithm=qr_dqn>",
    "ludus train leduc env.work\t4": "<train><leduc><env.workers=4>",
    "ludus evaluate try1@newe\t--seed 1": "<evaluate><try1@newest><--seed><1>",
    "ludus train leduc --mode as\t": "<train><leduc><--mode><async>",
    "ludus export some\t--to onnx": "<export><some file.safetensors><--to><onnx>",
}


def typed(shell: str, text: str, folder: Path) -> str:
    """What a shell shows at a terminal where this is typed."""
    environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "PS1": "$ "}
    environment["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    child, here = pty.fork()  # the terminal controls it, as fish expects
    if not child:
        os.chdir(folder)
        os.execvpe(SHELLS[shell][0][0], SHELLS[shell][0], environment)
    os.write(here, text.encode())
    shown = b""
    try:
        while chunk := os.read(here, 65536):
            shown += chunk
    except OSError:  # the terminal of a process that has ended
        pass
    finally:
        os.close(here)
        os.waitpid(child, 0)
    return shown.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("shell", SHELLS)
def test_tab(shell: str, tmp_path: Path) -> None:
    assert shutil.which(shell), f"this test needs {shell}: apt-get install {shell}"
    synthetic.write(tmp_path / "runs" / "try1", generations=1)
    (tmp_path / "some file.safetensors").touch()
    (tmp_path / "script").write_text(script(shell))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "ludus"
    command.write_text(f"#!{sys.executable}\nfrom ludus.cli.start import script\nscript()\n")
    command.chmod(0o755)
    setup = SHELLS[shell][1].replace("SCRIPT", "./script")
    shown = typed(shell, setup + "".join(f"{line}\n" for line in LINES) + "exit\n", tmp_path)
    assert [result for result in LINES.values() if result not in shown] == [], shown
