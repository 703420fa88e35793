"""What the documentation says is true: its examples run, its links lead somewhere, its options and names exist."""

from __future__ import annotations

import ast
import doctest
import json
import math
import re
import runpy
import shlex
import types
from importlib import import_module
from pathlib import Path

import pytest

import robustcmp
from robustcmp import frameworks
from robustcmp.cli import command

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
PARSERS = {name: import_module(f"robustcmp.cli.{name}")._parser for name in command.COMMANDS}

FENCED = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:python -m robustcmp\.|robustcmp )(\w+)((?: [^#>\n]+)?)", re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.\d+")
# A path of the repository in backticks; a word in capitals stands for a name, as in zoo/MODEL.toml.
NAMED_PATH = re.compile(
    r"`((?:src|tests|docs|attacks|zoo|notebooks|\.ci)/[\w./*-]*"
    r"|Makefile|setup\.cfg|pyproject\.toml|constraints\.txt|mkdocs\.yml|[A-Z]+\.md)`"
)
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b(?!\.md)")

page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
# Their examples take half a minute each: attacks on many images, and a training in every framework.
LONG = {"methodology.md", "extending.md", "lab.md", "tutorial.md"}


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


class Checker(doctest.OutputChecker):
    """Takes decimal fractions within 2 % as the same: between machines floating point differs in its last bits."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        numbers = [[float(number) for number in NUMBER.findall(text)] for text in (want, got)]
        return super().check_output(NUMBER.sub("#", want), NUMBER.sub("#", got), optionflags) and all(
            math.isclose(*pair, rel_tol=0.02, abs_tol=1e-4) for pair in zip(*numbers, strict=True)
        )


def examples(path: Path) -> doctest.DocTest:
    """Return the examples of a page, in one namespace; an empty line inside a block belongs to an output."""
    lines = [""] * (path.read_text(encoding="utf-8").count("\n") + 1)
    text = path.read_text(encoding="utf-8")
    for block in FENCED.finditer(text):
        if ">>> " in block[3]:
            first = text.count("\n", 0, block.start(3))
            lines[first : first + block[3].count("\n")] = [line or "<BLANKLINE>" for line in block[3].splitlines()]
    return doctest.DocTestParser().get_doctest("\n".join(lines) + "\n", {}, page_id(path), str(path), 0)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name in LONG else []) for path in PAGES],
)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text(encoding="utf-8")
    test = examples(path)
    if not test.examples:
        return
    code = "".join(example.source for example in test.examples)
    needed = frameworks.NAMES if "frameworks.NAMES" in code else [n for n in frameworks.NAMES if f'"{n}"' in code]
    missing = set(needed) - set(frameworks.list_installed())
    if missing:
        pytest.skip(f"its examples need {', '.join(sorted(missing))}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").symlink_to(ROOT / "docs")  # examples open the published runs
    for _, name, content in FENCED.findall(text):
        if name and not name.startswith("src/"):
            Path(name).write_text(content, encoding="utf-8")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=flags)
    report: list[str] = []
    failed, _ = runner.run(test, out=report.append)
    assert not failed, "".join(report)


def test_only_last_digits_may_differ() -> None:
    checker = Checker()
    assert checker.check_output("median 11.05\n", "median 11.04\n", 0)
    assert not checker.check_output("median 11.05\n", "median 12.05\n", 0)
    assert not checker.check_output("20 images\n", "21 images\n", 0)
    assert not checker.check_output("0.5 0.5\n", "0.5\n", 0)


@page
def test_excerpts_are_those_of_the_code(path: Path) -> None:
    for _, name, excerpt in FENCED.findall(path.read_text(encoding="utf-8")):
        if name.startswith("src/"):
            lines = [line.strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
            shown = [line.strip() for line in excerpt.splitlines()]
            starts = (i for i, line in enumerate(lines) if line == shown[0])
            assert any(lines[i : i + len(shown)] == shown for i in starts), f"{name} has no such lines:\n{excerpt}"


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@page
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), f"{target} is not there"
        if anchor:
            assert anchor in slugs(file.read_text(encoding="utf-8")), f"{target}: no such heading"


@page
def test_pages_of_the_site_link_to_pages_of_the_site(path: Path) -> None:
    if path.parent.name != "docs":
        return
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCED.sub("", path.read_text(encoding="utf-8"))):
        outside = target.startswith("..") and not re.fullmatch(r"\.\./(CONTRIBUTING\.md|notebooks/\w+\.ipynb)", target)
        assert not outside, f"{target} is outside docs/, so the site does not have it"


@page
def test_files_that_are_named_exist(path: Path) -> None:
    for named in NAMED_PATH.findall(path.read_text(encoding="utf-8")):
        if not PLACEHOLDER.search(named):
            assert list(ROOT.glob(named.rstrip("/"))), f"{named} is not there"


@page
def test_nothing_of_the_authors_machine_is_named(path: Path) -> None:
    assert not re.search(r"/(?:home|root|tmp|Users|work)/", path.read_text(encoding="utf-8"))


def test_cleaning_keeps_the_runs_of_the_user() -> None:
    removed = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nclean:\n\trm -rf ")[2].splitlines()[0]
    assert "runs" not in removed.split()


def test_the_navigation_has_every_page() -> None:
    navigation = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(navigation) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_the_api_page_has_the_public_names() -> None:
    entries = re.findall(r"^::: robustcmp\.(\w+)$", (ROOT / "docs/api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(entries) == sorted(robustcmp.__all__)


def test_every_public_name_is_documented() -> None:
    for name in robustcmp.__all__:
        thing = getattr(robustcmp, name)
        assert thing.__doc__, name
        if isinstance(thing, types.ModuleType):
            public = getattr(thing, "__all__", None) or [n for n in vars(thing) if n.endswith("_interval")]
            assert all(getattr(thing, inner).__doc__ for inner in public), name


TABLES = runpy.run_path(str(ROOT / "docs/results/tables.py"))


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[] if path == "README.md" else [pytest.mark.slow]) for path in TABLES["PAGES"]]
)
def test_the_tables_are_those_of_the_runs(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert TABLES["page"](text) == text, "run python docs/results/tables.py"


@pytest.mark.slow
def test_the_tables_across_runs_are_those_of_the_runs() -> None:
    assert (ROOT / "docs/results/across-runs.md").read_text(encoding="utf-8") == TABLES["across_runs"]()


def test_the_papers_pixel_rates_are_of_five_repeats_or_more() -> None:
    """By hand: all twelve are multiples of 0.0002, and 0.0424 is none of 0.001; half of 10,000 outcomes' means are."""
    _, steps = TABLES["read_rates"]()
    assert steps["single_pixel"] == ([5, 8, 9, 10], pytest.approx(2**-12), 12)
    assert math.isnan(steps["boundary"].chance)  # all are 1


@pytest.mark.parametrize("page", ["attacks.md", "training-and-prediction.md"])
def test_the_tables_are_those_of_the_benchmarks(page: str) -> None:
    tables = runpy.run_path(str(ROOT / "benchmarks/tables.py"))
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert tables["write_tables"](text, tables["read"](), tables["PAGES"][page]) == text, "run benchmarks/tables.py"


def test_the_commands_page_is_that_of_the_parsers() -> None:
    commands = runpy.run_path(str(ROOT / "tools/commands.py"))
    assert commands["page"]() == commands["PAGE"].read_text(encoding="utf-8"), "run python tools/commands.py"


def test_the_table_of_the_summary_as_json_has_every_key() -> None:
    code = ast.parse((ROOT / "src/robustcmp/report/exports.py").read_text(encoding="utf-8"))
    functions = [part for part in code.body if getattr(part, "name", None) == "to_json"]
    keys = set()
    for node in (part for function in functions for part in ast.walk(function)):
        match node:
            case (
                ast.Assign(targets=[ast.Name()], value=ast.Dict(keys=names)) | ast.AnnAssign(value=ast.Dict(keys=names))
            ):
                keys |= {name.value for name in names if isinstance(name, ast.Constant)}
            case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=name))]):
                keys.add(name)
    page = (ROOT / "docs/runs.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| key \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    shown = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert shown == keys


@page
def test_commands_that_are_shown_can_be_given(path: Path) -> None:
    for _, _, block in FENCED.findall(path.read_text(encoding="utf-8")):
        for name, rest in COMMAND.findall(block):
            PARSERS[name]().parse_args(shlex.split(rest))


DIGESTS = runpy.run_path(str(ROOT / "docs/results/digests.py"))


@pytest.mark.parametrize(
    "run",
    [pytest.param(run, marks=[] if run == "lenet5-mnist-guo2019" else [pytest.mark.slow]) for run in DIGESTS["RUNS"]],
)
def test_no_figure_of_a_published_run_has_changed(run: str) -> None:
    stored = json.loads(DIGESTS["STORED"].read_text(encoding="utf-8"))
    assert DIGESTS["of_run"](run) == stored["runs"][run], "see docs/results/digests.py"
    beside = (ROOT / "docs/results" / run / "tables.md").read_text(encoding="utf-8")
    assert TABLES["supplement"](run) == beside, "run python docs/results/tables.py"


def test_the_page_of_what_people_bring_shows_how_its_tests_ended() -> None:
    text = (ROOT / "docs/what-you-can-bring.md").read_text(encoding="utf-8")
    brought = runpy.run_path(str(ROOT / "tools/brought.py"))
    assert brought["page"](text) == text, "run python tools/brought.py"
    assert len(text.splitlines()) > 20
    for test in json.loads(brought["RESULTS"].read_text(encoding="utf-8")):
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8"), f"{test}: make brought"
