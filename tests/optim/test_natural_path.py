"""The path of the natural gradient of a model with several parameters, in coordinates that bend and
mix them.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from partita.core import Binary
from partita.models import MaxEnt
from partita.optim.natural_gradient import MatrixMetric, NaturalGradient, fisher_matrix

STATES = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
TARGET = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)


def plain(eta: Tensor) -> Tensor:
    return 1.0 * eta


def bent(eta: Tensor) -> Tensor:
    return torch.stack([eta[0].sinh(), eta[1] + 0.5 * eta[0] ** 2, eta[2].exp() - 1 + eta[1]])


def means_after(coordinates: Callable[[Tensor], Tensor], steps: int) -> Tensor:
    """Means of the features after a time of one along the natural gradient of E_target[log p], from
    theta = 0, by steps of equal length.
    """
    model = MaxEnt("pairwise", Binary(2), generator=torch.Generator()).double()
    phi = model.expected_features(STATES)
    eta = nn.Parameter(torch.zeros(3, dtype=torch.float64))

    def metric() -> MatrixMetric:
        model.theta.data.copy_(coordinates(eta.detach()))
        J: Tensor = torch.func.jacrev(coordinates)(eta.detach())  # type: ignore[assignment]
        return MatrixMetric(J.mT @ fisher_matrix(model) @ J)

    optimizer = NaturalGradient([eta], metric, lr=1 / steps, damping=0.0)
    for _ in range(steps):
        optimizer.zero_grad()
        (-TARGET @ torch.log_softmax(phi @ coordinates(eta), 0)).backward()
        optimizer.step()
    return torch.softmax(phi @ coordinates(eta.detach()), 0) @ phi


@pytest.mark.parametrize("coordinates", [plain, bent])
def test_means_go_straight_to_the_target_in_every_coordinate(
    coordinates: Callable[[Tensor], Tensor],
) -> None:
    """d mu / dt = F d theta / dt = mu_target - mu, whatever the coordinates; the integration error
    halves with the step.
    """
    phi = (
        MaxEnt("pairwise", Binary(2), generator=torch.Generator())
        .double()
        .expected_features(STATES)
    )
    start, end = phi.mean(0), TARGET @ phi
    exact = end + (start - end) * torch.exp(torch.tensor(-1.0, dtype=torch.float64))
    coarse, fine = ((means_after(coordinates, steps) - exact).norm() for steps in (25, 50))
    assert coarse < 0.02 and 0.4 < fine / coarse < 0.6
