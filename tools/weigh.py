"""Weigh the package: what is counted, how much there may be of it, and how much there is.

``make check`` runs it, and it ends with 1 where something is above its ceiling. A ceiling falls with what it counts,
and rises only for a feature that was agreed on; the commit says which.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
OTHER = ("tests", "validation", "benchmarks", "tools", "docs")
CEILINGS = {
    "modules in src": 203,
    "statements in src": 18_485,
    "definitions in src": 1_368,
    "public definitions in src": 650,
    "participle functions in src": 18,
    "vague names in src": 2,
    "tuple assignments in src": 38,
    "imports of private names in src": 0,
    "statements in other Python": 18_375,
    "public members of Evaluation": 30,
    "options of eval": 25,
}
EXPRESSIONS_PER_STATEMENT = 6.51  # in src: no denser code
PARTICIPLE = re.compile(
    r"_?(?!open|shorten|children|screen|setting)[a-z]+(ed|en|ing)(_|$)"
)  # the others are no participles
VAGUE = {"said", "found", "held", "own", "place", "asked", "its", "one", "what", "whose", "kept", "given", "told"}
VAGUE |= {"known", "there", "here"}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def count(paths: Iterable[Path]) -> Counter[str]:
    """Return how many modules, statements without docstrings, definitions and questionable names there are."""
    counts: Counter[str] = Counter()
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        counts["modules"] += 1
        for node in ast.walk(tree):
            counts.update(_count_node(node))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                counts["definitions"] += 1
                counts["public definitions"] += not node.name.startswith("_")
    return counts


def _count_node(node: ast.AST) -> dict[str, int]:
    counts = {"statements": int(isinstance(node, ast.stmt)), "expressions": int(isinstance(node, ast.expr))}
    if isinstance(node, Documented) and ast.get_docstring(node, clean=False):
        counts["statements"] -= 1
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        counts["participle functions"] = int(bool(PARTICIPLE.match(node.name)))
    elif isinstance(node, ast.ImportFrom):
        counts["imports of private names"] = sum(_is_private(alias.name) for alias in node.names)
    elif isinstance(node, ast.Assign):
        counts["vague names"] = sum(map(_count_vague, node.targets))
        if isinstance(node.value, ast.Tuple):
            counts["tuple assignments"] = sum(isinstance(target, ast.Tuple) for target in node.targets)
    elif isinstance(node, ast.For | ast.comprehension):
        counts["vague names"] = _count_vague(node.target)
    return counts


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _count_vague(target: ast.expr) -> int:
    return sum(node.id.strip("_") in VAGUE for node in ast.walk(target) if isinstance(node, ast.Name))


def weigh() -> dict[str, int]:
    """Return what there is of everything that has a ceiling."""
    from robustcmp import Evaluation
    from robustcmp.cli.eval import _parser

    source = count((ROOT / "src").rglob("*.py"))
    other = count(path for folder in OTHER for path in (ROOT / folder).rglob("*.py"))
    weights = {name: source[name.removesuffix(" in src")] for name in CEILINGS if name.endswith(" in src")}
    weights["statements in other Python"] = other["statements"]
    weights["public members of Evaluation"] = sum(not name.startswith("_") for name in dir(Evaluation))
    weights["options of eval"] = len(_parser()._actions) - 1  # without --help
    return weights


def density() -> float:
    """Return how many expressions there are for each statement in src."""
    source = count((ROOT / "src").rglob("*.py"))
    return source["expressions"] / source["statements"]


def main() -> int:
    weights = weigh()
    for name, weight in weights.items():
        print(f"{name:33} {weight:6,} of {CEILINGS[name]:6,}{' TOO MUCH' if weight > CEILINGS[name] else ''}")
    print(f"{'expressions per statement in src':33} {density():6.2f} of {EXPRESSIONS_PER_STATEMENT:6.2f}")
    is_light = all(weight <= CEILINGS[name] for name, weight in weights.items())
    return 0 if is_light and density() <= EXPRESSIONS_PER_STATEMENT + 0.005 else 1


if __name__ == "__main__":
    sys.exit(main())
