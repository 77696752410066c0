r"""A function somebody has, as an energy model: F(u) = -log f(T(u)) - log |dT/du|.

.. math:: F_\beta(u) = F_0(u) + \beta\, \big(F(u) - F_0(u)\big)
          (theory/evidence.md, eq. 60.2)

F_0 is the energy of the reference where annealing starts: the prior where one is given, otherwise a
normal distribution or a product that was fitted to where the mass was found.

Letters: n rows, D coordinates.
"""

import math
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from partita.core.batched import Batched
from partita.core.protocols import Capability, Data, Field, Reference
from partita.core.support import Interval, Product, Real, Support
from partita.errors import OutOfBudget, Unsupported
from partita.models.energy.coordinates import Coordinates, Prior, coordinates_of
from partita.models.energy.paths import FromNormal, FromProduct
from partita.models.energy.units import GaussianReference, whitening_of
from partita.runtime import deadline


class Budget(NamedTuple):
    """Rows that may be evaluated, and the moment (:func:`deadline.now`) at which to end."""

    evaluations: float = math.inf
    moment: float = math.inf

    def check(self, calls: int) -> None:
        """Raise where either is spent."""
        if calls >= self.evaluations:
            raise OutOfBudget(f"log_z: {self.evaluations:g} evaluations are spent.")
        if deadline.now() >= self.moment:
            raise OutOfBudget(f"log_z: its minutes are spent, after {calls} evaluations.")


class Target(FromProduct, FromNormal):
    """An unnormalized density, given as a function, in coordinates without bounds.

    Arguments:
        log_density: log f of rows x, from ``(n, D)`` to ``(n,)`` or of one row; torch, NumPy or
            plain Python. Of a target with a prior it is the log-likelihood.
        support: Where x lives: real coordinates and intervals, or one finite list of values.
        prior: Of the coordinates, in place of a support.
        budget: Of calls and of time, beyond which :class:`OutOfBudget` is raised.
    """

    covariance = "full"
    capabilities = frozenset({Capability.NETWORK})

    def __init__(
        self,
        log_density: Batched,
        support: Support,
        prior: Prior | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__()
        self.outer_support, self.prior, self.budget = support, prior, budget or Budget()
        object.__setattr__(self, "log_density", log_density)
        parts = support.parts if isinstance(support, Product) else (support,)
        self.coordinates: Coordinates | None = None
        like = torch.zeros((), dtype=torch.float64)
        self.register_buffer("origin", like)
        self.register_buffer("pointed_to", None)
        if all(isinstance(part, Real | Interval) for part in parts):
            self.coordinates = coordinates_of(support) if prior is None else prior
            self.support = Real(support.width)
            self.register_normal(like)
        elif support.countable_sites:
            self.support = support
            self.register_product(like)
        else:
            raise Unsupported(
                f"log_z cannot run on {support}: it needs real coordinates and intervals, or "
                "coordinates with one finite list of values. Sum or integrate the others out."
            )

    log_density: Batched
    origin: Tensor
    pointed_to: Tensor | None

    def free_energy(self, x: Tensor) -> Tensor:
        """F(u), ``(*, D) -> (*)``."""
        if self.prior is not None:
            return self.reference().free_energy(x) - self._log_f(x)
        if self.coordinates is None:
            return -self._log_f(x)
        return -self._log_f(x) - self.coordinates.log_jacobian(x)

    def _log_f(self, u: Tensor) -> Tensor:
        """log f of the caller; minus infinity where x is beyond the numbers of float64, or was
        rounded onto an end, where a density may have a pole.
        """
        self.budget.check(self.log_density.calls)
        if type(u) is not Tensor:  # it follows what is computed
            return self.log_density(self.outer(u))
        x = self.outer(u.reshape(-1, self.support.width))
        inside = self.coordinates.inside(x) if self.coordinates else x.isfinite().all(-1)
        if bool(inside.all()):
            return self.log_density(x).to(u.dtype).view(u.shape[:-1])
        log_f = u.new_full((len(x),), -math.inf)
        if bool(inside.any()):
            log_f = log_f.index_put((inside,), self.log_density(x[inside]).to(u.dtype))
        return log_f.view(u.shape[:-1])

    def outer(self, u: Tensor) -> Tensor:
        """The x of the caller's coordinates."""
        return u if self.coordinates is None else self.coordinates.outer(u)

    def inner(self, x: Tensor) -> Tensor:
        """The coordinates without bounds of the caller's x."""
        return x if self.coordinates is None else self.coordinates.inner(x)

    def field(self, x: Tensor) -> Field:
        own = self.free_energy(x) - self.reference().free_energy(x)
        return Field(x, own[..., None])

    def energy_along(self, field: Field, beta: Tensor) -> Tensor:
        """What is forbidden stays so all the way."""
        assert field.input is not None
        own = field.input[..., 0]
        own = torch.where(own == torch.inf, own, beta * own)
        return self.reference().free_energy(field.x) + own

    def reference(self) -> Reference:
        if self.coordinates is None:
            return self.product
        # under a prior the normal density is normalized, so that Z is the evidence
        offset = -0.5 * self.support.width * math.log(2 * math.pi) if self.prior else 0.0
        return GaussianReference(self.reference_mean, self.reference_whitening, offset)

    def beginning_at(self, mean: Tensor, covariance: Tensor) -> Self:
        """A view whose path begins at this normal distribution."""
        return self.viewed(reference_mean=mean, reference_whitening=whitening_of(covariance))

    def pointing_to(self, states: Tensor) -> Self:
        """A view that points to these states, ``(N, D)``, too: where chains that seek modes begin.
        They are no rows, which somebody knows to be likely.
        """
        known = [states] if self.pointed_to is None else [states, self.pointed_to]
        return self.viewed(pointed_to=torch.cat(known))

    def landmarks(self, n: int) -> Tensor | None:
        own, found = super().landmarks(n), self.pointed_to
        if found is None:
            return own
        found = found[torch.linspace(0, len(found) - 1, min(n, len(found))).round().long()]
        return found if own is None else torch.cat([found, own])[:n]

    def initialize(self, data: Data, *, generator: torch.Generator) -> None:
        """A function has nothing to learn."""

    def title(self) -> str:
        return f"log density on {self.outer_support}"

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        return self.log_density.differentiable

    @property
    def like(self) -> Tensor:
        return self.origin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """It is in float64 already, and a caller's function is never copied."""
        return self.viewed()
