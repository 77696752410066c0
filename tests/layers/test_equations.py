"""The equations that docstrings name are on the theory page they name, and a number means one
equation.
"""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page.read_text() for page in sorted((ROOT / "docs" / "theory").glob("*.md"))}
NUMBER = r"\d+\.\d+"


def tags(text: str) -> list[str]:
    """The numbers of the display equations of a page."""
    return re.findall(rf"\\tag\{{({NUMBER})\}}", text)


def references() -> list[tuple[str, str, str]]:
    """Every ``theory/page.md, eq. N.M`` of the sources as (file, page, number)."""
    found = []
    for source in sorted((ROOT / "src").rglob("*.py")):
        for page, listed in re.findall(
            rf"theory/(\w+\.md), eq\. ((?:{NUMBER}(?:, | to | and )?)+)", source.read_text()
        ):
            found += [(source.name, page, number) for number in re.findall(NUMBER, listed)]
    return found


def test_a_number_means_one_equation() -> None:
    counts = Counter(number for text in PAGES.values() for number in tags(text))
    assert not [number for number, count in counts.items() if count > 1]


def test_named_equations_are_on_their_pages() -> None:
    named = references()
    assert len(named) > 100
    assert not [
        (file, page, number)
        for file, page, number in named
        if number not in tags(PAGES.get(page, ""))
    ]
