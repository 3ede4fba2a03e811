"""The in-process runtime, and that the contract check notices runtimes that break it."""

import numpy as np
import pytest

from ludus.errors import DataError, RunError, UnknownName
from ludus.runtime.inprocess import InProcess, build_runtime
from ludus.testing.runtime import Tally, check_runtime


def test_contract():
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
    part, ref = other.spawn(Tally, 0), other.put(1)
    for use in (
        lambda: mine.call(part, "add", 1),
        lambda: mine.get(ref),
        lambda: mine.wait([ref]),
        lambda: mine.stop(part),
        lambda: mine.get("text"),
        lambda: mine.get(mine.spawn(Tally, 0)),
    ):
        with pytest.raises(RunError, match="of this runtime; pass what its own spawn, call or put gave"):
            use()


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


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (RaisesAtCall, "the reason"),
        (LosesOrder, "in the order given"),
        (Forgets, "state or order was lost"),
        (NeverCloses, "of a closed runtime did not raise RunError"),
        (WrapsErrors, "raised RuntimeError .*expected DataError"),
    ],
)
def test_the_check_notices(broken, words):
    with pytest.raises((AssertionError, DataError), match=words):
        check_runtime(broken)
