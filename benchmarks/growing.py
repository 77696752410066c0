"""Operations of a given size whose cost ``scaling`` measures, each beside the arithmetic that it
cannot do without.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from partita.divergences.transport import cost_matrix, sinkhorn
from partita.evaluators import AIS
from partita.models import RBM, Mixture
from partita.nets import Attention, DiagonalSSM, Hyena
from partita.objectives import EM, PCD
from partita.samplers import Gibbs
from partita.tables import Rows, as_rows
from partita.training.session import start_session
from partita.training.settings import Settings

WIDTH = 64  # of sequence operators
ITERATIONS = 5

Operation = Callable[[], Any]


def seeded() -> torch.Generator:
    """The same draws for every operation."""
    return torch.Generator().manual_seed(0)


def em(n: int, d: int, K: int) -> Operation:
    """One iteration over n rows of d columns with K full covariances, float64."""
    g = seeded()
    x = (
        torch.randn(n, d, generator=g, dtype=torch.float64)
        + 3 * torch.randn(K, d, generator=g)[torch.randint(K, (n,), generator=g)]
    )
    rows, model, objective = Rows(x.numpy()), Mixture(K, d, generator=g), EM()
    model.initialize(rows.take(range(min(n, 4000))), generator=g)
    state = objective.init(model, rows, generator=g)
    return lambda: objective.update(model, rows, state, generator=g)


def em_products(n: int, d: int, K: int) -> Operation:
    """Rows through K square matrices, and K weighted scatters."""
    g = seeded()
    x, W, r = (
        torch.randn(shape, generator=g, dtype=torch.float64)
        for shape in ((n, d), (K, d, d), (K, n, 1))
    )

    def once() -> None:
        for k in range(K):
            x @ W[k]
            (r[k] * x).T @ x

    return once


def clouds(n: int) -> Tensor:
    """Costs between two clouds, at most 1, float64."""
    g = seeded()
    cost = cost_matrix(
        torch.randn(n, 2, generator=g).double(), torch.randn(n, 2, generator=g).double()
    )
    return cost / cost.max()


def sinkhorn_steps(n: int) -> Operation:
    """A few updates of both potentials, too few to converge."""
    cost = clouds(n)
    return lambda: sinkhorn(cost, epsilon=1.0, tolerance=1e-14, iterations=ITERATIONS)


def sums(n: int) -> Operation:
    """As many sums of exponentials over rows and over columns."""
    cost = clouds(n)

    def once() -> None:
        for _ in range(ITERATIONS):
            cost.exp().sum(0)
            cost.exp().sum(1)

    return once


def binary(n: int, d: int, generator: torch.Generator) -> Tensor:
    """A fifth of ones."""
    return (torch.rand(n, d, generator=generator) < 0.2).float()


def pcd(C: int, D: int, H: int) -> Operation:
    """One update with C rows and C chains of an RBM with D visible and H hidden units."""
    g = seeded()
    rows, settings = as_rows(binary(2 * C, D, g)), Settings(steps=100_000, batch_size=C)
    return start_session(
        RBM(D, H, generator=g), rows, PCD(Gibbs(), chains=C), settings, generator=g
    ).advance


def six_products(C: int, D: int, H: int) -> Operation:
    """Hidden units of data, of chains and of moved chains, visible units, and two statistics."""
    g = seeded()
    W, x, h = torch.randn(D, H, generator=g), binary(C, D, g), binary(C, H, g)

    def once() -> None:
        for _ in range(3):
            x @ W
        h @ W.T
        for _ in range(2):
            x.T @ h

    return once


def ais(T: int, C: int, D: int, H: int) -> Operation:
    """C chains of an RBM along T temperatures."""
    model, evaluator = RBM(D, H, generator=seeded()), AIS(T, chains=C, adaptive=False)
    return lambda: evaluator(model, generator=seeded())


def pairs_of_products(T: int, C: int, D: int, H: int) -> Operation:
    """Up and down, T times."""
    g = seeded()
    W, x, h = torch.randn(D, H, generator=g), binary(C, D, g), binary(C, H, g)

    def once() -> None:
        for _ in range(T):
            x @ W
            h @ W.T

    return once


def sequence(name: str, L: int) -> Operation:
    """There and back through one operator, one sequence of length L."""
    g = seeded()
    makers = {
        "hyena": lambda: Hyena(WIDTH, 2, generator=g),
        "ssm": lambda: DiagonalSSM(WIDTH, mix=True, generator=g),
        "attention": lambda: Attention(WIDTH, 4, generator=g),
    }
    net, u = makers[name](), torch.randn(1, L, WIDTH, generator=g)
    return lambda: net(u).square().sum().backward()


def transforms(L: int) -> Operation:
    """Two long convolutions there and back: six of them by transforms of twice the length."""
    v, h = torch.randn(2, WIDTH, L, generator=seeded())
    H = torch.fft.rfft(h, n=2 * L)

    def once() -> None:
        for _ in range(6):
            torch.fft.irfft(torch.fft.rfft(v, n=2 * L) * H, n=2 * L)

    return once


def attention_alone(L: int) -> Operation:
    """torch's kernel without projections, there and back."""
    q, k, v = torch.randn(3, 1, 4, L, WIDTH // 4, generator=seeded()).requires_grad_()
    return lambda: (
        scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward(retain_graph=False)
    )
