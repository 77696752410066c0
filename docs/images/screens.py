"""The README's screenshots: ``make demo && partita fit rbm digits && python docs/images/screens.py
runs/demo-1 runs/rbm-digits-1``.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-gpu"]
WIDTH, HEIGHT = 1040, 1125
MARGIN = 12
PATIENCE = 200_000  # milliseconds, for a machine that is busy


def photograph(browser: Any, page_path: Path, out: str) -> None:
    """The top of a page down to the end of its first section, once its figures are drawn."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.goto(page_path.resolve().as_uri(), timeout=PATIENCE)
    page.wait_for_timeout(4000)
    section = page.locator("section").first.bounding_box()
    height = section["y"] + section["height"] + MARGIN
    page.screenshot(
        path=HERE / out, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height}
    )
    page.close()


def main() -> None:
    """Write ``leaderboard.png`` of a comparison and ``report.png`` of a run beside this file."""
    from playwright.sync_api import sync_playwright

    chromium = next(
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    )
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for folder, out in zip(sys.argv[1:], ("leaderboard.png", "report.png"), strict=True):
            photograph(browser, Path(folder) / "report.html", out)
        browser.close()


if __name__ == "__main__":
    main()
