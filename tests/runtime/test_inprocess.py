"""The in-process runtime, and that the contract check notices runtimes that break it."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from ludus.core.errors import DataError, PartDied, RunError, UnknownName
from ludus.runtime.inprocess import Answer, InProcess, build_runtime
from ludus.testing.runtime import CounterActor, check_runtime


@pytest.fixture(autouse=True)
def parts_that_do_not_sleep(monkeypatch):
    """A call is done when it returns: nobody could do anything in the meantime."""
    without = SimpleNamespace(sleep=lambda seconds: None, monotonic=time.monotonic)
    monkeypatch.setattr("ludus.testing.runtime.time", without)


def test_inprocess_runtime_satisfies_runtime_contract():
    check_runtime(InProcess)


def test_registry():
    assert isinstance(build_runtime("inprocess"), InProcess)
    assert isinstance(build_runtime("ludus.runtime.inprocess:InProcess"), InProcess)
    with pytest.raises(UnknownName, match="unknown runtime 'inproces'; did you mean 'inprocess'"):
        build_runtime("inproces")


def test_calls_run_at_once_and_values_are_not_copied():
    runtime = InProcess()
    array = np.arange(3)
    assert runtime.get(runtime.put(array)) is array
    log: list[str] = []

    class Part:
        def note(self, text):
            log.append(text)
            return log

    ref = runtime.call(runtime.spawn(lambda spec: Part(), None), "note", "first")
    assert log == ["first"]
    assert runtime.get(ref) is log


def test_exceptions_are_the_original_ones():
    runtime, error = InProcess(), DataError("mine")

    class Part:
        def fail(self):
            raise error

    ref = runtime.call(runtime.spawn(lambda spec: Part(), None), "fail")
    with pytest.raises(DataError) as caught:
        runtime.get(ref)
    assert caught.value is error


def test_interrupts_are_not_answers():
    class Part:
        def interrupted(self):
            raise KeyboardInterrupt

    runtime = InProcess()
    part = runtime.spawn(lambda spec: Part(), None)
    with pytest.raises(KeyboardInterrupt):
        runtime.call(part, "interrupted")


def test_things_of_another_runtime_are_refused():
    mine, other = InProcess(), InProcess()
    part, ref = other.spawn(CounterActor, 0), other.put(1)
    for use in (
        lambda: mine.call(part, "add", 1),
        lambda: mine.get(ref),
        lambda: mine.wait([ref]),
        lambda: mine.stop(part),
        lambda: mine.get("text"),
        lambda: mine.get(mine.spawn(CounterActor, 0)),
    ):
        with pytest.raises(RunError, match="of this runtime; pass what its own spawn, call or put gave"):
            use()
    with pytest.raises(RunError, match="is not an answer of this runtime"):
        mine.call(mine.spawn(CounterActor, 0), "add", ref)


def test_a_part_that_is_made_again():
    runtime = InProcess()
    made: list[str] = []
    part = runtime.spawn(lambda spec: made.append(spec) or CounterActor(1), "order", restarts=1)
    runtime.restart(part)
    assert made == ["order", "order"]
    runtime.restart(part)
    assert runtime.incarnation(part) == 1
    words = r"part '.*<lambda>' was given up before it had answered, and its 1 restarts are used up. Give it more"
    with pytest.raises(PartDied, match=words):
        runtime.get(runtime.call(part, "add", 1))


def test_peer_messages_run_immediately():
    runtime = InProcess()
    part = runtime.spawn(CounterActor, 1, concurrency=4, node="anywhere")
    peer = runtime.peer(part)
    replies = [peer.send("add", 1), peer.send("fail", "it")]
    assert runtime.get(runtime.call(part, "add", 0)) == 2
    assert replies[0].result() == 2
    with pytest.raises(DataError, match="it"):
        replies[1].result(timeout=1)
    runtime.restart(part)
    with pytest.raises(
        PartDied, match="part 'CounterActor' was given up or stopped; whoever holds it needs its new peer"
    ):
        peer.ask("add", 1)
    assert runtime.node(runtime.spawn(CounterActor, 0)) == ""


class RaisesAtCall(InProcess):
    def call(self, handle, method, *args):
        ref = super().call(handle, method, *args)
        self.get(ref)
        return ref


class LosesOrder(InProcess):
    def wait(self, refs, *, at_least=1, timeout=None):
        done, pending = super().wait(refs, at_least=at_least, timeout=timeout)
        return done[::-1], pending


class Forgets(InProcess):
    def call(self, handle, method, *args):
        handle.value.total = 0
        return super().call(handle, method, *args)


class NeverCloses(InProcess):
    def close(self):
        pass


class WrapsErrors(InProcess):
    def get(self, ref, *, timeout=None):
        try:
            return super().get(ref, timeout=timeout)
        except DataError as error:
            raise RuntimeError(str(error)) from error


class PassesReferences(InProcess):
    def call(self, handle, method, *args):
        return super().call(handle, method, *(self.put(arg) if isinstance(arg, Answer) else arg for arg in args))


class RestartsForEver(InProcess):
    def restart(self, handle, **why):
        handle.restarts += 1
        super().restart(handle, **why)


class KeepsState(InProcess):
    def restart(self, handle, **why):
        kept = handle.value
        super().restart(handle, **why)
        if not handle.ended:
            handle.value = kept


class PeersOutliveTheirPart(InProcess):
    def peer(self, handle):
        peer = super().peer(handle)

        class Careless(type(peer)):
            def send(self, method, *args):
                return handle.answer(method, args)

        return Careless(handle)


class PeersSwallowErrors(InProcess):
    def peer(self, handle):
        peer = super().peer(handle)
        peer_type = type(peer)

        class Quiet(peer_type):
            def ask(self, method, *args):
                answer = self.send(method, *args)
                return answer.value

        return Quiet(handle)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (RaisesAtCall, "the reason"),
        (LosesOrder, "in the order given"),
        (Forgets, "state or order was lost"),
        (NeverCloses, "of a closed runtime did not raise RunError"),
        (PassesReferences, "unsupported operand"),
        (RestartsForEver, "a call after the last restart did not raise PartDied"),
        (KeepsState, "made again does not start from its spec"),
        (PeersOutliveTheirPart, "a peer of a part that was given up or stopped did not raise PartDied"),
        (PeersSwallowErrors, "what a peer's part raised arrived as None"),
        (WrapsErrors, "raised RuntimeError .*expected DataError"),
    ],
)
def test_the_check_notices(broken, words):
    with pytest.raises((AssertionError, DataError, TypeError), match=words):
        check_runtime(broken)
