"""Every estimator with settings that take no time, and rows that it takes."""

import functools
import inspect
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from partita.estimators import ESTIMATORS, Density
from partita.families import FAMILIES

QUICK: dict[str, Any] = {
    "epochs": 1,
    "max_iter": 2,
    "sweeps": 3,
    "n_hidden": 2,
    "width": 4,
    "n_layers": 1,
    "n_chains": 4,
    "n_latent": 1,
    "n_features": 2,
    "n_draws": 4,
    "queue": 8,
    "n_prototypes": 2,
    "n_components": 2,
    "n_init": 1,
    "n_bins": 2,
    "random_state": 0,
    "validation_fraction": 0.0,
}
OWN = {
    "PPCADensity": {"n_components": 1},
    "BayesianLogisticRegression": {"n_draws": 128},
    "FlowDensity": {"n_layers": 2},
}
NAMES = sorted(ESTIMATORS)


def kind_of(name: str) -> type:
    """The class of an estimator."""
    return ESTIMATORS[name]


def parameters_of(name: str) -> list[str]:
    """What its constructor takes."""
    return list(inspect.signature(kind_of(name)).parameters)


def quick(name: str) -> dict[str, Any]:
    """Settings with which a fit takes no time."""
    return {
        key: value
        for key, value in {**QUICK, **OWN.get(name, {})}.items()
        if key in parameters_of(name)
    }


@functools.cache
def words_of(name: str) -> list[str]:
    """Words that its docstring names, as values of some parameter."""
    return sorted(set(re.findall(r'``"([a-z0-9-]+)"``', inspect.getdoc(kind_of(name)) or "")))


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets that it takes."""
    g = np.random.default_rng(0)
    cls = kind_of(name)
    taken = getattr(cls, "supports", ("real",))
    if issubclass(cls, Density) and (setting := FAMILIES[cls.family].settings.get("support")):
        taken = setting.choices
    discrete = "real" not in taken or name == "SigmoidBeliefDensity"
    x = g.integers(0, 2, (16, 4)).astype(float) if discrete else g.normal(size=(16, 3))
    return x, g.integers(0, 2, 16)


@functools.cache
def fitted(name: str) -> Any:
    """The estimator after a quick fit."""
    x, y = rows(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            kind_of(name)(**quick(name)).fit(x, y)
            if name.startswith("Bayes")
            else kind_of(name)(**quick(name)).fit(x)
        )


@functools.cache
def home() -> tempfile.TemporaryDirectory:
    """Where saved estimators are as long as the tests run."""
    return tempfile.TemporaryDirectory(prefix="partita-fuzz-")


@functools.cache
def saved(name: str) -> Path:
    """The folder of a run that holds the estimator."""
    return fitted(name).save(Path(home().name) / name)
