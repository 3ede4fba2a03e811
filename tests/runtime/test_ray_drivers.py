"""However a driver ends, its local Ray leaves no process and no file behind. Where Ray itself dies: among the kills of tests/faults."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludus.contrib.ray.ray_janitor import session_processes
from ludus.contrib.ray.ray_runtime import RayRuntime

pytestmark = pytest.mark.slow


@pytest.fixture
def start():
    drivers = []

    def start(end):
        driver = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ray_driver.py")), end],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        drivers.append(driver)
        return driver, driver.stdout.readline().strip()

    yield start
    for driver in drivers:
        driver.kill()
        driver.communicate()


def descendants(process):
    """Ids of the processes that a process started, and of theirs."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [process]
    for ancestor in found:
        found += [child for child, parent in parents.items() if parent == ancestor]
    return found[1:]


def nothing_is_left(folder, processes=(), seconds=30):
    end = time.monotonic() + seconds
    left = [Path(folder), *(Path("/proc", str(process)) for process in processes)]
    while time.monotonic() < end and (any(path.exists() for path in left) or session_processes(folder)):
        time.sleep(0.1)  # the folder may be gone while processes that were killed are still dying
    assert [path for path in left if path.exists()] == []
    assert session_processes(folder) == []


@pytest.mark.parametrize(
    ("end", "sent", "code"),
    [
        ("wait", signal.SIGKILL, -signal.SIGKILL),
        ("wait", signal.SIGINT, 1),
        pytest.param("exit", None, 5, marks=pytest.mark.long),
        pytest.param("abort", None, -signal.SIGABRT, marks=pytest.mark.long),
    ],
)
def test_driver_that_ends_with_busy_parts_leaves_nothing(start, end, sent, code):
    driver, folder = start(end)
    assert driver.stdout.readline() == "busy\n"
    processes = descendants(driver.pid)
    assert len(processes) > 5
    if sent is None:
        driver.stdin.write("go on\n")
        driver.stdin.flush()
    else:
        os.killpg(driver.pid, sent)  # as a terminal does
    output, errors = driver.communicate(timeout=60)
    assert driver.returncode == code, errors
    assert output == ""
    nothing_is_left(folder, processes)


@pytest.mark.parametrize("process", ["raylet", "gcs_server"])
def test_a_driver_that_computes_ends_with_one_line_when_ray_has_died(process, start):
    driver, folder = start(process)
    out, text = driver.communicate(input="\n", timeout=120)
    assert driver.returncode == 7, (out, text)
    assert text.splitlines()[-1].startswith(f"error: the Ray of this run has died: its process {process} is gone.")
    nothing_is_left(folder)


@pytest.mark.parametrize("seconds", [pytest.param(0.3, marks=pytest.mark.long), 1.5])
def test_ctrl_c_while_ray_starts_ends_the_driver_and_leaves_nothing(start, seconds):
    driver, folder = start("wait")
    time.sleep(seconds)
    os.killpg(driver.pid, signal.SIGINT)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == -signal.SIGINT, errors
    nothing_is_left(folder)


@pytest.mark.parametrize(
    "error", [None, RuntimeError("a process of Ray's ended")], ids=["lost", "became_another_error"]
)
def test_a_ctrl_c_that_is_lost_while_ray_starts(error, monkeypatch):
    """Python raises nothing in finalizers and callbacks of C code, and prints `Exception ignored in`. Ray's processes hear it, too."""

    def starting(**_options):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if error is not None:
            raise error

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr("ray.init", starting)
    try:
        with pytest.raises(KeyboardInterrupt):
            RayRuntime()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
