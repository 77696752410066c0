r"""Scores of models: the gradient of log p, or of its unnormalized part, at every row by itself.

.. math:: s(x) = \nabla_\theta \log \phi(x), \qquad \text{RBM: } s(x) = \big(t(x)\, h(x)^\top,\;
          t(x),\; h(x)\big), \quad
          h = \sigma(c + W^\top t)          (theory/optimization.md, eq. 50.9)

Hidden units enter by their expectation given x, so that F = Cov_x(E[s | x]), which is less than the
covariance of s(x, h).

Letters: n rows, P parameters, D visible, H hidden, t statistic of x, s scores.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from partita.core.enumeration import chunks, log_partition
from partita.core.protocols import EnergyModel
from partita.errors import invalid
from partita.models.energy.maxent import MaxEnt
from partita.models.energy.rbm import RBM
from partita.optim.natural_gradient.metrics import MatrixMetric, ScoreMetric, Scores

MOST_BITS = 16  # of a support whose states are all looked at for one Fisher matrix
WRITTEN_OUT = 1200  # parameters up to which F is a matrix
CELLS = 1 << 23  # rows x parameters looked at together


@dataclass(frozen=True)
class DenseScores:
    """s written out, (n, P)."""

    s: Tensor

    def dot(self, v: Tensor) -> Tensor:
        return self.s @ v

    def weighted(self, w: Tensor) -> Tensor:
        return w @ self.s

    def written_out(self) -> Tensor:
        return self.s


@dataclass(frozen=True)
class RBMScores:
    """(t h', t, h) of every row, never written out: a product costs two matrix products."""

    t: Tensor  # (n, D)
    h: Tensor  # (n, H)

    def dot(self, v: Tensor) -> Tensor:
        D, H = self.t.shape[1], self.h.shape[1]
        W, b, c = v[: D * H].view(D, H), v[D * H : D * H + D], v[D * H + D :]
        return (self.t @ W * self.h).sum(1) + self.t @ b + self.h @ c

    def weighted(self, w: Tensor) -> Tensor:
        weighted = w[:, None] * self.t
        return torch.cat([(weighted.mT @ self.h).flatten(), weighted.sum(0), w @ self.h])

    def written_out(self) -> Tensor:
        return torch.cat([(self.t[:, :, None] * self.h[:, None]).flatten(1), self.t, self.h], 1)


@torch.no_grad()
def scores_of(model: nn.Module, x: Tensor) -> Scores:
    """The scores of a model's parameters, in their order, at rows ``x`` (n, D): of -F for an energy
    model, of log p for others.
    """
    if isinstance(model, RBM) and model.log_sigma is None:
        t = model.units.statistic(x)
        return RBMScores(t, torch.sigmoid(model.c + t @ model.W))
    if isinstance(model, MaxEnt):
        return DenseScores(model.expected_features(x))
    return DenseScores(_row_gradients(model, x))


def score_metric(model: nn.Module, x: Tensor) -> ScoreMetric | MatrixMetric:
    """F from draws ``x`` of the model, its chains for example, or independent draws of a directed
    model; written out where the parameters are few.
    """
    w = x.new_full((len(x),), 1 / len(x))
    scores, centered = scores_of(model, x), isinstance(model, EnergyModel)
    if len(scores.weighted(w)) > WRITTEN_OUT:
        return ScoreMetric(scores, w, centered)
    s, w = scores.written_out().double(), w.double()
    s = s - w @ s if centered else s
    return MatrixMetric(s.mT @ (w[:, None] * s))


@torch.no_grad()
def fisher_matrix(model: EnergyModel) -> Tensor:
    """F of an energy model exactly, (P, P) in float64: the covariance of its scores over all states
    of x.
    """
    bits = model.support.bits
    if bits > MOST_BITS:
        allowed = f"have at most 2^{MOST_BITS} states to sum over"
        remedy = "Use score_metric(model, draws) with draws of the model."
        got = f"{model.title()} with 2^{bits:g}"
        raise invalid("fisher_matrix", "model", allowed, got, remedy)
    side = model.sides()[0]
    log_z = log_partition(side, model.like)
    total = mean = second = torch.zeros((), dtype=torch.float64, device=log_z.device)
    for states in chunks(side, model.like):
        for x in states.split(max(1, CELLS // sum(p.numel() for p in model.parameters()))):
            w = torch.exp(-side.free_energy(x) - log_z).double()
            s = scores_of(model, x).written_out().double()
            total, mean, second = total + w.sum(), mean + w @ s, second + s.mT @ (w[:, None] * s)
    mean = mean / total  # the sum of float32 probabilities is not quite one
    return second / total - mean[:, None] * mean


def _row_gradients(model: nn.Module, x: Tensor) -> Tensor:
    """One gradient for each row, (n, P), all rows at once where torch can, else one after the
    other.
    """
    named = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    sign = -1.0 if isinstance(model, EnergyModel) else 1.0

    def log_phi(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        return sign * torch.func.functional_call(model, parameters, (row[None],))[0]

    # Differentiating x too keeps to plain autograd where a model has a formula of its own, which
    # cannot be batched.
    try:
        gradients, _ = torch.func.vmap(
            torch.func.grad(log_phi, (0, 1)), (None, 0), randomness="error"
        )(named, x)
        return torch.cat([gradient.flatten(1) for gradient in gradients.values()], 1)
    except RuntimeError:
        return torch.stack([_gradient(model, row, sign) for row in x])


@torch.enable_grad()
def _gradient(model: nn.Module, row: Tensor, sign: float) -> Tensor:
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(
        sign * model(row[None])[0], parameters, allow_unused=True, materialize_grads=True
    )
    return parameters_to_vector(found)
