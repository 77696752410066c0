"""Generative adversarial networks as a scikit-learn estimator that samples and does not score."""

from dataclasses import KW_ONLY
from typing import Any, ClassVar, NoReturn

from sklearn.utils.validation import check_is_fitted

from partita.core.quantity import Kind as ScoreKind
from partita.core.quantity import Quantity
from partita.estimators._density import Density
from partita.estimators._parameters import GradientParameters, parameters

NO_LIKELIHOOD = (
    "a GAN has no likelihood; evaluate(X) compares X with draws by two-sample statistics"
)


class _Absent:
    """A method of densities that is not there: a GAN has no likelihood."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no {self.name}: {NO_LIKELIHOOD}.")


@parameters
class GANSampler(GradientParameters, Density):
    """New samples of real columns from a generative adversarial network.

    It has no ``score``, ``score_samples`` or ``anomaly_score``: a GAN has no likelihood.
    ``evaluate`` gives two-sample statistics.

    Arguments:
        n_latent: Columns of noise.
        loss: ``"non-saturating"``, ``"minimax"``, ``"wasserstein"``, or an f-divergence: ``"kl"``,
            ``"reverse-kl"``, ``"total-variation"``, ``"jensen-shannon"``, ``"hellinger"``,
            ``"pearson"``, ``"alpha-A"``.
        lipschitz: How the critic's slope is bounded: ``"penalty"``, ``"spectral"``, ``"clip"`` or
            ``"none"``.
        n_hidden: Units of each of the two hidden layers of generator and critic.
        critic_steps: Updates of the critic for each of the generator.
        strength: Of the penalty on slopes other than one.
        clip: Largest weight of the critic, with ``lipschitz="clip"``.
        audit_every: Updates between two audits of what the critic claims; 0 for none.
        support: ``"auto"`` or ``"real"``: columns are standardized.
        optimizer: ``"sgd"``, ``"adam"``, ``"lbfgs"`` (exact objectives) or ``"natural"``, as in
            ``partita.fit``; None leaves the choice.
        learning_rate, epochs, batch_size: None leaves them to the recipe for this number of rows.
        l1, l2: Penalties on the generator's parameters.
        validation_fraction: Share of the rows held out to choose the generator by, with the
            smallest kernel distance to them.
        max_minutes: Time to spend, in place of epochs.
        random_state: A number, None, a NumPy RandomState or a torch generator.
        verbose: Show a progress bar.

    Attributes:
        model_: The fitted :class:`partita.models.GAN`, on standardized columns.
        run_: What the fit recorded: losses, and beside them the audit of the critic.
        encoding_: How columns become the model's: kind, shift and scale.
        score_kind_: ``none``.
        n_features_in_, feature_names_in_: Columns seen in ``fit``.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = GANSampler(n_hidden=8, epochs=1, random_state=0).fit(X)
    >>> model.sample(3).shape, model.evaluate(X).kind, hasattr(model, "score")
    ((3, 2), 'none', False)
    """

    family = "gan"
    supports = ("auto", "real")

    n_latent: int = 8
    loss: str = "non-saturating"
    _: KW_ONLY
    lipschitz: str = "penalty"
    n_hidden: int = 128
    critic_steps: int = 1
    strength: float = 0.1
    clip: float = 0.05
    audit_every: int = 200

    def evaluate(self, X: object, y: object = None) -> Quantity:
        """The squared kernel distance between X and draws, with its interval, p-value and coverage;
        its kind is ``none``.
        """
        return super().evaluate(X)

    @property
    def score_kind_(self) -> ScoreKind:
        """``none``: there is no likelihood."""
        check_is_fitted(self, "model_")
        return "none"

    score: ClassVar[Any] = _Absent()
    score_samples: ClassVar[Any] = _Absent()
    anomaly_score: ClassVar[Any] = _Absent()
