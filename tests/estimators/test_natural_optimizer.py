"""``optimizer="natural"`` from the scikit-learn side."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from partita.errors import InputError, Unsupported
from partita.estimators import FlowDensity, GANSampler, MaxEntDensity, RBMDensity, VAEDensity


def table(real: bool) -> np.ndarray:
    """Columns that depend on one another."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(200, 1))
    X = 1.5 * common + rng.normal(size=(200, 5))
    return X[:, :2] if real else (X > 0).astype(float)


MODELS: dict[str, Any] = {
    "rbm": RBMDensity(3, epochs=20),
    "maxent": MaxEntDensity(epochs=5),
    "flow": FlowDensity(2, n_hidden=8, epochs=3),
    "vae": VAEDensity(1, n_hidden=8, n_layers=1, epochs=4, n_draws=20),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_density_learns_by_natural_gradient(name: str) -> None:
    """Better than where it starts, in a few updates (fixed seed)."""
    X = table(name == "flow")
    model = clone(MODELS[name]).set_params(optimizer="natural", random_state=0)
    model.fit(X)
    start = clone(model).set_params(optimizer="sgd", learning_rate=1e-12, epochs=1).fit(X)
    assert model.run_.config["fit"]["optimizer"] == "natural"
    assert model.score(X) > start.score(X) + 0.02


def test_what_cannot_is_named() -> None:
    with pytest.raises(Unsupported, match="optimizer 'natural' moves a model's own parameters"):
        GANSampler(optimizer="natural", epochs=1, random_state=0).fit(table(True))
    with pytest.raises(InputError, match="optimizer must be one of"):
        RBMDensity(optimizer="newton", epochs=1, random_state=0).fit(table(False))
