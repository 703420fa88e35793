"""The page about a run: one file with everything, and nothing that it would have to load."""

from __future__ import annotations

import base64
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pages import Page

import robustcmp as rc
from robustcmp.cli.command import main
from robustcmp.report import page as page_module
from robustcmp.report.page import MOST_IMAGES, SECTIONS, png, to_html
from robustcmp.report.plots.gallery import choose_outcomes
from robustcmp.report.tables import rates, tables
from robustcmp.report.words import NO_GALLERY, NO_PICTURES, answer, notes, state

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


# in Chromium, at the width of a desk and of a phone, light and dark ---------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

WIDTHS = (1280, 360)
SCHEMES = ("light", "dark")
GUIDELINES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}

TEXT = {"exclude": [["svg > g"], ["svg > defs"]]}  # thousands of lines and dots, of which there are no rules

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def written(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of a run with everything, of one with thirty models, and of one with deployed networks."""
    directory = tmp_path_factory.mktemp("pages")
    small = rc.open_run(small_run)
    large = rc.open_run(Path(__file__).parents[1] / "docs" / "results" / "lenet5-mnist-ten-trainings")
    small.to_html(directory / "small.html")
    large.to_html(directory / "large.html")
    deployed = rc.open_run(Path(__file__).parents[1] / "docs" / "results" / "resnet20-cifar10-deployed")
    deployed.to_html(directory / "deployed.html")
    return {name: directory / f"{name}.html" for name in ("small", "large", "deployed")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a screen."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Any, written: dict[str, Path]) -> Iterator[Open]:
    """Return a function that opens a page; afterwards nothing may have been said in the console or asked of the net."""
    contexts, said, asked = [], [], []

    def open_page(name: str, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(written[name].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert sum(url.startswith("file:") for url in asked) == len(contexts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *product(["small", "large"], WIDTHS, SCHEMES),
        *product(["deployed"], WIDTHS, ["light"]),
    ],
)
def test_nothing_overflows_and_axe_finds_no_violation(show: Open, name: str, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = show(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if name != "small":  # its hundreds of cells are made by the same template, and take axe half a minute
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = false")
    found = axe.Axe().run(page, context=TEXT, options=GUIDELINES)
    assert found.violations_count == 0, found.generate_report()
    assert {"color-contrast", "svg-img-alt", "heading-order"} <= {rule["id"] for rule in found.response["passes"]}


def list_shown(page: Any) -> list[dict[str, str]]:
    """Return attack, class, model and outcome of every picture that is to be seen."""
    tiles: list[dict[str, str]] = page.evaluate(
        """[...document.querySelectorAll(".tile")].filter(tile => tile.checkVisibility()).map(
             tile => ({...tile.closest(".image").dataset, ...tile.dataset}))"""
    )
    return tiles


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["attack", "model", "class", "outcome"])
def test_a_filter_shows_what_fits_and_nothing_else(show: Open, choice: str) -> None:
    page = show("small")
    everything = list_shown(page)
    select = page.get_by_role("combobox", name=choice, exact=True)
    values = select.locator("option").all_text_contents()
    assert values[0] == "all"
    assert {*values[1:]} == {tile[choice] for tile in everything}
    for value in values[1:]:
        select.select_option(value)
        fits = [tile for tile in everything if tile[choice] == value]
        assert list_shown(page) == fits
        assert page.locator(".filters output").text_content() == f"{len(fits)} of {len(everything)} outcomes"
    page.get_by_role("button", name="Show all").click()
    assert page.locator(".image[hidden], .tile[hidden]").count() == 0
    assert list_shown(page) == everything


@pytest.mark.slow
def test_without_scripts_every_image_is_shown_and_there_are_no_filters(show: Open) -> None:
    page = show("small", java_script_enabled=False)
    assert not page.locator(".filters").is_visible()
    assert page.locator(".tile").count() > 10
    assert all(tile.is_visible() for tile in page.locator(".tile").all())
    page.locator("summary").first.click()
    assert page.locator("details[open] p").first.is_visible()


@pytest.mark.slow
def test_the_skip_link_is_the_first_stop_and_leads_to_the_answer(show: Open) -> None:
    page = show("small")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "large"])
def test_it_prints_with_everything_open(show: Open, name: str) -> None:
    page = show(name, scheme="dark")
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.locator("details[open]").count() == 0  # closed again afterwards
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
