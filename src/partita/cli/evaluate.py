"""``partita evaluate``: a log-likelihood with its kind, interval, diagnostics and verdict."""

from typing import TYPE_CHECKING, Annotated

import typer

from partita.cli import output
from partita.cli.launch import launched
from partita.cli.options import (
    EVALUATORS,
    AllowDiverged,
    Devices,
    Json,
    Nodes,
    Run,
    Seed,
    Strategy,
    file_argument,
)

if TYPE_CHECKING:
    from partita.core.quantity import Quantity

# diagnostics that a page shows and a terminal does not
ON_PAGES = ("temperatures", "beyond", "added")


def evaluate(
    run: Run,
    data: Annotated[
        str | None, file_argument("A name or a file; by default what the run was fitted to.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="test, train, valid or all; else test of the run's own data, all of others."
        ),
    ] = None,
    evaluator: Annotated[str, typer.Option(help=EVALUATORS)] = "auto",
    bits: Annotated[bool, typer.Option("--bits", help="Also in bits per dimension.")] = False,
    allow_diverged: AllowDiverged = False,
    seed: Seed = 0,
    devices: Devices = None,
    nodes: Nodes = 1,
    strategy: Strategy = "ddp",
    as_json: Json = False,
) -> None:
    """Mean log-likelihood per row, with what kind of number it is and how far to trust it."""
    with launched(devices, nodes, strategy):
        from partita.core import rng
        from partita.core.quantity import bits_per_dimension
        from partita.evaluators.likelihood import named_evaluator
        from partita.experiment.saved import SCORING, open_run, pick_split
        from partita.report.format import meaning

        saved = open_run(run, allow_diverged=allow_diverged)
        chosen = named_evaluator(evaluator, bounds=True)
        own, dataset = saved.learned_from(data), saved.dataset(data)
        if split is None:
            split = "test" if own else "all"
        rows = pick_split(dataset, split)
        if own and split != "train" and saved.has_changed(dataset):
            output.print_warning(
                f"{saved.data.name} has other rows than when the run was fitted: it may have "
                "learned from some of these."
            )
        with output.showing_progress():
            q = saved.score(rows, chosen, rng.keyed(seed, SCORING))
        per_dimension = bits_per_dimension(q, rows.numbers_per_row()) if bits else None
        if as_json:
            result = {"run": str(run), "split": split, **q.as_json()}
            if per_dimension is not None:
                result["bits_per_dimension"] = per_dimension.as_json()
            output.print_json(result)
            return
        model = saved.run.model
        which = f"all {len(rows)}" if split == "all" else f"{len(rows)} {split}"
        note = ""
        if own and split == "all":
            note = "; of these the run learned from some: --split test leaves them out"
        typer.echo(f"{model.title()} on {which} rows of {data or saved.data.name}{note}")
        output.print_table(["", ""], _lines(q, per_dimension, model.support.discrete))
        typer.echo(meaning(q))


def _lines(q: "Quantity", per_dimension: "Quantity | None", discrete: bool) -> list[list[str]]:
    """The table: what was found, how, and how far to trust it."""
    from partita.report.format import findings, interval, verdict

    if q.kind == "none":
        lines = [[f"{q.unit}, no likelihood", f"{q.value:.5f}"]]
    else:
        measure = "mass" if discrete else "density"
        lines = [["log-likelihood per row", f"{q.value:.3f} nats, {measure}"]]
    lines += [["kind", q.kind], ["by", q.method]]
    if q.kind != "exact":
        lines.append(["interval", interval(q)])
    if q.se_data:  # one row has none
        lines.append(["se over rows", f"{q.se_data:.3f}"])
    return [*lines, *findings(q, per_dimension, without=ON_PAGES), ["verdict", verdict(q)]]
