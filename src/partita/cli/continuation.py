"""``partita sample RUN --prompt "..."``: text, and other sequences, from a model that goes on step
by step.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer

from partita.cli import show
from partita.core import rng
from partita.core.checks import check_count
from partita.datasets.open import Reading
from partita.datasets.text import Alphabet
from partita.errors import invalid
from partita.experiment.saved import SavedRun, free_path, open_run
from partita.models import Autoregressive
from partita.runtime.atomic_files import replacing, write_whole
from partita.training.run import read_config

OPTIONS = ("prompt", "length", "temperature", "top_p")


def applies(folder: Path, asked: dict[str, Any]) -> bool:
    """Whether a run is of sequences that were read as such, or is asked for what only those
    can do.
    """
    reads = (read_config(folder).get("data") or {}).get("reading") is not None
    return reads or any(asked[name] is not None for name in OPTIONS)


def report(
    folder: Path, n: int, out: Path | None, asked: dict[str, Any], *, seed: int, as_json: bool
) -> None:
    """Draw, write, show."""
    check_count("sample", "-n", n)
    opened = open_run(folder)
    model, alphabet = _model(opened), _alphabet(opened)
    _refuse_for_rows(model, asked)
    prefix = _prefix(asked["prompt"], alphabet, model, n)
    known = prefix.shape[1] // model.support.element.width
    length = (
        max(1, model.support.L - known)
        if asked["length"] is None
        else check_count("sample", "--length", asked["length"])
    )
    how = {name: 1.0 if asked[name] is None else asked[name] for name in ("temperature", "top_p")}
    x = model.extend(prefix, length, **_changed(model, how), generator=rng.keyed(seed, 3)).numpy()
    texts = None if alphabet is None else [alphabet.decode(row) for row in x]
    path = _write(folder, out, x.reshape(n, known + length, -1), texts)
    exact = how == {"temperature": 1.0, "top_p": 1.0}
    beyond = known + length > model.support.L
    if as_json:
        show.print_json(
            {
                "run": str(folder),
                "n": n,
                "out": str(path),
                "exact": exact,
                "beyond_window": beyond,
                "texts": texts,
                **how,
            }
        )
        return
    for text in texts or []:
        typer.echo(text + "\n")
    typer.echo(f"{n} draw{'s' * (n > 1)} written to {path}")
    typer.echo(
        "Exact draws from the model."
        if exact
        else "Not draws from the model: temperature or top-p favors what is likely."
    )
    if beyond:
        show.warning(
            f"{known + length} steps go beyond the {model.support.L} that the model was fitted to; "
            "it was never scored there."
        )


def _model(opened: SavedRun) -> Any:
    model = opened.run.model
    if not hasattr(model, "extend"):
        raise invalid(
            "sample",
            "--prompt, --length, --temperature and --top-p",
            "go with a model of sequences",
            model.title(),
        )
    return model


def _refuse_for_rows(model: Any, asked: dict[str, Any]) -> None:
    """What has no meaning for sequences is not ignored."""
    for name, allowed in (
        ("burn_in", "go with a model that chains draw from"),
        ("png", "go with rows that are images"),
    ):
        if asked[name] is not None:
            raise invalid(
                "sample", f"--{name.replace('_', '-')}", allowed, model.title(), "Leave it out."
            )


def _changed(model: Any, how: dict[str, float]) -> dict[str, float]:
    """Temperature and top-p for models whose steps have them; others are drawn from as they are."""
    if isinstance(model, Autoregressive):
        return how
    if any(value != 1 for value in how.values()):
        raise invalid(
            "sample",
            "--temperature and --top-p",
            "be left out with latent variables",
            model.title(),
        )
    return {}


def _alphabet(opened: SavedRun) -> Alphabet | None:
    """What tokens stand for, where steps are tokens of text."""
    reading = opened.data.get("reading")
    if reading is None or opened.run.config["model"]["element"] != "categorical":
        return None
    return Reading(
        **{name: reading[name] for name in ("tokens", "symbols") if reading.get(name) is not None}
    ).alphabet


def _prefix(prompt: str | None, alphabet: Alphabet | None, model: Any, n: int) -> torch.Tensor:
    if not prompt:
        return model.like.new_zeros(n, 0)
    if alphabet is None:
        remedy = "Call model.extend in Python with a prefix of numbers."
        raise invalid("sample", "--prompt", "go with a model of text", model.title(), remedy)
    return torch.from_numpy(alphabet.encode(prompt, "sample --prompt").astype(np.float32)).expand(
        n, -1
    )


def _write(folder: Path, out: Path | None, x: np.ndarray, texts: list[str] | None) -> Path:
    """Text as text, numbers as an archive with one array x, (n, steps, numbers in a step)."""
    ending = ".npz" if texts is None else ".txt"
    path = free_path(folder / "samples", ending) if out is None else out
    if path.suffix.lower() not in (".npz", ending):
        raise invalid(
            "sample", "--out", f"end in {' or '.join(dict.fromkeys((ending, '.npz')))}", str(path)
        )
    if path.suffix.lower() == ".txt":
        write_whole(path, "\n\n".join(texts or []) + "\n")
        return path
    with replacing(path) as beside, beside.open("wb") as stream:
        np.savez_compressed(stream, x=x)
    return path
