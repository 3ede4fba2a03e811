"""The contract of a runtime, as checks. Factories and parts are importable, so that other processes can make them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ludus.core.errors import DataError, PartDied, RunError
from ludus.core.parts import missing
from ludus.core.types import Array
from ludus.runtime.base import Peer, Runtime

MakeRuntime = Callable[[], Runtime]


class CounterActor:
    """Part with state: a counter that starts from `spec`."""

    def __init__(self, spec: int) -> None:
        self.total: float = spec

    def add(self, amount: float, times: int = 1) -> float:
        self.total += amount * times
        return self.total

    def fail(self, message: str) -> None:
        raise DataError(message)

    def double(self, array: Array) -> Array:
        return array * 2

    def fetched(self, fetch: Callable[[Any], Any], inside: list[Any]) -> float:
        """Return the total, after adding the values of references inside of an argument."""
        return self.add(sum(fetch(ref) for ref in inside))

    def keep(self, peers: list[Peer]) -> None:
        """Keep other parts, for `relay`."""
        self.peers = peers

    def relay(self, method: str, *args: Any) -> list[Any]:
        """Return the answers of the other parts, all asked concurrently."""
        replies = [peer.send(method, *args) for peer in self.peers]
        return [reply.result() for reply in replies]

    def ask(self, peer: Peer, method: str, *args: Any) -> Any:
        """Return another part's answer, or the name of what it raises."""
        try:
            return peer.ask(method, *args)
        except (DataError, PartDied, AttributeError) as error:
            return f"{type(error).__name__}: {error}"

    def heartbeat(self) -> float:
        return self.total

    def slow(self, seconds: float) -> float:
        """Stand for a long computation."""
        time.sleep(seconds)
        return seconds


def broken(spec: str) -> CounterActor:
    """Raise: a factory that fails."""
    raise DataError(spec)


def check_runtime(make: MakeRuntime) -> None:
    """Check that runtimes keep the `Runtime` contract.

    - The part that `spawn` creates keeps its state between calls, which run in order.
    - `call` raises nothing that the part raises; `get` does, every time, with its type and message, and the part lives on. A factory that
      raises does so in `get` of the first call at the latest.
    - A value is passed as it is or as an equal copy; arrays that arrive must not be written to.
    - `wait` splits the references that it gets, in their order, and obeys `at_least` and `timeout`; `get` raises TimeoutError.
    - `restarts` allows for a part whose process dies; an exception of a method is no death and costs none.
    - A reference as an argument arrives as its value; if its call failed, so does this one. The order of a part's calls stands also when
      one waits for such a value.
    - A reference inside of an argument arrives as what `fetch`, called by the part, gives the value of.
    - `restart` creates a part again from `factory` and `spec`, spends one of `restarts` and reports it to `tell`; without one left, calls
      fail with PartDied. Values from before stay.
    - A part that gets a peer, in a spec or an argument, and at whatever depth, can ask that part, keep the peer, and ask several
      concurrently; errors arrive as in `get`. The driver can, too. A peer of an incarnation that was given up or stopped raises PartDied,
      and the part's new peer does not.
    - `node` names a node; a part that is to live on that node does. A part whose calls may run at the same time answers them all.
    - `stop` twice is harmless; `get` of a call to a stopped part raises RunError, and `call` of it does not raise.
    - A closed runtime refuses everything but `close` with RunError.

    Args:
        make: Returns a new runtime at each call.

    Raises:
        AssertionError: With a sentence that says what is wrong.
    """
    for check in (
        _check_calls,
        _check_errors,
        _check_values,
        _check_arguments,
        _check_heartbeat,
        _check_wait,
        _check_restart,
        _check_peers,
        _check_places,
        _check_stop,
        _check_close,
    ):
        runtime = make()
        assert isinstance(runtime, Runtime), missing(runtime, Runtime)
        try:
            check(runtime)
        finally:
            runtime.close()


def _check_calls(runtime: Runtime) -> None:
    a, b = runtime.spawn(CounterActor, 10), runtime.spawn(CounterActor, 20, resources={"num_cpus": 0.1}, restarts=1)
    refs = [runtime.call(a, "add", k) for k in (1, 2, 3)]
    other = runtime.call(b, "add", 5, 2)
    answers = [runtime.get(ref) for ref in refs]
    assert answers == [11, 13, 16], (
        f"three calls in order gave {answers}, expected [11, 13, 16]: state or order was lost"
    )
    assert runtime.get(other) == 30, "two parts of one factory share their state, or an argument was lost"
    assert runtime.get(refs[0]) == 11, "get of the same reference a second time gave another value"


def _check_errors(runtime: Runtime) -> None:
    part = runtime.spawn(CounterActor, 0, restarts=0)
    ref = runtime.call(part, "fail", "the reason")
    for _ in range(2):
        _expect(DataError, lambda: runtime.get(ref), "get of a failed call", message="the reason")
    assert runtime.get(runtime.call(part, "add", 4)) == 4, "a part was lost after one of its methods raised"
    _expect(AttributeError, lambda: runtime.get(runtime.call(part, "no_such_method")), "a call of an unknown method")

    def spawn_and_call() -> Any:
        return runtime.get(runtime.call(runtime.spawn(broken, "no such thing"), "add", 1))

    _expect(DataError, spawn_and_call, "a factory that raises", message="no such thing")


def _check_values(runtime: Runtime) -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    value = {"array": array, "name": "x", "nested": [1, 2.5, None]}
    back = runtime.get(runtime.put(value))
    assert back["name"] == "x", "put and get changed a string"
    assert back["nested"] == [1, 2.5, None], "put and get changed a list"
    assert back["array"].dtype == np.int16, "put and get changed a dtype"
    assert np.array_equal(back["array"], array), "put and get changed an array"
    part = runtime.spawn(CounterActor, 0)
    doubled = runtime.get(runtime.call(part, "double", array))
    assert np.array_equal(doubled, array * 2), "an array changed on its way to a part or back"
    assert array.max() == 5, "an argument of a call was written to"


def _check_arguments(runtime: Runtime) -> None:
    first, second = runtime.spawn(CounterActor, 0), runtime.spawn(CounterActor, 100)
    early = runtime.call(second, "add", runtime.call(first, "slow", 0.2))
    late = runtime.call(second, "add", 1, runtime.put(5))
    assert runtime.get(late) == 105.2, "a call went ahead of one that waits for its argument"
    assert runtime.get(early) == 100.2, "a reference did not arrive as the value it stands for"
    inside = [runtime.put(5), runtime.put(0.25)]
    added = runtime.get(runtime.call(second, "fetched", runtime.fetch, inside))
    assert added == 110.45, "a reference inside of an argument did not give its value to `fetch`"
    failed = runtime.call(first, "fail", "the first reason")
    _expect(
        DataError,
        lambda: runtime.get(runtime.call(second, "add", failed)),
        "a call whose argument failed",
        message="the first reason",
    )
    assert runtime.get(runtime.call(first, "add", 2)) == 2, "a part was lost with its failed answer"


def _check_restart(runtime: Runtime) -> None:
    messages: list[str] = []
    runtime.tell = messages.append
    part = runtime.spawn(CounterActor, 5, restarts=1, name="the fifth")
    before = runtime.call(part, "add", 1)
    assert runtime.get(before) == 6, "a part that may be restarted does not start from its spec"
    assert runtime.incarnation(part) == 0, "a new part's incarnation is not 0"
    runtime.restart(part, why="fell asleep")
    assert len(messages) == 1, f"one part was made again, and `tell` took {messages}"
    assert messages[0].startswith("the fifth fell asleep"), f"`tell` does not say which part and why: {messages[0]!r}"
    assert runtime.incarnation(part) == 1, "the incarnation of a part that was made again once is not 1"
    assert runtime.get(runtime.call(part, "add", 2)) == 7, "a part that was made again does not start from its spec"
    runtime.restart(part)
    _expect(PartDied, lambda: runtime.get(runtime.call(part, "add", 1)), "a call after the last restart")
    assert runtime.get(before) == 6, "an answer was lost when its part was restarted"
    single = runtime.spawn(CounterActor, 0)
    runtime.restart(single)
    _expect(
        PartDied, lambda: runtime.get(runtime.call(single, "add", 1)), "a call after a restart that was not allowed"
    )
    stopped = runtime.spawn(CounterActor, 1, restarts=1)
    runtime.stop(stopped)
    runtime.restart(stopped)
    _expect(RunError, lambda: runtime.get(runtime.call(stopped, "add", 1)), "restart of a stopped part: a call to it")


def asker(spec: list[Peer]) -> CounterActor:
    """Return a part that is created with peers."""
    counter = CounterActor(0)
    counter.keep(spec)
    return counter


def _check_peers(runtime: Runtime) -> None:
    parts = [runtime.spawn(CounterActor, k, restarts=1, concurrency=k) for k in (1, 2)]
    peers = [runtime.peer(part) for part in parts]
    middle = runtime.spawn(asker, peers)
    relayed = runtime.get(runtime.call(middle, "relay", "add", 10))
    assert relayed == [11, 12], f"two peers that a part was made with answered {relayed}, expected [11, 12]"
    assert runtime.get(runtime.call(parts[0], "add", 0)) == 11, "a peer asks another part than the one it was made from"
    doubled = runtime.get(runtime.call(middle, "ask", peers[0], "double", np.arange(3)))
    assert doubled.tolist() == [0, 2, 4], "an array changed on its way to a peer or back"
    outcome = runtime.get(runtime.call(middle, "ask", peers[1], "fail", "the reason"))
    assert outcome == "DataError: the reason", f"what a peer's part raised arrived as {outcome!r}"
    _expect(DataError, lambda: peers[1].ask("fail", "it"), "a peer asked by the driver", message="it")
    replies = [peers[0].send("add", 1), peers[0].send("add", runtime.put(2))]
    assert [reply.result(timeout=60) for reply in replies] == [12, 14], "what the driver sent to a peer was lost"
    runtime.restart(parts[0])
    runtime.stop(parts[1])
    for peer in peers:
        _expect(PartDied, partial(peer.ask, "add", 1), "a peer of a part that was given up or stopped")
        outcome = runtime.get(runtime.call(middle, "ask", peer, "add", 1))
        assert outcome.startswith("PartDied"), (
            f"within a part, a peer of one that was given up or stopped gave {outcome!r}"
        )
    fresh = runtime.get(runtime.call(middle, "ask", runtime.peer(parts[0]), "add", 1))
    assert fresh == 2, "the new peer of a part that was made again does not ask the new one"


def _check_places(runtime: Runtime) -> None:
    part = runtime.spawn(CounterActor, 0)
    node = runtime.node(part)
    assert isinstance(node, str), f"node gave {node!r}, expected a name"
    beside = runtime.spawn(CounterActor, 0, node=node)
    assert runtime.node(beside) == node, "a part does not live on the node that it should"
    runtime.stop(part)
    _expect(RunError, lambda: runtime.node(part), "node of a part that was stopped")
    _expect(
        RunError, lambda: runtime.spawn(CounterActor, 0, concurrency=0), "spawn of a part that may not answer any call"
    )
    several = runtime.spawn(CounterActor, 0, concurrency=3)
    refs = [runtime.call(several, "add", 1) for _ in range(7)]
    answers = sorted(runtime.get(ref) for ref in refs)
    assert answers[-1] == 7, f"seven calls that add 1 at the same time gave {answers}"


def _check_heartbeat(runtime: Runtime) -> None:
    part = runtime.spawn(CounterActor, 3, heartbeat=True)
    assert runtime.get(runtime.call(part, "add", 1)) == 4, "a part with a heartbeat answers calls"
    busy = runtime.call(part, "slow", 0.5)
    assert runtime.get(runtime.heartbeat(part)) == 4, "and says how it is, busy or not"
    assert runtime.get(busy) == 0.5
    without = runtime.spawn(CounterActor, 3)
    _expect(
        RunError,
        lambda: runtime.heartbeat(without),
        "the heartbeat of a part that was not spawned for it",
        "heartbeat=True",
    )
    for each in (part, without):
        runtime.stop(each)


def _check_wait(runtime: Runtime) -> None:
    parts = [runtime.spawn(CounterActor, 0) for _ in range(3)]
    refs = [runtime.call(part, "add", k) for k, part in enumerate(parts)]
    done, pending = runtime.wait(refs, at_least=3)
    assert done == refs, "wait for all did not give all of them as done, in the order given"
    assert not pending, "wait for all left some pending"
    begin = time.monotonic()
    slow = runtime.call(parts[0], "slow", 0.3)
    done, pending = runtime.wait([slow, refs[1]], at_least=1, timeout=60)
    assert refs[1] in done, "wait did not see that a finished call is done"
    assert sorted(map(id, done + pending)) == sorted(map(id, [slow, refs[1]])), "wait lost or invented a reference"
    runtime.wait([slow], at_least=1, timeout=0.01)
    assert time.monotonic() - begin < 30, "wait went far past its timeout"
    try:
        assert runtime.get(slow, timeout=0.001) == 0.3, "get gave another value than the call"
    except TimeoutError:
        assert runtime.get(slow, timeout=60) == 0.3, "after a TimeoutError get must still give the value"
    assert runtime.wait([], at_least=0) == ([], []), "waiting for nothing must give ([], [])"
    _expect(RunError, lambda: runtime.wait(refs, at_least=4, timeout=1), "wait for 4 of 3 references")
    _expect(RunError, lambda: runtime.wait([slow, slow]), "wait for one reference, given twice")
    failed = runtime.call(parts[1], "fail", "")
    assert runtime.wait([failed], timeout=60) == ([failed], []), "a failed call must count as done"


def _check_stop(runtime: Runtime) -> None:
    stopped, other = runtime.spawn(CounterActor, 1), runtime.spawn(CounterActor, 2)
    answered = runtime.call(stopped, "add", 1)
    runtime.get(answered)
    runtime.stop(stopped)
    runtime.stop(stopped)
    ref = runtime.call(stopped, "add", 1)
    _expect(RunError, lambda: runtime.get(ref, timeout=60), "get of a call to a stopped part")
    assert runtime.get(answered) == 2, "an answer was lost when its part was stopped"
    assert runtime.get(runtime.call(other, "add", 1)) == 3, "stopping one part stopped another"


def _check_close(runtime: Runtime) -> None:
    part = runtime.spawn(CounterActor, 0)
    ref = runtime.put(1)
    runtime.close()
    runtime.close()
    calls: dict[str, Callable[[], Any]] = {
        "spawn": lambda: runtime.spawn(CounterActor, 0),
        "call": lambda: runtime.call(part, "add", 1),
        "wait": lambda: runtime.wait([ref]),
        "put": lambda: runtime.put(1),
        "get": lambda: runtime.get(ref),
        "incarnation": lambda: runtime.incarnation(part),
        "restart": lambda: runtime.restart(part),
        "peer": lambda: runtime.peer(part),
        "node": lambda: runtime.node(part),
        "stop": lambda: runtime.stop(part),
    }
    for name, call in calls.items():
        _expect(RunError, call, f"{name} of a closed runtime")


def _expect(kind: type[Exception], call: Callable[[], Any], what: str, message: str = "") -> None:
    try:
        call()
    except Exception as error:
        if isinstance(error, kind) and message in str(error):
            return
        raise AssertionError(
            f"{what} raised {type(error).__name__} ({error}), expected {kind.__name__} with the message {message!r}"
        ) from error
    raise AssertionError(f"{what} did not raise {kind.__name__}")
