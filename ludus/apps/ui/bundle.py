"""The page's modules joined, so that a browser asks for one file, where each by itself would be asked for after the one that names it.

    app.js ── the frame and a run's first page: of each module a function, called when the module is used first
    NAME.js ── another page, with what it needs and app.js does not hold

A report is an app.js that holds all of its pages. The sources stay as they are: a module imports others as
`import { … } from "./NAME.js";` or as `import("./NAME.js")`, and exports declarations where they stand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources

ENTRY = "app.js"
FIRST = ("run.js", "overview.js")
"""What comes with the frame: the page that takes most to begin, a run's first."""

_IMPORT = re.compile(r"""^import (\{[^}]*\}|\w+) from "\./(\w+\.js)";$""", re.MULTILINE)
_LATE = re.compile(r"""\bimport\(\s*"\./(\w+\.js)"\s*\)""")
_EXPORT = re.compile(r"^export ((?:async function|function|const|class) (\w+))", re.MULTILINE)
_DEFAULT = re.compile(r"^export default (\w+);$", re.MULTILINE)
_OTHER = re.compile(r"^(?:import\b(?!\()|export\b|await\b).*|\bimport\.meta\b", re.MULTILINE)

_HEAD = """\
const makers = {}, made = {};
export const define = (name, make) => { makers[name] ??= make; };
export const use = (name) => (made[name] ??= makers[name]());
export const load = async (name) => (makers[name] ? use(name) : import(`./${name}`));
"""


def read_files() -> dict[str, bytes]:
    """Return the files of the page's folder, by name, as they were written."""
    folder = resources.files("ludus.apps.ui") / "page"
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and not file.name.startswith((".", "README"))
    }


def files_to_serve() -> dict[str, bytes]:
    """Return what a server of the page gives, by name: each module with what it needs, and one style."""
    files = read_files()
    texts = modules(files)
    frame = closure(texts, (ENTRY, *FIRST))
    joined = {name: late(texts, name, frame=frame) for name in texts} | {ENTRY: bundle(texts, frame)}
    return files | {name: text.encode() for name, text in joined.items()} | {"style.css": style(files).encode()}


def modules(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the text of each module that the frame leads to, at once or late, by name."""
    texts = dict[str, str]()
    wanted = [ENTRY]
    while wanted:
        name = wanted.pop()
        if name not in texts:
            texts[name] = files[name].decode()
            wanted += [*imports_of(texts[name]), *_LATE.findall(texts[name])]
    return texts


def style(files: Mapping[str, bytes]) -> str:
    """Return the page's whole style."""
    return f"{files['uplot.css'].decode()}\n{files['style.css'].decode()}"


@functools.cache
def imports_of(text: str) -> list[str]:
    """Return the modules that one imports when it is loaded."""
    return [name for _, name in _IMPORT.findall(text)]


def closure(texts: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return modules and all that they import when they are loaded."""
    order, wanted = list[str](), [*names]
    while wanted:
        name = wanted.pop(0)
        if name not in order:
            order.append(name)
            wanted += imports_of(texts[name])
    return order


def bundle(texts: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the frame as a module that holds these ones.

    Args:
        texts: Text of each module, by name.
        names: Modules that it holds: the frame and a closure.

    Returns:
        A module that exports `use(name)`, which returns what a module that it holds exports. Others are files that it asks for when an
        `import("./NAME.js")` wants them.

    Raises:
        ValueError: If a module imports or exports in another way than this one reads.
    """
    return "".join((_HEAD, *_definitions(texts, names), f'use("{ENTRY}");\n'))


def late(texts: Mapping[str, str], name: str, *, frame: Sequence[str]) -> str:
    """Return a module, with those that it needs and that the frame does not hold.

    Args:
        texts: Text of each module, by name.
        name: Of the module.
        frame: Modules that the frame holds.

    Returns:
        A module that exports what the named one does, once it has added them to the frame's.

    Raises:
        ValueError: As `bundle`.
    """
    more = [needed for needed in closure(texts, [name]) if needed not in frame]
    names = _exports(texts[name])
    exports = [f'export const {{ {", ".join(names)} }} = use("{name}");\n'] if names else []
    exports += [f'export default use("{name}").default;\n'] if _DEFAULT.search(texts[name]) else []
    return "".join((f'import {{ define, load, use }} from "./{ENTRY}";\n', *_definitions(texts, more), *exports))


def _definitions(texts: Mapping[str, str], names: Iterable[str]) -> Iterator[str]:
    """Yield a function for each module. It stands in brackets, at which browsers compile it at once and not twice."""
    for name in names:
        yield f'define("{name}", (() => {{\n{_body(name, texts[name])}}}));\n'


@functools.cache
def _body(name: str, text: str) -> str:
    exports = [*_exports(text), *(f"default: {name}" for name in _DEFAULT.findall(text))]
    text = _IMPORT.sub(lambda match: _constants(match[1], match[2]), text)
    text = _DEFAULT.sub("", _EXPORT.sub(r"\1", _LATE.sub(r'load("\1")', text)))
    if other := _OTHER.search(text):
        raise ValueError(
            f'the page\'s module {name} has {other[0]!r}. Import as `import {{ … }} from "./NAME.js";` in one line and export `function`, '
            "`const` or `class` where they are declared."
        )
    return f"{text}\nreturn {{ {', '.join(exports)} }};\n"


def _exports(text: str) -> list[str]:
    return [name for _, name in _EXPORT.findall(text)]


def _constants(what: str, name: str) -> str:
    names = what.replace(" as ", ": ") if what.startswith("{") else f"{{ default: {what} }}"
    return f'const {names} = use("{name}");'
