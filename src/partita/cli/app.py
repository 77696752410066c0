"""The commands and their options; each imports what does its work only when it is called."""

import errno
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from partita.cli import tables
from partita.cli.help import Helpful
from partita.cli.launch import Devices, Nodes, Strategy, launched
from partita.cli.options import EVALUATORS, SETTING_OF_ONE, Data, Json, Kinds, Run, Seed, Settings
from partita.errors import Argument, PartitaError, PartitaWarning


class Commands(Helpful):
    """Errors that partita raises on purpose become one line on stderr and exit code 1."""

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
            # whoever read what is printed has seen enough, as `head` does
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


def _version(asked: bool) -> None:
    if asked:
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


@app.command(
    epilog="Example: partita fit rbm digits --minutes 1 --set n_hidden=100 --set learning_rate=0.05"
)
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
    said = [name for name, value in given.items() if value is not None]
    if resume is not None and said:
        raise typer.BadParameter(f"goes alone; leave out {', '.join(said)}.", param_hint="--resume")
    if resume is None and (model is None or data is None):
        raise typer.BadParameter(
            "are needed, as in: partita fit rbm digits.", param_hint="MODEL and DATA"
        )
    from partita.cli import fit as command
    from partita.experiment.settings import parse_columns

    asked = parse_columns(column or [], "fit")
    budget = {
        name: value
        for name, value in {"minutes": minutes, "epochs": epochs, "guard": guard}.items()
        if value is not None
    }
    how = {"as_json": as_json, "quiet": quiet, "page": page}
    with launched(devices, nodes, strategy) as fabric:
        if resume is not None:
            command.carry_out(command.resumed(resume), resume=True, fabric=fabric, **how)
            return
        what = (str(model), str(data), out, settings or [], budget, seed, asked)
        command.carry_out(command.requested(*what), fabric=fabric, **how)


@app.command(epilog="Example: partita evaluate runs/rbm-digits-1 --evaluator sandwich")
def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Argument(
            help="A name or a file; by default what the run was fitted to.", metavar="DATA"
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="test, train, valid or all; else test of the run's own data, all of others."
        ),
    ] = None,
    evaluator: Annotated[str, typer.Option(help=EVALUATORS)] = "auto",
    bits: Annotated[bool, typer.Option("--bits", help="Also in bits per dimension.")] = False,
    seed: Seed = 0,
    devices: Devices = None,
    nodes: Nodes = 1,
    strategy: Strategy = "ddp",
    as_json: Json = False,
) -> None:
    """Mean log-likelihood per row, with what kind of number it is and how far to trust it."""
    from partita.cli import evaluate as command

    with launched(devices, nodes, strategy):
        command.report(run, data, split, evaluator, bits=bits, seed=seed, as_json=as_json)


@app.command(
    epilog="Example: partita sample runs/rbm-digits-1 -n 64 --out draws.csv --png draws.png"
)
def sample(
    run: Run,
    n: Annotated[
        int | None,
        typer.Option(
            "-n", "--number", help="How many draws; 64 rows, or 1 sequence, if not given."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help=".csv, .parquet, .npz or .npy, .txt for text; RUN/samples-N if not given."
        ),
    ] = None,
    burn_in: Annotated[
        int | None, typer.Option(help="Steps of each chain; exact draws or 1000 if not given.")
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Also a picture, where rows are images.")] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Text that a model of text goes on from.")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(help="Steps to draw of a sequence; up to the model's length if not given."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of each step of a sequence; 1 draws from the model.")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Share of the mass that each step of a sequence keeps.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw new rows from a model and say whether the chains mixed."""
    from partita.cli import continuation
    from partita.cli import sample as command

    asked = {
        "prompt": prompt,
        "length": length,
        "temperature": temperature,
        "top_p": top_p,
        "burn_in": burn_in,
        "png": png,
    }
    if continuation.applies(run, asked):
        continuation.report(run, 1 if n is None else n, out, asked, seed=seed, as_json=as_json)
    else:
        command.report(run, 64 if n is None else n, out, burn_in, png, seed=seed, as_json=as_json)


@app.command(epilog="Example: partita lab memory --set length=512 --out memory.html")
def lab(
    name: Annotated[
        str | None, typer.Argument(help="Which; all are listed if not given.", metavar="NAME")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the figure goes, .html.")] = None,
    settings: Settings = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Small experiments that show what the theory says."""
    from partita.cli import lab as command

    command.listing(as_json) if name is None else command.run(
        name, settings or [], out, seed=seed, as_json=as_json
    )


@app.command(
    epilog="Example: partita compare digits --minutes 5, or partita compare digits --model rbm "
    "--objectives all"
)
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
    said = [name for name, value in given.items() if value is not None]
    if resume is not None and said:
        raise typer.BadParameter(f"goes alone; leave out {', '.join(said)}.", param_hint="--resume")
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
    from partita.experiment.compare_settings import CompareSettings, resumed

    within = (model or "rbm", _names(objectives or "all")) if by_objective else ("", [])
    asked = CompareSettings(
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
        asked if resume is None else resumed(resume),
        out or resume,
        page=page,
        as_json=as_json,
        quiet=quiet,
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command(epilog="Example: partita report runs/rbm-digits-1 --out digits.html")
def report(
    folder: Annotated[
        Path,
        typer.Argument(help="A run or a comparison, as fit or compare made it.", metavar="FOLDER"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where the page goes, .html; FOLDER/report.html if not given."),
    ] = None,
    as_json: Json = False,
) -> None:
    """One HTML file about a run or a comparison, which opens from disk with no network."""
    from partita.cli import report as command

    command.report(folder, out, as_json=as_json)


@app.command(epilog="Example: partita models --grid")
def models(
    grid: Annotated[
        bool, typer.Option("--grid", help="What runs with what, and why not where it does not.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The families of models and their settings."""
    from partita.cli import lists as command

    command.grid(as_json) if grid else command.models(as_json)


@app.command(epilog="Example: partita data")
def data(as_json: Json = False) -> None:
    """The data sets that can be given by name."""
    from partita.cli import lists as command

    command.data(as_json)


app.add_typer(tables.app)
