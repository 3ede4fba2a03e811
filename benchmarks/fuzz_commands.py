"""Commands on mutated inputs: `main(argv)` in a child of this process, and as a process of its own."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from benchmarks.fuzz_judge import Verdict, watched
from benchmarks.fuzz_kinds import Kind, fill
from ludus.core.errors import LudusError

PATIENCE, LONGER = 60.0, 30.0
"""Seconds until a command is asked to stop, and until it is killed then."""
MEMORY = 3 << 30
"""Bytes of address space that a command may take beside what its process has."""
LONG = (
    "train",
    "sweep",
    "resume",
    "play",
    "ui",
    "evaluate",
    "tournament",
    "clone",
    "check-env",
    "doctor",
    "record",
    "help",
)
"""Commands that may rightly take long."""
_NOT_RUN = re.compile(
    r"(^|=)[/~]|\.\.|\bray\b|^(ui|play)$|--(ui|open|host|password|workers|parallel|runtime|device)\b|0\.0\.0\.0|workers="
)
"""What a command line is not run with: paths outside of the box, servers, many processes."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def line_of(kind: Kind, data: bytes, rng: Random) -> list[str] | None:
    """Return the words of a command that reads the input; None for one that is not run."""
    if kind.name != "command":
        return (
            shlex.split(rng.choice(kind.commands)) if "(" not in kind.commands[0] else rng.choice(kind.commands).split()
        )
    words: list[str] = json.loads(data)
    unfit = any(_NOT_RUN.search(word) or "\0" in word or len(word) > 60_000 for word in words)
    return None if unfit else words


def run_forked(kind: Kind, data: bytes, words: Sequence[str], box: Path) -> Verdict:
    """Return what a command does with an input in a fresh box."""
    prepared = _place(kind, data, box)
    if prepared is not None:
        return prepared
    out, err, notes = box.parent / "out", box.parent / "err", box.parent / "notes"
    child = os.fork()
    if not child:
        _in_child(words, box, out, err, notes)
    status = _waited(child)
    if status is None:
        return (
            Verdict("hang", " ".join(words)) if words[:1] and words[0] not in LONG else Verdict("answer", "it goes on")
        )
    outside = notes.read_text(encoding="utf-8", errors="replace") if notes.exists() else ""
    return verdict(words, status, out.read_bytes(), err.read_bytes(), outside)


def _place(kind: Kind, data: bytes, box: Path) -> Verdict | None:
    fill(box)
    try:
        kind.place(data, box)
    except (OSError, ValueError):
        return Verdict("answer", "no file can hold it")
    return None


def _in_child(words: Sequence[str], box: Path, out: Path, err: Path, notes: Path) -> None:
    code = 70
    try:
        os.setsid()
        os.chdir(box)
        os.environ["HOME"] = str(box)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr, sys.stdin = (
            os.fdopen(1, "w", encoding="utf-8", errors="replace"), os.fdopen(2, "w", encoding="utf-8", errors="replace"),
            os.fdopen(0, encoding="utf-8"),
        )  # fmt: skip
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        notes.unlink(missing_ok=True)
        from ludus.cli.main import main

        with watched(box, stranger=False) as outside:
            code = main(list(words))
        written = [note for note in outside if note.startswith(("write", "os.re", "os.mk", "os.rm", "shutil"))]
        if written:
            notes.write_text(written[0], encoding="utf-8", errors="replace")
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  what leaves `main` is a fault
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
        code = 71
    finally:
        os._exit(code)


def _waited(child: int) -> int | None:
    """Return the status of a child; None if it was stopped for taking too long."""
    begin, asked = time.monotonic(), False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
            return None if asked else status
        passed = time.monotonic() - begin
        if passed > PATIENCE and not asked:
            asked = True
            os.kill(child, signal.SIGTERM)
        if passed > PATIENCE + LONGER:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)
        time.sleep(0.005 if passed < 1 else 0.05)


def verdict(words: Sequence[str], status: int, out: bytes, err: bytes, outside: str = "") -> Verdict:
    """Return the verdict on a command that has ended: status as of `os.waitpid`."""
    line, text = shlex.join(words)[:200], err.decode("utf-8", "replace")
    if os.WIFSIGNALED(status):
        return Verdict("died", f"{signal.Signals(os.WTERMSIG(status)).name}: {line}")
    code = os.WEXITSTATUS(status)
    last = next((each for each in reversed(text.splitlines()) if each.strip()), "")
    if "Traceback (most recent call last)" in text or "(a fault of Ludus" in text or code in (70, 71):
        return Verdict("traceback", f"{last[:300]} of {line}")
    if outside:
        return Verdict("outside", f"{outside[:200]} of {line}")
    for stream in (out.decode("utf-8", "replace"), text):
        if found := _CONTROL.search(stream):
            place = stream[max(0, found.start() - 60) : found.end() + 20]
            return Verdict("message", f"control characters {place!r} of {line}")
    errors = [each for each in text.splitlines() if each.startswith("error: ")]
    if code == 2 and len(errors) != 1 and words[0] != "verify":  # which lists damages
        return Verdict("message", f"{len(errors)} lines of error of {line}: {text[-200:]!r}")
    if code == 5:
        return Verdict("memory", f"{last[:300]} of {line}")
    return Verdict("refused" if code else "answer", last if code else "")


def run_apart(kind: Kind, data: bytes, words: Sequence[str], box: Path) -> Verdict:
    """Return the same of a process of its own, by the installed command."""
    prepared = _place(kind, data, box)
    if prepared is not None:
        return prepared
    command = [str(Path(sys.executable).with_name("ludus")), *words]
    try:
        done = subprocess.run(command, cwd=box, capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return Verdict("answer", "it goes on") if words[:1] and words[0] in LONG else Verdict("hang", shlex.join(words))
    except (ValueError, OSError, UnicodeError):  # words that no process can be given
        return Verdict("refused", "the system refuses these words")
    code = done.returncode
    return verdict(words, code << 8 if code >= 0 else -code, done.stdout, done.stderr)


def serve_and_ask(cases: Sequence[tuple[int, bytes]], box: Path, note: Callable[[int, Verdict], None]) -> None:
    """Send raw requests to a server that `ludus ui` started, and note verdicts."""
    from benchmarks import fuzz_http

    fill(box)
    command = [str(Path(sys.executable).with_name("ludus")), "ui", "--no-open", "--port", "0", "--root", "runs"]
    error = (box.parent / "err").open("wb")
    process = subprocess.Popen(command, cwd=box, stdout=subprocess.PIPE, stderr=error, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        address = ""
        while not (found := re.search(r"http://[^:/]+:(\d+)/enter\?token=(\w+)", address)):
            line = process.stdout.readline().decode()
            if not line:
                raise LudusError("`ludus ui` ended before it said where it listens")
            address += line
        port = int(found[1])
        page = fuzz_http.Page(box)
        page.begin()
        page.words["@cookie@"] = f"ludus-{port}={found[2]}"
        healthy = (
            f"GET /api/session HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncookie: ludus-{port}={found[2]}\r\n\r\n".encode()
        )
        for number, data in cases:
            request = fuzz_http.raw(page, Random(f"raw:{number}"), data, port)
            answer = fuzz_http.send(port, request)
            status = int(answer[9:12]) if answer[:9] == b"HTTP/1.1 " and answer[9:12].isdigit() else 0
            fault = Verdict("wrong", f"{answer[:300]!r}") if status >= 500 or b"Traceback" in answer else None
            if process.poll() is not None:
                fault = Verdict("died", f"the server ended with {process.returncode}")
            elif number % 20 == 0 and b" 200 " not in fuzz_http.send(port, healthy)[:20]:
                fault = Verdict("hang", "the server answers no more")
            text = (box.parent / "err").read_text(encoding="utf-8", errors="replace")
            if fault is None and "Traceback" in text:
                fault = Verdict("traceback", text.strip().splitlines()[-1][:300])
            if "Traceback" in text:
                error.truncate(0)
            note(number, fault or Verdict("answer" if 200 <= status < 400 else "refused", f"status {status}"))
            if process.poll() is not None:
                break
    finally:
        process.terminate()
        process.wait(30)
        error.close()
