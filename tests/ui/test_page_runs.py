"""The list of runs in a browser: columns, filter, experiments, tags and notes, and what watchers may not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import synthetic_run as synthetic
from page_tools import SECRET, Server, opened, wait_until

from ludus.apps.ui.server.address import WATCH, Tokens
from ludus.storage.run_dirs import EXPERIMENT
from ludus.storage.run_notes import FILE
from ludus.storage.store import Store

pytestmark = pytest.mark.slow


def small(run_dir: Path, gamma: float, seed: int = 0) -> Path:
    text = f"scenario: psro\nseed: {seed}\nalgorithm:\n  gamma: {gamma}\n  clip: 0.2\n"
    with Store.create(run_dir, synthetic.info(run_dir, seed=seed, text=text)) as store:
        for number in range(2):
            for player in range(2):
                store.policy_added(synthetic.policy(player, number, number))
            record = synthetic.generation(number, (number + 1,) * 2, nash_conv=2.0 - number * gamma - 0.1 * seed)
            store.generation_done(record)
        store.commit("g1")
    return run_dir


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("runs") / "runs"
    for k in range(30):
        small(root / f"run-{k:02}", gamma=(k + 1) / 100)
    (root / "exp").mkdir()
    (root / "exp" / EXPERIMENT).write_text("{}")
    for seed in range(3):
        small(root / "exp" / f"seed-{seed}", gamma=0.5, seed=seed)
    with Server(root) as server:
        yield server
    shutil.rmtree(root)


def names(page: Any) -> list[str]:
    return [text.strip() for text in page.locator('td[data-key="name"] a').all_inner_texts()]


def cells(page: Any, key: str) -> list[str]:
    return [text.strip() for text in page.locator(f'td[data-key="{key}"]').all_inner_texts()]


def ready(page: Any) -> None:
    page.get_by_role("link", name="run-00").wait_for()


def test_an_experiment_is_a_row_that_opens_into_its_seeds(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        ready(page)
        assert "exp" in names(page)
        assert not [name for name in names(page) if name.startswith("exp/")]
        row = page.locator("tr", has=page.get_by_role("link", name="exp", exact=True))
        # NashConv 1.5, 1.4 and 1.3: the mean, and Student's t with two degrees of freedom
        assert row.locator('[data-key="nash_conv"]').inner_text() == "1.40 ± 0.25"
        twist = page.get_by_role("button", name="Runs of exp")
        twist.focus()
        page.keyboard.press("Enter")
        assert [name for name in names(page) if name.startswith("exp")][1:] == [
            "exp/seed-2",
            "exp/seed-1",
            "exp/seed-0",
        ]
        assert twist.evaluate("(node) => node === document.activeElement")  # the focus stays on what was pressed
        assert twist.get_attribute("aria-expanded") == "true"
        page.get_by_role("button", name="NashConv").click()
        listed = names(page)
        assert listed[listed.index("exp") + 1 :][:3] == ["exp/seed-0", "exp/seed-1", "exp/seed-2"]
        page.reload()  # what is open and how it is sorted stand in the address
        ready(page)
        assert [name for name in names(page) if name.startswith("exp/")] == ["exp/seed-0", "exp/seed-1", "exp/seed-2"]
        assert page.messages == []


def test_columns_are_chosen_sent_and_remembered(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        ready(page)
        page.locator("summary", has_text="Columns").click()
        differ = page.get_by_role("group", name="That differ")
        differ.wait_for()
        assert differ.locator("label").all_inner_texts() == ["seed", "algorithm.gamma"]
        same = page.get_by_role("group", name="The same in all runs")
        assert same.locator("label").all_inner_texts() == ["scenario", "algorithm.clip"]
        differ.get_by_label("algorithm.gamma").check()
        page.get_by_role("group", name="Columns").get_by_label("wall time").check()
        page.keyboard.press("Escape")
        assert not page.get_by_role("group", name="Columns").is_visible()
        page.get_by_role("button", name="algorithm.\u200bgamma").click()
        assert cells(page, "setting:algorithm.gamma")[:3] == ["0.01", "0.02", "0.03"]
        assert len(cells(page, "seconds")) == 31
        sent = page.evaluate("location.hash")
        page.goto("about:blank")
        page.goto(server.link)  # the browser remembers
        ready(page)
        assert cells(page, "setting:algorithm.gamma")[:3] == ["0.01", "0.02", "0.03"]
    with opened(browser, server, quote(sent)) as page:  # and another one is told by the address
        ready(page)
        assert cells(page, "setting:algorithm.gamma")[:3] == ["0.01", "0.02", "0.03"]
        page.locator("summary", has_text="Columns").click()
        page.get_by_role("button", name="Usual columns").click()
        assert cells(page, "setting:algorithm.gamma") == []
        assert "columns" not in page.evaluate("location.hash")
        assert page.messages == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run-1 leduc", [f"run-{k}" for k in range(10, 20)]),
        ("gamma=0.07", ["run-06"]),
        ("algorithm.gamma>0.28 -exp", ["run-28", "run-29"]),
        ("nash_conv<=1.4", ["exp"]),
        ("seed=1", ["exp"]),
        ("clip=0.3", []),
    ],
)
def test_the_filter_takes_words_settings_and_results(
    browser: Any, server: Server, text: str, expected: list[str]
) -> None:
    with opened(browser, server) as page:
        ready(page)
        page.get_by_label("Filter runs").fill(text)
        if expected:
            wait_until(page, f"document.querySelectorAll('td[data-key=\"name\"]').length === {len(expected)}")
        else:
            page.get_by_text("No run is like that.").wait_for()
        assert sorted(names(page)) == expected
        assert page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('filter')") == text


def test_the_runs_that_are_chosen_stay_in_sight(browser: Any, server: Server) -> None:
    with opened(browser, server, viewport={"width": 1280, "height": 500}) as page:
        ready(page)
        bar = page.get_by_role("group", name="Chosen runs")
        assert not bar.is_visible()
        last = page.get_by_label("Choose run-00", exact=True)
        last.scroll_into_view_if_needed()
        last.check()
        assert page.evaluate("scrollY") > 0
        for box in (page.get_by_label("Choose run-01", exact=True), page.get_by_label("Choose exp", exact=True)):
            box.check()
            inside = "(node) => { const { top, bottom } = node.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight; }"
            assert bar.evaluate(inside)
        assert bar.get_by_role("button", name="Compare 5 runs").is_visible()
        assert "5 chosen" in bar.inner_text()
        assert page.locator("#announcer").inner_text().strip() == "5 runs are chosen."
        page.get_by_role("button", name="Runs of exp").click()
        page.get_by_label("Choose exp/seed-1").uncheck()
        assert page.get_by_label("Choose exp", exact=True).evaluate("(node) => node.indeterminate")
        bar.get_by_role("button", name="Compare 4 runs").click()
        wait_until(page, "location.hash.startsWith('#/compare?runs=')")
        assert len(page.evaluate("location.hash").split(",")) == 4


def test_tags_and_notes_are_edited_by_those_who_steer(browser: Any, server: Server) -> None:
    evil = '<img src=x onerror="document.title=1">'
    with opened(browser, server) as page:
        ready(page)
        page.get_by_role("button", name="Edit tags and notes of run-05").focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Tags and notes of run-05")
        dialog.get_by_label("Tags, separated by commas").fill(f"final, {evil}")
        dialog.get_by_label("Notes").fill("</td><script>document.title = 2</script>\nsecond line")
        dialog.get_by_role("button", name="Save").click()
        dialog.wait_for(state="detached")
        page.get_by_role("button", name="final", exact=True).wait_for()
        row = page.locator("tr", has=page.get_by_role("link", name="run-05"))
        assert evil in row.inner_text()
        assert "second line" in row.locator('[data-key="notes"]').inner_text()
        assert (page.locator("table img").count(), page.title()) == (0, "Runs · Ludus")
        page.get_by_role("button", name="final", exact=True).click()
        wait_until(page, "document.querySelectorAll('td[data-key=\"name\"]').length === 1")
        stored = json.loads((server.root / "run-05" / FILE).read_text())
        assert stored["tags"] == sorted(["final", evil])
        page.get_by_role("button", name="Edit tags and notes of run-05").click()
        dialog.get_by_label("Tags, separated by commas").fill(50 * "x")
        dialog.get_by_role("button", name="Save").click()
        dialog.get_by_role("alert").filter(has_text="at most 40").wait_for()
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="detached")
        assert [message for message in page.messages if "400" not in message] == []
    token = Tokens(SECRET.encode()).of(WATCH)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/enter?token={token}")
        page.get_by_role("button", name="final", exact=True).wait_for()
        assert page.get_by_role("button", name="Edit tags and notes of run-05").count() == 0


def test_headings_and_landmarks_have_names_of_their_own(browser: Any, server: Server) -> None:
    with opened(browser, server) as page:
        ready(page)
        assert [text for text in page.locator("th").all_inner_texts() if not text.strip()] == []
        regions = page.locator("[role=region], section[aria-label], section[aria-labelledby], nav, main")
        labels = regions.evaluate_all(
            "(all) => all.map((node) => node.tagName + (node.getAttribute('aria-label') ?? ''))"
        )
        assert len(labels) == len(set(labels))
