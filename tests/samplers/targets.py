"""A density on the plane without any symmetry, with draws and cell probabilities by quadrature."""

from typing import Any

import torch
from scipy.stats import chi2
from torch import Tensor, nn

from partita.core.protocols import EnergyModel
from partita.core.support import Real
from partita.integration.quadrature import Box, cells
from partita.models.energy.units import GaussianReference, whitening_of

LOW, HIGH, FINE = -6.0, 6.0, 600
EDGES = 6  # bins along each coordinate, by quantiles


class Bent(EnergyModel):
    """A bent, tilted, lopsided density: neither x nor -x, nor any exchange of coordinates, leaves
    it as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.support = Real(2)
        self.a = nn.Parameter(torch.tensor([0.8, 1.6, 0.5], dtype=torch.float64))

    def free_energy(self, x: Tensor) -> Tensor:
        u, v = x[..., 0], x[..., 1]
        return (
            self.a[0] * (u - 0.6).square()
            + self.a[1] * (v + 0.4 * u.square()).square()
            + self.a[2] * torch.logaddexp(u, -3 * v)
        )

    def reference(self) -> GaussianReference:
        covariance = torch.tensor([[0.8, -0.2], [-0.2, 1.1]], dtype=torch.float64)
        return GaussianReference(
            torch.tensor([0.2, -0.1], dtype=torch.float64), whitening_of(covariance)
        )

    def initialize(self, data: Any, *, generator: torch.Generator) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {}


class Truth:
    """A target on a grid so fine that its cells are points to any test here."""

    def __init__(self, model: EnergyModel) -> None:
        box = Box(
            torch.full((2,), LOW, dtype=torch.float64), torch.full((2,), HIGH, dtype=torch.float64)
        )
        self.x = torch.cat(list(cells(box, FINE)))
        with torch.no_grad():
            self.p = torch.softmax(-model.free_energy(self.x), 0)
        axis = self.x.view(FINE, FINE, 2)[:, 0, 0]
        margins = [self.p.view(FINE, FINE).sum(1 - i).cumsum(0) for i in range(2)]
        share = torch.arange(1, EDGES, dtype=torch.float64) / EDGES
        half = (HIGH - LOW) / FINE / 2
        # at the faces of cells
        self.edges = [axis[torch.searchsorted(m, share)] + half for m in margins]
        self.expected = torch.zeros(EDGES**2, dtype=torch.float64).index_add(
            0, self.bins(self.x), self.p
        )

    def bins(self, x: Tensor) -> Tensor:
        i, j = (torch.bucketize(x[:, k].contiguous(), self.edges[k]) for k in range(2))
        return i * EDGES + j

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Exact but for the flatness of a cell of side 0.02."""
        x = self.x[torch.multinomial(self.p, n, True, generator=generator)]
        return (
            x + (torch.rand(n, 2, generator=generator, dtype=x.dtype) - 0.5) * (HIGH - LOW) / FINE
        )

    def distance(self, x: Tensor) -> float:
        """Chi-squared of the bins, those of little mass pooled."""
        observed = torch.bincount(self.bins(x), minlength=EDGES**2).double()
        full = self.expected * len(x) >= 5
        counts = torch.cat([observed[full], observed[~full].sum()[None]])
        wanted = torch.cat([self.expected[full], self.expected[~full].sum()[None]]) * len(x)
        return float(((counts - wanted).square() / wanted.clamp_min(1e-9))[wanted > 1].sum())

    def limit(self, rate: float, n: int) -> float:
        """What the distance exceeds with this probability for draws of the target."""
        return float(chi2.isf(rate, int((self.expected * n >= 5).sum())))
