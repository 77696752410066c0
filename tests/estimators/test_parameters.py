"""Every estimator keeps its parameters, types included, through a save, a clone and a pickle; so do
evaluators among them.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tests.fuzz.subjects import quick

from partita import estimators
from partita.estimators._parameters import from_json, to_json
from partita.evaluators import AIS

BITS = np.random.default_rng(0).integers(0, 2, (40, 4)).astype(float)
REALS = np.random.default_rng(1).normal(size=(40, 4))
STEPS: dict[str, Any] = {"epochs": 1, "batch_size": 20}
# rows, and parameters that are not the defaults
SMALL: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "RBMDensity": (
        BITS,
        {
            "n_hidden": 2,
            "n_chains": np.int64(4),
            "evaluator": AIS(temperatures=20, chains=8),
            **STEPS,
        },
    ),
    "AutoregressiveDensity": (BITS, {"support": "binary", **STEPS}),
    "MaxEntDensity": (BITS, {"l2": 1e-3, "n_chains": 8, "epochs": 1}),
    "LatentEnergyDensity": (REALS, {"n_chains": 8, **STEPS}),
    "NeuralEnergyDensity": (REALS, {"n_chains": 8, **STEPS}),
    "IsingDensity": (BITS, {"n_chains": 8, "evaluator": "enumeration", "epochs": 1}),
    "PottsDensity": (BITS, {"n_chains": 8, "l2": np.float64(0.5), "epochs": 1}),
    "MixtureDensity": (BITS, {"n_components": 2, "component": "auto", "max_iter": 2}),
    "PPCADensity": (REALS, {"n_components": 2, "max_iter": 2}),
    "MixturePPCADensity": (REALS, {"n_components": 1, "max_iter": 2}),
    "PrototypeEncoder": (REALS, {"n_prototypes": (2, 3), "hidden": (6, 5), "epochs": 1}),
    "FlowDensity": (REALS, {"n_layers": 2, **STEPS}),
    "VAEDensity": (REALS, {"n_latent": 2, **STEPS}),
    "SigmoidBeliefDensity": (BITS, {"n_hidden": 2, **STEPS}),
    "VRNNDensity": (BITS, STEPS),
    "GANSampler": (REALS, {"n_latent": 2, **STEPS}),
    "DirichletProcessMixture": (REALS, {"weight_concentration_prior": 2.0}),
    "BayesianLinearRegression": (REALS, {}),
    "BayesianLogisticRegression": (REALS, {}),
}


def same(one: Any, other: Any) -> bool:
    """Equal parameters of equal types, but that a number of NumPy may become Python's."""
    plain, again = (
        value.item() if isinstance(value, np.generic) else value for value in (one, other)
    )
    return type(plain) is type(again) and plain == again


def reloaded(estimator: Any, path: Path) -> Any:
    return estimators.load(estimator.save(path))


@pytest.mark.filterwarnings("ignore")  # of fits that end long before they are good
@pytest.mark.parametrize("name", estimators.ESTIMATORS)
def test_parameters_are_the_same_after_a_save_a_clone_and_a_pickle(
    name: str, tmp_path: Path
) -> None:
    X, given = SMALL.get(name, (BITS, quick(name)))
    fitted = getattr(estimators, name)(**{**given, "random_state": np.int64(3)}).fit(X, BITS[:, 0])
    copies: dict[str, Callable[[Any], Any]] = {
        "load": lambda one: reloaded(one, tmp_path / "saved"),
        "clone": clone,
        "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    }
    before = fitted.get_params(deep=False)
    for way, copy in copies.items():
        after = copy(fitted).get_params(deep=False)
        assert not {
            key: (value, after[key]) for key, value in before.items() if not same(value, after[key])
        }, way


def test_parameters_inside_others_keep_their_types() -> None:
    given = {
        "deep": [(1, (2.5, "a")), {"k": (None, True)}],
        "array": np.arange(3),
        "columns": {"tuple": "real"},
    }
    assert from_json(to_json(given)) == {**given, "array": [0, 1, 2]}
    assert to_json({"generator": np.random.default_rng(0), "l2": 1.0}) == {"l2": 1.0}
