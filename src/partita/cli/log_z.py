"""``partita log-z``: log Z of a function in a file, or of a model's weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from partita.cli import output
from partita.cli.options import Json, Seed

if TYPE_CHECKING:
    from partita.evidence import Evidence

SUPPORT = (
    "Where x lives: real:5, interval:3:0:1, binary:60, spin:60 or categorical:20:5; the file may "
    "define support or prior instead."
)


def log_z(
    target: Annotated[
        str,
        typer.Argument(
            help="FILE.py:FUNCTION, a log density; or weights.npz with --model.", metavar="TARGET"
        ),
    ],
    support: Annotated[str | None, typer.Option(help=SUPPORT, metavar="KIND:SIZE")] = None,
    model: Annotated[
        str | None, typer.Option(help="What the weights belong to: rbm, ising or potts.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="A table whose rows show where the mass is.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="After which a function is no longer called.")
    ] = None,
    draws: Annotated[Path | None, typer.Option(help="Write the draws: .csv, .npy or .npz.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a page about the number: .html.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """log Z of an unnormalized density, with its interval, its verdict and draws."""
    from partita.errors import invalid
    from partita.evidence import log_z as front_door
    from partita.experiment.targets import function_in, read_rows, saved_weights, support_named

    known = None if rows is None else read_rows(rows)
    if model is not None:
        function, lives, prior = saved_weights(target, model), None, None
    else:
        found = function_in(target)
        function, lives, prior = found.function, found.support, found.prior
        if support is not None and prior is not None:
            allowed = "be left out where the file defines a prior"
            raise invalid("log-z", "--support", allowed, support)
    lives = lives if support is None else support_named(support)
    with output.showing_progress():
        q = front_door(function, lives, prior=prior, rows=known, minutes=minutes, generator=seed)
    if draws is not None:
        from partita.experiment.targets import write_draws

        write_draws(q.draws, draws)
    page = None if out is None else q.report(out)
    if as_json:
        output.print_json({"target": target, **q.as_json()})
        return
    _show(q)
    for what, where in (("Draws", draws), ("Page", page)):
        if where is not None:
            typer.echo(f"{what}: {where}")


def _show(q: "Evidence") -> None:
    from partita.report.format import interval, meaning, verdict

    lines = [["log Z", f"{q.value:.3f} nats"], ["kind", q.kind], ["by", q.method]]
    if q.kind != "exact":
        lines.append(["interval", interval(q)])
    lines += [
        [f"  {name}", f"{one.value:.3f} {interval(one)}, {one.verdict}".replace("  ", " ")]
        for name, one in q.details.get("tried", {}).items()
    ]
    if "evaluations" in q.details:
        called = q.details.get("called", "")
        lines.append(["evaluations", f"{q.details['evaluations']:,} ({called})"])
    output.print_table(["", ""], [*lines, ["verdict", verdict(q)]])
    typer.echo(meaning(q))
