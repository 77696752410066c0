"""An estimator on disk: a run's folder whose config also names the estimator, its parameters and
its encoding.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from partita.errors import PartitaError, RunError
from partita.estimators._parameters import ESTIMATORS, from_json, to_json
from partita.estimators._saved_regression import SavedRegression, load_regression
from partita.runtime.atomic_files import write_whole
from partita.tables import Schema
from partita.tables.encoding import Encoding
from partita.training import checkpoint
from partita.training.run import Run, check_new, read_config, write_config
from partita.training.run import load as load_run


def save(estimator: Any, folder: Path) -> Path:
    """Write the folder; an existing run is never written over."""
    run: Run = estimator.run_
    names = getattr(estimator, "feature_names_in_", None)
    about = {
        "name": type(estimator).__name__,
        "parameters": to_json(estimator.get_params(deep=False)),
        "key": getattr(estimator, "_key", None),
        "columns": None if names is None else list(names),
    }
    encoding = (
        {"encoding": estimator.encoding_.as_json()} if hasattr(estimator, "encoding_") else {}
    )
    schema = getattr(estimator, "schema_", None)
    about |= {} if schema is None else {"schema": schema.as_json(), "polars": estimator._polars}
    config = {**run.config, **encoding, "estimator": about}
    check_new(folder)
    weights = {"use": dict(estimator.model_.state_dict())}
    tree = {
        "step": run.steps,
        "stopped": run.stopped,
        "warnings": run.warnings,
        "weights": weights,
        "kept": estimator._kept(),
    }
    checkpoint.save_tree(folder / "checkpoints" / "model.safetensors", tree)
    write_whole(
        folder / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in run.history)
    )
    write_config(folder, config)  # last: with it the folder holds an estimator
    return folder


def load(path: str | Path) -> Any:
    """The estimator that ``save`` wrote, fitted; no code of the folder is ever executed."""
    about = read_config(path).get("estimator")
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
    return (
        load_regression(estimator, Path(path))
        if isinstance(estimator, SavedRegression)
        else _restored(estimator, about, Path(path))
    )


def _restored(estimator: Any, about: dict[str, Any], path: Path) -> Any:
    """The estimator as its fit left it."""
    run = load_run(path)
    estimator.run_, estimator.model_ = run, run.model
    try:
        if run.config.get("encoding") is not None:
            estimator.encoding_ = Encoding.from_json(
                run.config["encoding"], run.model.support.width
            )
            estimator._key, estimator.n_features_in_ = about["key"], len(estimator.encoding_.shift)
            estimator._forget()
        elif hasattr(estimator, "family"):
            raise RunError(
                f"load: config.json must say how {about['name']} encodes its columns; it does not. "
                "Restore the file."
            )
        estimator._restore(
            checkpoint.load_tree(path / "checkpoints" / "model.safetensors").get("kept") or {}
        )
        if about.get("schema") is not None:
            estimator.schema_ = Schema.from_json(about["schema"])
            estimator._polars = about.get("polars") is True
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, PartitaError):
            raise
        reason = f"{type(error).__name__}: {error}".split("\n")[0]
        raise RunError(
            f"load: {path} must hold what a fit of {about['name']} leaves; got something else "
            f"({reason})."
        ) from error
    if about.get("columns") is not None:
        estimator.feature_names_in_ = np.array(about["columns"], dtype=object)
    return estimator
