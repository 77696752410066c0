"""Regressions on disk: a folder with ``config.json`` and one file of tensors, as runs have; nothing
in it is code.
"""

from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from partita.bayes.regression import LinearRegression, LogisticPosterior, PosteriorDraws
from partita.core.arguments import check_path
from partita.errors import RunError
from partita.estimators._saved import WEIGHTS, described, left_by_fit
from partita.runtime.files import JsonObject, check_like
from partita.training import checkpoint
from partita.training.run import FORMAT, check_new, write_config

# what a fitted regression is made of
HELD = {kind.__name__: kind for kind in (PosteriorDraws, LinearRegression, LogisticPosterior)}


class SavedRegression(BaseEstimator):
    """A regression that can be written to a folder."""

    shift_: np.ndarray

    def predict(self, X: object) -> np.ndarray:
        """What is most probable at each row."""
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return "intercept_" in vars(self)  # which a fit sets last

    def save(self, path: str | Path) -> Path:
        """Write a folder that ``partita.estimators.load`` reads."""
        check_is_fitted(self)
        folder, about = check_path("save", "path", path), described(self)
        check_new(folder)
        given = self.get_params(deep=False)
        fitted = {name: as_tree(value) for name, value in vars(self).items() if name not in given}
        checkpoint.save_tree(folder / WEIGHTS, {"fitted": fitted})
        # last: with it there is one
        config = {"format": FORMAT, "model": {"name": about["name"]}, "estimator": about}
        versions = {"partita": version("partita"), "torch": torch.__version__}
        write_config(folder, {**config, "versions": versions})
        return folder

    def _opened(self, about: JsonObject, folder: Path) -> Self:
        """Become what :meth:`save` wrote, and predict at the mean row: what is missing, or of
        another sort, is found here and not later.
        """
        file, kind = folder / WEIGHTS, type(self)
        saved = checkpoint.load_tree(file)
        checkpoint.expect(saved, file, "fitted")
        check_like(saved["fitted"], dict, "model.safetensors: fitted")
        for name in map(str, saved["fitted"]):
            if not name.strip("_") or name.startswith("__") or name in dir(kind):
                raise RunError(
                    f"load: {file} must hold what a fit of {kind.__name__} leaves; got {name!r}."
                )
        with left_by_fit(self, folder):
            for name, value in saved["fitted"].items():
                setattr(self, str(name), from_tree(value))
            self.predict(self.shift_[None])
        return self


def as_tree(value: object) -> checkpoint.Tree:
    """A fitted attribute as what a checkpoint holds."""
    if is_dataclass(value) and type(value).__name__ in HELD:
        by = {field.name: as_tree(getattr(value, field.name)) for field in fields(value)}
        return {"held": type(value).__name__, "by": by}
    if isinstance(value, np.ndarray) and value.dtype.kind in "bif":
        return {"array": torch.from_numpy(np.ascontiguousarray(value))}
    if isinstance(value, np.ndarray):
        return {"words": value.tolist(), "dtype": value.dtype.str}
    return value.item() if isinstance(value, np.generic) else value


def from_tree(tree: checkpoint.Tree) -> checkpoint.Tree:
    """The attribute that :func:`as_tree` described; nothing but the classes named above is ever
    called.
    """
    if not isinstance(tree, dict):
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
