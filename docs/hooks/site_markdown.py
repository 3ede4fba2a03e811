"""Markdown as code hosts read it, for Python's Markdown. Needs neither MkDocs nor Ludus."""

from __future__ import annotations

import re


def code_host_markdown(text: str) -> str:
    """Return a page as Python's Markdown reads it like code hosts do: lists and tables that follow a paragraph without an empty line,
    lists within lists by two spaces, and `\\|` in code within tables."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        if match := re.match(r"\s*(`{3,}|~{3,})", line):
            fence = "" if fence and match[1].startswith(fence) else fence or match[1]
        elif not fence:
            line = _line(line, lines)
        lines.append(line)
    return "\n".join(lines) + "\n"


def _line(line: str, before: list[str]) -> str:
    previous = before[-1] if before else ""
    is_item = re.match(r"( *)([-*]|\d+\.) ", line)
    in_list = _in_list(before)
    if line.startswith("|"):
        if previous.strip() and not previous.startswith("|"):
            before.append("")
        return re.sub(r"`[^`]*`", lambda span: span[0].replace("\\|", "|"), line)
    if is_item and not is_item[1] and previous.strip() and not in_list:
        before.append("")
    if in_list and (indent := len(line) - len(line.lstrip(" "))) and indent < 4 and line.strip():
        return "  " * indent + line.lstrip(" ") if indent == 2 else " " * 4 + line.lstrip(" ")
    return line


def _in_list(before: list[str]) -> bool:
    """Return whether the lines end in a list."""
    for line in reversed(before):
        if re.match(r" *([-*]|\d+\.) ", line):
            return True
        if line.strip() and not line.startswith(" "):
            return False
    return False
