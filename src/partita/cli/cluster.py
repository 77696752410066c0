"""``partita cluster``: to which component of a mixture each row belongs, with its probability."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from partita.cli import show
from partita.cli.runs import Opened, open_run
from partita.cli.tabled import read_tabled, suffixed, write_beside
from partita.core.errors import invalid
from partita.data.schema import Column
from partita.data.write import check_ending


def report(folder: Path, source: Path, out: Path | None, probabilities: bool, *, as_json: bool) -> None:
    """Assign, write, count."""
    opened = open_run(folder)
    _check_mixture(opened)
    path = check_ending(suffixed(source, "clusters") if out is None else out, "cluster")
    tabled = read_tabled(opened, source, "cluster")
    p = membership(opened, tabled.x)
    label = p.argmax(1)
    columns = [Column("cluster", "count", "int64"), Column("cluster_probability", "real")]
    columns += [Column(f"cluster_{k}", "real") for k in range(p.shape[1])] if probabilities else []
    write_beside(tabled, path, columns, np.concatenate([label[:, None], p.max(1)[:, None], p if probabilities else p[:, :0]], 1))
    sizes = np.bincount(label, minlength=p.shape[1])
    if as_json:
        show.print_json({"run": str(folder), "out": str(path), "rows": len(p), "clusters": p.shape[1], "sizes": sizes.tolist()})
        return
    lines = [[str(k), str(size), f"{p[label == k].max(1).mean():.3f}" if size else ""] for k, size in enumerate(sizes)]
    show.table(["cluster", "rows", "mean probability"], lines)
    typer.echo(f"{len(p)} rows assigned by {opened.run.model.title()}, written to {path}")


def membership(opened: Opened, x: np.ndarray) -> np.ndarray:
    """p(cluster | row), (N, K); what is missing from a row is integrated out."""
    model: Any = opened.run.model
    encoding = opened.encoding
    if "posterior_draws" in model.offers:
        return _of_draws(opened, x)
    z = torch.from_numpy(encoding.encode(encoding.check(x, "cluster")))
    with torch.no_grad():
        return model.responsibilities(z).double().numpy()


def _check_mixture(opened: Opened) -> None:
    if not hasattr(opened.run.model, "responsibilities"):
        raise invalid("cluster", "RUN", "be of a mixture: mixture, mixture-ppca or dpmm", opened.run.model.title())


def _of_draws(opened: Opened, x: np.ndarray) -> np.ndarray:
    """Clusters of the partition that is closest to all posterior draws, as the estimator has them."""
    from partita.estimators import DirichletProcessMixture

    estimator = DirichletProcessMixture()
    estimator.model_, estimator.run_, estimator.encoding_ = opened.run.model, opened.run, opened.encoding  # type: ignore[assignment]
    estimator.n_features_in_ = x.shape[1]
    estimator._forget()
    return estimator.predict_proba(x)
