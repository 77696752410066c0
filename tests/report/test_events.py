"""Events of a fit on its page: a table of what was found and what was done, lines in the curves,
readable in the dark and on a phone.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

import partita
from partita.models import RBM
from partita.objectives import PCD
from partita.report.blocks import Figure, Table
from partita.report.context import Subject
from partita.report.page import write_page
from partita.report.run import SECTIONS, sections
from partita.report.sections.events import event_rows, events
from partita.tables.encoding import Encoding
from partita.training.session import Session


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A run that went back twice, from a divergence and from dead units, and whose chains stood
    still at the end.
    """
    g, folder = torch.Generator().manual_seed(0), tmp_path_factory.mktemp("events") / "run"
    x = torch.randint(0, 2, (60, 4), generator=g).float()
    advance = Session.advance

    def unlucky(self: Session) -> Any:
        if self.step == 57 and self.rate_scale == 1:
            raise partita.core.Diverged(
                "fit: the loss of 'model' must stay finite and small; got 1.2e+04 at step 57. "
                "Lower learning_rate."
            )
        if self.step == 83 and self.rate_scale == 0.5:
            with torch.no_grad():
                self.bare.c.fill_(-50.0)
        return advance(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "advance", unlucky)
        with pytest.warns(partita.errors.PartitaWarning, match="went back"):
            partita.fit(
                RBM(4, 3, generator=g),
                x,
                PCD(chains=8),
                validation=x[:20],
                steps=200,
                batch_size=20,
                learning_rate=1e-3,
                guard="rollback",
                out=folder,
                generator=g,
            )
    return Subject(partita.load(folder), Encoding.constant("binary", 4))


def test_each_event_is_a_row_with_its_step_and_what_was_done(subject: Subject) -> None:
    text, table = events(subject)
    assert "took the fit back 2 times" in text.text  # type: ignore[union-attr]
    assert isinstance(table, Table) and table.head == ("step", "what was found", "what was done")
    assert [row[0] for row in table.rows] == ["50", "80"]
    assert table.rows[0][1:] == (
        "the loss of 'model' must stay finite and small; got 1.2e+04 at step 57.",
        "went back from step 57 to 50, to go on with 0.5 of the learning rate",
    )
    assert "always on or always off" in str(
        table.rows[1][1]
    ) and "0.25 of the learning rate" in str(table.rows[1][2])


def test_the_curves_show_where_they_were(subject: Subject) -> None:
    (curves,) = [
        section for section in sections(subject, {"Learning curves": SECTIONS["Learning curves"]})
    ]
    figure = curves.blocks[0]
    assert isinstance(figure, Figure) and [shape["x0"] for shape in figure.layout["shapes"]] == [
        50,
        80,
    ]


def test_a_fit_that_went_smoothly_has_no_such_section(rbm: Subject) -> None:
    assert list(events(rbm)) == [] and event_rows(rbm.run) == []


def test_the_table_is_readable_in_the_dark_and_on_a_phone(
    subject: Subject, browser: Any, tmp_path: Path
) -> None:
    made = sections(subject, {name: SECTIONS[name] for name in ("Learning curves", "Events")})
    context = browser.new_context(
        viewport={"width": 390, "height": 800}, offline=True, color_scheme="dark"
    )
    page = context.new_page()
    page.goto(write_page(tmp_path / "report.html", "An RBM", "that went back", made).as_uri())
    cells = page.locator("#events td").all_inner_texts()
    assert cells[0] == "50" and "went back from step 90 to 80" in cells[5]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    table = page.locator("#events table").bounding_box()
    assert table is not None and table["width"] <= 390
    inks = page.evaluate(
        "['color', 'backgroundColor'].map((name) => "
        "getComputedStyle(document.body)[name].match(/\\d+/)[0])"
    )
    assert int(inks[0]) > 180 and int(inks[1]) < 60
    context.close()
