r"""A torch optimizer that steps along the damped natural gradient, no farther than a trust region
allows.

.. math:: \theta \leftarrow \theta - \eta\, \tau\, (F + \lambda I)^{-1} g, \qquad
          \tau = \min\Big(1, \sqrt{2 r \big/ \eta^2 g^\top (F + \lambda I)^{-1} g}\Big)
          (theory/optimization.md, eq. 50.12)

The region is a ball of radius r, in nats of KL as F + lambda I measures it. Where the loss is a
function of the parameters alone (``adapt``), the damping is that of Levenberg and Marquardt: a step
that lowers the loss by less than its quadratic model promised raises lambda, one that raises the
loss is undone. Amari (1998), Natural gradient works efficiently in learning; Martens (2020), New
insights and perspectives on the natural gradient method.

Letters: theta parameters, eta learning rate, lambda damping, r radius, g gradient, F Fisher matrix.
"""

from collections.abc import Callable, Iterable
from typing import TypedDict, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from partita.core.arguments import NonNegativeFloat, PositiveFloat, validated
from partita.errors import invalid
from partita.optim.natural_gradient.metrics import Metric

POOR, GOOD = 0.25, 0.75  # of the decrease that was promised
LARGEST, SMALLEST = 1e6, 1e-10  # damping
TRIES = 12


class Options(TypedDict, total=False):
    """Settings of :class:`NaturalGradient` by keyword."""

    lr: float
    damping: float
    radius: float | None
    adapt: bool


class _Group(TypedDict):
    params: list[nn.Parameter]
    lr: float
    damping: float
    radius: float | None
    adapt: bool


class NaturalGradient(torch.optim.Optimizer):
    """Natural gradient descent with any metric.

    Arguments:
        params: All parameters, one group.
        metric: Called at each step for the metric at the current parameters; or set later by
            :meth:`observe`.
        lr: eta.
        damping: lambda, where it starts.
        radius: r in nats; None does not limit the step.
        adapt: Whether the loss is a function of the parameters alone, so that lambda can follow its
            decrease.

    >>> mean = nn.Parameter(torch.zeros(2))
    >>> from partita.optim.natural_gradient import MatrixMetric
    >>> optimizer = NaturalGradient(
    ...     [mean], lambda: MatrixMetric(torch.eye(2) / 4), damping=0.0
    ... )  # of N(mean, 4)
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((torch.tensor([3.0, -1.0]) - mean) ** 2).sum() / 8
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> mean.tolist()
    [3.0, -1.0]
    """

    @validated
    def __init__(
        self,
        params: Iterable[nn.Parameter],
        metric: Callable[[], Metric] | None = None,
        *,
        lr: PositiveFloat = 1.0,
        damping: NonNegativeFloat = 1e-3,
        radius: PositiveFloat | None = None,
        adapt: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "damping": damping, "radius": radius, "adapt": adapt})
        if len(self.param_groups) > 1:
            allowed = "be one group, for one metric is about all of them"
            raise invalid("NaturalGradient", "params", allowed, len(self.param_groups))
        self._metric = metric

    def observe(self, metric: Callable[[], Metric]) -> None:
        """The metric of the coming step."""
        self._metric = metric

    def step(  # type: ignore[override]
        self, closure: Callable[[], Tensor] | None = None
    ) -> Tensor | None:
        """One step; ``closure`` computes the loss and its gradients and returns the loss."""
        group = cast(_Group, self.param_groups[0])
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._metric is None:
            raise invalid(
                "NaturalGradient", "metric", "be given, or set by observe() before a step", None
            )
        slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in group["params"]]
        metric, g = self._metric(), parameters_to_vector(slopes).detach()
        if closure is None or loss is None or not group["adapt"]:
            self._move(self._direction(metric, g, group), group)
        else:
            self._adapted_step(closure, float(loss.detach()), metric, g, group)
        return loss

    def _adapted_step(
        self,
        closure: Callable[[], Tensor],
        before: float,
        metric: Metric,
        g: Tensor,
        group: _Group,
    ) -> None:
        """Steps from the same place with more and more damping, until one lowers the loss."""
        start = [p.detach().clone() for p in group["params"]]
        for _ in range(TRIES):
            direction = self._direction(metric, g, group)
            step = group["lr"] * direction
            promised = float(g @ step - 0.5 * step @ metric.product(step))
            self._move(direction, group)
            with torch.enable_grad():
                gained = before - float(closure().detach())
            if gained >= max(POOR * promised, 0.0):
                if gained >= GOOD * promised:
                    group["damping"] = max(SMALLEST, group["damping"] / 4)
                return
            group["damping"] = min(LARGEST, max(group["damping"], 1e-6) * 4)
            if gained >= 0:
                return
            with torch.no_grad():
                for p, value in zip(group["params"], start, strict=True):
                    p.copy_(value)

    @torch.no_grad()
    def _direction(self, metric: Metric, g: Tensor, group: _Group) -> Tensor:
        """The damped natural gradient, shortened to the trust region."""
        direction = metric.solve(g, group["damping"])
        if group["radius"] is None:
            return direction
        # of F + damping I: a sampled F does not see every direction
        nats = 0.5 * group["lr"] ** 2 * float(direction @ g)
        return direction * min(1.0, (group["radius"] / max(nats, 1e-30)) ** 0.5)

    @torch.no_grad()
    def _move(self, direction: Tensor, group: _Group) -> None:
        parts = direction.split([p.numel() for p in group["params"]])
        for p, part in zip(group["params"], parts, strict=True):
            p.add_(part.view(p.shape), alpha=-group["lr"])
