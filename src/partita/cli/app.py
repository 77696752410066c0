"""The command line: all verbs with an example of each, and how errors are shown.

A verb imports what does its work only when it is called, so that ``--help`` is fast.
"""

import errno
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from partita.cli.anomalies import anomalies
from partita.cli.cluster import cluster
from partita.cli.data import data
from partita.cli.evaluate import evaluate
from partita.cli.impute import impute
from partita.cli.lab import lab
from partita.cli.launch import launched
from partita.cli.models import models
from partita.cli.options import (
    SETTING_OF_ONE,
    Data,
    Devices,
    Json,
    Kinds,
    Nodes,
    Seed,
    Settings,
    Strategy,
)
from partita.cli.report import report
from partita.cli.sample import sample
from partita.cli.schema import schema
from partita.errors import Argument, PartitaError, PartitaWarning


class Commands(TyperGroup):
    """Errors that partita raises on purpose become one line on stderr and exit code 1."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_metavar(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_metavar(command.get_params(ctx))
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for word in args:
            if word != word.encode("utf-8", "replace").decode():  # a file's name may be any bytes
                raise typer.BadParameter(f"{word!r} must be text in UTF-8; rename the file.", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with warnings_as_lines():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(130) from None
        except OSError as error:
            # the reader of the output has closed it, as `head` does
            if error.errno == errno.EPIPE:
                raise
            where = "" if error.filename is None else f": {error.filename}"
            remedy = NO_ROOM if error.errno in FULL else "Choose another place."
            saved = "".join(f" {note}" for note in getattr(error, "__notes__", []))
            _refuse(f"{error.strerror or str(error).splitlines()[0]}{where}. {remedy}{saved}")
        except Exception as error:
            from partita.runtime.memory_limit import SENTENCE, ran_out

            if not (isinstance(error, PartitaError) or ran_out(error) or _unwritten(error)):
                raise
            if isinstance(error, PartitaError):
                _refuse(error.rendered(_as_option))
            _refuse(SENTENCE if ran_out(error) else f"{error}. {NO_ROOM}")


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Inside it, each warning of partita's own is one line on stderr."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Any, category: Any, *where: Any, **more: Any) -> None:
            if issubclass(category, PartitaWarning):
                typer.echo(f"Warning: {message}", err=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", PartitaWarning)
        yield


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_ROOM = "Free some space, or choose another place."


def _refuse(text: str) -> NoReturn:
    """One line on stderr, whatever the names in it: what moves a cursor, or ends a line, is written
    out.
    """
    typer.echo(
        "Error: " + "".join(one if one.isprintable() else repr(one)[1:-1] for one in text), err=True
    )
    raise typer.Exit(1) from None


def _as_option(argument: Argument) -> str:
    """An argument of a call as the option of the command line."""
    if argument.name == "columns":
        key = "" if argument.key is None else f" {argument.key!r}={argument.value}"
        return f"--column{key}"
    if argument.value is None:
        return f"--{argument.name}"
    return f"--set {argument.name}={argument.value}"


def _unwritten(error: Exception) -> bool:
    """Whether a checkpoint could not be written, which its library does not tell as an error of the
    system.
    """
    return type(error).__name__ == "SafetensorError" and "I/O error" in str(error)


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _without_metavar(params: list[Any]) -> list[Any]:
    """Parameters whose flags show no type in the help, which would look like a value to give."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        typer.echo(f"partita {version('partita')}")
        raise typer.Exit


@app.callback(epilog="Example: partita fit rbm digits, then partita evaluate runs/rbm-digits-1")
def partita(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Fit, sample and honestly score probability models whose normalizer is intractable."""


def fit(
    model: Annotated[
        str | None, typer.Argument(help="A family: partita models lists them.", metavar="MODEL")
    ] = None,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; runs/MODEL-DATA-N if not given.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time to spend, in place of epochs.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    seed: Seed = 0,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run, bit for bit; needs nothing else.")
    ] = None,
    settings: Settings = None,
    column: Kinds = None,
    guard: Annotated[
        str | None,
        typer.Option(help="Where the fit diverges: stop, or rollback to go on with half the rate."),
    ] = None,
    devices: Devices = None,
    nodes: Nodes = 1,
    strategy: Strategy = "ddp",
    as_json: Json = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress bar, only the result.")
    ] = False,
    page: Annotated[
        bool,
        typer.Option("--report/--no-report", help="Whether to write report.html into the run."),
    ] = True,
) -> None:
    """Fit a model to data, save the run, and score it on rows it has not seen."""
    given = {
        "MODEL": model,
        "DATA": data,
        "--out": out,
        "--minutes": minutes,
        "--epochs": epochs,
        "--set": settings,
        "--column": column,
        "--guard": guard,
    }
    if resume is not None:
        _refuse_beside_resume(given)
    if resume is None and (model is None or data is None):
        raise typer.BadParameter(
            "are needed, as in: partita fit rbm digits.", param_hint="MODEL and DATA"
        )
    from partita.cli import fit as command
    from partita.experiment.settings import parse_columns

    kinds = parse_columns(column or [], "fit")
    limits = {"minutes": minutes, "epochs": epochs, "guard": guard}
    budget = {name: value for name, value in limits.items() if value is not None}
    how = {"as_json": as_json, "quiet": quiet, "page": page}
    with launched(devices, nodes, strategy) as fabric:
        if resume is not None:
            command.carry_out(command.resumed(resume), resume=True, fabric=fabric, **how)
            return
        what = (str(model), str(data), out, settings or [], budget, seed, kinds)
        command.carry_out(command.requested(*what), fabric=fabric, **how)


def compare(
    data: Data = None,
    models: Annotated[
        str | None,
        typer.Option(help="Families with commas between; by default all that the data allow."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="One family, fitted by several objectives; rbm if only those are named."),
    ] = None,
    objectives: Annotated[
        str | None,
        typer.Option(
            help="With --model: all that its support allows, or names with commas between."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of runs and tables; runs/compare-DATA-N if not given."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Time for all together; half a minute for each if not given."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the data, for each, in place of minutes.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help=SETTING_OF_ONE, metavar="KEY=VALUE")
    ] = None,
    column: Kinds = None,
    evaluator: Annotated[
        str,
        typer.Option(help="How log Z is computed, the same way for all; as in partita evaluate."),
    ] = "auto",
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the comparison in this folder; needs nothing else."),
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")] = False,
    page: Annotated[
        bool, typer.Option("--report/--no-report", help="Whether to write report.html.")
    ] = True,
) -> None:
    """Fit families of models, or one by several objectives, and score all on the same rows: one
    leaderboard.
    """
    given = {
        "DATA": data,
        "--models": models,
        "--model": model,
        "--objectives": objectives,
        "--out": out,
        "--minutes": minutes,
        "--epochs": epochs,
        "--set": settings,
        "--column": column,
    }
    if resume is not None:
        _refuse_beside_resume(given)
    if resume is None and data is None:
        raise typer.BadParameter("is needed, as in: partita compare digits.", param_hint="DATA")
    by_objective = model is not None or objectives is not None
    if by_objective and models is not None:
        raise typer.BadParameter(
            "goes without --model and --objectives, which compare within one family.",
            param_hint="--models",
        )
    if column is not None and by_objective:
        raise typer.BadParameter(
            "goes without --model and --objectives, which are about columns of one sort.",
            param_hint="--column",
        )
    from partita.cli import compare as command
    from partita.experiment.compare_settings import CompareSettings, read_settings

    within = (model or "rbm", _names(objectives or "all")) if by_objective else ("", [])
    request = CompareSettings(
        str(data),
        _names(models or ""),
        settings or [],
        minutes,
        epochs,
        evaluator,
        seed,
        column or [],
        *within,
    )
    command.report(
        request if resume is None else read_settings(resume),
        out or resume,
        page=page,
        as_json=as_json,
        quiet=quiet,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _refuse_beside_resume(given: dict[str, object]) -> None:
    """Refuse other parameters where a fit or a comparison is resumed."""
    others = ", ".join(name for name, value in given.items() if value is not None)
    if others:
        raise typer.BadParameter(f"goes alone; leave out {others}.", param_hint="--resume")


EXAMPLES: dict[Callable[..., None], str] = {
    fit: "partita fit rbm digits --minutes 1 --set n_hidden=100 --set learning_rate=0.05",
    evaluate: "partita evaluate runs/rbm-digits-1 --evaluator sandwich",
    sample: "partita sample runs/rbm-digits-1 -n 64 --out draws.csv --png draws.png",
    compare: "partita compare digits --minutes 5, or partita compare digits --model rbm "
    "--objectives all",
    report: "partita report runs/rbm-digits-1 --out digits.html",
    impute: "partita impute runs/mixture-people-1 people-with-gaps.csv --out filled.csv",
    anomalies: "partita anomalies runs/mixture-people-1 new-people.csv --alpha 0.01",
    cluster: "partita cluster runs/mixture-people-1 people.csv --probabilities",
    schema: "partita schema people.csv --column age=real --column id=ignore",
    models: "partita models --grid",
    data: "partita data",
    lab: "partita lab memory --set length=512 --out memory.html",
}  # in the order of the help
for verb, example in EXAMPLES.items():
    app.command(epilog=f"Example: {example}")(verb)
