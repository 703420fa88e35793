"""Names and messages that try to be more than text: at a terminal, in Markdown, on the page, in files of others."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import planted
import pytest

import robustcmp as rc
from robustcmp.analysis.results import Results
from robustcmp.cli.command import run_command, say
from robustcmp.cli.list import print_rows
from robustcmp.cli.screen import show
from robustcmp.errors import HostError, UsageError
from robustcmp.hosts.environments import run
from robustcmp.report.exports import to_bibtex, to_csv, to_latex
from robustcmp.report.page import to_html, to_notebook
from robustcmp.report.text import summary, to_markdown, to_text

EVIL = "\x1b[2J\x1b]0;title\x07\r\b\x9b1A\u202egnp.\u2066\udce4\0"
STORED = EVIL.replace("\udce4", "").replace("\0", "")  # no file of ours can hold these
NAMES = [f"a{STORED}", "=cmd|' /C calc'!A0", "$\\frac{$<script>alert(1)</script>![x](http://x)\x1b[31m"]
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


SUITE = """
[attacks.single_pixel]
attack = "SinglePixel"
max_pixels = 4
[attacks.boundary]
attack = "Boundary"
iterations = 3
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A stored run as a stranger could write it: no model can be given such a name."""
    images = np.zeros((6, 4, 4, 1), np.float32)
    images[::2] = 1
    suite = tmp_path_factory.mktemp("evil") / "x.toml"
    suite.write_text(SUITE)
    placed = [f"NAME{place}" for place in range(3)]
    ev = rc.evaluate(
        {name: planted.bright(0.3 + 0.1 * place) for place, name in enumerate(placed)},
        images,
        np.arange(6) % 2,
        suite=suite,
        n=6,
        repeats=2,
        batch_size=8,
        progress=False,
        about={"model": "NAME2", "dataset": "NAME0"},
    )
    manifest = json.dumps(ev.manifest)
    for name, evil in zip(placed, NAMES, strict=True):
        manifest = manifest.replace(name, json.dumps(evil)[1:-1])
    changed = json.loads(manifest)
    changed["suite"]["name"] = "}\\input{/etc/passwd}\x1b[31m"
    changed["environment"]["versions"]["robustcmp"] = "1\x1b[31m"
    order = [NAMES[placed.index(name)] for name in ev.dataset.model.values]
    return Results(ev.results.run, ev.results.arrays | {"model": np.array(order)}, changed)


def test_results_at_a_terminal(results: Results) -> None:
    for text in (to_text(results), summary(results)):
        assert "\\x1b[2J" in text
        assert not UNPRINTABLE.search(text)
    colored = summary(results, color=True)
    assert set(re.findall(r"\x1b[^m]*m", colored)) <= set(re.findall(r"\x1b\[[\d;]*m", colored))  # rich's colours alone
    assert not UNPRINTABLE.search(re.sub(r"\x1b\[[\d;]*m", "", colored))


def test_results_in_markdown(results: Results) -> None:
    text = to_markdown(results)
    assert "alert(1)" in text
    assert not UNPRINTABLE.search(text)
    assert not re.search(r"<[a-zA-Z/!]", text)
    assert "![x](" not in text


@pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # of long names
def test_results_on_the_page(results: Results) -> None:
    for text in (to_html(results), to_notebook(results)):
        assert "alert(1)" in text
        assert "<script>alert" not in text
        assert not UNPRINTABLE.search(text)


def test_results_in_other_programs(results: Results) -> None:
    lines = to_csv(results).splitlines()
    assert any(line.startswith("'=cmd|") for line in lines)
    assert not any(line.startswith("=") for line in lines)
    assert not UNPRINTABLE.search(to_csv(results))
    latex = to_latex(results)
    assert "\\input" not in latex
    assert "<" not in re.search(r"label\{(.*)\}", latex)[1]  # type: ignore[index]
    assert not UNPRINTABLE.search(latex + to_bibtex(results))


def test_a_model_or_a_suite_is_not_called_so(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 4, 4, 1), np.float32), np.ones(2, np.int64)
    for name in ("a\x1b[31m", "a\nb", "", "\u202eab"):
        with pytest.raises(UsageError, match="one line without control characters"):
            rc.evaluate({name: planted.bright(0.5)}, images, labels, n=1, repeats=1, progress=False)
    path = tmp_path / "a\x1b[31m.toml"
    path.write_text('[attacks.x]\nattack = "FGSM"\n')
    with pytest.raises(UsageError, match="name without control characters"):
        rc.evaluate({"a": planted.bright(0.5)}, images, labels, suite=path, progress=False)


def test_what_commands_say_and_print(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    def fail(given: Any) -> None:
        raise UsageError(f"no model {EVIL}")

    assert run_command(fail, "robustcmp eval", ["x"]) == 2
    say(f"said {EVIL}")
    show(f"shown {EVIL}")
    print_rows([{"run": f"listed {EVIL}"}], as_json=False)
    logging.getLogger("robustcmp").warning("%s is logged", EVIL)
    out, err = capsys.readouterr()
    assert not UNPRINTABLE.search(out + err + caplog.text)
    assert (out + err + caplog.text).count("\\x1b[2J") == 5


HOST = """
import os, sys
import protocol

class Evil(protocol.Network):
    framework = "evil"

    @staticmethod
    def version():
        return "1" + {evil!r}

    def __init__(self, architecture, seed):
        if seed:
            os.write(2, {evil!r}.encode("utf-8", "replace"))
            os._exit(3)
        raise ValueError({evil!r})

protocol.serve(Evil)
"""


def test_what_a_host_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = EVIL.replace("\udce4", "")
    (tmp_path / "host.py").write_text(HOST.format(evil=evil), encoding="utf-8")
    host = run("evil", sys.executable, tmp_path / "host.py")
    for seed, message in ((0, "failed in build: ValueError: "), (1, "It wrote last:\n")):
        with pytest.raises(HostError) as caught:
            host.call("build", architecture={}, seed=seed)
        assert message in str(caught.value)
        assert "\n\\x1b[2J" in str(caught.value).replace(" ", "\n")
        assert not UNPRINTABLE.search(str(caught.value))
    show(host.greeting["version"])
    assert not UNPRINTABLE.search(capsys.readouterr().out)
