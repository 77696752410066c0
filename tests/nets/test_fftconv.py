"""Convolutions by FFT against SciPy, against matrices, and within their stated error bound."""

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy import signal
from torch import Tensor

from partita.errors import InputError
from partita.nets.fftconv import (
    Circulant,
    Toeplitz,
    causal_convolution,
    chunked_convolution,
    circular_convolution,
    dft_matrix,
    fft_error_bound,
    spectrum,
)
from partita.nets.short import depthwise_causal

LENGTHS = (1, 2, 7, 64, 100, 1000)


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=generator)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_dft_matrix_is_torchs_transform_and_its_unitary_form_inverts(
    n: int, generator: torch.Generator
) -> None:
    x, like = draw(generator, n), torch.zeros(1, dtype=torch.float64)
    torch.testing.assert_close(
        dft_matrix(n, like) @ x.to(torch.complex128), torch.fft.fft(x), rtol=0, atol=1e-12
    )
    W = dft_matrix(n, like, unitary=True)
    torch.testing.assert_close(W @ W.mH, torch.eye(n, dtype=W.dtype), rtol=0, atol=1e-12)


@pytest.mark.parametrize("L", LENGTHS)
def test_causal_convolution_is_scipys_and_its_matrix(L: int, generator: torch.Generator) -> None:
    h, u = draw(generator, L), draw(generator, L)
    y = causal_convolution(h, u)
    np.testing.assert_allclose(y, signal.convolve(h, u, method="direct")[:L], atol=1e-11)
    np.testing.assert_allclose(
        y, scipy.linalg.matmul_toeplitz((h.numpy(), np.zeros(L)), u.numpy()), atol=1e-11
    )
    torch.testing.assert_close(y, Toeplitz(h).dense() @ u, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("M", "L"), [(3, 10), (10, 3), (1, 5), (5, 1), (40, 17)])
def test_filter_and_input_may_differ_in_length(M: int, L: int, generator: torch.Generator) -> None:
    h, u = draw(generator, 2, 1, M), draw(generator, 3, L)
    y = causal_convolution(h, u)
    assert y.shape == (2, 3, L)
    np.testing.assert_allclose(y[1, 2], signal.convolve(h[1, 0], u[2])[:L], atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7, 97, 100])
def test_circulant_multiplies_transposes_and_diagonalizes(
    n: int, generator: torch.Generator
) -> None:
    S, x = Circulant(draw(generator, n)), draw(generator, n)
    dense = S.dense()
    np.testing.assert_allclose(dense, scipy.linalg.circulant(S.column), atol=0)
    torch.testing.assert_close(S @ x, dense @ x, rtol=0, atol=1e-11)
    torch.testing.assert_close(S.T @ x, dense.T @ x, rtol=0, atol=1e-11)
    W = dft_matrix(n, x)
    diagonal = W @ dense.to(W.dtype) @ W.inverse()
    torch.testing.assert_close(diagonal, torch.diag(S.eigenvalues()), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("I", "J"), [(1, 1), (4, 4), (3, 8), (8, 3), (100, 77)])
def test_toeplitz_multiplies_and_transposes(I: int, J: int, generator: torch.Generator) -> None:
    S = Toeplitz(draw(generator, I), draw(generator, J))
    x, y = draw(generator, 2, J), draw(generator, 2, I)
    np.testing.assert_allclose(S.dense(), scipy.linalg.toeplitz(S.column, S.row), atol=0)
    torch.testing.assert_close(S @ x, x @ S.dense().T, rtol=0, atol=1e-11)
    torch.testing.assert_close(S.T @ y, y @ S.dense(), rtol=0, atol=1e-11)
    torch.testing.assert_close(
        Toeplitz(S.column).T.dense(), Toeplitz(S.column).dense().T, rtol=0, atol=0
    )


def test_without_padding_the_end_wraps_around() -> None:
    h, u = torch.tensor([0.0, 1.0, 0.0]).double(), torch.tensor([0.0, 0.0, 1.0]).double()
    torch.testing.assert_close(circular_convolution(h, u), torch.tensor([1.0, 0.0, 0.0]).double())
    torch.testing.assert_close(causal_convolution(h, u), torch.zeros(3).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("L", [7, 1000, 65536])
def test_error_stays_below_the_bound_which_is_not_idle(
    L: int, dtype: torch.dtype, generator: torch.Generator
) -> None:
    h, u = (draw(generator, L, dtype=dtype) for _ in range(2))
    exact = signal.fftconvolve(h.numpy().astype(np.longdouble), u.numpy().astype(np.longdouble))[:L]
    error = np.abs(causal_convolution(h, u).numpy() - exact)
    bound = float(fft_error_bound(h, u))
    assert error.max() <= bound
    # transforms err in the 2-norm, so there the ratio does not grow with L
    assert bound <= 1e3 * np.sqrt((error**2).sum())


@pytest.mark.parametrize("sizes", [(5, 5, 5), (1, 14), (14, 1), (3, 3, 3, 3, 3)])
def test_chunks_give_what_the_whole_gives(
    sizes: tuple[int, ...], generator: torch.Generator
) -> None:
    h, u = draw(generator, 2, 6), draw(generator, 3, 2, sum(sizes))
    parts = list(chunked_convolution(h, u.split(sizes, -1)))
    assert [part.shape[-1] for part in parts] == list(sizes)
    torch.testing.assert_close(torch.cat(parts, -1), causal_convolution(h, u), rtol=0, atol=1e-12)


def test_half_precision_is_rounded_once(generator: torch.Generator) -> None:
    h, u = draw(generator, 100), draw(generator, 100)
    y = causal_convolution(h.bfloat16(), u.bfloat16())
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(
        y.double(),
        causal_convolution(h.bfloat16().double(), u.bfloat16().double()),
        rtol=2**-8,
        atol=1e-5,
    )


@pytest.mark.parametrize("at_once", [1, 60, 200])
def test_channels_taken_a_few_at_a_time_give_the_same(
    at_once: int, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    h, u = draw(generator, 5, 8).requires_grad_(), draw(generator, 2, 5, 9).requires_grad_()
    whole = causal_convolution(h, u)
    monkeypatch.setattr("partita.nets.transforms.AT_ONCE", at_once)
    parts, kept = causal_convolution(h, u), causal_convolution(h, u, spectrum(h, 9))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(kept, whole, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(causal_convolution, (h, u))


def test_gradients_pass(generator: torch.Generator) -> None:
    h, u = draw(generator, 2, 5).requires_grad_(), draw(generator, 3, 2, 7).requires_grad_()
    assert torch.autograd.gradcheck(causal_convolution, (h, u))
    assert torch.autograd.gradgradcheck(causal_convolution, (h, u))
    for held in (h, u):  # one side alone
        moved = u if held is h else h
        assert torch.autograd.gradgradcheck(
            lambda x, held=held: (
                causal_convolution(held.detach(), x)
                if held is h
                else causal_convolution(x, held.detach())
            ),
            (moved,),
        )
    # a filter longer than its input too
    z, short = draw(generator, 2, 3, 5).requires_grad_(), draw(generator, 3, 7).requires_grad_()
    for filters in (short, short[:, :3]):
        assert torch.autograd.gradcheck(depthwise_causal, (z, filters))
        assert torch.autograd.gradgradcheck(depthwise_causal, (z, filters))


def test_short_filters_are_scipys(generator: torch.Generator) -> None:
    z, short = draw(generator, 1, 2, 9), draw(generator, 2, 4)
    y = depthwise_causal(z, short)
    for c in range(2):
        np.testing.assert_allclose(
            y[0, c], signal.lfilter(short[c].flip(0).numpy(), 1, z[0, c].numpy()), atol=1e-12
        )


def test_whole_numbers_are_not_cut_and_an_empty_batch_stays_empty() -> None:
    y = causal_convolution(torch.ones(3), torch.arange(5))
    torch.testing.assert_close(y, torch.tensor([0.0, 1.0, 3.0, 6.0, 9.0]))
    assert causal_convolution(torch.ones(2, 3), torch.ones(0, 2, 5)).shape == (0, 2, 5)


def test_bad_lengths_are_named() -> None:
    with pytest.raises(InputError, match=r"x must have shape \(\*, 3\) to match the row"):
        Toeplitz(torch.ones(3)) @ torch.ones(5)
    with pytest.raises(InputError, match=r"u must have a length of at least 1"):
        causal_convolution(torch.ones(3), torch.ones(2, 0))
    with pytest.raises(
        InputError, match=r"h must have the length of u, 4; got 3.*causal_convolution"
    ):
        circular_convolution(torch.ones(3), torch.ones(4))
    with pytest.raises(InputError, match=r"x must have shape \(\*, 2\) to match the row"):
        Toeplitz(torch.ones(3), torch.ones(2)) @ torch.ones(3)
