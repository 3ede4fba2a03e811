"""What a process answers to one product of torch, exponentials of NumPy, and both of a compiled kernel. As a program: in each kind of
process that Ludus starts (`python noise_probe.py RUNTIME …`)."""

import json
import math
import subprocess
import sys
from contextlib import closing

import numpy as np

from ludus.core.arrays import kernel
from ludus.runtime.child_process import ChildProcess, end_all
from ludus.runtime.inprocess import build_runtime
from ludus.testing.runtime import CounterActor

_POINTS = np.linspace(0.1, 3.0, 8)


@kernel
def exponentials(points):
    out = np.empty(len(points))
    for k in range(len(points)):
        out[k] = math.exp(points[k])
    return out


@kernel
def product(points):
    out = np.empty((len(points), len(points)))
    column, row = points.reshape(len(points), 1), np.sqrt(points).reshape(1, len(points))
    np.dot(column, row, out)
    return out


def answers():
    """Bits, as hexadecimal digits."""
    import torch

    points = torch.from_numpy(_POINTS)
    products = torch.outer(points, points) @ torch.outer(points, points).sqrt()
    arrays = {
        "torch product": products.numpy(),
        "NumPy exp": np.exp(_POINTS),
        "kernel": exponentials(_POINTS),
        "product in a kernel": product(_POINTS),
    }
    return {name: array.tobytes().hex() for name, array in arrays.items()}


class Probe(CounterActor):
    """Both a part and what a child serves: environments, bots, experiments' runs and pictures have such children."""

    def __init__(self, begin=0):
        super().__init__(begin)

    def answers(self):
        return answers()

    def close(self):
        pass


def everywhere(runtimes):
    """By kind of process."""
    yield "driver", answers()
    child = ChildProcess(Probe, "the probe is")
    child.send("answers")
    yield "child", child.receive()
    end_all([child])
    for kind in runtimes:
        with closing(build_runtime(kind)) as runtime:
            yield kind, runtime.get(runtime.call(runtime.spawn(Probe, 0), "answers"))
    line = "import ludus.cli.background_page, json, noise_probe; print(json.dumps(noise_probe.answers()))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    yield "command", json.loads(done.stdout)  # and the page's server, which is one


if __name__ == "__main__":
    import noise_probe  # children know its classes by that name

    print(json.dumps(dict(noise_probe.everywhere(sys.argv[1:]))))
