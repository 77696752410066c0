"""Regressions on disk: a folder with ``config.json`` and one file of tensors, as runs have; nothing
in it is code.
"""

from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from partita.bayes.regression import LinearRegression, LogisticPosterior, PosteriorDraws
from partita.core.checks import check_path
from partita.errors import RunError
from partita.estimators._parameters import to_json
from partita.runtime.untrusted import check_like
from partita.training import checkpoint
from partita.training.run import FORMAT, check_new, write_config

# what a fitted regression is made of
HELD = {kind.__name__: kind for kind in (PosteriorDraws, LinearRegression, LogisticPosterior)}


class SavedRegression(BaseEstimator):
    """A regression that can be written to a folder."""

    def save(self, path: str | Path) -> Path:
        """Write a folder that ``partita.estimators.load`` reads."""
        check_is_fitted(self)
        folder, parameters = check_path("save", "path", path), self.get_params(deep=False)
        check_new(folder)
        about = {"name": type(self).__name__, "parameters": to_json(parameters)}
        model = {"name": type(self).__name__}
        versions = {"partita": version("partita"), "torch": torch.__version__}
        fitted = {
            name: as_tree(value) for name, value in vars(self).items() if name not in parameters
        }
        checkpoint.save_tree(folder / "checkpoints" / "model.safetensors", {"fitted": fitted})
        # last: with it there is one
        write_config(
            folder, {"format": FORMAT, "model": model, "estimator": about, "versions": versions}
        )
        return folder


def load_regression(estimator: SavedRegression, folder: Path) -> Any:
    """A regression as ``save`` wrote it, fitted."""
    file, kind = folder / "checkpoints" / "model.safetensors", type(estimator)
    saved = checkpoint.load_tree(file)
    checkpoint.expect(saved, file, "fitted")
    check_like(saved["fitted"], dict, "model.safetensors: fitted")
    for name in saved["fitted"]:
        if not str(name).strip("_") or str(name).startswith("__") or hasattr(kind, str(name)):
            raise RunError(
                f"load: {file} must hold what a fit of {kind.__name__} leaves; got {name!r}."
            )
    _try(estimator, saved["fitted"], file)
    return estimator


def _try(estimator: Any, fitted: dict[str, Any], file: Path) -> None:
    """Take up what was fitted and predict at the mean row: what is missing, or of another sort, is
    found here and not later.
    """
    try:
        for name, value in fitted.items():
            setattr(estimator, str(name), from_tree(value))
        estimator.predict(estimator.shift_[None])
    except (
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        ArithmeticError,
        RuntimeError,
    ) as error:
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise RunError(
            f"load: {file} must hold what a fit of {type(estimator).__name__} leaves; got "
            f"something else ({reason})."
        ) from error


def as_tree(value: Any) -> Any:
    """A fitted attribute as what a checkpoint holds."""
    if is_dataclass(value) and type(value).__name__ in HELD:
        return {
            "held": type(value).__name__,
            "by": {field.name: as_tree(getattr(value, field.name)) for field in fields(value)},
        }
    if isinstance(value, np.ndarray) and value.dtype.kind in "bif":
        return {"array": torch.from_numpy(np.ascontiguousarray(value))}
    if isinstance(value, np.ndarray):
        return {"words": value.tolist(), "dtype": value.dtype.str}
    return value.item() if isinstance(value, np.generic) else value


def from_tree(tree: Any) -> Any:
    """The attribute that :func:`as_tree` described; nothing but the classes named above is ever
    called.
    """
    if not isinstance(tree, dict) or isinstance(tree, Tensor):
        return tree
    if "held" in tree:
        if tree["held"] not in HELD:
            raise RunError(
                f"load: a part must be one of {', '.join(HELD)}; got {tree['held']!r}. Another "
                "version of partita made it."
            )
        return HELD[tree["held"]](**{name: from_tree(value) for name, value in tree["by"].items()})
    if "array" in tree:
        return tree["array"].numpy()
    return np.array(tree["words"], dtype=tree["dtype"]) if "words" in tree else tree
