"""What only the runtime of processes has: its fork server, shared memory, and an end that leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from parts_made_apart import Drawing, Faulty, Reader, Seeing, Talking, Worker, fails, mapped_file

from ludus.core.errors import PartDied, RunError
from ludus.runtime import connections, fork_server, processes, shared_values
from ludus.runtime.process_peers import RemoteRef
from ludus.runtime.processes import ProcessRuntime
from ludus.runtime.shared_values import LARGE, pack
from ludus.testing.runtime import CounterActor


@pytest.fixture(scope="module")
def shared():
    runtime = ProcessRuntime()
    yield runtime
    runtime.close()


@pytest.fixture
def alone():
    runtime = ProcessRuntime()
    yield runtime
    runtime.close()


def files_in_memory():
    """Of this process: what its descriptors and mappings hold."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and "memfd:ludus" in os.readlink(entry):
            found.append(entry.name)
    return found + [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:ludus" in line]


# ---------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("rows", [1, LARGE // 8])
def test_unpacked_arrays_are_views_of_shared_memory(rows):
    value = {
        "a": np.arange(rows, dtype=np.float64),
        "b": np.asfortranarray(np.ones((3, 5), np.int16)),
        "c": ["text", None],
    }
    packed = pack(value)
    assert packed.is_large == (rows > 1)
    back = packed.load()
    np.testing.assert_array_equal(back["a"], value["a"])
    np.testing.assert_array_equal(back["b"], value["b"])
    assert (back["b"].dtype, back["c"]) == (np.int16, ["text", None])
    for array in (back["a"], back["b"]):
        assert not array.flags.writeable
        assert array.ctypes.data % (64 if packed.is_large else 16) == 0
    assert (mapped_file(back["a"])[2][:1] == ["/memfd:ludus"]) == (rows > 1)


def test_a_file_in_memory_is_sealed_and_goes_with_its_last_user():
    before = files_in_memory()
    packed = pack(np.zeros(LARGE))
    with pytest.raises(PermissionError):
        os.pwrite(packed.file, b"x", 0)
    array = packed.load()[10:20]
    del packed
    assert len(files_in_memory()) > len(before)
    assert array.sum() == 0.0
    del array
    assert files_in_memory() == before


def test_memory_that_cannot_be_had_is_said(shared, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_values.os, "pwrite", full)
    before = files_in_memory()
    with pytest.raises(RunError, match=r"the value cannot be sent to another process: .*No space left"):
        shared.put(np.zeros(LARGE))
    assert files_in_memory() == before


def test_all_readers_share_one_copy(shared):
    parts = [shared.spawn(Reader, 0) for _ in range(2)]
    sent = shared.put(np.arange(LARGE, dtype=np.float64))
    (writeable, first), (_, second) = [shared.get(shared.call(part, "read", sent)) for part in parts]
    assert not writeable
    assert first == second == mapped_file(shared.get(sent))
    answer = shared.call(parts[0], "double", sent)
    assert shared.get(answer)[-1] == 2 * (LARGE - 1)
    shared.stop(parts[0])
    assert shared.get(answer)[1] == 2.0, "an answer is there without the part that gave it"
    shared.get(shared.call(parts[1], "let_go"))
    del sent, answer
    assert files_in_memory() == []


def test_a_reference_lives_as_long_as_the_driver_has_it(shared):
    part = shared.spawn(Reader, 0)
    sent = shared.put("value")
    shared.get(shared.call(part, "keep_ref", [sent]))
    assert shared.get(shared.call(part, "use_ref")) == "value"
    slow = shared.call(part, "slow", 0.2)
    inside = shared.call(part, "fetched", shared.fetch, [shared.put(4)])  # whose only holder is the call
    assert shared.get(inside) == 4
    del sent
    with pytest.raises(RunError, match="kept by a part longer than by the driver"):
        shared.get(shared.call(part, "use_ref"))
    with pytest.raises(RunError, match="used in a process that is no part of it"):
        RemoteRef(1).fetch()
    assert shared.get(slow) == 0.2


# ---------------------------------------------------------------------------------------------- wires


def test_nobody_waits_for_a_part_that_does_not_read(shared):
    part = shared.spawn(CounterActor, 0)
    shared.get(shared.call(part, "add", 1))
    os.kill(part.life.process, signal.SIGSTOP)
    refs = [shared.call(part, "add", 1, float(k)) for k in range(3000)]
    large = [shared.call(part, "double", np.full(7000, k)) for k in range(100)]
    assert shared.wait(refs, at_least=0)[0] == []
    os.kill(part.life.process, signal.SIGCONT)
    assert shared.get(refs[-1], timeout=60) == 1 + sum(range(3000))
    assert [shared.get(ref, timeout=60)[0] for ref in large] == [2 * k for k in range(100)]


def test_unsendable_message_is_lost_without_waiting():
    """A limit of files under way, say: the process at the other end is well, and would never answer."""
    lost = []
    ends, other = socket.socketpair()

    class Full:
        def sendmsg(self, *_):
            raise OSError(errno.ETOOMANYREFS, "Too many references: cannot splice")

        def __getattr__(self, name):
            return getattr(ends, name)

    made = connections.ConnectionLoop(lambda *_: None, lost.append)
    with other:
        wire = made.add(Full())
        outcome = wire.ask(connections.CALL, pack(1))
        assert made.wait(lambda: bool(outcome.kind), 10)
        assert outcome.kind == outcome.LOST
        assert lost == [wire]
        made.end()


def test_another_user_is_not_listened_to(shared, monkeypatch):
    address, listens = connections.listener()
    with listens:
        connections.connect(address).close()
        monkeypatch.setattr(connections.os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(PermissionError, match="another user"):
            connections.connect(address)


def test_a_fault_of_the_wires_is_said(alone):
    part = alone.spawn(CounterActor, 0)
    alone.get(alone.call(part, "add", 1))
    slow = alone.call(part, "slow", 600)
    alone._wires.soon(fails)
    with pytest.raises(RunError, match="what connects the processes of this run has failed: a fault"):
        alone.get(slow)


def test_a_part_whose_wires_fail_is_made_again(shared):
    part = shared.spawn(Faulty, 4, restarts=1)
    with pytest.raises(PartDied, match=r"its process ended with exit code 1\); it is made again") as caught:
        shared.get(shared.call(part, "break_wires"), timeout=60)
    assert "ValueError: a fault" in str(caught.value.__cause__)
    assert shared.get(shared.call(part, "add", 1)) == 5


# ---------------------------------------------------------------------------------------------- processes


def test_a_process_that_cannot_be_made_ends_alone(monkeypatch):
    """At a limit of processes, say: the fork server goes on, with all others."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    given, kept = os.pipe()

    def no_room():
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with here, there, open(kept, "wb"):
        server = fork_server._Server(there)
        monkeypatch.setattr(fork_server.os, "fork", no_room)
        server._fork(3, [given])
        assert json.loads(here.recv(4096)) == ["ended", 3, "no process could be made: Resource temporarily unavailable"]
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(given)


@pytest.mark.slow
def test_a_fork_server_that_is_killed_is_replaced(alone):
    parts = [alone.spawn(Worker, k, restarts=1) for k in range(2)]
    processes = [alone.get(alone.call(part, "process")) for part in parts]
    busy = [alone.call(part, "slow", 600) for part in parts]
    os.kill(processes[1], signal.SIGSTOP)
    alone._server.popen.kill()
    for ref in busy:
        with pytest.raises(
            PartDied, match=r"ended with the fork server, which was killed\); it is made again \(0 of 1"
        ):
            alone.get(ref, timeout=30)
    assert [alone.get(alone.call(part, "add", 1), timeout=30) for part in parts] == [1, 2]
    assert not any(map(is_there, processes))


@pytest.mark.slow
def test_a_process_that_does_not_come(monkeypatch, alone):
    monkeypatch.setattr(fork_server, "_GRACE", 0.1)
    alone.get(alone.call(alone.spawn(CounterActor, 0), "add", 1))
    os.kill(alone._server.popen.pid, signal.SIGSTOP)
    alone._start_timeout = 0.2
    late = alone.call(alone.spawn(CounterActor, 0, name="the late one"), "add", 1)
    with pytest.raises(RunError, match=r"the late one got no process within 0\.2 seconds"):
        alone.get(late, timeout=30)


def test_signals_that_ask_to_stop_are_the_drivers(alone):
    """Batch systems send them to all processes of a run."""
    part = alone.spawn(Worker, 0)
    process = alone.get(alone.call(part, "process"))
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        for one in (alone._server.popen.pid, process):
            os.kill(one, sent)
    assert alone.get(alone.call(part, "process"), timeout=30) == process
    assert alone.get(alone.call(alone.spawn(Worker, 0), "add", 1), timeout=30) == 1
    assert alone.incarnation(part) == 0


def test_output_of_parts_is_bounded(shared, monkeypatch):
    monkeypatch.setattr(processes, "_MOST_WORDS", 1000)
    part = shared.spawn(Talking, None)
    for k in range(3):
        shared.get(shared.call(part, "say", f"{k} " * 1000))
        assert os.fstat(part.life.log).st_size >= 2000
        shared.parts() if k else shared.get(shared.call(part, "say", ""))  # who asks it for something looks, too
        assert os.fstat(part.life.log).st_size <= 1
    shared.get(shared.call(part, "say", "the end"))
    assert part.life.stderr_tail().splitlines() == ["Its last words:", "the end"]


def test_a_call_that_ends_its_thread_ends_the_part(shared):
    part = shared.spawn(Talking, None, concurrency=2)
    with pytest.raises(PartDied, match="ended with exit code 1") as caught:
        shared.get(shared.call(part, "give_up"), timeout=30)
    assert "CancelledError" in str(caught.value.__cause__)


def test_exit_message_of_a_method_is_reported(shared):
    part = shared.spawn(Talking, None)
    with pytest.raises(PartDied, match="ended with exit code 1") as caught:
        shared.get(shared.call(part, "exit", "no licence server"), timeout=30)
    assert "no licence server" in str(caught.value.__cause__)


DAEMON = """
import json, os, signal, sys
from ludus.core.errors import PartDied
from ludus.runtime.inprocess import build_runtime
from ludus.testing.runtime import CounterActor
runtime = build_runtime("processes")
parts = [runtime.spawn(CounterActor, 0, restarts=1) for _ in range(2)]
told = [runtime.get(runtime.call(part, "add", 1)) for part in parts]
os.kill(parts[0].life.process, signal.SIGKILL)
try:
    runtime.get(runtime.call(parts[0], "slow", 600))
except PartDied as error:
    told.append(str(error))
told += [runtime.get(runtime.call(part, "add", 1), timeout=30) for part in parts]
runtime.close()
open(sys.argv[1], "w").write(json.dumps(told))
"""


@pytest.mark.slow
def test_a_driver_that_a_daemon_has_started(tmp_path):
    """Without standard input and output, and told to ignore the ends of its children: one death is one death."""
    line = (
        f"trap '' CHLD; exec {sys.executable} -c '{DAEMON.replace(chr(39), chr(34))}' {tmp_path / 'told'} <&- >&- 2>&-"
    )
    assert subprocess.run(["bash", "-c", line], timeout=60, check=False).returncode == 0
    one, two, died, again, other = json.loads((tmp_path / "told").read_text())
    assert (one, two, again, other) == (1, 1, 1, 2)
    assert "killed by SIGKILL" in died
    assert "it is made again (0 of 1" in died


def test_a_system_without_what_processes_need_is_refused(monkeypatch):
    def lacks(_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", lacks)
    with pytest.raises(
        RunError, match=r"lacks what they need .*Function not implemented.*from 5\.3 on.* Use --runtime ray"
    ):
        ProcessRuntime()


def test_cards_are_handed_out_whole(shared, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5,-1,6")  # those after the -1 are not seen
    monkeypatch.setattr(shared, "_gpus", None)
    one = {"num_gpus": 1.0}
    first, second = (shared.spawn(Seeing, None, resources=one) for _ in range(2))
    none = shared.spawn(Seeing, None)
    assert [shared.get(shared.call(part, "cards")) for part in (first, second, none)] == ["3", "5", ""]
    with pytest.raises(RunError, match=r"'Seeing' has no place\. It needs 1 cards, and 0 of this machine's are free"):
        shared.spawn(Seeing, None, resources=one)
    shared.stop(first)
    assert shared.get(shared.call(shared.spawn(Seeing, None, resources=one), "cards")) == "3"
    with pytest.raises(RunError, match=r"needs 0\.5 of a card, and processes get whole ones"):
        shared.spawn(Seeing, None, resources={"num_gpus": 0.5})
    with pytest.raises(RunError, match="needs gold 1, and processes of this machine are not placed by that"):
        shared.spawn(Seeing, None, resources={"gold": 1})


def test_parts_draw_numbers_of_their_own(shared):
    """They are copies of one process, in which numpy has a state."""
    drawn = [shared.get(shared.call(shared.spawn(Drawing, None), "draw")) for _ in range(2)]
    assert drawn[0] != drawn[1]


def is_there(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def shared_files() -> set[str]:
    """Names in /dev/shm, without semaphores of multiprocessing, which tests in other processes make and Ludus does not."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "sent", "code"),
    [
        ("wait", signal.SIGKILL, -signal.SIGKILL),
        pytest.param("wait", signal.SIGINT, -signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("exit", None, 5, marks=pytest.mark.slow),
        ("fork", None, 3),
    ],
)
def test_however_a_driver_ends_nothing_is_left(end, sent, code, tmp_path):
    """One of its parts is stopped, one value is large, and Ray cannot be imported. fork: a copy of the driver holds its sockets."""
    shm = shared_files()
    driver = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("processes_driver.py")), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    processes = list(map(int, driver.stdout.readline().split()))
    assert len(processes) == 4
    assert all(map(is_there, processes))
    if sent is None:
        driver.stdin.write("go on\n")
        driver.stdin.flush()
    else:
        os.killpg(driver.pid, sent)
    assert driver.wait(30) == code
    until = time.monotonic() + 20
    while any(map(is_there, processes)) and time.monotonic() < until:
        time.sleep(0.02)
    left = [process for process in processes if is_there(process)]
    os.killpg(driver.pid, signal.SIGKILL) if end == "fork" else None
    driver.communicate()
    assert left == []
    assert os.listdir(tmp_path) == []
    assert shared_files() <= shm
