"""Small runs to write pages about, and a browser to open them in."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from partita.datasets import load
from partita.evaluators import Sandwich
from partita.experiment.saved import evaluate_encoded
from partita.models import RBM
from partita.objectives import PCD
from partita.report.context import Subject
from partita.report.folder import write_report
from partita.report.run import write_run
from partita.samplers import Gibbs
from partita.tables.encoding import Encoding
from partita.training import fit

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def rbm(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """An RBM too large to be summed, fitted to digits for a moment: every sort of section but
    few.
    """
    g = torch.Generator().manual_seed(0)
    digits, folder = load("digits"), tmp_path_factory.mktemp("run") / "rbm"
    train, encoding = digits.train.take(range(300)), Encoding.constant("binary", 64)
    about = {
        "data": {"name": "digits", "source": "digits", "shape": [8, 8]},
        "encoding": encoding.as_json(),
        "seed": 0,
        "family": {"name": "rbm", "settings": {"n_hidden": 24}},
        "command": "partita fit rbm digits",
    }
    run = fit(
        RBM(64, 24, generator=g),
        train,
        PCD(Gibbs(), chains=16, steps=1),
        epochs=2,
        validation=digits.train.take(range(300, 340)),
        validations=2,
        out=folder,
        about=about,
        generator=g,
    )
    assert digits.test is not None
    score = evaluate_encoded(
        run.model,
        encoding,
        digits.test.tensor().double().numpy(),
        evaluator=Sandwich(60, 16),
        generator=g,
    )
    return Subject(run, encoding, digits, score)


@pytest.fixture(scope="session")
def run_page(rbm: Subject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(rbm, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="session")
def comparison_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two objectives of a small RBM, as the command line compares them."""
    from typer.testing import CliRunner

    from partita.cli.app import app

    folder = tmp_path_factory.mktemp("comparison") / "board"
    words = [
        "compare",
        "bars-and-stripes",
        "--objectives",
        "pcd,nce",
        "--epochs",
        "2",
        "--set",
        "n_hidden=3",
        "--set",
        "validations=2",
    ]
    assert (
        CliRunner()
        .invoke(app, [*words, "--out", str(folder), "--quiet"], catch_exceptions=False)
        .exit_code
        == 0
    )
    return write_report(folder)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium through Playwright, which downloads nothing; skipped with a reason where
    there is none.
    """
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None and os.environ.get("PARTITA_BROWSER") == "required":
        pytest.fail(f"a browser is required here; none of {', '.join(BROWSERS)} is installed")
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="no Playwright: pip install 'partita[dev]'"
    )
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()
