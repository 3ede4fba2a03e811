"""A Ray of two nodes in network namespaces of their own. The driver lives on the first; the other can be lost, or the network cut.

ns A  10.77.N.1  head, the driver          ns B  10.77.N.2  the other node
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from benchmarks.chaos.scene import QUIET
from benchmarks.faults_detection import SHORTER
from benchmarks.faults_processes import environment_of, kill, living

_PORT = 6379
_STORE = 10**8  # bytes of shared memory of a node
_START = 120.0  # seconds within which a node must have started
_MARK = "LUDUS_CHAOS_CLUSTER"
_numbers = itertools.count()


@cache
def networks() -> str:
    """Return why no network namespaces can be made here; "" where they can."""
    name = f"lc{os.getpid()}t"
    if shutil.which("ip") is None:
        return "there is no `ip`"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return "" if done.returncode == 0 else f"ip: {done.stderr.strip()[:100]}"


def _ip(*line: str, check: bool = True) -> None:
    subprocess.run(["ip", *line], check=check, capture_output=True)


class Cluster:
    """Two nodes of two logical CPUs each. Close it at the end."""

    def __init__(self, folder: Path) -> None:
        """Make the networks. folder: a short one, for the files of Ray."""
        self.folder = folder
        self.number = (os.getpid() + next(_numbers)) % 250
        self.names = tuple(f"lc{os.getpid()}-{self.number}{side}" for side in "ab")
        self.nodes: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._connect()

    def start(self, prefix: Sequence[str]) -> None:
        """Start the nodes. prefix: what they are started with, to share the file system of a scene. Raises RuntimeError."""
        head = (*prefix, *self.enter)
        self._start(head, 0, "--head", f"--port={_PORT}", f"--system-config={json.dumps(SHORTER)}")
        other = (*prefix, "nsenter", f"--net=/run/netns/{self.names[1]}", "--")
        self._start(other, 1, f"--address={self.address}")

    @property
    def address(self) -> str:
        """Of the head."""
        return f"{self._host(0)}:{_PORT}"

    @property
    def enter(self) -> tuple[str, ...]:
        """What a command is started with, to live where the head is."""
        return ("nsenter", f"--net=/run/netns/{self.names[0]}", "--")

    def _host(self, side: int) -> str:
        return f"10.77.{self.number}.{side + 1}"

    def _connect(self) -> None:
        cable = tuple(f"lc{self.number}{side}" for side in "ab")
        for name in self.names:
            _ip("netns", "add", name)
        _ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        for side, name in enumerate(self.names):
            _ip("link", "set", cable[side], "netns", name)
            _ip("-n", name, "addr", "add", f"{self._host(side)}/24", "dev", cable[side])
            _ip("-n", name, "link", "set", cable[side], "up")
            _ip("-n", name, "link", "set", "lo", "up")
        self._cable = cable

    def _start(self, prefix: Sequence[str], side: int, *options: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        line = [
            *(*prefix, sys.executable, str(ray), "start", "--block", *options),
            f"--node-ip-address={self._host(side)}",
            "--num-cpus=2",
            f"--object-store-memory={_STORE}",
            *(("--include-dashboard=false", f"--temp-dir={self.folder}") if side == 0 else ()),
            "--disable-usage-stats",
        ]
        own = {
            "RAY_AUTH_MODE": "disabled",
            **QUIET,
            _MARK: f"{self.folder}/{side}",
            "TMPDIR": str(self.folder),
            "OMP_NUM_THREADS": "1",
        }
        said = self.folder / f"node{side}"
        with said.open("wb") as file:
            node = subprocess.Popen(
                line, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **own}, start_new_session=True
            )
        self.nodes.append(node)
        end = time.monotonic() + _START
        while b"--block" not in said.read_bytes():
            if node.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"a node did not start: {said.read_text(errors='replace')[-500:]}")
            time.sleep(0.1)

    def processes(self, side: int) -> list[int]:
        """Return the ids of everything that lives on a node."""
        mark = f"{_MARK}={self.folder}/{side}".encode()
        return [process for process in living() if mark in environment_of(process)]

    def lose(self) -> None:
        """Kill all that lives on the node that the driver is not on."""
        kill(self.processes(1))

    def cut(self, *, mend: bool = False) -> None:
        """Cut the network between the nodes, or mend it."""
        _ip("-n", self.names[0], "link", "set", self._cable[0], "up" if mend else "down")

    def close(self) -> None:
        """End both nodes and their networks."""
        for side in (0, 1):
            kill(self.processes(side))
        for node in self.nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(10)
        for name in self.names:
            _ip("netns", "del", name, check=False)
