"""The command line: all verbs with an example of each, and how errors are shown.

A verb imports what does its work only when it is called, so that ``--help`` is fast.
"""

import errno
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, NoReturn, TextIO, TypeAlias

import typer
from typer.core import TyperGroup, TyperOption

from partita.cli import output
from partita.cli.anomalies import anomalies
from partita.cli.cluster import cluster
from partita.cli.compare import compare
from partita.cli.data import data
from partita.cli.evaluate import evaluate
from partita.cli.fit import fit
from partita.cli.impute import impute
from partita.cli.lab import lab
from partita.cli.log_z import log_z
from partita.cli.models import models
from partita.cli.report import report
from partita.cli.sample import sample
from partita.cli.schema import schema
from partita.errors import Argument, Parameter, PartitaError, PartitaWarning, PartName

Context: TypeAlias = Any  # of click, which typer has inside or beside it, by its version


class Commands(TyperGroup):
    """Errors that partita raises on purpose become one line on stderr and exit code 1."""

    def get_params(self, ctx: Context) -> list[Any]:
        return _without_metavar(super().get_params(ctx))

    def get_command(self, ctx: Context, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_metavar(command.get_params(ctx))
        return command

    def option_names(self, ctx: Context) -> dict[str, str]:
        """How the command that runs is given its options, and settings where it takes them."""
        command = super().get_command(ctx, ctx.invoked_subcommand or "")
        options = [] if command is None else command.get_params(ctx)
        names = {
            str(option.name): option.opts[0] for option in options if option.opts[0].startswith("-")
        }
        if names.get("settings") == "--set" and ctx.invoked_subcommand != "lab":
            from partita.families import FAMILIES
            from partita.training.settings import SETTING_NAMES

            settings = [
                *SETTING_NAMES,
                *(name for one in FAMILIES.values() for name in one.settings),
            ]
            names = {name: f"--set {name}" for name in (*settings, "binarize")} | names
        return names

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        for word in args:
            if word != word.encode("utf-8", "replace").decode():  # a file's name may be any bytes
                raise typer.BadParameter(f"{word!r} must be text in UTF-8; rename the file.", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> object:
        try:
            with warnings_as_lines(lambda argument: _as_option(self.option_names(ctx), argument)):
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
        except PartitaError as error:
            _refuse(error.rendered(partial(_as_option, self.option_names(ctx))))
        except Exception as error:
            if hasattr(error, "exit_code"):  # of click: help was shown, or the usage is wrong
                raise
            from partita.runtime.memory_limit import SENTENCE, ran_out

            if ran_out(error):
                _refuse(SENTENCE)
            if _unwritten(error):
                _refuse(f"{error}. {NO_ROOM}")
            raise


@contextmanager
def warnings_as_lines(shown: Callable[[Argument], str]) -> Iterator[None]:
    """Inside it, each warning of partita's own is one line on stderr, with its arguments as
    ``shown`` writes them.
    """
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if isinstance(message, PartitaWarning):
                output.print_warning(message.rendered(shown))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        warnings.simplefilter("always", PartitaWarning)
        yield


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_ROOM = "Free some space, or choose another place."


def _refuse(text: str) -> NoReturn:
    """One line on stderr, whatever the names in it: what moves a cursor, or ends a line, is written
    out.
    """
    shown = (one if one.isprintable() else repr(one)[1:-1] for one in text)
    typer.echo(f"Error: {''.join(shown)}", err=True)
    raise typer.Exit(1) from None


def _as_option(names: dict[str, str], argument: Argument) -> str:
    """An argument of a call as the option of the command line."""
    if isinstance(argument, Parameter):
        return names.get(argument.name, argument.name)
    if argument.name == "columns":
        key = "" if argument.key is None else f" {argument.key!r}={argument.value}"
        return f"--column{key}"
    if isinstance(argument, PartName):
        return _as_choice(argument)
    if argument.value is None:
        return f"--{argument.name}"
    return f"--set {argument.name}={argument.value}"


def _as_choice(choice: PartName) -> str:
    """The option that chooses a part; what it is none of is chosen by itself."""
    from partita.evaluators.likelihood import BOUNDS, EVALUATORS
    from partita.families.by_gradient import NAMED

    if choice.name == "evaluator":
        names = {part: name for name, part in (EVALUATORS | BOUNDS).items()}
        return f"--evaluator {names.get(str(choice.value), 'auto')}"
    words = {named.part: name for name, named in NAMED.items()}
    known = choice.name == "objective" and choice.value in words
    return f"--set objective={words[str(choice.value)]}" if known else str(choice)


def _unwritten(error: Exception) -> bool:
    """Whether a checkpoint could not be written, which its library does not tell as an error of the
    system.
    """
    return type(error).__name__ == "SafetensorError" and "I/O error" in str(error)


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _without_metavar(params: list[Any]) -> list[Any]:
    """Parameters whose flags show no type in the help, which would look like a value to give."""
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag:
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


EXAMPLES: dict[Callable[..., None], str] = {
    fit: "partita fit rbm digits --minutes 1 --set n_hidden=100 --set learning_rate=0.05",
    evaluate: "partita evaluate runs/rbm-digits-1 --evaluator sandwich",
    log_z: "partita log-z target.py:log_density --support real:5 --minutes 2 --out evidence.html",
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
