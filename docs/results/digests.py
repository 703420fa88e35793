"""The SHA-256 of the cells of every table, and of every summary, that is made from the runs in this folder.

``python docs/results/digests.py`` compares them with ``digests.json``, which ``--write`` writes anew: a change of the
code that should change no figure changes none of these.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from robustcmp.analysis.results import open_results
from robustcmp.report.exports import to_json
from robustcmp.report.tables import tables

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from tables import MARKED, PAGES, ROOT, RUNS  # noqa: E402

STORED = HERE / "digests.json"


def of_run(run: str) -> dict[str, str]:
    """Return the digests of the cells of a run's tables, and of its summary; sentences may change."""
    results = open_results(HERE / run)
    cells = [[table.names, *table.written] for table in tables(results)]
    summary = {key: value for key, value in to_json(results).items() if key != "out"}
    return {
        "tables": _digest(json.dumps(cells)),
        "summary": _digest(json.dumps(_round_floats(summary), sort_keys=True)),
    }


def _round_floats(value: Any) -> Any:
    """Round floats to nine significant digits: the last ones depend on the number of BLAS threads."""
    if isinstance(value, dict):
        return {key: _round_floats(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_round_floats(each) for each in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def of_pages() -> dict[str, str]:
    """Return the digests of the tables between the marks of the pages, which ``tables.py`` writes."""
    digests = {}
    for path in (*(ROOT / page for page in PAGES), HERE / "across-runs.md"):
        for marked in MARKED.finditer(path.read_text(encoding="utf-8")):
            rows = [line for line in marked["table"].splitlines() if line.startswith("|")]
            digests[marked["name"]] = _digest("\n".join(rows))
    return digests


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main() -> int:
    """Compare or write the digests and return the exit status."""
    digests = {"runs": {run: of_run(run) for run in RUNS}, "pages": of_pages()}
    if "--write" in sys.argv[1:]:
        STORED.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
        return 0
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    differ = [name for part in stored for name in stored[part] if stored[part][name] != digests[part].get(name)]
    print(f"differ: {', '.join(differ)}" if differ else "every table is as it was")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
