"""What the package weighs, and how it names things: counts that only ever fall."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

WEIGH = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "weigh.py"))
SAMPLE = '''
"""A docstring is no statement."""
from elsewhere import _private, public

def loaded(path):
    """Nor is this one."""
    found, its = 1, 2
    return [one for one in path]

class _Hidden: ...
'''


@pytest.fixture(scope="module")
def weights() -> dict[str, int]:
    return WEIGH["weigh"]()


@pytest.mark.parametrize("name", WEIGH["CEILINGS"])
def test_nothing_weighs_more_than_it_may(name: str, weights: dict[str, int]) -> None:
    assert weights[name] <= WEIGH["CEILINGS"][name]


def test_code_is_no_denser() -> None:
    assert WEIGH["density"]() <= WEIGH["EXPRESSIONS_PER_STATEMENT"] + 0.005


def test_what_is_counted(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    counts = WEIGH["count"](tmp_path.glob("*.py"))
    assert counts["statements"] == 6
    assert (counts["definitions"], counts["public definitions"]) == (2, 1)
    assert (counts["participle functions"], counts["imports of private names"]) == (1, 1)
    assert (counts["vague names"], counts["tuple assignments"]) == (3, 1)
