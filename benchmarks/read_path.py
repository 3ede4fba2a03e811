"""How much of the package there is to read: what a short run of PPO executes, how far its loss is from the README, what takes a scenario.

    python -m benchmarks.read_path [--json FILE] [--files]

The run is CartPole with PPO, a few updates, in this process: by `ludus.run`, without a report, and by the command `ludus train`, with one.
Counted by `sys.settrace` are the files of `ludus/` of which a function is executed, and the lines of functions that are executed. What runs
while a module is imported does not count, and Numba's kernels are not seen.

Clicks are links of Markdown files from README.md to the file that defines PPO's loss. A file takes a scenario where a function has a
parameter that is called `scenario` or is of type Scenario, or a class has such a field. --files lists the files.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

import ludus
from benchmarks.machine import ROOT, commit, today
from ludus.cli.main import main as command

PACKAGE = ROOT / "ludus"
LOSS = PACKAGE / "algorithms" / "ppo" / "learner.py"
"""The file that defines PPO's loss."""
ENV = "gymnasium/CartPole-v1"
OPTIONS = (
    "response.decisions=2000",
    "algorithm.batch=512",
    "algorithm.batch_unit=decisions",
    "algorithm.epochs=4",
)
BARS = {"files": 90, "lines": 3_500, "longest": 700, "clicks": 3, "scenario": 9}
"""The most that is allowed; of files with `scenario` half of the 18 that there were at first."""
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")

Lines = dict[str, set[int]]
"""file -> numbers of its executed lines of functions."""


@contextmanager
def traced() -> Iterator[Lines]:
    """Record the lines of the package's functions that are executed, also in threads that begin within."""
    lines: Lines = defaultdict(set)
    tracers: dict[CodeType, Callable[..., Any] | None] = {}

    def tracer(code: CodeType) -> Callable[..., Any] | None:
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE) or not code.co_flags & inspect.CO_OPTIMIZED:  # bodies of modules, classes
            return None
        name = str(path.relative_to(ROOT))

        def line(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                lines[name].add(frame.f_lineno)
            return line

        return line

    def call(frame: FrameType, *_: Any) -> Any:
        code = frame.f_code
        if code not in tracers:
            if _imports(frame):
                return None
            tracers[code] = tracer(code)
        return tracers[code]

    threading.settrace(call)
    sys.settrace(call)
    try:
        yield lines
    finally:
        sys.settrace(None)
        threading.settrace(None)


def _imports(frame: FrameType | None) -> bool:
    """Return whether a module of the package is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            return True
        frame = frame.f_back
    return False


def executed_by_run() -> Lines:
    """Return what the run executes, called from Python."""
    with tempfile.TemporaryDirectory() as folder, traced() as lines:
        ludus.run(ENV, ["algorithm=ppo", *OPTIONS], run_dir=Path(folder) / "run", report=False)
    return lines


def executed_by_command() -> Lines:
    """Return what the run executes, called by the command."""
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        redirect_stdout(StringIO()),
        redirect_stderr(StringIO()),
        traced() as lines,
    ):
        command(["train", ENV, "--algorithm", "ppo", *OPTIONS])
    return lines


def file_length(path: str) -> int:
    return (ROOT / path).read_text(encoding="utf-8").count("\n")


def clicks_to_loss() -> list[str]:
    """Return the shortest way along links from the README to the file that defines PPO's loss, both included; empty if there is none."""
    ways = {ROOT / "README.md": [ROOT / "README.md"]}
    queue = list(ways)
    for page in queue:
        if page == LOSS:
            return [str(path.relative_to(ROOT)) for path in ways[page]]
        if page.suffix != ".md":
            continue
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if "://" not in link and target.is_file() and target not in ways:
                ways[target] = [*ways[page], target]
                queue.append(target)
    return []


def takes_scenario(source: str) -> bool:
    """Return whether a function or a class in it takes a scenario."""
    return any(
        (isinstance(node, ast.arg) and (node.arg == "scenario" or _is_scenario(node.annotation)))
        or (
            isinstance(node, ast.ClassDef)
            and any(isinstance(f, ast.AnnAssign) and _is_scenario(f.annotation) for f in node.body)
        )
        for node in ast.walk(ast.parse(source))
    )


def _is_scenario(annotation: ast.expr | None) -> bool:
    names = [] if annotation is None else [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    return not {"Scenario", "AnyScenario"}.isdisjoint(names)


def measure() -> dict[str, Any]:
    """Return the figures by name."""
    by_run, by_command = executed_by_run(), executed_by_command()
    lengths = {path: file_length(path) for path in by_run}
    scenario = [p for p in sorted(PACKAGE.rglob("*.py")) if takes_scenario(p.read_text(encoding="utf-8"))]
    return {
        "files": len(by_run),
        "lines": sum(map(len, by_run.values())),
        "longest": max(lengths.values()),
        "longest_file": max(lengths, key=lengths.__getitem__),
        "command_files": len(by_command),
        "command_lines": sum(map(len, by_command.values())),
        "clicks": len(way := clicks_to_loss()) - 1,
        "way": way,
        "scenario": len(scenario),
        "scenario_files": [str(path.relative_to(ROOT)) for path in scenario],
        "executed": {path: len(by_run[path]) for path in sorted(by_run)},
    }


def main() -> int:
    """Print the figures beside their bars. Exit status: 0 if all are met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file")
    parser.add_argument("--files", action="store_true", help="list the files")
    arguments = parser.parse_args()
    figures = measure()
    table = Table("figure", "value", "bar", "")
    rows = {
        "files": f"files that `ludus.run` executes (`ludus train`: {figures['command_files']})",
        "lines": f"lines of functions in them (`ludus train`: {figures['command_lines']})",
        "longest": f"lines of the longest, {figures['longest_file']}",
        "clicks": f"clicks: {' → '.join(figures['way'])}",
        "scenario": "files with a function that takes a scenario",
    }
    for name, what in rows.items():
        met = 0 <= figures[name] <= BARS[name]
        table.add_row(what, f"{figures[name]:,}", f"≤ {BARS[name]:,}", "met" if met else "not met")
    console = Console()
    console.print(table)
    if arguments.files:
        for path, lines in figures["executed"].items():
            console.print(f"{lines:5} {path}", highlight=False)
        console.print("scenario:", *figures["scenario_files"], sep="\n  ", highlight=False)
    if arguments.json:
        document = {"date": today(), "commit": commit(), **figures}
        arguments.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(0 <= figures[name] <= bar for name, bar in BARS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
