"""The page's modules, joined into few files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import synthetic_run as synthetic
from page_tools import Server, opened, run_ids

from ludus.apps.ui.bundle import ENTRY, FIRST, bundle, closure, files_to_serve, late, modules, read_files


def defined(text: str) -> list[str]:
    return re.findall(r'^define\("(\w+\.js)"', text, re.MULTILINE)


def test_each_page_needs_its_own_file_and_the_frame() -> None:
    texts, served = modules(read_files()), files_to_serve()
    held = defined(served[ENTRY].decode())
    assert {ENTRY, *FIRST} <= set(held)
    for name in texts:
        text = served[name].decode()
        added = [] if name == ENTRY else defined(text)
        assert set(closure(texts, [name])) <= {*held, *added}
        assert not {*held} & {*added}
        assert set(re.findall(r'^import .* from "(.*)";$', text, re.MULTILINE)) <= {f"./{ENTRY}"}
        assert not re.search(r"^export (?!const \{|const (?:define|use|load) |default use\()", text, re.MULTILINE)
        assert "</script" not in text  # which a report's would end


def test_what_the_frame_does_not_lead_to_is_served_as_it_is() -> None:
    files, served = read_files(), files_to_serve()
    assert served.keys() == files.keys()
    assert served["login.js"] == files["login.js"]
    assert served["style.css"].endswith(files["style.css"])


def test_names_that_are_exported_and_imported() -> None:
    texts = {
        ENTRY: 'import { f as g, K } from "./a.js";\nimport plain from "./b.js";\nconst page = () => import("./c.js");\n',
        "a.js": "export async function f() {}\nexport const K = 1;\n",
        "b.js": "var plain = 1;\nexport default plain;\n",
        "c.js": 'import { K } from "./a.js";\nexport class Page {}\n',
    }
    held = closure(texts, [ENTRY])
    assert held == [ENTRY, "a.js", "b.js"]
    frame = bundle(texts, held)
    for line in (
        'const { f: g, K } = use("a.js");',
        'const { default: plain } = use("b.js");',
        'const page = () => load("c.js");',
        "return { f, K };",
        "return { default: plain };",
    ):
        assert line in frame.splitlines()
    page = late(texts, "c.js", frame=held)
    assert defined(page) == ["c.js"]
    assert page.splitlines()[-1] == 'export const { Page } = use("c.js");'


@pytest.mark.parametrize(
    "line",
    [
        "export let count = 0;",
        "export { f };",
        'export * from "./b.js";',
        "export default function f() {}",
        'import * as all from "./b.js";',
        'import "./b.js";',
        'import {\n  f,\n} from "./b.js"; // two',
        "import { f } from './b.js';",
        "await f();",
        "const here = import.meta.url;",
    ],
)
def test_other_ways_to_import_and_export_are_refused(line: str) -> None:
    texts = {ENTRY: f"const x = 1;\n{line}\n", "b.js": "export function f() {}\n"}
    with pytest.raises(ValueError, match=re.escape(f"module {ENTRY} has")):
        bundle(texts, closure(texts, [ENTRY]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("bundle") / "runs"
    synthetic.write(root / "leduc", generations=4)
    with Server(root) as server:
        yield server


def asked(page: Any) -> list[str]:
    """Return what the page asked the server for, in the order of the questions."""
    return [
        re.sub(r".*?/(?=page/|api/)", "", each.url) for each in page.requests if re.search("/page/|/api/", each.url)
    ]


@pytest.mark.slow
def test_a_run_s_first_page_asks_for_little_before_it_says_something(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        run = run_ids(page)["leduc"]
    with browser.new_context() as context:
        page = context.new_page()
        page.requests, page.said = [], []
        page.on("request", lambda request: page.requests.append(request))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        context.add_init_script("""
          new MutationObserver(() => {
            const said = [...document.querySelectorAll(".five .verdict")].some((node) => node.textContent);
            if (said) window.asked ??= performance.getEntriesByType("resource").map(({ name }) => name.split("/").pop());
          }).observe(document, { childList: true, subtree: true, characterData: true });
        """)
        page.goto(f"{server.link}&to=%23/run/{run}")
        page.wait_for_selector("html[data-ready=yes]", state="attached")
        files = [name for name in asked(page) if name.startswith("page/")]
        assert sorted(files) == ["page/app.js", "page/style.css"]
        before = page.evaluate("window.asked")
        assert not {"ranking", "convergence", "statistics"} & {*before}
        assert f"api/runs/{run}/ranking" in asked(page)
        page.get_by_role("link", name="Population").click()
        page.wait_for_selector(".heat canvas")
        files = [name for name in asked(page) if name.startswith("page/")]
        assert files[2:] == ["page/population.js"]
        same = "async () => (await import('/page/heatmap.js')).heatMap === (await import('/page/app.js')).use('heatmap.js').heatMap"
        assert page.evaluate(same)  # one module, whichever file brought it
        assert page.said == []
