"""What the estimators of latent-variable models share: scores from below."""

from sklearn.utils.validation import check_is_fitted

from partita.core.protocols import LikelihoodEvaluator
from partita.core.quantity import Kind as ScoreKind
from partita.estimators._density import Density
from partita.evaluators import IWAE


class LatentDensity(Density):
    """A density estimator around a latent-variable model; subclasses name their family and
    translate their parameters.
    """

    n_draws: int

    @property
    def score_kind_(self) -> ScoreKind:
        """``lower``: ``score`` is a lower bound in expectation."""
        check_is_fitted(self, "model_")
        return "lower"

    def _evaluator(self) -> LikelihoodEvaluator | None:
        return IWAE(self.n_draws, by_row=True)
