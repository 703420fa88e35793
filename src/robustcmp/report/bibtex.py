"""What to cite for a run, as BibTeX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from ..analysis.results import Results
from ..errors import printable
from ..untrusted import read_toml

SOFTWARE = """\
@software{{robustcmp,
  title   = {{robustcmp: is one trained model easier to fool than another, and is the difference real?}},
  author  = {{{{The robustcmp developers}}}},
  version = {{{version}}},
  year    = {{2026}}
}}"""


def to_bibtex(results: Results) -> str:
    """Return an entry for each of what a run used: the method, attacks, frameworks, datasets and networks."""
    entries: dict[str, str] = {}
    for entry in _entries(results):
        key = re.match(r"\s*@\w+\{([^,\s]+),", entry)
        entries.setdefault(key[1] if key else entry, entry.strip())
    return printable("\n\n".join(entries.values())) + "\n"


def _entries(results: Results) -> Iterator[str]:
    manifest = results.manifest
    references = read_toml(files("robustcmp.resources") / "references.toml", "the references")
    cited_for, entries = references["cited_for"], references["entries"]
    yield SOFTWARE.format(version=manifest["environment"]["versions"].get("robustcmp") or "unknown")
    used = {
        "framework": [model["framework"].partition("@")[0] for model in manifest["models"]],
        "dataset": [manifest["about"].get("dataset"), *(model["info"].get("dataset") for model in manifest["models"])],
        "model": [manifest["about"].get("model"), *(model["info"].get("model") for model in manifest["models"])],
    }
    yield from (entries[key] for key in cited_for["every_run"])
    yield from (
        entry for record in results.attack_records.values() if record.cite for entry in record.cite.split("\n\n")
    )
    for kind, names in used.items():
        yield from (entries[key] for name in names for key in cited_for[kind].get(name, ()))
