"""The page in a real browser: Chromium without a screen, at the width of a desk and of a phone, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import robustcmp as rc

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]

WIDTHS = (1280, 360)
SCHEMES = ("light", "dark")
GUIDELINES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}

TEXT = {"exclude": [["svg > g"], ["svg > defs"]]}  # thousands of lines and dots, of which there are no rules

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def files(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
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
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Any, files: dict[str, Path]) -> Iterator[Open]:
    """Return a function that opens a page; afterwards nothing may have been said in the console or asked of the net."""
    contexts, said, asked = [], [], []

    def open_page(name: str, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(files[name].as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert sum(url.startswith("file:") for url in asked) == len(contexts)


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *product(["small", "large"], WIDTHS, SCHEMES),
        *product(["deployed"], WIDTHS, ["light"]),
    ],
)
def test_nothing_overflows_and_axe_finds_no_violation(show: Open, name: str, width: int, scheme: str) -> None:
    page = show(name, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if name != "small":  # its hundreds of cells are made by the same template, and take axe half a minute
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = false")
    found = axe.Axe().run(page, context=TEXT, options=GUIDELINES)
    assert found.violations_count == 0, found.generate_report()
    assert {"color-contrast", "svg-img-alt", "heading-order"} <= {rule["id"] for rule in found.response["passes"]}


def shown(page: Any) -> list[dict[str, str]]:
    """Return attack, class, model and outcome of every picture that is to be seen."""
    tiles: list[dict[str, str]] = page.evaluate(
        """[...document.querySelectorAll(".tile")].filter(tile => tile.checkVisibility()).map(
             tile => ({...tile.closest(".image").dataset, ...tile.dataset}))"""
    )
    return tiles


@pytest.mark.parametrize("choice", ["attack", "model", "class", "outcome"])
def test_a_filter_shows_what_fits_and_nothing_else(show: Open, choice: str) -> None:
    page = show("small")
    everything = shown(page)
    select = page.get_by_role("combobox", name=choice, exact=True)
    values = select.locator("option").all_text_contents()
    assert values[0] == "all"
    assert {*values[1:]} == {tile[choice] for tile in everything}
    for value in values[1:]:
        select.select_option(value)
        fits = [tile for tile in everything if tile[choice] == value]
        assert shown(page) == fits
        assert page.locator(".filters output").text_content() == f"{len(fits)} of {len(everything)} outcomes"
    page.get_by_role("button", name="Show all").click()
    playwright.expect(page.locator(".image[hidden], .tile[hidden]")).to_have_count(0)
    assert shown(page) == everything


def test_without_scripts_every_image_is_shown_and_there_are_no_filters(show: Open) -> None:
    page = show("small", java_script_enabled=False)
    assert not page.locator(".filters").is_visible()
    assert page.locator(".tile").count() > 10
    assert all(tile.is_visible() for tile in page.locator(".tile").all())
    page.locator("summary").first.click()
    assert page.locator("details[open] p").first.is_visible()


def test_the_skip_link_is_the_first_stop_and_leads_to_the_answer(show: Open) -> None:
    page = show("small")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


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
