"""``partita evaluate``: a log-likelihood with its kind, interval, diagnostics and verdict."""

from pathlib import Path
from typing import Any

import typer

from partita.cli import show
from partita.core import rng
from partita.core.quantity import Quantity, bits_per_dimension
from partita.experiment.saved import open_run, pick_split
from partita.families import named_evaluator

DIAGNOSTICS = {
    "ess": "effective sample size",
    "ess_reverse": "effective sample size, reverse",
    "khat": "Pareto k-hat",
    "khat_reverse": "Pareto k-hat, reverse",
    "gap": "gap, upper minus lower side",
    "gap_of_search": "gap on rows whose posterior was sought",
    "overlap": "overlap",
    "rhat": "R-hat",
    "round_trips": "round trips of the ladders",
    "ess_of_rows": "effective draws of a row, median",
    "chains": "chains",
    "per_step": "log-likelihood per step",
    "steps": "steps",
    "p_value": "p-value by permutation",
    "coverage": "coverage of these rows by draws",
}


def report(
    folder: Path,
    data: str | None,
    split: str | None,
    evaluator: str,
    *,
    bits: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Score a split of the data and print the result: if not said, what was held out of the run's
    own data, all rows of others.
    """
    opened = open_run(folder)
    chosen = named_evaluator(evaluator, bounds=True)
    own, dataset = opened.learned_from(data), opened.dataset(data)
    split = ("test" if own else "all") if split is None else split
    rows = pick_split(dataset, split)
    if own and split != "train" and opened.has_changed(dataset):
        show.warning(
            f"{opened.data['name']} has other rows than when the run was fitted: it may have "
            "learned from some of these."
        )
    q = opened.score(rows, chosen, rng.keyed(seed, 1))
    per_dimension = bits_per_dimension(q, rows.numbers_per_row()) if bits else None
    if as_json:
        extra = (
            {}
            if per_dimension is None
            else {"bits_per_dimension": show.quantity_json(per_dimension)}
        )
        show.print_json({"run": str(folder), "split": split, **show.quantity_json(q), **extra})
        return
    which = f"all {len(rows)} rows" if split == "all" else f"{len(rows)} {split} rows"
    note = (
        "; of these the run learned from some: --split test leaves them out"
        if own and split == "all"
        else ""
    )
    typer.echo(f"{opened.run.model.title()} on {which} of {data or opened.data.get('name')}{note}")
    show.table(["", ""], _lines(q, per_dimension, opened.run.model.support.discrete))
    typer.echo(show.meaning(q))


def _lines(q: Quantity, per_dimension: Quantity | None, discrete: bool) -> list[list[str]]:
    """The table: what was found, how, and how far to trust it."""
    log_z: Any = q.details.get("log_z")
    score = ["log-likelihood per row", f"{q.value:.3f} nats, {'mass' if discrete else 'density'}"]
    what = [f"{q.unit}, no likelihood", f"{q.value:.5f}"] if q.kind == "none" else score
    lines = [what, ["kind", q.kind], ["by", q.method]]
    if q.kind != "exact":
        lines.append(["interval", show.interval(q)])
    if q.se_data:  # one row has none
        lines.append(["se over rows", f"{q.se_data:.3f}"])
    if per_dimension is not None:
        lines.append(
            [
                "bits per dimension",
                f"{per_dimension.value:.4f} {show.interval(per_dimension)}".rstrip(),
            ]
        )
    if log_z is not None:
        lines.append(["log Z", f"{log_z.value:.3f} {show.interval(log_z)}".rstrip()])
    lines += [
        [label, f"{q.details[name]:.4g}"]
        for name, label in DIAGNOSTICS.items()
        if name in q.details
    ]
    lines += [["chains are", q.details["mixing"]]] if "mixing" in q.details else []
    use = show.latent_use(q)
    return [*lines, *([["latent dimensions", use]] if use else []), ["verdict", show.verdict(q)]]
