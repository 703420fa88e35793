"""Count the words of the documentation, as ``wc -w`` does; more than the ceiling is an error.

Pages that a script wrote as a whole do not count: what begins with ``<!-- generated``, and supplements beside runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
SUPPLEMENTS = DOCS / "results"
CEILING = 40_000


def count(path: Path) -> int:
    """Return the words of a page, 0 of a generated one."""
    text = path.read_text(encoding="utf-8")
    if text.startswith("<!-- generated") or SUPPLEMENTS in path.parents:
        return 0
    return len(text.split())


def main() -> int:
    """Print the words of each page, and return 1 if they are too many."""
    words = {path.relative_to(DOCS).as_posix(): count(path) for path in sorted(DOCS.rglob("*.md"))}
    for name, number in words.items():
        print(f"{number:6,} {name}")
    total = sum(words.values())
    print(f"{total:6,} in all, at most {CEILING:,}")
    return int(total > CEILING)


if __name__ == "__main__":
    sys.exit(main())
