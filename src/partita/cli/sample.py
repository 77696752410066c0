"""``partita sample``: new rows of a model, or continuations of sequences."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from partita.cli import output
from partita.cli.options import AllowDiverged, Json, Run, Seed

if TYPE_CHECKING:
    from partita.experiment.saved import SavedRun
    from partita.experiment.synthesis import Request


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
    allow_diverged: AllowDiverged = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw new rows from a model and say whether the chains mixed."""
    from partita.core.arguments import check_count
    from partita.errors import invalid
    from partita.experiment.saved import open_run
    from partita.experiment.synthesis import Request, sequence_model

    if n is not None:
        check_count("sample", "-n", n)
    saved = open_run(run, allow_diverged=allow_diverged)
    request = Request(prompt, length, temperature, top_p)
    if saved.data.reading is None and request == Request():
        _sample_rows(saved, n or 64, out, burn_in, png, seed, as_json)
        return
    model = sequence_model(saved)
    for option, value, allowed in (
        ("--burn-in", burn_in, "go with a model that chains draw from"),
        ("--png", png, "go with rows that are images"),
    ):
        if value is not None:
            raise invalid("sample", option, allowed, model.title(), "Leave it out.")
    _sample_sequences(saved, n or 1, out, request, seed, as_json)


def _sample_rows(
    saved: "SavedRun",
    n: int,
    out: Path | None,
    burn_in: int | None,
    png: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    from partita.errors import invalid
    from partita.experiment.synthesis import sample_path, synthesize, write_rows
    from partita.report.images import sheet

    path = sample_path(saved, out)
    x, chains = synthesize(saved, n, burn_in, seed=seed)
    clipped = write_rows(saved, x, path)
    shape = saved.data.shape
    if png is not None:
        if not shape:
            got = f"{saved.data.name!r}, whose rows have no shape"
            raise invalid("sample --png", "RUN", "have rows that are images", got)
        output.write_png(png, sheet(x, shape))
    if as_json:
        diagnosis = {} if chains is None else chains._asdict()
        made = {"run": str(saved.run.folder), "n": n, "out": str(path), "exact": chains is None}
        made |= {"clipped": clipped}
        output.print_json({**made, **diagnosis})
        return
    if shape:
        typer.echo(output.preview(x, tuple(shape)))
    typer.echo(
        f"{n} draw{'s' * (n > 1)} written to {path}" + ("" if png is None else f" and {png}")
    )
    typer.echo("Exact independent draws." if chains is None else str(chains))
    if clipped:
        typer.echo(
            f"{clipped} of {x.size} values lay outside the range of the training rows and were "
            "clipped to it: of those columns the draws are exact but for that."
        )


def _sample_sequences(
    saved: "SavedRun", n: int, out: Path | None, request: "Request", seed: int, as_json: bool
) -> None:
    from partita.experiment.synthesis import continue_sequences, write_sequences

    drawn = continue_sequences(saved, n, request, seed=seed)
    path, beyond = write_sequences(saved, drawn, out), drawn.steps > drawn.window
    if as_json:
        output.print_json(
            {
                "run": str(saved.run.folder),
                "n": n,
                "out": str(path),
                "exact": drawn.exact,
                "beyond_window": beyond,
                "texts": drawn.texts,
                "temperature": drawn.temperature,
                "top_p": drawn.top_p,
            }
        )
        return
    for text in drawn.texts or []:
        typer.echo(text + "\n")
    typer.echo(f"{n} draw{'s' * (n > 1)} written to {path}")
    typer.echo(
        "Exact draws from the model."
        if drawn.exact
        else "Not draws from the model: temperature or top-p favors what is likely."
    )
    if beyond:
        output.print_warning(
            f"{drawn.steps} steps go beyond the {drawn.window} that the model was fitted to; it "
            "was never scored there."
        )
