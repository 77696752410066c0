r"""Small problems whose exact gradient is known: latents few enough to enumerate, or expectations
in closed form.

.. math:: \nabla_\varphi \sum_z q_\varphi(z) f(z), \qquad f(z) = w^\top \tanh(A z + a) + f_0
          (theory/gradients.md, eq. 40.20)

Parameters carry rows in front, one for each estimate, so that thousands of estimates are one call.

Letters: P parameters, S states, H units of a layer, K categories of a unit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributions import Distribution, Exponential, Gamma, MultivariateNormal, Normal
from torch.nn import functional

from partita.core import rng
from partita.core.arguments import check_count
from partita.errors import invalid
from partita.gradients.base import Estimate, Estimator, State
from partita.gradients.latents import Bits, Chain, Continuous, Draws, OneHot, log_prob
from partita.gradients.multisample import log_mean_exp

Parameters = dict[str, Tensor]
MOST_TERMS = 1 << 22  # of an exact sum
LIKE = torch.zeros((), dtype=torch.float64)
OFFSET = -3.0  # f_0


@dataclass(frozen=True)
class Problem:
    """E_q[f(z)] as a function of parameters, with its exact value.

    Arguments:
        parameters: Where the gradient is taken, without rows.
        chain: From parameters with rows to q.
        f: From parameters with rows and draws to one number for each row.
        widths: Units of the layers.
        states: All states of the layers together, ``(S, H)`` each; None where they cannot be
            enumerated.
        closed_form: E_q[f] where the states cannot be enumerated.
    """

    name: str
    parameters: Parameters
    chain: Callable[[Parameters], Chain]
    f: Callable[[Parameters, Draws], Tensor]
    widths: tuple[int, ...]
    states: Draws | None = None
    closed_form: Callable[[Parameters], Tensor] | None = None

    def rows(self, n: int) -> Parameters:
        """The parameters, once for each of ``n`` rows, each a leaf of its own."""
        return {
            name: p.expand(n, *p.shape).clone().requires_grad_()
            for name, p in self.parameters.items()
        }

    def expectation(self, parameters: Parameters, bound: int = 1) -> Tensor:
        """E_q[f], or E[log (1/K) sum_k exp f(z_k)] with ``bound`` K, exactly."""
        if self.closed_form is not None:
            return self.closed_form(parameters)
        log_q, f = self.tables(parameters)
        size = len(f)
        if size**bound > MOST_TERMS:
            allowed = f"number at most {MOST_TERMS} in all {bound} draws together"
            remedy = "Use fewer bits or fewer samples."
            raise invalid("laboratory", "states", allowed, f"{size}^{bound}", remedy)
        index = torch.cartesian_prod(*[torch.arange(size)] * bound).view(-1, bound).mT  # (K, S^K)
        return log_q[index].sum(0).exp() @ log_mean_exp(f[index])

    def tables(self, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """log q and f of every state, ``(S), (S)``."""
        if self.states is None:
            raise invalid("laboratory", "a problem", "have states to enumerate", repr(self.name))
        rows = {name: p.expand(len(self.states[0]), *p.shape) for name, p in parameters.items()}
        return log_prob(self.chain(rows), self.states), self.f(rows, self.states)

    def estimate(
        self, estimator: Estimator, state: State, rows: int, generator: torch.Generator
    ) -> tuple[Parameters, Estimate]:
        """Independent estimates, and the parameters of their rows."""
        p = self.rows(rows)
        return p, estimator.estimate(
            self.chain(p), lambda z: self.f(p, z), state, generator=generator
        )

    def exact_gradient(self, bound: int = 1) -> Tensor:
        """All coordinates in one vector, ``(P)``."""
        leaves = {name: p.clone().requires_grad_() for name, p in self.parameters.items()}
        return flat_gradient(self.expectation(leaves, bound), leaves, 0)

    def score_table(self) -> tuple[Tensor, Tensor, Tensor]:
        """log q, its gradient and f of every state, ``(S), (S, P), (S)``."""
        rows, log_q, f = self._all_states()
        return log_q.detach(), flat_gradient(log_q, rows), f.detach()

    def slope_table(self) -> Tensor:
        """The gradient of f itself at every state, ``(S, P)``: zero where f has no parameters of
        its own.
        """
        rows, _, f = self._all_states()
        return flat_gradient(f, rows)

    def _all_states(self) -> tuple[Parameters, Tensor, Tensor]:
        """Parameters with a row for each state, log q and f."""
        assert self.states is not None
        rows = self.rows(len(self.states[0]))
        return rows, log_prob(self.chain(rows), self.states), self.f(rows, self.states)


def flat_gradient(value: Tensor, parameters: Parameters, rows: int = 1) -> Tensor:
    """The gradients of all parameters side by side, after ``rows`` leading dimensions; zero where a
    value does not depend on them.
    """
    leaves = list(parameters.values())
    if value.requires_grad:
        leaves = torch.autograd.grad(value.sum(), leaves, allow_unused=True, materialize_grads=True)
    else:
        leaves = [torch.zeros_like(p) for p in leaves]
    return torch.cat([t.flatten(rows) if t.dim() > rows else t.unsqueeze(-1) for t in leaves], -1)


def bits(count: int, *, generator: torch.Generator) -> Problem:
    """One layer of bits.

    >>> bits(3, generator=torch.Generator().manual_seed(0)).exact_gradient().shape
    torch.Size([3])
    """
    check_count("laboratory", "bits", count)
    f = _network(count, generator)
    return Problem(
        f"{count} bits",
        {"logits": rng.normal((count,), LIKE, generator)},
        lambda p: (lambda _: Bits(p["logits"]),),
        lambda _, z: f(z[0]),
        (count,),
        (binary_states(count),),
    )


def layers(first: int, second: int, *, generator: torch.Generator) -> Problem:
    """Two layers of bits, the second given the first."""
    f = _network(first + second, generator)
    shapes = {"logits": (first,), "W": (second, first), "c": (second,)}
    parameters = {name: rng.normal(shape, LIKE, generator) for name, shape in shapes.items()}

    def chain(p: Parameters) -> Chain:
        return (
            lambda _: Bits(p["logits"]),
            lambda z: Bits(p["c"] + (p["W"] * z[0].unsqueeze(-2)).sum(-1)),
        )

    states = binary_states(first + second).split([first, second], -1)
    return Problem(
        f"{first} + {second} bits in two layers",
        parameters,
        chain,
        lambda _, z: f(torch.cat(z, -1)),
        (first, second),
        states,
    )


def one_hots(units: int, states: int, *, generator: torch.Generator) -> Problem:
    """One layer of one-hot units."""
    f = _network(units * states, generator)
    index = torch.cartesian_prod(*[torch.arange(states)] * units).view(-1, units)
    return Problem(
        f"{units} units of {states} categories",
        {"logits": rng.normal((units, states), LIKE, generator)},
        lambda p: (lambda _: OneHot(p["logits"]),),
        lambda _, z: f(z[0].flatten(-2)),
        (units * states,),
        (functional.one_hot(index, states).double(),),
    )


def evidence(count: int, visible: int = 4, *, generator: torch.Generator) -> Problem:
    """The evidence lower bound of a small belief net at one x: f has parameters of its own, and
    knows q.
    """
    shapes = {"logits": (count,), "W": (visible, count), "b": (visible,)}
    parameters = {name: rng.normal(shape, LIKE, generator) for name, shape in shapes.items()}
    x = rng.bernoulli(torch.full((visible,), 0.5, dtype=torch.float64), generator)

    def f(p: Parameters, z: Draws) -> Tensor:
        to_x = Bits(p["b"] + (p["W"] * z[0].unsqueeze(-2)).sum(-1))
        # up to a prior of fair coins; E[grad log q] is zero
        return to_x.log_prob(x) - Bits(p["logits"].detach()).log_prob(z[0])

    name, states = f"evidence bound of {count} bits", (binary_states(count),)
    return Problem(name, parameters, lambda p: (lambda _: Bits(p["logits"]),), f, (count,), states)


def continuous(name: str, *, generator: torch.Generator) -> Problem:
    """A squared distance under one of the distributions of the reparameterization table,
    ``"normal"`` and so on.
    """
    made: dict[str, tuple[Parameters, Callable[[Parameters], Distribution]]] = {
        "normal": (
            {"mu": LIKE + 0.3, "log_sigma": LIKE - 0.2},
            lambda p: Normal(p["mu"], p["log_sigma"].exp(), validate_args=False),
        ),
        "gamma of shape one": (
            {"log_beta": LIKE + 0.4},
            lambda p: Gamma(torch.ones_like(p["log_beta"]), torch.exp(-p["log_beta"])),
        ),
        "exponential": ({"log_rate": LIKE - 0.3}, lambda p: Exponential(p["log_rate"].exp())),
        "multivariate normal": (
            {
                "mu": rng.normal((3,), LIKE, generator),
                "A": torch.eye(3).double() + 0.3 * rng.normal((3, 3), LIKE, generator).tril(-1),
            },
            lambda p: MultivariateNormal(p["mu"], scale_tril=p["A"].tril()),
        ),
    }
    if name not in made:
        raise invalid("laboratory", "distribution", f"be one of {', '.join(made)}", repr(name))
    parameters, distribution = made[name]
    event = len(distribution(parameters).event_shape)
    target = 0.7

    def f(_: Parameters, z: Draws) -> Tensor:
        squared = (z[0] - target).square()
        return squared.sum(-1) if event else squared

    def exact(p: Parameters) -> Tensor:
        d = distribution(p)
        return (d.variance + (d.mean - target).square()).sum()

    return Problem(
        name,
        parameters,
        lambda p: (lambda _: Continuous(distribution(p)),),
        f,
        (1,),
        closed_form=exact,
    )


def _network(inputs: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
    """A smooth f with its own offset, ``(*, H) -> (*)``."""
    A, a = rng.normal((inputs, 4), LIKE, generator), rng.normal((4,), LIKE, generator)
    w = rng.normal((4,), LIKE, generator)
    return lambda z: torch.tanh(z @ A + a) @ w + OFFSET


def binary_states(count: int) -> Tensor:
    """All rows of zeros and ones, ``(2^count, count)``."""
    return (torch.arange(2**count)[:, None] >> torch.arange(count)).remainder(2).double()


def shifted(problem: Problem, c: float) -> Problem:
    """The same problem with f + c."""
    return replace(problem, f=lambda p, z: problem.f(p, z) + c)
