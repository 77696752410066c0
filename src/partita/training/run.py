"""A run: a model, how it was fitted and what was recorded; on disk a folder that never needs code
to be read.

``config.json`` (with a format version), ``metrics.jsonl``, ``checkpoints/last.safetensors``
(everything, to go on) and ``checkpoints/model.safetensors`` (the weights to use, and beside them
the last and the averaged ones).
"""

import json
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from partita.core import capability, registry
from partita.core.protocols import Model
from partita.errors import RunError, TooLarge
from partita.runtime.atomic_files import write_whole
from partita.runtime.memory_limit import Bounded
from partita.runtime.untrusted import check_like, inside, read_json, sealed, unsealed
from partita.training import checkpoint
from partita.training.history import Record, read

FORMAT = 1
SHAPE = {  # of what is read from config.json
    "model": {"name": str, "dtype": str},
    "objective": dict,
    "fit": dict,
    "family": {"name": str, "settings": dict},
    "encoding": dict,
    "data": {
        "name": str,
        "source": str,
        "binarize": (str, float),
        "rows": [int],
        "shape": [int],
        "columns": [str],
        "reading": {"length": int, "tokens": str, "encoding": str, "symbols": str},
        "schema": [dict],
    },
    "estimator": {"name": str, "parameters": dict, "key": int, "columns": [str], "schema": [dict]},
    "rows": [int],
    "seed": int,
    "steps": int,
    "key": int,
    "command": str,
    "versions": dict,
    "remarks": [str],
    "cuts": [str],
    "validated": bool,
}
# of what is read from a checkpoint of a model
SAVED = {"weights": dict, "step": int, "stopped": str, "warnings": [str]}
# numbers that building a model may take for each that is saved, and whatever is saved
ROOM, SMALL = 16, 1 << 22
MEANT = "Restore it, or take its checksum out if the change is meant."
CHANGED = f"config.json has changed since partita wrote it. {MEANT}"
DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass
class Run:
    """What a fit leaves.

    Arguments:
        model: With the weights to use: the best validated, else the averaged ones.
        history: Records by step.
        config: Model, objective, settings, data and versions as JSON.
        steps: Updates made.
        stopped: Why it ended: ``finished``, ``converged`` (at a minimum, as far as rounding lets
            one see), ``stalled`` (the loss falls no further though its gradient is not small),
            ``early stop``, ``out of time``, ``interrupted`` or ``diverged``.
        warnings: What looked wrong, one sentence each.
        folder: Where it is saved, if it is.
    """

    model: Model = field(repr=False)
    history: list[Record] = field(repr=False)
    config: dict[str, Any] = field(repr=False)
    steps: int
    stopped: str = "finished"
    warnings: list[str] = field(default_factory=list)
    folder: Path | None = None

    def series(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of one recorded number."""
        return [(record["step"], record[name]) for record in self.history if name in record]


def make_config(
    model: Model, objective: Any, settings: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """The JSON from which a run is understood and taken up again."""
    return {
        "format": FORMAT,
        "model": {
            "name": type(model).__name__,
            "dtype": str(model.like.dtype).removeprefix("torch."),
            **model.settings(),
        },
        "objective": registry.describe(objective),
        "fit": settings,
        **more,
        "versions": {
            "partita": version("partita"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def check_new(folder: Path) -> None:
    """An existing run is never written over."""
    if (folder / "config.json").exists():
        raise RunError(
            f"fit: out must be a new folder; {folder} already holds a run. Choose another name, or "
            "resume it."
        )


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write ``config.json``, whole or not at all, with a checksum."""
    write_whole(folder / "config.json", json.dumps(sealed(config), indent=2) + "\n")


def read_config(folder: str | Path) -> dict[str, Any]:
    """Read ``config.json``, or say in one sentence why it cannot be."""
    return _read_config(folder)[0]


def _read_config(folder: str | Path) -> tuple[dict[str, Any], bool]:
    """The config, and whether it is as it was written."""
    if not isinstance(folder, str | Path):
        raise RunError(
            f"load: RUN must be the path of a run's folder; got {type(folder).__name__}. For data "
            "use partita.datasets.load."
        )
    path = inside(Path(folder), "config.json")
    if not path.exists():
        raise RunError(
            "load: RUN must be a folder with a config.json, as `partita fit` makes; found none in "
            f"{folder}."
        )
    config = read_json(path)
    whole = (
        isinstance(config, dict)
        and isinstance(config.get("model"), dict)
        and "name" in config["model"]
    )
    if not whole or config.get("format") != FORMAT:
        got = config.get("format") if isinstance(config, dict) else "no object"
        raise RunError(
            f"load: {path} must have format {FORMAT}; got {got}. It was made by another version of "
            "partita."
        )
    check_like(config, SHAPE, path.name)
    return unsealed(config)


def check_resumable(folder: Path, config: dict[str, Any]) -> None:
    """Refuse to go on with a run by another objective, optimizer or batch, or on other rows: its
    state would not fit.

    A config that changed on the disk is refused too: the fit would silently end elsewhere.
    """
    made, whole = _read_config(folder)
    fit = made.get("fit", {}) if isinstance(made.get("fit"), dict) else {}
    asked = [
        ("objective", config["objective"], made.get("objective")),
        ("rows", config["rows"], made.get("rows")),
    ]
    asked += [(name, config["fit"][name], fit.get(name)) for name in ("optimizer", "batch_size")]
    for name, here, there in asked:
        if here != there:
            raise RunError(
                f"fit: {name} must be that of the run in {folder}, {there}, to resume it; got "
                f"{here}."
            )
    if not whole:
        raise RunError(
            f"fit: {folder / 'config.json'} must be as partita wrote it, to resume the run; got a "
            f"changed one. {MEANT}"
        )


def build_model(config: dict[str, Any], saved: int = 0) -> Model:
    """A fresh model as a config describes it, whose sizes the ``saved`` numbers of its weights can
    account for.
    """
    settings = {
        key: value for key, value in config["model"].items() if key not in ("name", "dtype")
    }
    kind = capability.load_model(config["model"]["name"])
    dtype = DTYPES.get(str(config["model"].get("dtype")))
    if dtype is None:
        raise RunError(
            f"load: the model's dtype must be one of {', '.join(DTYPES)}; got "
            f"{config['model'].get('dtype')!r}."
        )
    name, most = config["model"]["name"], ROOM * saved + SMALL
    refusal = (
        f"load: config.json must hold the sizes of the {name} that was saved; got larger ones."
    )
    if _largest(settings) > most:
        raise TooLarge(refusal)
    try:
        with Bounded(most, refusal, together=True):
            return kind.from_settings(settings, generator=torch.Generator()).to(dtype)
    except (TooLarge, RunError):
        raise
    except Exception as error:  # whatever a constructor says of settings that nobody checked
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise RunError(
            f"load: config.json must hold the settings of {name}; got others ({reason})."
        ) from error


def _numbers(tree: Any) -> int:
    """How many numbers the tensors of a nested value hold."""
    return (
        tree.numel()
        if isinstance(tree, torch.Tensor)
        else sum(map(_numbers, tree.values()))
        if isinstance(tree, dict)
        else 0
    )


def _largest(tree: Any) -> int:
    """The largest whole number in a JSON value."""
    if isinstance(tree, dict | list):
        return max(map(_largest, tree.values() if isinstance(tree, dict) else tree), default=0)
    return tree if isinstance(tree, int) else 0


def load(folder: str | Path, *, model: Model | None = None, weights: str = "use") -> Run:
    """A saved run, with its model ready to use; no code of the folder is ever executed.

    Arguments:
        folder: As ``fit(..., out=folder)`` or ``partita fit`` made it.
        model: Needed only where the model is made of functions, which are not saved.
        weights: ``"use"`` (the best validated, else averaged), ``"last"`` or ``"average"``.
    """
    (config, whole), folder = _read_config(folder), Path(folder)
    saved = checkpoint.load(folder / "checkpoints" / "model.safetensors")
    checkpoint.expect(
        saved,
        folder / "checkpoints" / "model.safetensors",
        "weights",
        "step",
        "stopped",
        "warnings",
    )
    check_like(saved, SAVED, "model.safetensors", whole=True)
    check_like(saved, {"kept": dict}, "model.safetensors")
    if weights not in saved["weights"]:
        raise RunError(
            f"load: weights must be one of {', '.join(map(str, saved['weights']))}; got "
            f"{weights!r}."
        )
    chosen = saved["weights"][weights]
    check_like(chosen, dict, "model.safetensors: weights")
    model = build_model(config, _numbers(chosen)) if model is None else model
    checkpoint.load_weights(model, chosen)
    texts = [
        *([] if whole else [CHANGED]),
        *config.get("remarks", []),
        *config.get("cuts", []),
        *saved["warnings"],
    ]
    return Run(
        model,
        read(inside(folder, "metrics.jsonl")),
        config,
        saved["step"],
        saved["stopped"],
        texts,
        folder,
    )
