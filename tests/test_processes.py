"""Child processes: how they end is said, limits end them, and what they wrote last is shown."""

from __future__ import annotations

import os
import re
import sys
from types import ModuleType

import numpy as np
import pytest

from robustcmp.processes import Child, Ended, Limits, _last_lines, _resident_memory, run
from robustcmp.runs.tasks import CHILD


def test_what_a_process_cannot_unpack_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("only_here")
    exec("class Mine: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    child = Child(CHILD, Limits(seconds=60))
    [end] = child.request(module.Mine())
    assert isinstance(end, Ended)
    assert re.search(r"exit status 1\. It wrote last: .*No module named 'only_here'", end.reason)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n\nb\nc\x1b[31m\nd\ne\n", "b | c [31m | d | e"),
        (
            "before\nFatal Python error: Aborted\n\nCurrent thread 0x7:\n  File x\n  File y\n  z",
            "Fatal Python error: Aborted | Current thread 0x7: | File x | File y",
        ),
        (
            "Fatal Python error: Aborted\n\n  File x\n\nExtension modules: " + ", ".join(["package.module"] * 2000),
            "Fatal Python error: Aborted | File x",
        ),
    ],
)
def test_of_what_a_process_wrote_the_last_lines_are_shown(text: str, line: str) -> None:
    assert _last_lines(text) == line


def test_what_a_process_holds_is_seen_from_outside() -> None:
    held = _resident_memory(os.getpid())
    block = np.ones(2**24)
    assert _resident_memory(os.getpid()) - held > 0.9 * block.nbytes
    assert _resident_memory(2**30) == 0


def test_a_program_is_run_to_its_end() -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('no', file=sys.stderr); sys.exit(3)"
    assert run([sys.executable, "-c", code], content=b"yes") == (3, "YES\n", "no\n")
