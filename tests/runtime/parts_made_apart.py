"""Parts that the tests of runtimes have made in other processes, which load this module: so it loads little."""

import asyncio
import ctypes
import faulthandler
import gc
import os
import pickle
import sys
import threading
import time
from pathlib import Path

import numpy as np
import threadpoolctl

from ludus.core.errors import PartDied, RunError, UnknownName
from ludus.runtime import process_peers
from ludus.testing.runtime import CounterActor


class Odd(Exception):
    """Holds what cannot be pickled."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


class Worker(CounterActor):
    """A part that tells about its process."""

    def process(self):
        return os.getpid()

    def surroundings(self):
        return os.environ["OMP_NUM_THREADS"], "torch" in sys.modules, "ludus.envs" in sys.modules

    def writeable(self, array):
        return array.flags.writeable

    def unknown(self):
        raise UnknownName("colour", "redd", ["red"])

    def odd(self):
        raise Odd("odd one")

    def leave(self):
        sys.exit(3)

    def crash(self):
        faulthandler._sigsegv()

    def threads(self):
        import torch

        return torch.get_num_threads(), [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]


class Meeting:
    """Whoever comes waits for the others."""

    def __init__(self, spec):
        self.barrier = threading.Barrier(spec)
        self.thread = threading.current_thread().name

    def meet(self):
        return self.barrier.wait(timeout=60)

    def made_in(self):
        return self.thread, threading.current_thread().name


class Visitor:
    """Asks from threads of its own."""

    def __init__(self, spec):
        self.peer = spec

    def visit(self, times):
        replies = [self.peer.send("meet") for _ in range(times)]
        return sorted(reply.result() for reply in replies)

    def impatient(self):
        """What is raised for an answer that takes too long, and for an argument that cannot be sent."""
        raised = []
        for ask in (
            lambda: self.peer.send("slow", 600).result(timeout=0.2),
            lambda: self.peer.ask("add", threading.Lock()),
        ):
            try:
                ask()
            except (TimeoutError, RunError) as error:
                raised.append(str(error))
        return raised

    def mourn(self):
        try:
            return self.peer.ask("slow", 600)
        except PartDied as error:
            return str(error), str(error.__cause__)


class Owner:
    """Writes to what it was made from."""

    def __init__(self, spec):
        self.numbers = spec

    def raised(self):
        self.numbers += 1
        return self.numbers


def not_importable(spec):
    from no_such_module import part

    return part


class Reader(CounterActor):
    """Keeps what it reads."""

    def read(self, array):
        self.kept = array
        return array.flags.writeable, mapped_file(array)

    def keep_ref(self, refs):
        self.refs = refs

    def use_ref(self):
        return self.refs[0].fetch()

    def let_go(self):
        self.kept = None
        gc.collect()


def mapped_file(array):
    """The file whose pages an array lies in."""
    at = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, device, inode, *name = line.split()
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= at < last:
            return device, inode, name
    return None


def fails():
    raise ValueError("a fault")


class Faulty(CounterActor):
    def break_wires(self):
        process_peers._here[0]._wires.soon(fails)
        time.sleep(600)


class Talking:
    def __init__(self, spec):
        pass

    def say(self, text):
        print(text, flush=True)

    def give_up(self):
        raise asyncio.CancelledError

    def exit(self, why):
        sys.exit(why)


class Unsent:
    """Cannot be pickled, as pickle says it of lambdas."""

    def __reduce__(self):
        raise pickle.PicklingError("not this one")


class Seeing:
    def __init__(self, spec):
        pass

    def cards(self):
        return os.environ["CUDA_VISIBLE_DEVICES"]


class Drawing:
    def __init__(self, spec):
        pass

    def draw(self):
        return np.random.random()  # noqa: NPY002  as environments of users do


class LateCounter(CounterActor):
    """Takes its time to be made: asleep, or asleep in compiled code that holds the interpreter's lock."""

    def __init__(self, spec):
        how, seconds = spec
        if how == "locked":
            ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        else:
            time.sleep(seconds)
        super().__init__(0)
