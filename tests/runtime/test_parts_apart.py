"""Runtimes whose parts are processes: the contract, what crosses, and parts that die. One local Ray serves all tests of this file."""

import contextlib
import os
import re
import signal
import threading
import time

import numpy as np
import pytest
from parts_made_apart import Meeting, Owner, Unsent, Visitor, Worker, not_importable

from ludus.core.errors import PartDied, RunError, UnknownName
from ludus.runtime.inprocess import build_runtime
from ludus.testing.runtime import CounterActor, check_runtime


@pytest.fixture(scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.slow)])
def session(request):
    """Of Ray: holds the local one open, so that the runtimes of the tests share it."""
    before, handler = dict(os.environ), signal.getsignal(signal.SIGTERM)
    runtime = build_runtime(request.param)
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGTERM) is handler
    yield runtime
    folder = runtime._session.folder if request.param == "ray" else None
    assert folder is None or os.path.isdir(folder)
    runtime.close()
    assert folder is None or not os.path.exists(folder)


@pytest.fixture
def make(session):
    with contextlib.ExitStack() as stack:

        def make(**options):
            return stack.enter_context(contextlib.closing(type(session)(**options)))

        yield make


@pytest.fixture
def runtime(session):
    """For tests that do not close it."""
    return session


def each(runtime, parts, method):
    return [runtime.get(ref) for ref in [runtime.call(part, method) for part in parts]]


def gone(process, seconds=30):
    """Whether a process ends within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_process_runtimes_satisfy_runtime_contract(session):
    check_runtime(type(session))


def test_values_and_errors_cross_processes(runtime):
    part = runtime.spawn(Worker, 0)
    assert runtime.get(runtime.call(part, "process")) != os.getpid()
    for size in (1, 10**6):
        array = np.zeros(size)
        assert not runtime.get(runtime.put(array)).flags.writeable
        assert not runtime.get(runtime.call(part, "writeable", array))
        assert not runtime.get(runtime.call(part, "writeable", runtime.put(array)))
    with pytest.raises(UnknownName, match="unknown colour 'redd'; did you mean 'red'") as caught:
        runtime.get(runtime.call(part, "unknown"))
    assert type(caught.value) is UnknownName
    assert caught.value.name == "redd"
    assert 'raise UnknownName("colour"' in str(caught.value.__cause__)
    with pytest.raises(RunError, match="a part raised Odd, which cannot be carried between processes: odd one"):
        runtime.get(runtime.call(part, "odd"))
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        runtime.get(runtime.call(runtime.spawn(not_importable, None), "process"))


@pytest.mark.slow
def test_surroundings_of_a_part(runtime):
    part = runtime.spawn(Worker, 0, resources={"num_cpus": 4})
    assert runtime.get(runtime.call(part, "surroundings")) == ("1", False, False)
    threads, pools = runtime.get(runtime.call(part, "threads"))
    assert threads == 1
    assert set(pools) == {1}
    numbers = np.zeros(10**5)
    assert runtime.get(runtime.call(runtime.spawn(Owner, numbers), "raised")).sum() == 10**5
    assert numbers.sum() == 0
    with pytest.raises(PartDied) as caught:
        runtime.get(runtime.call(part, "crash"))
    assert "Fatal Python error: Segmentation fault" in str(caught.value.__cause__)
    assert "in crash" in str(caught.value.__cause__)


def test_calls_that_run_at_the_same_time(runtime):
    meeting = runtime.spawn(Meeting, 4, concurrency=4)
    visitors = [runtime.spawn(Visitor, runtime.peer(meeting)) for _ in range(2)]
    refs = [runtime.call(visitor, "visit", 2) for visitor in visitors]
    assert sorted(k for ref in refs for k in runtime.get(ref, timeout=60)) == [0, 1, 2, 3]
    made, called = runtime.get(runtime.call(meeting, "made_in"))
    assert made != called
    refs = [runtime.call(meeting, "meet") for _ in range(4)]
    assert sorted(runtime.get(ref, timeout=60) for ref in refs) == [0, 1, 2, 3]


def ask_for_ten_seconds(peer):
    for _ in range(200):
        time.sleep(0.05)
        peer.ask("add", 1)


@pytest.mark.slow
def test_a_peer_that_dies_while_it_is_asked(make):
    runtime = make()
    asked = runtime.spawn(Worker, 0, restarts=1, concurrency=2)
    visitor = runtime.spawn(Visitor, runtime.peer(asked))
    process = runtime.get(runtime.call(asked, "process"))
    late, refused = runtime.get(runtime.call(visitor, "impatient"))
    assert late == "no answer within 0.2 seconds."
    assert refused.startswith("an argument of 'add' of part 'Worker' cannot be sent")
    mourning = runtime.call(visitor, "mourn")
    assert runtime.wait([mourning], timeout=0.5) == ([], [mourning])
    os.kill(process, signal.SIGKILL)
    words, cause = runtime.get(mourning, timeout=60)
    assert words.startswith("part 'Worker', which was asked for something, died before it had answered")
    assert re.search("ActorDiedError|connection error code|unavailable|was closed", cause)
    assert runtime.incarnation(asked) == 0  # the driver learns of it, and makes it again, when it calls it
    with pytest.raises(PartDied, match="0 of 1 restarts are left"):
        runtime.get(runtime.call(asked, "process"))
    assert runtime.peer(asked).ask("add", 3) == 3
    closed = runtime.peer(asked)
    runtime.close()
    with pytest.raises(PartDied):
        ask_for_ten_seconds(closed)  # Ray kills in its own time: until then it answers


def test_unpicklable_arguments_are_rejected(runtime):
    part = runtime.spawn(Worker, 0)
    for thing in (threading.Lock(), Unsent()):
        with pytest.raises(RunError, match="part 'Worker' cannot be sent to another process"):
            runtime.spawn(Worker, thing)
        with pytest.raises(RunError, match="an argument of 'add' of part 'Worker' cannot be sent"):
            runtime.call(part, "add", thing)
        with pytest.raises(RunError, match="the value cannot be sent"):
            runtime.put(thing)
    runtime.stop(other := runtime.spawn(Worker, 0))
    with pytest.raises(RunError, match="cannot come any more was passed inside an argument"):
        runtime.call(part, "add", [runtime.call(other, "add", 1)])
    with pytest.raises(RunError, match="amounts of at least 0, unlike 'num_cpus': -1"):
        runtime.spawn(Worker, 0, resources={"num_cpus": -1})
    assert runtime.get(runtime.call(part, "add", 1)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("session", ["ray"], indirect=True)
def test_one_process_has_one_ray(make):
    with pytest.raises(RunError, match=r"connected to Ray at .*, not at 127\.0\.0\.1:1"):
        make(address="127.0.0.1:1")


@pytest.mark.slow
@pytest.mark.parametrize("session", ["ray"], indirect=True)
def test_a_part_that_nothing_can_hold(make):
    runtime = make(start_timeout=1)
    with pytest.raises(RunError, match=r"'Worker' has no place. It needs num_cpus 1, gold 1; the cluster has .*CPU"):
        runtime.spawn(Worker, 0, resources={"num_cpus": 1, "gold": 1})
    greedy = runtime.spawn(Worker, 0, resources={"num_cpus": 10**6}, restarts=3)
    ref = runtime.call(greedy, "add", 1)
    done, pending = runtime.wait([ref], timeout=0.01)
    assert (done, pending) == ([], [ref])
    for failed in (ref, runtime.call(greedy, "add", 2)):
        with pytest.raises(RunError, match=r"no process within 1 seconds. It needs num_cpus 1e\+06; the .* CPU"):
            runtime.get(failed)
    ref = runtime.call(runtime.spawn(Worker, 0, resources={"num_cpus": 10**6}), "add", 1)
    assert runtime.wait([ref]) == ([ref], [])


def test_a_part_whose_process_is_killed(runtime):
    part = runtime.spawn(Worker, 10, restarts=2)
    kept = runtime.call(part, "add", 1)
    process = runtime.get(runtime.call(part, "process"))
    running = runtime.call(part, "slow", 600)
    queued = runtime.call(part, "add", 1)
    runtime.wait([running], timeout=0.2)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(
        PartDied, match=r"part 'Worker' died before .*made again \(1 of 2 restarts are left\)"
    ) as caught:
        runtime.get(running, timeout=30)
    assert re.search("connection error code|killed by SIGKILL", str(caught.value.__cause__))
    with pytest.raises(PartDied, match="1 of 2 restarts"):
        runtime.get(queued, timeout=30)
    assert runtime.incarnation(part) == 1
    assert runtime.get(kept) == 11
    assert runtime.get(runtime.call(part, "add", 2), timeout=60) == 12
    with pytest.raises(PartDied, match="exit code 3"):
        runtime.get(runtime.call(part, "leave"))
    last = runtime.call(part, "add", 3)
    assert runtime.get(last, timeout=60) == 13
    os.kill(runtime.get(runtime.call(part, "process")), signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(PartDied, match="and its 2 restarts are used up"):
            runtime.get(runtime.call(part, "add", 1), timeout=30)
    assert runtime.get(last) == 13


@pytest.mark.slow
def test_all_parts_are_killed_and_one_needs_the_answer_of_another(runtime):
    parts = [runtime.spawn(Worker, k, restarts=1) for k in range(3)]
    processes = each(runtime, parts, "process")
    needed = runtime.call(parts[0], "slow", 600)
    apart = runtime.spawn(Worker, 0)
    dependent = runtime.call(apart, "add", needed)
    for process in processes:
        os.kill(process, signal.SIGKILL)
    with pytest.raises(PartDied, match="an argument came from a part that died"):
        runtime.get(dependent, timeout=30)
    assert runtime.get(runtime.call(apart, "add", 7)) == 7
    refs = [
        runtime.call(part, "add", 1) for part in parts
    ]  # may still go to the dead ones, whose ends nobody has been told
    done, _ = runtime.wait(refs, at_least=3, timeout=30)
    assert done == refs
    for ref in refs:
        with pytest.raises(PartDied):
            runtime.get(ref)
    assert [runtime.get(runtime.call(part, "add", 1), timeout=60) for part in parts] == [1, 2, 3]


@pytest.mark.slow
def test_a_frozen_part_is_given_up(runtime):
    asked = runtime.spawn(Worker, 0, restarts=1, concurrency=2)
    visitor = runtime.spawn(Visitor, runtime.peer(asked))
    process = runtime.get(runtime.call(asked, "process"))
    mourning = runtime.call(visitor, "mourn")
    assert runtime.wait([mourning], timeout=0.5) == ([], [mourning])
    os.kill(process, signal.SIGSTOP)
    runtime.restart(asked)
    assert runtime.get(mourning, timeout=60)[0].startswith("part 'Worker', which was asked for something, died")
    assert gone(process)
    assert runtime.get(runtime.call(asked, "add", 1)) == 1


@pytest.mark.slow
def test_stuck_parts_are_given_up_stopped_or_closed(session, make):
    runtime = make()
    parts = [runtime.spawn(Worker, 5, restarts=1) for _ in range(3)]
    processes = each(runtime, parts, "process")
    stuck = [runtime.call(part, "slow", 600) for part in parts]
    with pytest.raises(TimeoutError, match=r"no answer within 0\.2 seconds"):
        runtime.get(stuck[0], timeout=0.2)
    runtime.restart(parts[0])
    with pytest.raises(PartDied, match=r"was given up before it had answered; it is made again \(0 of 1 restarts"):
        runtime.get(stuck[0], timeout=30)
    assert runtime.get(runtime.call(parts[0], "add", 1), timeout=60) == 6
    runtime.stop(parts[1])
    with pytest.raises(RunError, match="this part was stopped") as caught:
        runtime.get(stuck[1], timeout=30)
    assert type(caught.value) is RunError
    assert [gone(process) for process in processes[:2]] == [True, True]
    processes[0] = runtime.get(runtime.call(parts[0], "process"))
    runtime.call(parts[0], "slow", 600)
    runtime.close()
    assert [gone(process) for process in processes] == [True, True, True]
    assert session.get(session.call(session.spawn(CounterActor, 1), "add", 1)) == 2
