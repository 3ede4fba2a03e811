"""Commands that are forks of a process which has imported Ludus already: most of a small command's time would be imports.

    python -m benchmarks.chaos.forks

reads an order a line, in JSON, and answers with the id of the process that carries it out; its exit code is written to a file when it ends.
Where limits or libraries are laid on a command, and where its imports are harmed, `scene.py` starts it anew instead.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT

_MOUNTS = 0x20000  # CLONE_NEWNS of setns
_MODULES = (
    "ludus.cli.main",
    "ludus.runs.runner",
    "ludus.runs.scenario_files",
    "ludus.apps.hub.copies",
    "ludus.apps.common.progress",
    "ludus.reporting",
    "benchmarks.faults_run",
    "torch",
)


class Forks:
    """The process that forks, seen from the campaign."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        begin = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.chaos.forks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )
        self._answer()
        self.imports = time.monotonic() - begin
        """Seconds that a command which is started anew needs before it is where a fork begins."""

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the process that forks has ended")
        return line

    def start(
        self,
        line: Sequence[str],
        *,
        holder: int,
        cwd: Path,
        environment: Mapping[str, str],
        parts: Path,
        out: Path,
        err: Path,
    ) -> Fork:
        """Start a command. holder: id of a process in whose file system it lives; 0: this one's."""
        code = out.with_name(f"{out.name}.code")
        order = {
            "line": list(line),
            "holder": holder,
            "cwd": str(cwd),
            "environment": dict(environment),
            "parts": str(parts),
            "out": str(out),
            "err": str(err),
            "code": str(code),
        }
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return Fork(int(self._answer()), code)

    def close(self) -> None:
        """End it."""
        with self._process:  # which closes its pipes
            self._process.kill()


class Fork:
    """A command that was forked, with the methods of `subprocess.Popen` that are used of it."""

    def __init__(self, process: int, code: Path) -> None:
        self.pid, self._code = process, code

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it goes on."""
        try:
            return int(self._code.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("fork", timeout or 0.0)
            time.sleep(0.01)
        return code

    def terminate(self) -> None:
        """Ask it to end."""
        os.kill(self.pid, signal.SIGTERM)


# --------------------------------------------------------------------------------------------------------------------
# The process itself.


def main() -> None:
    """Import, then fork for each order."""
    for name in _MODULES:
        __import__(name)
    import torch

    torch.set_num_threads(1)
    children: dict[int, str] = {}
    print("ready", flush=True)
    os.set_blocking(0, False)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import select

    rest = b""
    while True:
        ready, _, _ = select.select([0, read], [], [])
        if read in ready:
            os.read(read, 4096)
            _collect(children)
        if 0 in ready:
            chunk = os.read(0, 1 << 20)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                order = json.loads(line)
                child = os.fork()
                if not child:
                    _become(order)
                children[child] = order["code"]
                print(child, flush=True)


def _collect(children: dict[int, str]) -> None:
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        path = Path(children.pop(child))
        aside = path.with_suffix(".part")
        try:
            aside.write_text(str(os.waitstatus_to_exitcode(status)))
            aside.rename(path)
        except OSError:  # its scene is gone
            continue


def _become(order: Mapping[str, Any]) -> None:
    """Be a command of its own, and end as it ends."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        os.setsid()
        files = {1: os.open(order["out"], os.O_WRONLY | os.O_CREAT), 2: os.open(order["err"], os.O_WRONLY | os.O_CREAT)}
        files[0] = os.open(os.devnull, os.O_RDONLY)
        for target, source in files.items():
            os.dup2(source, target)
        os.closerange(3, 256)
        if order["holder"]:
            mounts = os.open(f"/proc/{order['holder']}/ns/mnt", os.O_RDONLY)
            if ctypes.CDLL(None, use_errno=True).setns(mounts, _MOUNTS):
                raise OSError(ctypes.get_errno(), "setns")
            os.close(mounts)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv = ["command", order["parts"], *order["line"]]
        from benchmarks.chaos.command import main as command

        command()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  the last place that can tell
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
