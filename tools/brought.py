"""Write the table of docs/what-you-can-bring.md from how the tests of it ended.

`make brought` tries everything anew. To try one thing again and keep the rest:
python -m pytest -m brought --brought tools/brought.json -k NAME && python tools/brought.py
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "brought.json"
PAGE = HERE.parent / "docs" / "what-you-can-bring.md"
MARKS = "<!-- brought -->", "<!-- /brought -->"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown, a table for each group, in the order of the groups."""
    parts = []
    for group, own in groupby(sorted(rows, key=lambda row: (row["group"], row["what"])), lambda row: row["group"]):
        parts += [f"### {group}", "", "| what | what you type | what you get |", "| --- | --- | --- |"]
        parts += [f"| {row['what']} | `{row['typed']}` | {_got(row)} |" for row in own]
        parts.append("")
    return "\n".join(parts)


def _got(row: dict[str, Any]) -> str:
    if row["outcome"] == "skipped":
        return f"not tried: {row['reason'].removeprefix('Skipped: ')}"
    if row["outcome"] == "failed":
        raise SystemExit(f"the test of {row['what']} failed: the table shows what holds")
    return str(row.get("got", "a comparison"))


def page(text: str) -> str:
    """Return the page with the table between its marks."""
    rows = sorted(json.loads(RESULTS.read_text()).values(), key=lambda row: row["outcome"] == "passed")
    distinct = {(row["group"], row["what"]): row for row in rows}  # tried anywhere, rather than not
    pattern = re.compile(re.escape(MARKS[0]) + ".*" + re.escape(MARKS[1]), re.DOTALL)
    return pattern.sub(lambda _: f"{MARKS[0]}\n\n{table([*distinct.values()])}\n{MARKS[1]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
