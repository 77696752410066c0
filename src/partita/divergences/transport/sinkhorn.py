r"""Entropic transport in the log domain: batched, differentiable, stopped by a marginal error that
it reports.

.. math:: \mathrm{OT}_\varepsilon = \min_{\Gamma \in \Pi(a, b)} \langle \Gamma, c \rangle
          + \varepsilon\, \mathrm{KL}(\Gamma \,\|\, a b^\top), \qquad
          \Gamma_{ij} = a_i b_j\, e^{(\varphi_i + \psi_j - c_{ij}) / \varepsilon}
          (theory/divergences.md, eq. 16.4)

.. math:: \varphi_i \leftarrow -\varepsilon \log \textstyle\sum_j b_j e^{(\psi_j - c_{ij}) /
          \varepsilon}, \qquad
          \psi_j \leftarrow -\varepsilon \log \textstyle\sum_i a_i e^{(\varphi_i - c_{ij}) /
          \varepsilon}          (eq. 16.5)

At the optimum the gradient of the value in c is the plan and in a the potential (the envelope
theorem, eq. 16.7): no iteration is unrolled. The exponential is far slower on very negative numbers
than on others, so they are clamped first, and the matrix is read in blocks that fit a cache.

Letters: n sources, m targets, u = phi / epsilon, v = psi / epsilon, K = -c / epsilon.
"""

from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from partita.core.arguments import PositiveFloat, PositiveInt, validated
from partita.core.quantity import Quantity
from partita.divergences.transport.costs import check_problem, cost_matrix
from partita.errors import invalid

BLOCK = 1 << 18  # numbers that stay in a core's cache
LOWEST = -60.0  # e^-60 is nothing beside the largest term of a sum


class Entropic(NamedTuple):
    """A solution of entropic transport; fields are batched like the costs.

    Arguments:
        value: The dual value, a lower bound at any iteration and OT_epsilon at the end;
            differentiable in cost, a and b.
        phi, psi: The potentials, ``(*, n)`` and ``(*, m)``.
        error: Largest sum over a batch of |row sums - a|; the column sums are exact.
        iterations: How many updates of both potentials were made.
        converged: Whether the error is within the tolerance.
    """

    value: Tensor
    phi: Tensor
    psi: Tensor
    error: float
    iterations: int
    converged: bool
    epsilon: float

    def plan(self, cost: Tensor, a: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        """Gamma, ``(*, n, m)``."""
        a, b = check_problem("Entropic.plan", cost, a, b)
        return gibbs_plan(cost, a, b, self.phi, self.psi, self.epsilon)

    def quantity(self) -> Quantity:
        """The value of one problem as a Quantity: a lower bound, not to be published before it
        converged.
        """
        return Quantity(
            float(self.value),
            kind="lower",
            unit="cost",
            method=f"Sinkhorn, epsilon {self.epsilon:g}",
            verdict="tight" if self.converged else "do not publish",
            direction="low",
            details={"marginal_error": self.error, "iterations": self.iterations},
        )


@validated
def sinkhorn(
    cost: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    epsilon: PositiveFloat,
    tolerance: PositiveFloat | None = None,
    iterations: PositiveInt = 2000,
) -> Entropic:
    """Solve entropic transport, ``(*, n, m), (*, n), (*, m)``, from a large epsilon down to the
    given one.

    Arguments:
        cost: At least zero; a batch is solved together.
        a, b: Weights that sum to one; even where not given.
        epsilon: Strength of the entropy, in units of cost.
        tolerance: On the marginal error; by default 1e-6, or 1e-4 in float32.
        iterations: At most so many; ``converged`` says whether they sufficed.

    >>> x = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> found = sinkhorn(cost_matrix(x, x + 1), epsilon=0.1)
    >>> found.converged, bool(abs(found.value - 1) < 0.1)
    (True, True)
    """
    a, b = check_problem("sinkhorn", cost, a, b)
    if tolerance is None:
        tolerance = 1e-4 if cost.dtype == torch.float32 else 1e-6
    check_precision(float(cost.detach().mean()), epsilon, tolerance, cost.dtype)
    with torch.no_grad():
        phi, psi, error, made = _solve(cost, a.log(), b.log(), epsilon, tolerance, iterations)
    value = cast(Tensor, _DualValue.apply(cost, a, b, phi, psi, epsilon))
    return Entropic(value, phi, psi, error, made, error <= tolerance, epsilon)


def check_precision(typical: float, epsilon: float, tolerance: float, dtype: torch.dtype) -> None:
    """Refuse an epsilon so small that the rounding of a typical c / epsilon alone is above the
    tolerance.
    """
    least = torch.finfo(dtype).eps * typical / tolerance
    if epsilon < least:
        remedy = "Use exact_transport" if dtype == torch.float64 else "Use float64, exact_transport"
        allowed = (
            f"be at least {least:.2g} for a marginal error of {tolerance:g} in {dtype} with costs "
            f"of {typical:.3g} on average"
        )
        remedy = f"{remedy}, or a larger epsilon or tolerance."
        raise invalid("sinkhorn", "epsilon", allowed, f"{epsilon:g}", remedy)


class _DualContext(FunctionCtx):
    saved_tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    needs_input_grad: tuple[bool, ...]
    epsilon: float


class _DualValue(torch.autograd.Function):
    r"""The dual value :math:`\langle a, \varphi\rangle + \langle b, \psi\rangle - \varepsilon (\sum
    \Gamma - 1)`, envelope gradients.
    """

    @staticmethod
    def forward(
        ctx: _DualContext,
        cost: Tensor,
        a: Tensor,
        b: Tensor,
        phi: Tensor,
        psi: Tensor,
        epsilon: float,
    ) -> Tensor:
        ctx.save_for_backward(cost, a, b, phi, psi)
        ctx.epsilon = epsilon
        # the columns' sums are exact, so that the plan's mass is one
        return _paired(a, phi) + _paired(b, psi)

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: _DualContext, g: Tensor
    ) -> tuple[Tensor | None, ...]:
        cost, a, b, phi, psi = ctx.saved_tensors
        of_cost = None
        if ctx.needs_input_grad[0]:
            of_cost = gibbs_plan(cost, a, b, phi, psi, ctx.epsilon).mul_(g[..., None, None])
        return of_cost, g[..., None] * phi, g[..., None] * psi, None, None, None


def gibbs_plan(
    cost: Tensor, a: Tensor, b: Tensor, phi: Tensor, psi: Tensor, epsilon: float
) -> Tensor:
    """Gamma of (16.4), ``(*, n, m)``; the weights enter as logarithms, so that where both are zero
    nothing overflows.
    """
    rows, columns = phi + epsilon * a.log(), psi + epsilon * b.log()
    return (rows[..., :, None] - cost).add_(columns[..., None, :]).div_(epsilon).exp_()


def _paired(weight: Tensor, potential: Tensor) -> Tensor:
    """Sum of weight x potential, where no weight counts nothing whatever the potential."""
    return torch.where(weight > 0, weight * potential, 0.0).sum(-1)


def _solve(
    cost: Tensor,
    log_a: Tensor,
    log_b: Tensor,
    epsilon: float,
    tolerance: float,
    iterations: int,
) -> tuple[Tensor, Tensor, float, int]:
    """Potentials, the marginal error, and the updates made; epsilon falls by halves to the given
    one.

    The last update is always made at that one: potentials of a larger epsilon bound nothing.
    """
    psi, current, made = torch.zeros_like(log_b), max(epsilon, float(cost.max())), 0
    K = torch.empty_like(cost)
    buffer = cost.new_empty(max(BLOCK, *cost.shape[-2:]))
    while True:
        left = iterations - made
        current = current if left > 1 else epsilon
        last = current == epsilon
        torch.mul(cost, -1 / current, out=K)
        goal, most = (tolerance, left) if last else (max(tolerance, 1e-2), min(20, left - 1))
        u, v, error, count = _alternate(K, log_a, log_b, psi / current, goal, most, buffer)
        psi, made = v * current, made + count
        if last:
            return u * current, psi, error, made
        current = max(epsilon, current / 2)


def _alternate(
    K: Tensor, log_a: Tensor, log_b: Tensor, v: Tensor, tolerance: float, most: int, buffer: Tensor
) -> tuple[Tensor, Tensor, float, int]:
    """Update u and v in turn until the row sums are within the tolerance; they are read off the
    next u at no cost.
    """
    u, a = -log_sums(K, v + log_b, buffer), log_a.exp()
    for count in range(1, most + 1):
        v = -log_sums(K.mT, u + log_a, buffer)
        following = -log_sums(K, v + log_b, buffer)
        error = float((a * (torch.expm1(u - following)).abs()).sum(-1).max())
        if error <= tolerance or count == most:
            return u, v, error, count
        u = following
    raise AssertionError("most is at least 1")


def log_sums(K: Tensor, w: Tensor, buffer: Tensor) -> Tensor:
    """log of the sum over j of exp(K_ij + w_j), ``(*, n, m), (*, m) -> (*, n)``, block by block in
    a buffer.
    """
    n, m = K.shape[-2:]
    out = K.new_empty(K.shape[:-1])
    flat, w, K = out.view(-1, n), w.expand(*K.shape[:-2], m).reshape(-1, m), K.reshape(-1, n, m)
    # several problems, or a part of one
    rows, problems = max(1, min(n, BLOCK // m)), max(1, BLOCK // (n * m))
    for first in range(0, len(K), problems):
        some = slice(first, first + problems)
        for start in range(0, n, rows):
            part = K[some, start : start + rows]
            sums = _log_sums_of_block(part, w[some], buffer[: part.numel()])
            flat[some, start : start + rows] = sums
    return out


def _log_sums_of_block(part: Tensor, w: Tensor, space: Tensor) -> Tensor:
    """One block; transposed costs are summed along their own rows in memory, so that both
    directions read in order.
    """
    along, seen = (-1, part) if part.stride(-1) == 1 else (-2, part.mT)
    terms = space.view(seen.shape)
    torch.add(seen, w[..., None, :] if along == -1 else w[..., None], out=terms)
    top = terms.amax(along, keepdim=True)
    terms.sub_(top).clamp_min_(LOWEST).exp_()
    return terms.sum(along).log_().add_(top.squeeze(along))


def sinkhorn_divergence(
    x: Tensor,
    y: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    epsilon: float,
    power: float = 2.0,
    tolerance: float | None = None,
    iterations: int = 2000,
) -> Tensor:
    r"""Debiased entropic transport, zero at x = y and positive elsewhere (Feydy et al. 2019), ``(*,
    n, D), (*, m, D) -> (*)``.

    .. math:: S_\varepsilon = \mathrm{OT}_\varepsilon(a, b)
              - \tfrac12 \mathrm{OT}_\varepsilon(a, a) - \tfrac12 \mathrm{OT}_\varepsilon(b, b)
              \qquad \text{(theory/divergences.md, eq. 16.8)}

    A problem that does not converge is refused.
    """

    def value(name: str, p: Tensor, w: Tensor | None, q: Tensor, z: Tensor | None) -> Tensor:
        cost = cost_matrix(p, q, power)
        found = sinkhorn(cost, w, z, epsilon=epsilon, tolerance=tolerance, iterations=iterations)
        if not found.converged:
            got = f"a marginal error of {found.error:.2g} after {found.iterations}"
            remedy = "Allow more iterations, a larger tolerance or a larger epsilon."
            allowed = f"suffice between {name}"
            raise invalid("sinkhorn_divergence", "iterations", allowed, got, remedy)
        return found.value

    between = value("x and y", x, a, y, b)
    return between - 0.5 * value("x and x", x, a, x, a) - 0.5 * value("y and y", y, b, y, b)
