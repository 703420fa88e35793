"""docs/reliability.md: its tables, from what was counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .pool import GOOD
from .readers import READERS

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
RESULTS = Path(__file__).with_name("results.json")
START, END = "<!-- soak -->\n", "<!-- /soak -->"


def _broken_files(results: dict[str, Any]) -> list[str]:
    lines = [
        "| file | trials | refused | read as it was | another valid value | failures |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in READERS:
        part = results.get(name)
        if part:
            counts = [f"{part['outcomes'].get(outcome, 0):,}" for outcome in GOOD]
            lines.append(f"| {part['title']} | {part['trials']:,} | {' | '.join(counts)} | {part['failed']:,} |")
    return lines


def _kills(part: dict[str, Any]) -> list[str]:
    lines = ["| command, and when it was killed | kills |", "|---|---:|"]
    lines += [f"| {kind} | {count} |" for kind, count in part["kinds"].items()]
    return [*lines, "", f"{part['trials']} kills, {part['failed']} failures."]


def _with(results: dict[str, Any]) -> list[str]:
    versions = {name: said for part in results.values() for name, said in part["versions"].items() if name != "code"}
    seconds = sum(part["seconds"] for part in results.values())
    listed = ", ".join(f"{name} {said}" for name, said in versions.items())
    seeds = ", ".join(sorted({str(part["seed"]) for part in results.values()}))
    return [f"Seeds {seeds}, {seconds / 60:.0f} minutes in all; {listed}."]


def tables(results: dict[str, Any]) -> str:
    """Return all tables in Markdown."""
    sections = {"Broken files": _broken_files(results)}
    if "kills" in results:
        sections["Kills"] = _kills(results["kills"])
    sections["Tried with"] = _with(results)
    return "".join(f"\n### {title}\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items())


def write(results: dict[str, Any]) -> None:
    """Put the tables into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}{tables(results)}\n{END}{after}", encoding="utf-8")
