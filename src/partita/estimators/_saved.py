"""An estimator on disk: a run's folder whose config also names the estimator, its parameters and
its encoding.
"""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from partita.core.arguments import check_path
from partita.errors import RunError
from partita.estimators._parameters import ESTIMATORS, from_json, to_json
from partita.runtime.files import JsonObject, write_whole
from partita.tables import Schema
from partita.tables.encoding import Encoding
from partita.training import Run, checkpoint
from partita.training.run import check_new, read_config, write_config
from partita.training.run import load as load_run

WEIGHTS = Path("checkpoints", "model.safetensors")


class SavedEstimator(BaseEstimator):
    """An estimator around a run, which can be written to a folder."""

    encodes: ClassVar[bool] = True  # whether columns become others before the model sees them
    model_: Any  # of each estimator's own class
    run_: Run
    encoding_: Encoding  # where columns are encoded
    schema_: Schema  # where they are of different sorts
    _key: int = 0
    _polars: bool = False

    def save(self, path: str | Path) -> Path:
        """Write a run's folder that ``partita.load`` and ``partita.estimators.load`` read; nothing
        in it is code.
        """
        check_is_fitted(self, "model_")
        folder, run = check_path("save", "path", path), self.run_
        names = getattr(self, "feature_names_in_", None)
        about = described(self) | {
            "key": self._key,
            "columns": None if names is None else list(names),
        }
        fitted = vars(self)
        if "schema_" in fitted:
            about |= {"schema": self.schema_.as_json(), "polars": self._polars}
        encoding = {"encoding": self.encoding_.as_json()} if "encoding_" in fitted else {}
        check_new(folder)
        tree = {
            "step": run.steps,
            "stopped": run.stopped,
            "warnings": run.warnings,
            "weights": {"use": dict(self.model_.state_dict())},
            "trajectory": [dict(weights) for weights in getattr(self.model_, "trajectory", ())],
            "kept": self._kept(),
        }
        checkpoint.save_tree(folder / WEIGHTS, tree)
        records = "".join(json.dumps(record) + "\n" for record in run.history)
        write_whole(folder / "metrics.jsonl", records)
        # last: with it the folder holds an estimator
        write_config(folder, {**run.config, **encoding, "estimator": about})
        return folder

    def _opened(self, about: JsonObject, folder: Path) -> Self:
        """Become what :meth:`save` wrote."""
        run = load_run(folder)
        self.run_, self.model_ = run, run.model
        with left_by_fit(self, folder):
            if run.config.get("encoding") is not None:
                width = run.model.support.width
                self.encoding_ = Encoding.from_json(run.config["encoding"], width)
                self._key, self.n_features_in_ = about["key"], len(self.encoding_.shift)
                self._forget()
            elif self.encodes:
                raise RunError(
                    f"load: config.json must say how {about['name']} encodes its columns; it does "
                    "not. Restore the file."
                )
            self._restore(checkpoint.load_tree(folder / WEIGHTS).get("kept") or {})
            if about.get("schema") is not None:
                self.schema_ = Schema.from_json(about["schema"])
                self._polars = about.get("polars") is True
        if about.get("columns") is not None:
            self.feature_names_in_ = np.array(about["columns"], dtype=object)
        return self

    def _forget(self) -> None:
        """Drop what was computed from an earlier fit."""

    def _kept(self) -> JsonObject:
        """What is saved beside the model: tensors, numbers, words and their lists and dicts."""
        return {}

    def _restore(self, kept: JsonObject) -> None:
        """Take back what was saved."""

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)


def load(path: str | Path) -> Any:
    """The estimator that ``save`` wrote, fitted; no code of the folder is ever executed."""
    about, folder = read_config(path).get("estimator"), Path(path)
    if not isinstance(about, dict) or str(about.get("name")) not in ESTIMATORS:
        raise RunError(
            f"load: {path} must hold an estimator, as its save method writes; got a run without "
            "one. Use partita.load instead."
        )
    try:
        estimator = ESTIMATORS[about["name"]](**from_json(about.get("parameters") or {}))
    except TypeError as error:
        raise RunError(
            f"load: config.json must hold the parameters of {about['name']}; got others ({error})."
        ) from None
    return estimator._opened(about, folder)


def start_over(estimator: BaseEstimator) -> None:
    """Drop what an earlier fit left: one that fails or is interrupted leaves no other's result."""
    for name in [name for name in vars(estimator) if name.endswith("_") and name[0] != "_"]:
        delattr(estimator, name)


def described(estimator: BaseEstimator) -> JsonObject:
    """The name and the parameters of an estimator, as its config holds them."""
    parameters = to_json(estimator.get_params(deep=False))
    return {"name": type(estimator).__name__, "parameters": parameters}


def left_by_fit(estimator: BaseEstimator, folder: Path) -> AbstractContextManager[None]:
    """Refuse, inside the block, a folder that holds what no fit leaves."""
    name = type(estimator).__name__
    return checkpoint.refusing(f"{folder} must hold what a fit of {name} leaves")
