"""The sigmoid belief network as a scikit-learn density estimator."""

from dataclasses import KW_ONLY

import numpy as np
import torch

from partita.core.protocols import Capability, LikelihoodEvaluator, in_double
from partita.core.quantity import Kind as ScoreKind
from partita.estimators._density import Features
from partita.estimators._latent import LatentDensity
from partita.estimators._parameters import GradientParameters, parameters


@parameters
class SigmoidBeliefDensity(Features, GradientParameters, LatentDensity):
    """Density, binary features, anomalies, imputation and new samples from layers of bits above the
    columns.

    Arguments:
        n_hidden: Bits of each layer; ``"auto"`` takes one per column while there are 20 rows for
            each, from 8 to 200.
        n_layers: Layers of bits.
        estimator: Of the gradient: ``"disarm"``, ``"rebar"``, ``"relax"``, ``"leave-one-out"``,
            ``"vimco"``, ``"nvil"``, ``"muprop"``, ``"gumbel-softmax"``, ``"straight-through"``,
            ``"moving-average"``, ``"optimal-constant"`` or ``"reinforce"``.
        width: Hidden units of the perceptron between two layers; 0 is linear.
        activation: Of those perceptrons.
        n_particles: Draws for each row while fitting (``"leave-one-out"``, ``"vimco"``).
        temperature: Of relaxed draws, or where it starts where it is learned.
        n_draws: Draws for each row while scoring: more make the lower bound tighter.
        support: ``"auto"`` looks at the data: zeros and ones, spins (relabeled), else real columns,
            standardized. ``"binary"``, ``"spin"``, ``"real"`` and ``"category"`` are strict.
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (exact objectives) or ``"natural"``, as in
            ``partita.fit``; None leaves the choice.
        learning_rate, epochs, batch_size: None leaves them to the recipe for this model and number
            of rows.
        l1, l2: Penalties on all parameters.
        validation_fraction: Share of the rows held out to choose the best weights by, where it
            makes at least 10.
        max_minutes: Time to spend, in place of epochs.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.SigmoidBelief`, on encoded columns.
        run_: What the fit recorded: the bound, active units.
        encoding_: How columns become the model's: kind, shift and scale.
        score_kind_: ``lower``; ``exact`` where there are at most ten bits, whose states can all be
            summed.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> X = (np.random.default_rng(0).random((80, 6)) < 0.3).astype(int)
    >>> model = SigmoidBeliefDensity(4, epochs=2, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3).shape, model.evaluate(X).kind
    ((80, 4), (3, 6), 'exact')
    """

    family = "belief"
    by_encoding = ("likelihood", {"real": "gaussian", "category": "categorical"}, "bernoulli")
    supports = ("auto", "binary", "spin", "real", "category")

    n_hidden: int | str = "auto"
    n_layers: int = 1
    estimator: str = "disarm"
    _: KW_ONLY
    width: int = 0
    activation: str = "tanh"
    n_particles: int = 4
    temperature: float = 0.5
    n_draws: int = 100

    @torch.no_grad()
    def transform(self, X: object) -> np.ndarray:
        """Probability of each bit of the first layer given each row, by the proposal, (N, H)."""
        layers = in_double(self.model_).proposal(self._encoded(X, "transform"))
        return layers[0](()).mean.numpy()

    @property
    def score_kind_(self) -> ScoreKind:
        """``lower``, or ``exact`` where the bits are few."""
        kind = super().score_kind_
        return "exact" if Capability.LOG_PROB in self.model_.capabilities else kind

    @property
    def _n_features_out(self) -> int:
        return self.model_.hidden[0]

    def _evaluator(self) -> LikelihoodEvaluator | None:
        return None if Capability.LOG_PROB in self.model_.capabilities else super()._evaluator()
