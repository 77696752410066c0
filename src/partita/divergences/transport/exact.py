r"""Exact optimal transport: the plan by linear programming and the potentials that prove it.

.. math:: \min_{\Gamma \ge 0} \sum_{ij} \Gamma_{ij} c_{ij} \;\text{ with margins } a, b
          \;=\; \max_{\varphi_i + \psi_j \le c_{ij}} \sum_i a_i \varphi_i + \sum_j b_j \psi_j
          (theory/divergences.md, eq. 16.2, 16.3)

POT's network simplex solves it where POT is installed, else an assignment (even weights, n = m) or
scipy's HiGHS.

Letters: n sources, m targets.
"""

from importlib.util import find_spec
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from partita.core.arguments import validated
from partita.core.quantity import Quantity
from partita.divergences.transport.costs import check_problem, cost_matrix
from partita.errors import Diverged, invalid

Solved: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]  # plan, phi, psi
Solver: TypeAlias = Literal["auto", "pot", "assignment", "highs"]


class TransportPlan(NamedTuple):
    """An optimal plan with its proof.

    Arguments:
        value: The cost of the plan, differentiable in the costs (its gradient is the plan).
        plan: Gamma, ``(n, m)``.
        phi, psi: The potentials, ``(n,)`` and ``(m,)``, with phi_i + psi_j <= c_ij.
        gap: Cost of the plan minus value of the potentials; zero up to rounding proves that both
            are optimal.
        solver: The solver that found it.
    """

    value: Tensor
    plan: Tensor
    phi: Tensor
    psi: Tensor
    gap: float
    solver: str

    def quantity(self) -> Quantity:
        """The value as an exact Quantity, with the duality gap beside it."""
        return Quantity(
            float(self.value),
            unit="cost",
            method=f"linear program ({self.solver})",
            details={"gap": self.gap},
        )


@validated
def exact_transport(
    cost: Tensor, a: Tensor | None = None, b: Tensor | None = None, *, solver: Solver = "auto"
) -> TransportPlan:
    """The cheapest way to turn weights a into weights b, ``(n, m), (n,), (m,)``.

    Arguments:
        cost: At least zero.
        a, b: Weights that sum to one; even where not given.
        solver: ``"auto"``, ``"pot"``, ``"assignment"`` (even weights, n = m) or ``"highs"``.

    >>> found = exact_transport(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> found.value.item(), found.gap
    (0.0, 0.0)
    """
    if cost.dim() != 2:
        remedy = "Solve the problems of a batch one by one."
        raise invalid("exact_transport", "cost", "have shape (n, m)", tuple(cost.shape), remedy)
    even = a is None and b is None and cost.shape[0] == cost.shape[1]
    a, b = check_problem("exact_transport", cost, a, b)
    chosen = _choose(solver, even)
    c, p, q = (t.detach().double().cpu().numpy() for t in (cost, a, b))
    p, q = p / p.sum(), q / q.sum()
    solve = {"pot": _by_pot, "assignment": _by_assignment, "highs": _by_highs}[chosen]
    plan, phi, psi = solve(c, p, q)
    # lowered to their c-transforms: phi_i + psi_j <= c_ij to the last bit but rounding
    phi = np.minimum(phi, (c - psi).min(1))
    psi = (c - phi[:, None]).min(0)
    gap = float((plan * c).sum() - p @ phi - q @ psi)
    plan, phi, psi = (torch.from_numpy(part).to(cost) for part in (plan, phi, psi))
    return TransportPlan((plan * cost).sum(), plan, phi, psi, gap, chosen)


def wasserstein(
    x: Tensor,
    y: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    power: float = 1.0,
    solver: Solver = "auto",
) -> Tensor:
    """W_k between two weighted samples, ``(n, D), (m, D) -> ()``: the k-th root of the exact cost,
    differentiable in the rows.
    """
    value = exact_transport(cost_matrix(x, y, power), a, b, solver=solver).value
    if power == 1.0:
        return value
    # no slope at 0
    return torch.where(value > 0, torch.where(value > 0, value, 1.0) ** (1 / power), 0.0)


def _choose(solver: Solver, even: bool) -> Solver:
    if solver == "assignment" and not even:
        allowed, remedy = "go with even weights and as many sources as targets", "'highs' or 'pot'"
        raise invalid("exact_transport", "solver='assignment'", allowed, "others", f"Use {remedy}.")
    if solver == "pot" and find_spec("ot") is None:
        got, remedy = "an environment without it", "Run pip install partita[transport]."
        raise invalid("exact_transport", "solver='pot'", "go with POT", got, remedy)
    if solver != "auto":
        return solver
    if find_spec("ot") is not None:
        return "pot"
    return "assignment" if even else "highs"


def _by_pot(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> Solved:
    import ot  # pyright: ignore[reportMissingImports]

    plan, log = ot.emd(a, b, c, numItermax=10_000_000, log=True)
    if log["warning"]:
        raise Diverged(f"exact_transport: POT must find the optimum; got {log['warning']}.")
    return plan, log["u"], log["v"]


def _by_assignment(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> Solved:
    """Matching, then the potentials as shortest paths between targets over the matching's reduced
    costs.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(c)
    matched, n = c[rows, columns], len(c)
    steps = np.empty_like(c)
    # from the target of row i to target j: psi_j <= psi_s(i) + c_ij - c_is(i)
    steps[columns] = c - matched[:, None]
    psi = np.zeros(n)
    for _ in range(n):
        lower = np.minimum(psi, (psi[:, None] + steps).min(0))
        if (psi - lower).max() <= 1e-15 * max(1.0, c.max()):
            break
        psi = lower
    plan = np.zeros_like(c)
    plan[rows, columns] = 1 / n
    phi = np.empty(n)
    phi[rows] = matched - psi[columns]
    return plan, phi, psi


def _by_highs(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> Solved:
    from scipy import sparse
    from scipy.optimize import linprog

    n, m = c.shape
    margins = sparse.vstack(
        [sparse.kron(sparse.eye(n), np.ones((1, m))), sparse.kron(np.ones((1, n)), sparse.eye(m))],
        format="csr",
    )
    scale = max(float(c.max()), np.finfo(float).tiny)  # the solver's tolerances are absolute
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(
        c.ravel() / scale,
        A_eq=margins,
        b_eq=np.concatenate([a, b]),
        method="highs-ds",
        options=options,
    )
    if found.status != 0:
        raise Diverged(f"exact_transport: HiGHS must find the optimum; got {found.message}")
    duals = scale * found.eqlin.marginals
    return found.x.reshape(n, m), duals[:n], duals[n:]
