"""A fork server whose process is started before there is a runtime, so that it loads libraries while the driver loads its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ludus.runtime import fork_server
from ludus.runtime.processes import ProcessRuntime
from ludus.testing.runtime import CounterActor


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    fork_server.discard()


def prepared_pid() -> int:
    (process,) = fork_server._prepared
    return process.popen.pid


def server_of(runtime: ProcessRuntime) -> int:
    assert runtime.get(runtime.call(runtime.spawn(CounterActor, 1), "add", 1), timeout=60) == 2
    assert runtime._server is not None
    return runtime._server.popen.pid


def test_the_next_runtime_takes_the_prepared_process_and_ends_it() -> None:
    fork_server.prepare()
    pid = prepared_pid()
    fork_server.prepare(["json"])
    assert prepared_pid() == pid  # the same one loads more
    runtime = ProcessRuntime()
    assert server_of(runtime) == pid
    assert not fork_server._prepared
    runtime.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("change", ["variable", "path", "death"])
def test_a_process_that_a_new_one_would_differ_from_is_not_taken(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_server.prepare()
    pid = prepared_pid()
    if change == "variable":
        monkeypatch.setenv("LUDUS_TEST_OF_PREPARED", "another value")
    elif change == "path":
        monkeypatch.setattr(sys, "path", [*sys.path, "/elsewhere"])
    else:
        os.kill(pid, signal.SIGKILL)
        fork_server._prepared[0].popen.wait()
    runtime = ProcessRuntime()
    assert server_of(runtime) != pid
    runtime.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("end", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_prepared_process_ends_with_the_one_that_prepared_it(end: str) -> None:
    code = (
        "from ludus.runtime import fork_server; fork_server.prepare(); "
        f"print(fork_server._prepared[0].popen.pid, flush=True); {end}"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    pid, deadline = int(done.stdout), time.monotonic() + 30
    while is_there(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_parts_share_what_the_server_loaded_before_the_fork() -> None:
    fork_server.prepare(["ludus.rollout.preload", "ludus.policies.actor_critic_policy"])
    runtime = ProcessRuntime()
    part = runtime.spawn(Loaded, None)
    assert runtime.get(runtime.call(part, "modules"), timeout=60) == (True, True)
    runtime.close()


class Loaded:
    def __init__(self, _: None) -> None:
        pass

    def modules(self) -> tuple[bool, bool]:
        return "torch" in sys.modules, "numba" in sys.modules
