"""The page about a run: one file with everything, and nothing that it would have to load."""

from __future__ import annotations

import base64
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import Page

import robustcmp as rc
from robustcmp.cli.command import main
from robustcmp.report import page as page_module
from robustcmp.report.page import MOST_IMAGES, NO_GALLERY, SECTIONS, png, to_html
from robustcmp.report.plots.gallery import choose_outcomes
from robustcmp.report.tables import rates, tables
from robustcmp.report.words import NO_PICTURES, answer, notes, state

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
NOT_HERE = ("deployments", "conditioning")  # sections that the run of these tests has not


@pytest.fixture(scope="module")
def ev(small_run: Path) -> rc.Evaluation:
    return rc.open_run(small_run)


@pytest.fixture(scope="module")
def html(ev: rc.Evaluation) -> str:
    return to_html(ev.results)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without pictures, which take most of the time."""
    monkeypatch.setattr(page_module, "_can_draw", lambda: False)


def test_the_answer_comes_first_and_all_else_in_order(ev: rc.Evaluation, html: str) -> None:
    texts = Page.of(html).texts
    first = texts.index(answer(ev.results))
    for statement in state(ev.results):
        assert {statement.word, *statement.sentences, *statement.details} <= {*texts[first:]}
    sections = [section.name for section in SECTIONS if section.name not in NOT_HERE]
    assert re.findall(r'<section id="([\w-]+)"', html) == sections
    assert re.findall(r'<a href="#([\w-]+)">', html)[-len(sections) :] == sections
    levels = [int(level) for level in re.findall(r"<h(\d)", html)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_every_table_and_note_is_there_once(ev: rc.Evaluation, html: str) -> None:
    page = Page.of(html)
    for table in [rates(ev.results), *tables(ev.results)]:
        assert page.tables.count([list(table.names), *map(list, table.written)]) == 1, table.title
    assert set(notes(ev.results)) <= set(page.texts)
    assert "python compare.py --model linear" in page.texts
    assert any(text.startswith("@software{robustcmp") for text in page.texts)


def test_it_is_self_contained(html: str) -> None:
    assert re.search(r"https?:|//[a-z]|@import|url\((?!#)", re.sub(r'"data:[^"]*"', "", html)) is None
    page = Page.of(html)
    assert not {"iframe", "object", "embed"} & page.tags
    sources = [value or "" for _, name, value in page.attributes if name in ("src", "href", "srcset")]
    assert all(source.startswith(("#", "data:")) for source in sources)
    images = [value or "" for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    for image in images:
        kind, _, data = image.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data, validate=True).startswith(b"\x89PNG\r\n")


def test_no_two_elements_have_one_name_and_every_reference_leads_somewhere(html: str) -> None:
    page = Page.of(html)
    names = [value for _, name, value in page.attributes if name == "id"]
    assert len(names) == len(set(names))
    links = [value[1:] for _, name, value in page.attributes if name == "href" and value and value.startswith("#")]
    labels = [part for _, name, value in page.attributes if name == "aria-labelledby" for part in (value or "").split()]
    assert {*links, *labels} <= set(names)


def test_pictures_are_svg_with_a_title_and_a_description(html: str) -> None:
    pictures = SVG.findall(html)
    assert len(pictures) > 10
    for picture in pictures:
        svg = ElementTree.fromstring(picture)
        assert svg.get("role") == "img"
        title, description = svg.findall("title") + svg.findall("desc")
        assert [title.get("id"), description.get("id")] == (svg.get("aria-labelledby") or "").split()
        assert title.text
        assert description.text
        assert svg.findall(".//text")  # text, and no outlines of letters


def test_the_gallery_shows_the_same_images_in_every_model(ev: rc.Evaluation, html: str) -> None:
    page = Page.of(html)
    images = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    for attack in ev.results.attacks:
        chosen = choose_outcomes(ev.results, attack, MOST_IMAGES)
        for row in [row for row in chosen if any(shown.is_fooled for shown in row)]:
            assert [shown.model for shown in row] == ev.results.models
            for shown in row:
                assert png(shown.adversarial) in images
                assert png(shown.clean) in images
                if shown.is_fooled:
                    outcome = ev.dataset.isel(image=shown.position).sel(
                        model=shown.model, attack=attack, training_seed=0, repeat=0
                    )
                    assert shown.taken_for == int(outcome.adversarial_class)
                    assert shown.taken_for != shown.label == int(outcome.label)
                    assert png(shown.perturbation) in images


def test_the_gallery_begins_with_images_that_were_fooled(html: str) -> None:
    counts = [row.count('data-outcome="fooled"') for row in html.split('<li class="image"')[1:]]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0


def test_a_run_without_images_has_no_gallery(plain: None) -> None:
    html = to_html(rc.open_run(RESULTS / "lenet5-mnist-guo2019").results)
    assert "<img" not in html
    assert NO_GALLERY in html
    assert '<section id="variance"' not in html  # of one training each nothing is known


def test_without_matplotlib_the_page_has_its_tables(
    ev: rc.Evaluation, html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    bare = to_html(ev.results)
    assert NO_PICTURES in Page.of(bare).texts
    assert "<svg" not in bare
    assert Page.of(bare).tables == Page.of(html).tables


def test_the_command_writes_the_page_into_the_run(
    small_run: Path, html: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    before, figures = dict(matplotlib.rcParams), plt.get_fignums()
    run = tmp_path / "run"
    shutil.copytree(small_run, run)
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert (run / "report.html").read_text(encoding="utf-8") == html  # the same run, the same page
    assert main(["report", str(run), "--out", str(tmp_path / "new" / "own.html")]) == 0
    assert rc.open_run(run).results.models == ["left", "right"]  # it is still a run
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == figures
    assert main(["report", str(tmp_path)]) == 2
    assert "is not a run of robustcmp" in capsys.readouterr().err


def test_a_notebook_shows_the_answer_and_the_rates_in_a_style_of_its_own(ev: rc.Evaluation) -> None:
    html = ev._repr_html_()
    page = Page.of(html)
    assert answer(ev.results) in page.texts
    table = rates(ev.results)
    assert page.tables == [[list(table.names), *map(list, table.written)]]
    assert not {"html", "body", "script", "h1"} & page.tags
    [style] = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    selectors = [part for rule in re.findall(r"([^{}]+)\{", style) for part in rule.split(",")]
    assert all(selector.strip().startswith(".robustcmp") for selector in selectors)
