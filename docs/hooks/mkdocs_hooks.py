"""Hooks of MkDocs: pages from beside the code, links into the repository, tables from the code, pages with sources.

`mkdocs.yml` names this file. What needs no MkDocs lies in the modules beside it, which tests/docs use, too.
"""

from __future__ import annotations

import posixpath
import re
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import environment_defaults  # noqa: F401  MkDocs takes this folder off the path once the hooks are loaded
import reference_tables
import site_layout
import site_links
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from site_markdown import code_host_markdown

LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".sh": "bash",
    ".json": "json",
    ".js": "js",
    ".css": "css",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Headings get the anchors that code hosts give them. There is no page of a server's error 404: its addresses would be absolute."""
    # Again: MkDocs restores the path once it has loaded this file, and these modules import each other late.
    sys.path.insert(0, str(Path(__file__).parent))
    config.theme.static_templates.discard("404.html")
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def slug(text: str, separator: str) -> str:
    """Return a heading's anchor, as code hosts make it: links work there and here."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages beside the code, and a page with the source of each other file that a page links to."""
    sources = {"README.md": "docs/index.md", **{path: path for path in site_layout.beside_code()}}
    for path, place in site_layout.beside_code().items():
        files.append(File.generated(config, place, abs_src_path=str(site_layout.ROOT / path)))
    sources |= {f"docs/{path}": f"docs/{path}" for path in site_layout.docs_pages()}
    linked: dict[str, list[str]] = {}
    for path in sources.values():
        for file in sorted(linked_sources(path)):
            linked.setdefault(file, []).append(path)
    for path, pages in sorted(linked.items()):
        files.append(File.generated(config, site_layout.place_of(path), content=source_page(path, pages, set(linked))))
    return files


def linked_sources(path: str) -> set[str]:
    """Return the files and folders of the repository that a page links to, and that are no pages and no files under docs/."""
    text = (site_layout.ROOT / path).read_text(encoding="utf-8")
    files = {site_links.resolve(target, path)[0] for target in site_links.targets(text)}
    return {
        file
        for file in files
        if site_layout.place_of(file).startswith(f"{site_layout.SOURCE}/") and (site_layout.ROOT / file).exists()
    }


def source_page(path: str, pages: list[str], linked: set[str]) -> str:
    """Return the page with a file's source, or a folder's listing, and links back. It is no result of a search.

    Args:
        path: Of the file or folder, in the repository.
        pages: Those that link to it, in the repository.
        linked: Paths of all files that have such a page.
    """
    place = site_layout.place_of(path)
    back = ", ".join(f"[{title(page)}]({site_layout.relative(site_layout.place_of(page), place)})" for page in pages)
    head = f"---\ntitle: {path}\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# `{path}`\n\nNamed by {back}.\n\n"
    file = site_layout.ROOT / path
    if file.is_dir():
        entries = sorted(entry.name for entry in file.iterdir() if not entry.name.startswith(("__pycache__", ".")))
        return head + "\n".join(_entry(posixpath.join(path, entry), linked) for entry in entries) + "\n"
    language = LANGUAGES.get(file.suffix, "text")
    return f'{head}`````{language} linenums="1"\n{file.read_text(encoding="utf-8")}\n`````\n'


def title(path: str) -> str:
    """Return a page's first heading."""
    text = (site_layout.ROOT / path).read_text(encoding="utf-8")
    return text.partition("\n")[0].removeprefix("# ")


def _entry(path: str, linked: set[str]) -> str:
    name = posixpath.basename(path)
    if path in site_layout.places() or path in linked:
        return f"- [`{name}`]({site_layout.relative(site_layout.place_of(path), site_layout.place_of(posixpath.dirname(path)))})"
    return f"- `{name}`"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  as MkDocs calls it
    """Expand markers, and turn links between files of the repository into links between pages of the site."""
    place = page.file.src_uri
    if place == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    if place.startswith(f"{site_layout.SOURCE}/"):
        return markdown
    path = site_layout.origin(place)
    text = reference_tables.expand(markdown, path)
    return code_host_markdown(site_links.rewrite(text, partial(site_link, path=path, place=place, config=config)))


def site_link(target: str, path: str, place: str, config: MkDocsConfig) -> str:
    """Return a link of the page `path` of the repository, as the page `place` of the site has it.

    With `source_url` in the `extra` of mkdocs.yml, files that are no pages are links to there: a host of the repository.
    """
    file, fragment = site_links.resolve(target, path)
    there = site_layout.place_of(file)
    if not there.startswith(f"{site_layout.SOURCE}/"):
        return target if target.startswith("#") else _with_fragment(site_layout.relative(there, place), fragment)
    lines = site_links.lines_of(file, fragment) if fragment and file.endswith(".py") else None
    if host := config.extra.get("source_url"):
        return _with_fragment(f"{host}/{file}", f"L{lines[0]}-L{lines[1]}" if lines else "")
    return _with_fragment(site_layout.relative(there, place), f"__codelineno-0-{lines[0]}" if lines else "")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  as MkDocs calls it
    """Let links to lines of a source be checked: MkDocs does not see the anchors of highlighted code."""
    if page.file.src_uri.startswith(f"{site_layout.SOURCE}/"):
        page.present_anchor_ids = {*(page.present_anchor_ids or ()), *re.findall(r'id="(__codelineno-[\d-]+)"', html)}
    return reference_tables.READ_ON.sub("", html) if page.file.src_uri.startswith("reference/api/") else html


def _with_fragment(link: str, fragment: str) -> str:
    return f"{link}#{fragment}" if fragment else link


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Check that a page takes nothing from elsewhere: the site is read without a network."""
    elsewhere = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?(https?://[^\s\">]+)", output)
    if elsewhere := [url for url in elsewhere if not url.startswith(str(config.site_url or "none:"))]:
        raise ValueError(f"{page.file.src_uri} loads {elsewhere}; the site is read without a network")
    return output
