"""The page about a run: which sections it has, that it needs nothing else, and that the numbers in
it are right.
"""

import csv
import json
import zlib
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from partita.core.quantity import Quantity
from partita.datasets import Dataset
from partita.diagnostics import summarize_weights
from partita.evaluators import Enumeration
from partita.experiment.requests import requested
from partita.models import RBM, Ising, MaxEnt, Potts
from partita.report import images
from partita.report.baseline import independent_columns
from partita.report.blocks import Beside, Figure
from partita.report.context import Subject
from partita.report.folder import open_subject
from partita.report.page import render
from partita.report.run import sections, write_run
from partita.report.sections.annealing import weights_along
from partita.report.sections.couplings import coupling_matrix
from partita.report.sections.samples import correlations, samples
from partita.tables import Rows
from partita.tables.encoding import Encoding
from partita.training.run import Run

ALWAYS = {
    "Score",
    "What the number means",
    "Learning curves",
    "Samples beside data",
    "Data",
    "Configuration",
    "Make it again",
}


class Parts(HTMLParser):
    """Addresses, embedded figures and headings of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.figures: list[dict] = []
        self.titles: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._inside = tag if tag == "h2" else given.get("type") or ""
        self.addresses += [
            value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")
        ]

    def handle_data(self, data: str) -> None:
        if self._inside == "application/json":
            self.figures.append(json.loads(data))
        elif self._inside == "h2":
            self.titles.append(data)
        self._inside = ""


def fitted(
    family: str, source: Path | str, folder: Path, *settings: str, **budget: float
) -> Subject:
    """A run as ``partita fit`` makes it, with its score."""
    experiment = requested(family, str(source), folder, list(settings), budget or {"epochs": 1}, 0)
    run = experiment.run(experiment.plan())
    return Subject(run, experiment.encoding, experiment.dataset, experiment.score(run))


def titles(subject: Subject) -> set[str]:
    made = sections(subject)
    texts = [block.text for section in made for block in section.blocks if block.kind == "text"]  # type: ignore[union-attr]
    assert not [text for text in texts if text.startswith("This part could not be made")]
    return {section.title for section in made}


def table(path: Path, width: int, n: int = 240) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 1)) + 0.4 * rng.normal(size=(n, width))
    np.savetxt(path, x, delimiter=",", header=",".join("abcdefgh"[:width]), comments="")
    return path


def words(path: Path) -> Path:
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["color", "<script>alert(1)</script>", "taste"])
        for k in rng.integers(0, 3, 200):
            size = ["s", "m", "<b>l</b>"][k if rng.random() < 0.7 else 0]
            lines.writerow(
                [["red", "green", "blue"][k], size, ["sweet", "sour"][rng.integers(0, 2)]]
            )
    return path


def test_an_estimated_score_has_chains_a_path_filters_and_filled_in_halves(rbm: Subject) -> None:
    assert rbm.score is not None and rbm.score.kind == "estimate"
    assert titles(rbm) == ALWAYS | {
        "Chain diagnostics",
        "Annealing path",
        "What the model is made of",
        "Missing values",
    }


def test_the_page_needs_nothing_else(run_page: Path) -> None:
    text = run_page.read_text()
    parts = Parts(text)
    assert all(address.startswith(("data:", "#")) for address in parts.addresses)
    assert text.count("* plotly.js v") == 1
    assert len(parts.figures) > 4
    assert parts.titles[0] == "Score"
    assert "partita fit rbm digits" in text


def test_the_same_run_gives_the_same_page(rbm: Subject, run_page: Path, tmp_path: Path) -> None:
    again = Subject(rbm.run, rbm.encoding, rbm.dataset, rbm.score)
    assert write_run(again, tmp_path / "again.html").read_bytes() == run_page.read_bytes()


def test_a_mixture_in_the_plane(tmp_path: Path) -> None:
    subject = fitted("mixture", table(tmp_path / "two.csv", 2), tmp_path / "run", "n_components=2")
    assert titles(subject) == ALWAYS | {"Density", "What the model is made of", "Missing values"}


def test_a_flow_has_a_density_and_fills_nothing_in(tmp_path: Path) -> None:
    assert titles(
        fitted("flow", table(tmp_path / "two.csv", 2), tmp_path / "run", "n_layers=2")
    ) == ALWAYS | {"Density"}


def test_a_gan_has_no_density(tmp_path: Path) -> None:
    subject = fitted("gan", table(tmp_path / "two.csv", 2), tmp_path / "run")
    assert titles(subject) == ALWAYS
    page = render("", "", sections(subject))
    assert "This model has no likelihood" in page
    assert (
        "what the critic claims, over its certified slope" in page
        and "exact Wasserstein-1 of the same batch" in page
    )
    assert "coverage along the steps" in page and "mmd2 along the steps" in page


def test_columns_of_a_wider_table(tmp_path: Path) -> None:
    subject = fitted("ppca", table(tmp_path / "five.csv", 5), tmp_path / "run", "n_components=1")
    assert titles(subject) == ALWAYS | {"What the model is made of", "Missing values"}


def test_words_stay_words_and_never_become_markup(tmp_path: Path) -> None:
    subject = fitted("potts", words(tmp_path / "words.csv"), tmp_path / "run", epochs=3)
    text = render("<i>title</i>", "", sections(subject))
    assert "<script>alert" not in text and "<b>l" not in text and "<i>title" not in text
    assert "&lt;script&gt;alert" in text
    labels = json.dumps(Parts(text).figures)
    assert "&lt;script>alert" in labels  # plotly reads tags too, and shows this as it is


def test_text_is_shown_as_text(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    subject = fitted(
        "hyena",
        tmp_path / "text.txt",
        tmp_path / "run",
        "length=16",
        "width=8",
        "n_layers=1",
        steps=2,
    )
    assert titles(subject) == ALWAYS
    assert "Draws of the model" in render("", "", sections(subject))


def test_images_are_images_also_for_a_model_of_steps(tmp_path: Path) -> None:
    subject = fitted("conv", "digits", tmp_path / "run", "width=4", "n_layers=1", steps=2)
    beside = next(block for block in samples(subject) if isinstance(block, Beside))
    assert [block.alt for block in beside.blocks] == [
        "64 rows of the data as images.",
        "64 draws of the model as images.",
    ]


def test_without_its_data_a_page_says_so(tmp_path: Path) -> None:
    path = table(tmp_path / "two.csv", 2)
    fitted("mixture", path, tmp_path / "run", "n_components=2")
    path.unlink()
    subject = open_subject(tmp_path / "run")
    text = render("", "", sections(subject))
    assert subject.score is None and "cannot be read" in text and "two.csv" in text
    assert "Samples beside data" in Parts(text).titles


def test_a_page_of_a_saved_run_has_the_score_that_the_fit_printed(tmp_path: Path) -> None:
    subject = fitted("mixture", table(tmp_path / "two.csv", 2), tmp_path / "run", "n_components=2")
    again = open_subject(tmp_path / "run")
    assert again.score is not None and subject.score is not None
    assert again.score.value == pytest.approx(subject.score.value, abs=1e-12)


def alone(x: np.ndarray, kind: str, model: torch.nn.Module) -> float | None:
    rows = Rows(x)
    run = Run(model, [], {}, 0)  # type: ignore[arg-type]
    return independent_columns(
        Subject(run, Encoding.fit(rows, kind), Dataset("x", rows, test=rows), Quantity(0.0))
    )  # type: ignore[arg-type]


def test_independent_columns_by_hand(generator: torch.Generator) -> None:
    """Frequencies with half a row more of each value; normal densities in the table's own units."""
    x = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    p = np.array([2.5 / 4, 3.5 / 4])
    by_hand = np.log(p[0]) * 2 / 3 + np.log(1 - p[0]) / 3 + np.log(p[1])
    assert alone(x, "binary", RBM(2, 2, generator=generator)) == pytest.approx(by_hand, rel=1e-12)
    y = np.array([[3.0], [5.0], [10.0]])
    normal = torch.distributions.Normal(float(y.mean()), float(y.std()))
    model = RBM(1, 1, visible_units="gaussian", generator=generator)
    assert alone(y, "real", model) == pytest.approx(
        float(normal.log_prob(torch.tensor(y)).mean()), rel=1e-6
    )


def test_the_path_ends_at_log_z(generator: torch.Generator) -> None:
    """64 chains with an ESS above 60 have an error near 0.03 nats: 0.15 is five of those, false
    alarms below one in a million.
    """
    model = RBM(12, 6, scale=0.3, generator=generator)
    betas, log_w = weights_along(model, generator)
    report = summarize_weights(log_w[-1])
    assert (betas[0], betas[-1]) == (0.0, 1.0)
    assert report.ess > 55
    truth = Enumeration()(model, generator=generator).value
    assert float(model.reference().log_z) + report.log_mean == pytest.approx(truth, abs=0.15)


def test_couplings_as_a_matrix(generator: torch.Generator) -> None:
    ising = Ising(3, generator=generator)
    with torch.no_grad():
        ising.J.copy_(torch.tensor([1.0, 2.0, 3.0]))
    matrix = coupling_matrix(ising)
    assert matrix is not None and matrix.tolist() == [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    maxent = MaxEnt("pairwise", ising.support.__class__(3), generator=generator)
    with torch.no_grad():
        maxent.theta.copy_(torch.arange(6.0))
    matrix = coupling_matrix(maxent)
    assert matrix is not None and matrix.tolist() == [[0, 3, 4], [3, 0, 5], [4, 5, 0]]
    potts = Potts(2, 2, generator=generator)
    with torch.no_grad():
        # its rows and columns sum to zero already
        potts.J.copy_(torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]]))
    matrix = coupling_matrix(potts)
    assert matrix is not None and matrix[0, 1] == pytest.approx(2.0)


def test_correlations_are_numpys() -> None:
    x = np.random.default_rng(0).normal(size=(50, 4)) @ np.random.default_rng(1).normal(size=(4, 4))
    figure = correlations(x, x[:30])
    assert isinstance(figure, Figure)
    shown, i, j = figure.traces[1], *np.triu_indices(4, 1)
    np.testing.assert_allclose(shown["x"], np.corrcoef(x.T)[i, j], rtol=1e-10)
    np.testing.assert_allclose(shown["y"], np.corrcoef(x[:30].T)[i, j], rtol=1e-10)


def test_a_png_holds_the_pixels() -> None:
    page = images.signed_sheet(np.array([[-1.0, 0.0, 0.5, 1.0], [0.0, 0.0, 0.0, 0.0]]), (2, 2))
    made = images.png(page)
    start = made.index(b"IDAT") + 4
    lines = np.frombuffer(zlib.decompress(made[start : made.index(b"IEND") - 8]), np.uint8).reshape(
        2, -1
    )
    np.testing.assert_array_equal(lines[:, 1:].reshape(page.shape), page)
    assert (
        page[0, 0].tolist() == images.BLUE.tolist() and page[1, 1].tolist() == images.RED.tolist()
    )
    assert page[0, 1].tolist() == images.WHITE.tolist()
