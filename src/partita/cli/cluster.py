"""``partita cluster``: to which component of a mixture each row belongs, with its probability."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from partita.cli import show
from partita.core.protocols import Capability
from partita.errors import invalid
from partita.experiment.input_table import InputTable, destination, read_input, write_beside
from partita.experiment.saved import SavedRun, open_run
from partita.tables.on_disk import gathered
from partita.tables.schema import Column
from partita.tables.write import check_ending


def report(
    folder: Path, source: Path, out: Path | None, probabilities: bool, *, as_json: bool
) -> None:
    """Assign, write, count."""
    opened = open_run(folder)
    _check_mixture(opened)
    path = destination(source, out, "cluster", "clusters")
    tabled = read_input(opened, source, "cluster")
    check_ending(path, "cluster")
    results, sizes, sums = assigned(opened, tabled, probabilities)
    columns = [Column("cluster", "count", "int64"), Column("cluster_probability", "real")]
    columns += [Column(f"cluster_{k}", "real") for k in range(len(sizes))] if probabilities else []
    write_beside(tabled, path, columns, results)
    if as_json:
        show.print_json(
            {
                "run": str(folder),
                "out": str(path),
                "rows": len(tabled),
                "clusters": len(sizes),
                "sizes": sizes.tolist(),
            }
        )
        return
    lines = [
        [str(k), str(size), f"{sums[k] / size:.3f}" if size else ""] for k, size in enumerate(sizes)
    ]
    show.table(["cluster", "rows", "mean probability"], lines)
    typer.echo(f"{len(tabled)} rows assigned by {opened.run.model.title()}, written to {path}")


def assigned(
    opened: SavedRun, tabled: InputTable, probabilities: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The cluster of each row, its probability and, if asked, those of all, ``(N, 2 or 2 + K)``, in
    memory or on disk; for each cluster how many rows it has and the sum of their probabilities.
    """
    parts = tabled.parts()
    first = membership(opened, next(parts)[1])
    K = first.shape[1]
    sizes, sums = np.zeros(K, dtype=int), np.zeros(K)

    def results() -> Iterator[np.ndarray]:
        for p in chain([first], (membership(opened, x) for _, x in parts)):
            label, most = p.argmax(1), p.max(1)
            np.add.at(sizes, label, 1)
            np.add.at(sums, label, most)
            yield np.concatenate(
                [label[:, None], most[:, None], p if probabilities else p[:, :0]], 1
            )

    table = gathered(results(), (len(tabled), 2 + K * probabilities), np.float64)
    return table, sizes, sums


def membership(opened: SavedRun, x: np.ndarray) -> np.ndarray:
    """p(cluster | row), (N, K); what is missing from a row is integrated out."""
    model: Any = opened.run.model
    encoding = opened.encoding
    if Capability.POSTERIOR_DRAWS in model.capabilities:
        return _of_draws(opened, x)
    z = torch.from_numpy(encoding.encode(encoding.check(x, "cluster")))
    with torch.no_grad():
        return model.responsibilities(z).double().numpy()


def _check_mixture(opened: SavedRun) -> None:
    if not hasattr(opened.run.model, "responsibilities"):
        raise invalid(
            "cluster",
            "RUN",
            "be of a mixture: mixture, mixture-ppca or dpmm",
            opened.run.model.title(),
        )


def _of_draws(opened: SavedRun, x: np.ndarray) -> np.ndarray:
    """Clusters of the partition that is closest to all posterior draws, as the estimator has
    them.
    """
    from partita.estimators import DirichletProcessMixture

    estimator = DirichletProcessMixture()
    estimator.model_ = opened.run.model  # type: ignore[assignment]
    estimator.run_, estimator.encoding_ = opened.run, opened.encoding
    estimator.n_features_in_ = x.shape[1]
    estimator._forget()
    return estimator.predict_proba(x)
