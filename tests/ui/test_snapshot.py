"""Pages with their data in one file: what is in them, and what must not be."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import synthetic_run as synthetic

from benchmarks.synthetic_league import League
from benchmarks.synthetic_league import write as write_league
from ludus.apps.ui.report import MAX_SIDE, collect, panel_key, write_report
from ludus.apps.ui.static_page import Snapshot, render
from ludus.core.errors import RunError
from ludus.storage.reader import Reader
from ludus.storage.store import Store

HOSTILE = "</script><script>alert(1)</script><!--"


def data_of(page: str) -> dict:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def modules_of(page: str) -> list[str]:
    """Names of the modules that a page holds."""
    (text,) = re.findall(r'<script type="importmap">(.*?)</script>', page, re.DOTALL)
    (address,) = json.loads(text)["imports"].values()
    return re.findall(r'^define\("([a-z_]+[.]js)"', unquote(address.partition(",")[2]), re.MULTILINE)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("reports") / "leduc"
    return write_report(synthetic.write(run_dir, generations=24))  # 25 policies for each of two players


def test_nothing_is_fetched_and_no_path_of_the_machine_is_told(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    head = page.partition("</head>")[0]
    assert "default-src 'none'" in re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', head)[0]
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    outside = {address for address in re.findall(r"https?://[^\s\"'<>\\]+", page) if "www.w3.org" not in address}
    assert {re.sub(r"\).*", "", address) for address in outside} <= {
        "https://github.com/leeoniya/uPlot"
    }  # its licence's line
    assert str(report.parent.parent) not in page


def test_a_report_of_fifty_policies_is_small(report: Path) -> None:
    assert report.stat().st_size < 1_500_000


def test_a_page_holds_the_modules_that_make_sense_in_it(report: Path) -> None:
    modules = modules_of(report.read_text(encoding="utf-8"))
    assert {"app.js", "run.js", "heatmap.js", "uplot.js"} <= set(modules)
    assert "compare.js" not in modules  # one run has nothing to compare
    assert len(set(modules)) == len(modules)


def test_panels_are_found_as_the_page_asks_for_them(report: Path) -> None:
    data = data_of(report.read_text(encoding="utf-8"))
    assert (data["kind"], data["home"], data["run"]) == ("report", "run/this", "this")
    assert {"overview", "convergence", "ranking", "payoffs", "events?limit=500"} <= set(data["panels"])
    assert len(data["panels"]["convergence"]["generation"]) == 25
    assert panel_key("policy", {"population": "0", "policy": "p 3"}) == "policy?policy=p 3&population=0"


def test_no_text_of_a_run_becomes_code(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir, scenario=HOSTILE, env=HOSTILE)) as store:
        store.event("training", f"loss became NaN {HOSTILE}", level="warning")
        store.commit("c")
    page = write_report(run_dir).read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert page.count("</script>") == 3  # the import map, the data, the start
    assert data_of(page)["panels"]["overview"]["info"]["env"] == HOSTILE
    titled = render(Snapshot("comparison", HOSTILE, {"compare": b"{}"}))
    assert re.findall("<title>(.*?)</title>", titled)[0].startswith("&lt;/script&gt;&lt;script&gt;alert(1)")


def test_replays_beside_a_run_are_in_its_report(tmp_path: Path) -> None:
    run_dir = synthetic.write(tmp_path / "run", generations=1)
    (run_dir / "replays").mkdir()
    for k, name in enumerate(("Ada", HOSTILE)):
        seats = [{"player": 0, "name": name, "mode": ""}, {"player": 1, "name": "p0", "mode": ""}]
        frame = {"returns": [1.0, -1.0], "over": "", "last": [], "board": {"kind": "text", "text": "1pb"}}
        replay = {"format": 1, "game": "kuhn", "run": "run", "seats": seats, "frames": [frame]}
        replay |= {"statistics": None, "seed": 0, "created": float(k)}
        (run_dir / "replays" / f"{k:016x}.json").write_text(json.dumps(replay))
    page = write_report(run_dir).read_text(encoding="utf-8")
    panels = data_of(page)["panels"]
    assert [(line["id"], line["seats"][0]) for line in panels["replays"]] == [
        (f"{1:016x}", HOSTILE),
        (f"{0:016x}", "Ada"),
    ]
    assert panels[f"replays/{1:016x}"]["seats"][0]["name"] == HOSTILE
    assert "replay.js" in modules_of(page)
    assert "<script>alert" not in page


def test_an_n_player_report_holds_the_tables_of_all_pairs(tmp_path: Path) -> None:
    with Reader(synthetic.write(tmp_path / "run", generations=3, players=3)) as reader:
        found = {name for name in collect(reader).panels if name.startswith("payoffs")}
    others = [(1, 0, 1), (0, 0, 2), (2, 0, 2), (1, 1, 2), (2, 1, 2)]
    assert found == {"payoffs", *(f"payoffs?column={c}&of={of}&row={r}" for of, r, c in others)}


@pytest.mark.slow
def test_of_a_large_league_the_newest_are_shown(tmp_path: Path) -> None:
    size = MAX_SIDE + 50
    write_league(tmp_path / "league", League(policies=size))
    with Reader(tmp_path / "league") as reader:
        table = json.loads(collect(reader).panels["payoffs"])
    assert (table["order"], len(table["rows"]), table["rows_in_all"]) == ("age", MAX_SIDE, size)
    assert table["row_index"] == list(range(50, size))


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    run_dir = tmp_path / os.fsdecode(b"r\xff")
    synthetic.write(run_dir, generations=1)
    assert b"<title>r?" in write_report(run_dir).read_bytes()


def test_a_report_of_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_report_while_the_run_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Store.create(run_dir, synthetic.info(run_dir)) as store:
        store.generation_done(synthetic.generation(0, (1, 1), nash_conv=4.0))
        store.commit("g0")
        data = data_of(write_report(run_dir).read_text(encoding="utf-8"))
    assert data["panels"]["overview"]["state"] == "running"
    assert sorted(p.name for p in run_dir.iterdir()) == ["driver.lock", "ludus.db", "report.html"]
