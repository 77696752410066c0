"""The command line in process, and what it may say."""

import warnings
from typing import Any

from typer.testing import CliRunner

from partita.cli.app import app


def command(*words: Any) -> Any:
    """The result of one command."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CliRunner().invoke(
            app, list(map(str, words)), prog_name="partita", catch_exceptions=True
        )


def explain(result: Any) -> None:
    """A result is fine, or one sentence on the last line of stderr; wrong usage is explained as
    Click does.
    """
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError("the command raised") from result.exception
    assert "Traceback" not in result.output
    assert result.exit_code in (0, 1, 2), result.output
    if result.exit_code == 1:
        errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        assert len(errors) == 1 and result.stderr.splitlines()[-1] == errors[0], result.stderr
    if result.exit_code == 2:
        assert "Error" in result.stderr and any(
            said in result.stderr for said in ("Usage: partita", "requires an argument")
        ), result.stderr
