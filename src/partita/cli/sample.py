"""``partita sample``: draws from a model, a preview where rows are images, and whether the chains mixed."""

from pathlib import Path
from typing import Any

import numpy as np
import typer

from partita.cli import pictures, show
from partita.cli.runs import Opened, free_path, open_run
from partita.core import capability, rng
from partita.core.checks import check_count
from partita.core.errors import invalid
from partita.core.protocols import DirectedModel, Model
from partita.diagnostics import ChainReport
from partita.samplers import run as run_chains
from partita.training.encoded import draw_rows

ENDINGS = (".npz", ".npy", ".csv")
DIAGNOSED = 64  # chains that are followed further to see whether they mixed
FOLLOWED = 100  # steps


def report(folder: Path, n: int, out: Path | None, burn_in: int | None, png: Path | None, *, seed: int, as_json: bool) -> None:
    """Draw, write, preview, diagnose."""
    check_count("sample", "-n", n)
    opened = open_run(folder)
    path = _check_path(free_path(folder / "samples", ".npz") if out is None else out)
    generator = rng.keyed(seed, 3)
    model = opened.run.model
    z = draw_rows(model, n, burn_in, generator)
    x = opened.encoding.decode(z.double().numpy())
    chains = None if _exact(model, burn_in) else _diagnose(model, z, generator)
    _write(path, opened.encoding.in_words(x), opened.data.get("columns"))
    if png is not None:
        pictures.write_png(png, pictures.sheet(x, _shape(opened, "sample --png")))
    if as_json:
        show.print_json({"run": str(folder), "n": n, "out": str(path), "exact": chains is None, **(chains._asdict() if chains else {})})
        return
    if opened.data.get("shape"):
        typer.echo(pictures.preview(x, tuple(opened.data["shape"])))
    typer.echo(f"{n} draws written to {path}" + ("" if png is None else f" and {png}"))
    typer.echo("Exact independent draws." if chains is None else str(chains))


def _exact(model: Model, burn_in: int | None) -> bool:
    return isinstance(model, DirectedModel) or (burn_in is None and capability.smallest_bits(model) <= capability.CHEAP_BITS)


def _diagnose(model: Any, z: Any, generator: Any) -> ChainReport:
    """Follow some of the chains further: R-hat and ESS of the free energy."""
    return run_chains(model, capability.default("sampler", model), z[:DIAGNOSED], draws=FOLLOWED, generator=generator).report


def _check_path(path: Path) -> Path:
    if path.suffix.lower() not in ENDINGS:
        raise invalid("sample", "--out", f"end in one of {' '.join(ENDINGS)}", str(path))
    return path


def _shape(opened: Opened, owner: str) -> tuple[int, ...]:
    if not opened.data.get("shape"):
        raise invalid(owner, "RUN", "have rows that are images", f"{opened.data.get('name', 'data')!r}, whose rows have no shape")
    return tuple(opened.data["shape"])


def _write(path: Path, x: np.ndarray, columns: list[str] | None) -> None:
    """Whole numbers as small integers, others as they are; names of columns where they are known."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = x.dtype.kind == "U"
    x = x.astype(np.int8) if not words and np.isin(x, (-1, 0, 1)).all() else x
    if path.suffix.lower() == ".npy":
        np.save(path, x)
    elif path.suffix.lower() == ".npz":
        names: dict[str, Any] = {} if columns is None else {"columns": np.array(columns)}
        np.savez_compressed(path, x=x, **names)
    else:
        kind = "%s" if words else "%d" if x.dtype == np.int8 else "%.9g"
        np.savetxt(path, x, fmt=kind, delimiter=",", header=",".join(columns or []), comments="")
