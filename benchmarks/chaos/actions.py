"""How harm is done: an action is a function that plays a case in its scene and enters its verdict."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from benchmarks.chaos import promises
from benchmarks.chaos.attempt import Attempt, Late, Skipped, copied
from benchmarks.chaos.damage import choose, damage
from benchmarks.chaos.page import Page
from benchmarks.chaos.parts import ARMED, ORDER
from benchmarks.chaos.scene import PLACE, Command, namespaces, own_places
from benchmarks.chaos.shapes import state_of
from benchmarks.faults_processes import is_alive

DEADLINE, STOP_WITHIN = 20.0, 10.0
"""`runtime.deadline` and `runtime.stop_within` of scenarios.yaml."""
_ENDING = {"TrainerHost", "TableShard", "gcs", "raylet"}
"""Parts whose death ends a run, and processes of Ray's own, as documented; the others are replaced."""


def settle(
    attempt: Attempt, command: Command, finished: bool, *, parts_harmed: bool = False, told: bool = True
) -> None:
    """Judge a harmed command that has ended: as it is if it finished its run, otherwise with what it said, and after it was resumed."""
    verdict = attempt.verdict
    if finished:
        verdict.outcome = "clear" if command.code else "survived"
        if command.code:  # the run is whole, and its report could not be written
            attempt.told(command)
        else:
            verdict.check("cause", promises.causes(command.errors(), 0, (0,), line=""))
    else:
        verdict.outcome = "clear"
        if told:
            attempt.told(command)
        attempt.shown()
        attempt.verdict.check("clean", attempt.scene.leftovers())
        if not attempt.goes_on():
            return
    attempt.compare(parts_harmed=parts_harmed)
    attempt.cleaned()


# --------------------------------------------------------------------------------------------------------------------
# Signals.


def signal_(attempt: Attempt) -> None:
    """Send a signal to the driver or to its whole group, as a terminal does, perhaps twice."""
    options = attempt.case.options
    command = attempt.train()
    attempt.reach(command)
    harmed = time.monotonic()
    _send(command, options["signal"], options["to"])
    if "again" in options:
        time.sleep(options["again"])
        _send(command, options["signal"], options["to"])
    finished = attempt.ends(command, harmed, extra=STOP_WITHIN if options["signal"] != "SIGKILL" else 0.0)
    if finished:
        raise Late("the run was complete")
    alone = attempt.case.phase == "start" and command.code == -signal.Signals[options["signal"]]
    settle(attempt, command, finished=False, told=not alone)  # an interpreter that starts has no handlers yet


def _send(command: Command, name: str, to: str) -> None:
    with suppress(ProcessLookupError):
        if to == "group":
            os.killpg(command.process.pid, signal.Signals[name])
        else:
            os.kill(command.process.pid, signal.Signals[name])


def freeze(attempt: Attempt) -> None:
    """Stop processes for some seconds."""
    options = attempt.case.options
    command = attempt.train()
    attempt.reach(command)
    if options["to"] == "child":
        processes = [_victim(attempt, command)[1]]
    elif options["to"] == "group":
        processes = attempt.scene.processes()
    else:
        processes = [command.process.pid]
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
    time.sleep(options["seconds"])
    harmed = time.monotonic()
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
    attempt.recovers(command, harmed, lambda: False)
    settle(attempt, command, attempt.ends(command, harmed))


def _victim(attempt: Attempt, command: Command) -> tuple[str, int]:
    """Choose a child: its role, and its id; wait until there is one. Raises Late if the run is over before."""
    children: list[tuple[str, int]] = []

    def there() -> bool:
        roles = attempt.scene.roles(command)
        children[:] = [(role, p) for role, many in sorted(roles.items()) for p in many if role not in _NO_CHILDREN]
        return bool(children)

    if attempt.scene.wait(command, attempt.patience, until=there):
        raise Late("there was no child")
    return children[int(attempt.case.choice * len(children))]


_NO_CHILDREN = {"tracker", "janitor", "sh", "sleep"}


def kill_child(attempt: Attempt) -> None:
    """Kill, crash or stop for ever one child, all of its kind, or every child."""
    options = attempt.case.options
    command = attempt.train()
    attempt.reach(command)
    role, process = _victim(attempt, command)
    roles = attempt.scene.roles(command)
    chosen = {"one": [process], "all": roles.get(role, [process]), "tree": [p for many in roles.values() for p in many]}
    before, name = len(roles.get(role, [])), options.get("signal", "SIGKILL")
    number, victims = signal.Signals[name], chosen[options["who"]]
    attempt.scene.log(f"{name} to {role}: {victims}")
    attempt.verdict.why = f"{name} {options['who']} {role}"
    harmed = time.monotonic()
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, number)
    stopped = name == "SIGSTOP"
    extra = DEADLINE if stopped else 0.0

    def lacking() -> bool:
        alive = [p for p in attempt.scene.roles(command).get(role, []) if not (stopped and p in victims)]
        return any(is_alive(victim) for victim in victims) or len(alive) < before

    attempt.recovers(command, harmed, lacking, extra=extra)
    finished = attempt.ends(command, harmed, extra=extra)
    kind = attempt.case.scenario.command
    ends = role in _ENDING or options["who"] == "tree" or kind in ("experiment", "sweep")
    ends = ends or (kind == "tournament" and stopped)  # there a bot that does not answer in time ends it
    if not finished and not ends:
        attempt.verdict.check(
            "time", [f"it ended, and should have gone on without the {role}: {command.errors()[-300:]!r}"]
        )
    settle(attempt, command, finished, parts_harmed=True)


def node(attempt: Attempt) -> None:
    """Kill a node of the cluster, or cut the network to it for some seconds."""
    cluster, how = attempt.cluster, attempt.case.options["how"]
    assert cluster is not None
    command = attempt.train()
    attempt.reach(command)
    harmed = time.monotonic()
    if how == "lose":
        cluster.lose()
    else:
        cluster.cut()
        attempt.scene.wait(command, how + attempt.patience, until=lambda: time.monotonic() - harmed > how)
        cluster.cut(mend=True)
    attempt.recovers(command, harmed, lambda: False, extra=_SILENT)
    finished = attempt.ends(command, harmed, extra=_SILENT + (0 if how == "lose" else how))
    attempt.scene.leftovers(within=_AWAY)
    settle(attempt, command, finished, parts_harmed=True)


_AWAY = 60.0
"""Seconds until a node that was taken for dead has heard of it, and ended what lives on it."""
_SILENT = 15.0
"""Seconds until Ray takes a silent node for dead, with the settings of the cluster."""


# --------------------------------------------------------------------------------------------------------------------
# What the machine is short of.


def limit(attempt: Attempt) -> None:
    """Give the command few descriptors, processes, bytes of memory or bytes in a file."""
    options = attempt.case.options
    kind, value = options["limit"], options["value"]
    number = value * (2**20 if kind in ("as", "data") else 1024 if kind == "fsize" else 1)
    wrap = ["prlimit", f"--{kind}={number}:{number}"]
    if shutil.which("prlimit") is None:
        raise Skipped("there is no prlimit")
    environment = {}
    if kind == "nproc":
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            raise Skipped("limits of processes need another user, and so root and setpriv")
        scene = attempt.scene
        for folder in (scene.folder.parent, scene.folder, scene.work, scene.temporary, scene.parts):
            folder.chmod(0o777)  # which is asked of the user, whatever the process may do
        wrap += [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            f"--inh-caps={_CAPS}",
            f"--ambient-caps={_CAPS}",
        ]
    if kind in ("as", "data"):
        environment["LUDUS_CHAOS_LIMITED"] = "1"  # nothing of ours in the process
    command = attempt.train(wrap=wrap, environment=environment)
    finished = attempt.ends(command, time.monotonic(), timed=False)
    settle(attempt, command, finished)


_CAPS = "+dac_override,+dac_read_search"
"""With which another user than root, whom limits of processes do not hold for, has access to the same files."""


def _need_mounts() -> None:
    if reason := namespaces():
        raise Skipped(f"no file system of its own: {reason}")


def small_disk(attempt: Attempt) -> None:
    """Give the run a disk that is full sooner or later; then there is room again."""
    _need_mounts()
    scene = attempt.scene
    scene.disk(attempt.case.options["kB"])
    command = attempt.train()
    finished = attempt.ends(command, time.monotonic(), timed=False)
    scene.mount("-o", "remount,size=64m", str(scene.work))
    settle(attempt, command, finished)


def read_only(attempt: Attempt) -> None:
    """Make the disk read-only from the start, or all files and folders immutable at the moment; then they can be written again."""
    scene = attempt.scene
    if attempt.case.options["from"] == "start":
        _need_mounts()
        scene.disk(65536)
        (scene.work / "scenario.yaml").write_text(attempt.case.scenario.text)
        scene.mount("-o", "remount,ro", str(scene.work))
        command = attempt.train(write=False)
        finished = attempt.ends(command, time.monotonic(), timed=False)
        scene.mount("-o", "remount,rw", str(scene.work))
        scene.enter("mount", "-o", "remount,rw", str(scene.work))
    else:
        if shutil.which("chattr") is None or os.geteuid() != 0:
            raise Skipped("immutable files need root and chattr")
        command = attempt.train()
        attempt.reach(command)
        scene.closers.append(lambda: _immutable(scene.work, "-i"))
        _immutable(scene.work, "+i")
        finished = attempt.ends(command, time.monotonic(), timed=False)
        _immutable(scene.work, "-i")
    settle(attempt, command, finished)


def _immutable(folder: Path, how: str) -> None:
    """Change all but what SQLite maps: the kernel ends who writes to a mapped page of an immutable file (SIGBUS)."""
    command = ["find", str(folder), "!", "-name", "*-shm", "-exec", "chattr", "-f", how, "{}", "+"]
    subprocess.run(command, check=False, capture_output=True)


def shared_memory(attempt: Attempt) -> None:
    """Leave little shared memory."""
    _need_mounts()
    if "/dev/shm" not in own_places():
        raise Skipped("the tree or its interpreter lies in shared memory")
    attempt.scene.shared_memory(max(4, attempt.case.options["kB"]))
    command = attempt.train()
    finished = attempt.ends(command, time.monotonic(), timed=False)
    attempt.scene.shared_memory(65536)
    settle(attempt, command, finished)


@cache
def _library() -> Path:
    """Compile the library that is loaded into commands. Raises Skipped without a compiler."""
    source = Path(__file__).with_name("preload.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Skipped("there is no C compiler")
    target = Path(tempfile.mkdtemp(prefix="lc-", dir=PLACE)) / "preload.so"
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", target, source, "-ldl"], check=True)
    return target


def preload(attempt: Attempt) -> None:
    """Have the clock jump, the disk be slow, or writing end at a quota."""
    environment = {"LD_PRELOAD": str(_library()), **attempt.case.options}
    command = attempt.train(environment=environment)
    finished = attempt.ends(command, time.monotonic(), timed=False, extra=60.0)
    if not finished and not attempt.case.harm.codes:
        attempt.verdict.check("time", [f"it did not finish: {command.errors()[-300:]!r}"])
    settle(attempt, command, finished)


# --------------------------------------------------------------------------------------------------------------------
# The user's parts.


def part(attempt: Attempt) -> None:
    """Have a part of the user's do what it must not, at one of its calls."""
    options, scene = attempt.case.options, attempt.scene
    name = attempt.case.scenario.parts[0]
    call = 1 + int(attempt.case.fraction * _CALLS[name])
    armed = scene.folder / "armed"
    armed.touch()
    environment = {ORDER: f"{name}:{options['what']}:{call}{':once' if options['once'] else ''}", ARMED: str(armed)}
    attempt.verdict.why = environment[ORDER]
    command = attempt.train(environment=environment)
    hangs = options["what"] == "hang"
    extra = DEADLINE if hangs else 0.0
    stopped = False
    if hangs:
        stopped = _stop_if_it_hangs(attempt, command)
    finished = attempt.ends(command, time.monotonic(), timed=False, extra=extra)
    fired = options["once"] and not armed.exists()
    armed.unlink(missing_ok=True)
    if finished and options["once"] and not fired:
        raise Late("the call did not come")
    said = not (command.code or 0) < 0 and options["what"] not in ("exit",)
    if options["what"] in ("nan", "huge", "shape") and finished:
        attempt.unequal = True  # what the answer led to may be learned from
    settle(attempt, command, finished, parts_harmed=True, told=said and not stopped)


_CALLS = {"env": 60, "solver": 2, "bot": 60, "stopper": 6, "callback": 6}
"""In which call of a part a fault comes at most."""


def _stop_if_it_hangs(attempt: Attempt, command: Command) -> bool:
    """Ask a run to stop that does nothing for longer than every deadline; return whether it had to be."""
    end = time.monotonic() + attempt.patience + DEADLINE
    since = time.monotonic()

    def stuck() -> bool:
        nonlocal since
        before = attempt.watch.changes
        if attempt.watch.look() != before:
            since = time.monotonic()
        return time.monotonic() - since > (DEADLINE + 8.0) * attempt.slow or time.monotonic() > end

    if attempt.scene.wait(command, 10 * attempt.patience, until=stuck):
        return False
    attempt.scene.log("it is asked to stop")
    _send(command, "SIGTERM", "driver")
    return True


# --------------------------------------------------------------------------------------------------------------------
# Other commands, and people with files.


def second(attempt: Attempt) -> None:
    """Start another command on the run while it goes on: those that would write it are refused, the others answer."""
    command, name = attempt.train(), attempt.case.options["command"]
    attempt.reach(command)
    lines: Mapping[str, tuple[str, ...]] = {
        "resume": ("resume", "run"),
        "train": ("train", "scenario.yaml", "--run-dir", "run"),
        "report": ("report", "run", "--out", str(attempt.scene.temporary / "r.html")),
        "evaluate": ("evaluate", "run", "--episodes", "20"),
        "exploit": ("evaluate", "run", "--exploit", "40"),
        "copy": ("copy", "run", "./copy"),
        "runs": ("runs",),
    }
    begun_before = promises.has_begun(attempt.scene.run_dir)
    other = attempt.scene.run(*lines.get(name, (name, "run")), within=attempt.patience)
    if command.code is not None and name in ("resume", "train"):
        raise Late("the run was over")
    refused = name in ("resume", "train") or not begun_before
    codes = (
        ((2,) if name in ("resume", "train") else (0, 2))
        if refused
        else (0, 2)
        if name in ("evaluate", "exploit")
        else (0,)
    )
    code = other.code if other.code is not None else -9
    attempt.verdict.check("cause", promises.causes(other.errors(), code, codes, line="error: " if code else ""))
    (attempt.scene.temporary / "r.html").unlink(missing_ok=True)
    finished = attempt.ends(command, time.monotonic(), timed=False)
    if not finished:
        attempt.verdict.check("recorded", [f"the other command ended it: {command.errors()[-300:]!r}"])
    settle(attempt, command, finished)
    _check_copy(attempt, whole=True)


def _check_copy(attempt: Attempt, *, whole: bool) -> None:
    """Resume a copy of the run, if there is one, and compare it. whole: it must be; otherwise it may be refused."""
    copy = attempt.scene.work / "copy"
    if not copy.exists():
        return
    begun_there = promises.has_begun(copy)
    command = attempt.scene.run("resume", "./copy", within=attempt.patience)
    if command.code == 0:
        attempt.compare(copy)
    elif "would stop at once" not in command.errors() or state_of(copy) != "finished":
        code = command.code if command.code is not None else -9
        attempt.verdict.check("cause", promises.causes(command.errors(), code, (2,)))
        if whole and begun_there:
            attempt.verdict.check("recorded", [f"the copy cannot be resumed: {command.errors()[-300:]!r}"])


def orders(attempt: Attempt) -> None:
    """Pause, slow down, checkpoint or stop a run from another terminal."""
    command, order = attempt.train(), attempt.case.options["order"]
    attempt.reach(command)
    if not promises.has_begun(attempt.scene.run_dir):
        raise Late("the run had not begun")
    lines: Mapping[str, list[tuple[str, ...]]] = {
        "pause": [("pause", "run"), ("unpause", "run")],
        "throttle": [("throttle", "run", "30%"), ("throttle", "run", "1")],
        "checkpoint": [("checkpoint", "run")],
        "stop": [("stop", "run")],
    }
    for line in lines[order]:
        other = attempt.scene.run(*line, "--wait", "60", within=attempt.patience + 60)
        code = other.code if other.code is not None else -9
        over = command.code is not None or attempt.finished
        attempt.verdict.check(
            "cause", promises.causes(other.errors(), code, (0, 2) if over else (0,), line="error: " if code else "")
        )
    finished = attempt.ends(command, time.monotonic(), timed=False)
    settle(attempt, command, finished)


def move(attempt: Attempt) -> None:
    """Move the run's directory away while it goes on, and back; or delete it."""
    command, run_dir = attempt.train(), attempt.scene.run_dir
    attempt.reach(command)
    if not promises.has_begun(run_dir):
        raise Late("the run had not begun")
    moved = run_dir.with_name("moved")
    run_dir.rename(moved)
    if attempt.case.options["how"] == "delete":
        shutil.rmtree(moved)
    harmed = time.monotonic()
    attempt.scene.wait(command, attempt.patience)
    if command.code == 0 and moved.exists() and state_of(moved) == "finished":
        raise Late("the run was over")
    attempt.verdict.end = command.seconds - (harmed - command.begun)
    attempt.verdict.outcome = "clear"
    attempt.told(command)
    attempt.verdict.check("clean", attempt.scene.leftovers())
    if run_dir.exists():
        left = sorted(str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if path.is_file())
        attempt.scene.log(f"it has made anew: {left}")
        shutil.rmtree(run_dir)
    if not moved.exists():
        return
    moved.rename(run_dir)
    if attempt.goes_on():
        attempt.compare()
        attempt.cleaned()


def delete(attempt: Attempt) -> None:
    """Delete one file of the run while it goes on. It need not survive that, but must say what is gone, or be whole."""
    command, kind = attempt.train(), attempt.case.options["kind"]
    attempt.reach(command)
    path = choose(attempt.scene.run_dir, kind, attempt.rng)
    if path is None:
        raise Late(f"there was no {kind}")
    with suppress(FileNotFoundError):
        attempt.scene.log(damage(path, "delete", attempt.rng))
    attempt.verdict.why = f"deleted {path.relative_to(attempt.scene.run_dir)}"
    finished = attempt.ends(command, time.monotonic(), timed=False)
    attempt.verdict.outcome = "survived" if finished else "clear"
    if finished and path.exists():
        attempt.compare()
    elif not finished:
        attempt.told(command)
    _verified(attempt, "run")
    attempt.cleaned()


def copy(attempt: Attempt) -> None:
    """Copy the run while it goes on, by hand or by command; the copy is resumed or refused, and the run goes on."""
    command, how = attempt.train(), attempt.case.options["how"]
    attempt.reach(command)
    target = attempt.scene.work / "copy"
    begun_before = promises.has_begun(attempt.scene.run_dir)
    if how == "hand":
        try:
            copied(attempt.scene.run_dir, target)
        except (OSError, shutil.Error) as error:
            attempt.scene.log(f"copied but for {error}")
    else:
        other = attempt.scene.run("copy", "run", "./copy", within=attempt.patience)
        code = other.code if other.code is not None else -9
        codes = (0,) if begun_before else (0, 2)
        attempt.verdict.check("cause", promises.causes(other.errors(), code, codes, line="error: " if code else ""))
    finished = attempt.ends(command, time.monotonic(), timed=False)
    settle(attempt, command, finished)
    _check_copy(attempt, whole=how == "ludus")


# --------------------------------------------------------------------------------------------------------------------
# Damage of files.


def damage_(attempt: Attempt) -> None:
    """Damage a file of a run that was killed (resume) or is finished (the others), and give a command: it answers as if nothing had
    happened, or refuses the run."""
    options, scene = attempt.case.options, attempt.scene
    if options["command"] == "resume":
        command = attempt.train()
        attempt.reach(command)
        _send(command, "SIGKILL", "driver")
        scene.wait(command, attempt.patience)
        if attempt.finished or not promises.has_begun(scene.run_dir):
            raise Late("the run was over, or had not begun")
        scene.leftovers()
    else:
        shutil.copytree(attempt.reference.folder / "run", scene.run_dir)
    path = choose(scene.run_dir, options["file"], attempt.rng)
    if path is None:
        raise Late(f"there is no {options['file']}")
    attempt.verdict.why = damage(path, options["how"], attempt.rng)
    scene.log(attempt.verdict.why)
    lines: Mapping[str, tuple[str, ...]] = {
        "report": ("report", "run"),
        "evaluate": ("evaluate", "run", "--episodes", "20"),
        "copy": ("copy", "run", "./copy"),
        "runs": ("runs",),
    }
    noticed = _verified(attempt, "run")
    name = options["command"]
    if name == "page":
        if attempt.cluster is not None:
            raise Skipped("the page would be in the cluster's network")
        attempt.page = Page(scene)
        time.sleep(_LOOKS)
        attempt.verdict.outcome = "survived"
        attempt.cleaned()
        return
    command = scene.run(*lines.get(name, (name, "run")), within=attempt.patience)
    code = command.code if command.code is not None else -9
    line = "error: " if code and name != "verify" else ""
    attempt.verdict.check("cause", promises.causes(command.errors(), code, (0, 2, 6), line=line))
    attempt.verdict.outcome = "survived" if code == 0 else "clear"
    if name == "resume" and code == 0:
        attempt.compare()
    elif name in ("report", "evaluate", "status") and code == 0 and not noticed:
        _answers_alike(attempt, lines.get(name, (name, "run")), command)
    attempt.cleaned()


_LOOKS = 2.0
"""Seconds for which viewers look at a damaged run."""


def _answers_alike(attempt: Attempt, line: tuple[str, ...], command: Command) -> None:
    """Check that a command answers as it does of the undamaged run, where no damage was noticed."""
    scene = attempt.scene
    shutil.rmtree(scene.run_dir)
    shutil.copytree(attempt.reference.folder / "run", scene.run_dir)
    other = scene.run(*line, within=attempt.patience)
    if other.output() != command.output():
        attempt.verdict.check("equal", ["no damage is noticed, and the answer is another one"])


def _verified(attempt: Attempt, run: str) -> bool:
    """Run `ludus verify`, and return whether it notices a damage."""
    command = attempt.scene.run("verify", run, within=attempt.patience)
    code = command.code if command.code is not None else -9
    line = "error: " if code and not command.output() else ""
    attempt.verdict.check("cause", promises.causes(command.errors(), code, (0, 2, 6), line=line))
    return code == 2


ACTIONS: Mapping[str, Callable[[Attempt], None]] = {
    "signal": signal_,
    "freeze": freeze,
    "kill_child": kill_child,
    "node": node,
    "limit": limit,
    "small_disk": small_disk,
    "read_only": read_only,
    "shared_memory": shared_memory,
    "preload": preload,
    "part": part,
    "second": second,
    "orders": orders,
    "move": move,
    "delete": delete,
    "copy": copy,
    "damage": damage_,
}
"""By the names of harms.yaml."""
