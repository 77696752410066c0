"""The command line in process: a folder of its own, and one function to call it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from partita.cli.app import app

Call = Callable[..., Any]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """``call("fit", "rbm", "digits")``, in an empty working directory; exceptions that are no exits
    come through.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARTITA_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def invoke(*arguments: str) -> Any:
        # tests/report is about pages
        pageless = ["--no-report"] if arguments[:1] == ("fit",) else []
        result = CliRunner().invoke(
            app, [*map(str, arguments), *pageless], prog_name="partita", catch_exceptions=False
        )
        assert "Traceback" not in result.output
        return result

    return invoke


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A .csv of correlated zeros and ones with named columns."""
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 2, (300, 1)) + (rng.random((300, 5)) < 0.15)) % 2
    path = tmp_path / "spikes.csv"
    np.savetxt(path, x, fmt="%d", delimiter=",", header="a,b,c,d,e", comments="")
    return path
