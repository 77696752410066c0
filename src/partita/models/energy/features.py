r"""Feature functions phi(x) for maximum-entropy models; any module or function of ``(*, D)`` serves
as well.

A feature module may offer ``dot(x, theta)`` = theta . phi(x) where that is cheaper than phi itself;
``slope(x, i, theta)``, the coefficient of x_i where theta . phi(x) is linear in it, for fast Gibbs
sweeps; ``slopes(x, theta)``, all of them in one product; and ``start(mean)``, a good first theta.

Letters: D visible, K features.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from partita.errors import invalid

Feature = Callable[..., Tensor]


class Independent(nn.Module):
    """phi(x) = x: the means."""

    def __init__(self, visible: int) -> None:
        super().__init__()
        self.visible = visible

    def forward(self, x: Tensor) -> Tensor:
        return x

    def slopes(self, x: Tensor, theta: Tensor) -> Tensor:
        """theta, whatever x is, ``(*, D) -> (*, D)``."""
        return theta.expand(x.shape)

    def start(self, mean: Tensor) -> Tensor:
        return torch.logit(mean)


class Pairwise(nn.Module):
    """phi(x) = all x_i, then all x_i x_j with i < j: the means and the correlations."""

    upper: Tensor
    partners: Tensor

    def __init__(self, visible: int) -> None:
        super().__init__()
        self.visible = visible
        self.register_buffer("upper", torch.triu_indices(visible, visible, 1), persistent=False)
        self.register_buffer("partners", _partners(self.upper, visible), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x[..., self.upper[0]] * x[..., self.upper[1]]], -1)

    def dot(self, x: Tensor, theta: Tensor) -> Tensor:
        """One D x D product in place of D (D - 1) / 2 features."""
        return (x * self._inputs(x, theta, self._couplings(theta).mT)).sum(-1)

    def slope(self, x: Tensor, i: int, theta: Tensor) -> Tensor:
        """theta_i + sum over j of theta_ij x_j, ``(*, D) -> (*)``."""
        row = theta[self.partners[i]]
        row[i] = 0
        return x @ row + theta[i]

    def slopes(self, x: Tensor, theta: Tensor) -> Tensor:
        """The slope of every coordinate, ``(*, D) -> (*, D)``, in one product."""
        couplings = self._couplings(theta)
        return self._inputs(x, theta, couplings + couplings.mT)

    def start(self, mean: Tensor) -> Tensor:
        return functional.pad(torch.logit(mean), (0, self.upper.shape[1]))

    def _couplings(self, theta: Tensor) -> Tensor:
        """theta_ij with i < j as a matrix."""
        return theta.new_zeros(self.visible, self.visible).index_put(
            tuple(self.upper), theta[self.visible :]
        )

    def _inputs(self, x: Tensor, theta: Tensor, matrix: Tensor) -> Tensor:
        return torch.addmm(theta[: self.visible], x.reshape(-1, self.visible), matrix).view(x.shape)


class KPairwise(nn.Module):
    """Pairwise features and one indicator for each number of ones, which fits the distribution of
    the population count.
    """

    def __init__(self, visible: int) -> None:
        super().__init__()
        self.pairwise = Pairwise(visible)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.pairwise(x), self._count(x)], -1)

    def dot(self, x: Tensor, theta: Tensor) -> Tensor:
        visible = self.pairwise.visible
        return (
            self.pairwise.dot(x, theta[: -visible - 1])
            + theta[-visible - 1 :][x.sum(-1).round().long()]
        )

    def slopes(self, x: Tensor, theta: Tensor) -> Tensor:
        """On zeros and ones: the pairwise slopes, and what one more one is worth among the
        others.
        """
        visible = self.pairwise.visible
        counts, others = theta[-visible - 1 :], (x.sum(-1, keepdim=True) - x).round().long()
        return self.pairwise.slopes(x, theta[: -visible - 1]) + counts[others + 1] - counts[others]

    def start(self, mean: Tensor) -> Tensor:
        return functional.pad(self.pairwise.start(mean), (0, self.pairwise.visible + 1))

    def _count(self, x: Tensor) -> Tensor:
        return functional.one_hot(x.sum(-1).round().long(), self.pairwise.visible + 1).to(x.dtype)


class Stack(nn.Module):
    """Several feature functions side by side; each gives ``(*, K_c)`` or ``(*)``."""

    def __init__(self, features: Sequence[Feature]) -> None:
        super().__init__()
        self.parts = list(features)
        self.modules_among = nn.ModuleList([f for f in features if isinstance(f, nn.Module)])

    def forward(self, *arguments: Tensor) -> Tensor:
        values = [f(*arguments) for f in self.parts]
        batch = torch.broadcast_shapes(*(a.shape[:-1] for a in arguments))
        return torch.cat([v[..., None] if v.dim() == len(batch) else v for v in values], -1)


def _partners(upper: Tensor, visible: int) -> Tensor:
    """Place of theta_ij in theta, ``(D, D)``; the diagonal points at theta_i and is not used."""
    place = torch.diag(torch.arange(visible))
    place[upper[0], upper[1]] = place[upper[1], upper[0]] = visible + torch.arange(upper.shape[1])
    return place


NAMED: dict[str, type[nn.Module]] = {
    "independent": Independent,
    "pairwise": Pairwise,
    "k-pairwise": KPairwise,
}


def as_features(features: str | Feature | Sequence[Feature], visible: int) -> Feature:
    """A feature function from a name, a module, a function or a list of them."""
    if isinstance(features, str) and features in NAMED:
        return NAMED[features](visible)
    if callable(features):
        return features
    if isinstance(features, list | tuple) and features and all(map(callable, features)):
        return Stack(features)
    allowed = "be a function, a module, a list of them, or one of " + ", ".join(NAMED)
    raise invalid("MaxEnt", "features", allowed, repr(features))
