"""Pictures of the pages are those that docs/images/draw.py draws, and what they name is there."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ET
from types import ModuleType

import pages
import pytest

IMAGES = pages.ROOT / "docs" / "images"
TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", IMAGES / "draw.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_are_those_that_the_script_draws(draw: ModuleType) -> None:
    assert len(draw.PICTURES) > 4
    stale = [name for name, picture in draw.PICTURES.items() if (IMAGES / f"{name}.svg").read_text() != picture().svg()]
    assert stale == [], "python docs/images/draw.py draws them anew"


def test_pictures_are_on_a_page_with_a_description(draw: ModuleType) -> None:
    everything = "".join(pages.text(page) for page in pages.PRESENT)
    assert [
        name for name in draw.PICTURES if not re.search(rf"!\[\w[^]]+\]\([./]+/images/{name}\.svg\)", everything)
    ] == []


def test_classes_and_packages_in_pictures_are_there(draw: ModuleType) -> None:
    sources = [pages.text(path) for path in (pages.ROOT / "ludus").rglob("*.py")]
    classes = {name for source in sources for name in re.findall(r"^class (\w+)", source, re.MULTILINE)}
    words = [text.text or "" for name in draw.PICTURES for text in ET.parse(IMAGES / f"{name}.svg").iter(TEXT)]
    named = {name for word in words for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", word)}
    folders = {folder for word in words for folder in re.findall(r"^[a-z/]+/(?=$|:)", word)}
    assert len(named) > 8
    assert len(folders) > 8
    assert named - classes == set()
    assert [folder for folder in folders if not (pages.ROOT / "ludus" / folder).is_dir()] == []
