"""The pages in a real browser: no error, no network, every figure drawn, light and dark, narrow,
and on paper.

Each page is opened once, from disk and without a network; the tests then change what the reader
would change.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

PAGES = ("run_page", "comparison_page")
UNDRAWN = ".plot:not([data-drawn])"
OURS = ("file:", "data:", "blob:")
PATIENCE = 180_000  # milliseconds, for a machine that is busy


@dataclass
class Visit:
    """An open page, what it complained of, and how many figures waited to be seen when it was
    opened.
    """

    page: Any
    name: str
    complaints: list[str] = field(default_factory=list)
    waiting: int = 0

    def look(self, width: int = 1000, theme: str = "light") -> Any:
        """The page at a width and in the system's colors, read from top to bottom with all that is
        folded opened.
        """
        page = self.page
        page.set_viewport_size({"width": width, "height": 700})
        page.emulate_media(color_scheme=theme)
        page.evaluate("delete document.documentElement.dataset.theme")
        page.evaluate(
            "document.querySelectorAll('details').forEach((part) => { part.open = true; })"
        )
        for place in range(0, page.evaluate("document.documentElement.scrollHeight") + 700, 500):
            page.evaluate(f"scrollTo({{ top: {place}, behavior: 'instant' }})")
            page.wait_for_timeout(25)
        return page

    def every_plot(self, holds: str) -> bool:
        return self.page.evaluate(
            f"[...document.querySelectorAll('.plot')].every((plot) => {holds})"
        )

    def brightness(self) -> int:
        """Of the paper, 0 to 255."""
        return int(
            self.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
        )


@pytest.fixture(scope="module", params=PAGES)
def visit(request: pytest.FixtureRequest, browser: Any) -> Iterator[Visit]:
    path = request.getfixturevalue(request.param)
    context = browser.new_context(viewport={"width": 1000, "height": 700}, offline=True)
    context.set_default_timeout(PATIENCE)
    found = Visit(context.new_page(), request.param)
    found.page.on("console", lambda message: found.complaints.append(message.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on(
        "request",
        lambda request: (
            None if request.url.startswith(OURS) else found.complaints.append(request.url)
        ),
    )
    found.page.goto(path.as_uri())
    found.waiting = found.page.locator(UNDRAWN).count()
    yield found
    context.close()


@pytest.fixture(autouse=True)
def _nothing_to_complain_of(visit: Visit) -> Iterator[None]:
    yield
    assert visit.complaints == []


def test_figures_are_drawn_once_they_are_seen(visit: Visit) -> None:
    # whose few figures are all near the top
    assert visit.waiting > 0 or visit.name == "comparison_page"
    page = visit.look()
    assert page.locator(UNDRAWN).count() == 0
    heights = page.evaluate(
        "[...document.querySelectorAll('.plot .main-svg')].map((svg) => "
        "svg.getBoundingClientRect().height)"
    )
    assert len(heights) >= page.locator(".plot").count() > 0
    assert min(heights) > 100
    assert page.evaluate(
        "[...document.images].every((image) => image.complete && image.naturalWidth > 0)"
    )


def test_dark_as_the_system_and_light_at_the_press_of_the_button(visit: Visit) -> None:
    page = visit.look(theme="dark")
    assert visit.brightness() < 60
    assert visit.every_plot("plot.dataset.drawn === 'dark'")
    page.locator("#theme").click()
    assert visit.brightness() > 200
    assert visit.every_plot("plot.dataset.drawn === 'light'")


def test_a_phone_never_scrolls_sideways(visit: Visit) -> None:
    page = visit.look(width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert visit.every_plot(
        "[...plot.querySelectorAll('.main-svg')].every((svg) => svg.clientWidth <= 390)"
    )


def test_paper_has_all_figures_in_light_colors(visit: Visit) -> None:
    page = visit.look(theme="dark")
    page.evaluate(
        "addEventListener('beforeprint', () => { window.printed = "
        "[...document.querySelectorAll('.plot')].map((plot) => [plot.dataset.drawn, "
        "plot.querySelector('.main-svg').clientWidth, "
        "plot.querySelector('.main-svg').clientHeight - plot.clientHeight]); }, { once: true })"
    )
    assert page.pdf()[:4] == b"%PDF"
    printed = page.evaluate("window.printed")
    assert len(printed) == page.locator(".plot").count()
    assert {theme for theme, _, _ in printed} == {"light"}
    assert max(width for _, width, _ in printed) <= 660
    assert {too_high for _, _, too_high in printed} == {0}  # nothing is cut off below
    assert visit.every_plot("plot.dataset.drawn === 'dark'")  # and back again


def test_links_lead_to_sections(visit: Visit) -> None:
    links = visit.page.evaluate(
        "[...document.querySelectorAll(\"a[href^='#']\")].map((a) => "
        "!!document.getElementById(a.hash.slice(1)))"
    )
    assert links
    assert all(links)


@pytest.mark.parametrize("selector", [".plot", "img"])
def test_figures_have_alternative_text(visit: Visit, selector: str) -> None:
    texts = visit.page.evaluate(
        f"[...document.querySelectorAll('{selector}')].map((e) => e.getAttribute('aria-label') ?? "
        "e.alt)"
    )
    assert texts
    assert min(map(len, texts)) > 15
