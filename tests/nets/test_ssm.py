"""State-space models: SciPy's discretization and simulation, and four views of one operator."""

import numpy as np
import pytest
import torch
from scipy import signal

from partita.errors import InputError
from partita.nets import DenseSSM, DiagonalSSM
from partita.nets.ssm import bilinear, check_stable, filter_of, hippo, zero_order_hold

RULES = {"zoh": zero_order_hold, "bilinear": bilinear}


def matrices(generator: torch.Generator, N: int = 4) -> tuple[torch.Tensor, ...]:
    A = torch.randn(N, N, dtype=torch.float64, generator=generator) - 3 * torch.eye(N)
    B, C = torch.randn(2, N, dtype=torch.float64, generator=generator)
    return A, B, C, torch.randn((), dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("rule", RULES)
def test_discretization_is_scipys(rule: str, generator: torch.Generator) -> None:
    A, B, C, D = matrices(generator)
    dt = torch.tensor(0.3, dtype=torch.float64)
    ours = RULES[rule](A, B, dt)
    theirs = signal.cont2discrete(
        (A.numpy(), B[:, None].numpy(), C[None].numpy(), D.reshape(1, 1).numpy()), 0.3, rule
    )
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-12)
    np.testing.assert_allclose(ours[1], theirs[1][:, 0], atol=1e-12)


def test_filter_is_scipys_simulation_in_its_own_convention(generator: torch.Generator) -> None:
    """SciPy's kernel is C A^(k-1) B: C A^k B + D is that of (A, B, C A, C B + D)."""
    A, B, C, D = matrices(generator)
    A, B = zero_order_hold(A, B, torch.tensor(0.2).double())
    u = torch.randn(50, dtype=torch.float64, generator=generator)
    system = (
        A.numpy(),
        B[:, None].numpy(),
        (C @ A)[None].numpy(),
        (C @ B + D).reshape(1, 1).numpy(),
        1.0,
    )
    _, y, _ = signal.dlsim(system, u.numpy())
    np.testing.assert_allclose(
        signal.convolve(filter_of(A, B, C, D, 50), u)[:50], y[:, 0], atol=1e-12
    )


def test_hippo_keeps_legendre_coefficients() -> None:
    """The measure of LegS is uniform on all of the past: a constant input of one has coefficients
    (1, 0, 0, ...) in the limit -A^{-1} B.
    """
    A, B = hippo(6)
    torch.testing.assert_close(
        torch.linalg.solve(-A, B), torch.tensor([1.0, 0, 0, 0, 0, 0]).double(), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(
        torch.linalg.eigvals(A).real.sort().values, -torch.arange(6.0, 0, -1).double()
    )


@pytest.mark.parametrize("rule", RULES)
def test_diagonal_is_the_dense_model_with_that_matrix(
    rule: str, generator: torch.Generator
) -> None:
    model = DiagonalSSM(1, 4, rule=rule, generator=generator).double()
    decay, frequency, dt = model.log_decay.exp()[0], model.frequency[0], model.log_dt.exp()
    blocks = [
        torch.stack([torch.stack([-a, -w]), torch.stack([w, -a])])
        for a, w in zip(decay, frequency, strict=True)
    ]
    A, c = torch.block_diag(*blocks), 2 * model.C[0]
    # x = Re z, Im z; y = 2 Re(c z) = 2 (c_re x - c_im y)
    B = torch.tensor([1.0, 0.0] * 2, dtype=torch.float64)
    C = torch.stack([c[:, 0], -c[:, 1]], -1).flatten()
    dense = filter_of(*RULES[rule](A, B, dt[0]), C, model.D[0], 100)
    torch.testing.assert_close(model.filter(100)[0], dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [DenseSSM, DiagonalSSM])
def test_long_filters_fade(kind: type, generator: torch.Generator) -> None:
    h = kind(8, 16, longest=100.0, generator=generator).filter(20_000)
    assert torch.isfinite(h).all() and h[:, -1].abs().max() < 1e-6 < h.abs().max()


def test_unstable_matrices_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(
        InputError,
        match=r"A must have spectral radius at most 1; got 1.5, so its memory explodes. Give A",
    ):
        check_stable("SSM", 1.5 * torch.eye(2), discrete=True)
    model = DenseSSM(2, 4, generator=generator)
    with torch.no_grad():
        model.A[1] += 5 * torch.eye(4)
    with pytest.raises(
        InputError, match="DenseSSM: A must have eigenvalues with real parts at most 0"
    ):
        model(torch.ones(1, 3, 2))
    with pytest.raises(InputError, match="state must be even"):
        DiagonalSSM(2, 3, generator=generator)
    with pytest.raises(InputError, match="rule must be one of 'zoh', 'bilinear'; got 'euler'"):
        DenseSSM(2, 3, rule="euler", generator=generator)
