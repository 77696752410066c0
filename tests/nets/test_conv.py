"""Convolution networks against the sums of the notes, written out."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import signal
from torch import Tensor, nn

from partita.errors import InputError
from partita.models.networked import build, describe
from partita.nets import ConvDecoder, ConvNet
from partita.nets.conv import convolution, separable_convolution


def written_out_1d(X: Tensor, W: Tensor) -> Tensor:
    """Y[n, l, o] = sum_c sum_k X[n, l + k, c] W[k, c, o], channels last as in the notes, places
    without padding.
    """
    N, L, C = X.shape
    K, _, O = W.shape
    Y = torch.zeros(N, L - K + 1, O, dtype=X.dtype)
    for n, l, o, c, k in itertools.product(
        range(N), range(L - K + 1), range(O), range(C), range(K)
    ):
        Y[n, l, o] += X[n, l + k, c] * W[k, c, o]
    return Y


def written_out_2d(X: Tensor, W: Tensor) -> Tensor:
    """Y[n, h, w, o] = sum_c sum_i sum_j X[n, h + i, w + j, c] W[i, j, c, o]."""
    N, H, Wd, C = X.shape
    I, J, _, O = W.shape
    Y = torch.zeros(N, H - I + 1, Wd - J + 1, O, dtype=X.dtype)
    for n, h, w, o, c, i, j in itertools.product(
        *map(range, (N, H - I + 1, Wd - J + 1, O, C, I, J))
    ):
        Y[n, h, w, o] += X[n, h + i, w + j, c] * W[i, j, c, o]
    return Y


def draw(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def test_one_axis_is_the_sum_of_the_notes(generator: torch.Generator) -> None:
    layer = convolution(2, 3, 3, 1, generator=generator).double()
    x, pad = draw(generator, 2, 6, 2), torch.zeros(2, 1, 2, dtype=torch.float64)
    expected = (
        written_out_1d(torch.cat([pad, x, pad], 1), layer.weight.permute(2, 1, 0)) + layer.bias
    )
    torch.testing.assert_close(layer(x.mT).mT, expected, rtol=0, atol=1e-12)


def test_two_axes_are_the_sum_of_the_notes(generator: torch.Generator) -> None:
    layer = convolution(2, 2, 3, 2, generator=generator).double()
    x = draw(generator, 1, 4, 5, 2)
    padded = nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
    expected = written_out_2d(padded, layer.weight.permute(2, 3, 1, 0)) + layer.bias
    torch.testing.assert_close(
        layer(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), expected, rtol=0, atol=1e-12
    )


def test_the_sum_is_a_correlation_and_not_a_convolution(generator: torch.Generator) -> None:
    layer = convolution(1, 1, 3, 1, generator=generator).double()
    x = draw(generator, 1, 1, 9)
    with torch.no_grad():
        y = (layer(x) - layer.bias)[0, 0, 1:-1].numpy()
        w = layer.weight[0, 0].numpy()
    np.testing.assert_allclose(y, signal.correlate(x[0, 0], w, "valid"), atol=1e-12)
    assert np.abs(y - signal.convolve(x[0, 0], w, "valid")).max() > 0.01


@pytest.mark.parametrize("places", [1, 2])
def test_depthwise_separable_is_its_two_steps(places: int, generator: torch.Generator) -> None:
    both = separable_convolution(2, 3, 3, places, generator=generator).double()
    depthwise, pointwise = both
    x = draw(generator, 2, 2, *[4] * places)
    one_by_one = [
        convolution(1, 1, 3, places, generator=generator).double().requires_grad_(False)
        for _ in range(2)
    ]
    for c, single in enumerate(one_by_one):
        single.weight.copy_(depthwise.weight[c : c + 1])
        single.bias.copy_(depthwise.bias[c : c + 1])
    first = torch.cat([single(x[:, c : c + 1]) for c, single in enumerate(one_by_one)], 1)
    second = torch.einsum(
        "nc...,oc->no...", first, pointwise.weight.flatten(1)
    ) + pointwise.bias.view(-1, *[1] * places)
    torch.testing.assert_close(both(x), second, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pool", ["max", "average"])
def test_pooling_is_the_largest_or_the_mean_of_each_square(
    pool: str, generator: torch.Generator
) -> None:
    net = ConvNet((4, 6), 5, channels=(2,), pool=pool, generator=generator).double()
    x = draw(generator, 3, 24)
    maps = net.blocks[:2](x.view(3, 1, 4, 6))
    squares = maps.unfold(2, 2, 2).unfold(3, 2, 2)
    pooled = squares.amax((-1, -2)) if pool == "max" else squares.mean((-1, -2))
    torch.testing.assert_close(net(x), net.last(pooled.flatten(1)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(9,), (28, 28), (7, 5)])
@pytest.mark.parametrize("separable", [False, True])
def test_nets_keep_shapes_and_are_rebuilt_from_json(
    shape: tuple[int, ...], separable: bool, generator: torch.Generator
) -> None:
    encoder = ConvNet(shape, 4, depth=2, channels=(3, 5), separable=separable, generator=generator)
    decoder = ConvDecoder(
        4, shape, depth=2, channels=(5, 3), separable=separable, generator=generator
    )
    x = torch.randn(2, 3, 2 * math.prod(shape), generator=generator)
    assert encoder(x).shape == (2, 3, 4) and decoder(encoder(x)).shape == x.shape
    for net in (encoder, decoder):
        again = build(describe(net), "test", generator=generator)
        again.load_state_dict(net.state_dict())
        z = x if net is encoder else encoder(x)
        torch.testing.assert_close(again(z), net(z), rtol=0, atol=0)


def test_bad_input_is_named(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"ConvNet: kernel must be odd, so that sizes stay; got 4"):
        ConvNet((8, 8), 1, kernel=4, generator=generator)
    with pytest.raises(
        InputError, match=r"shape must be \(length,\) or \(height, width\).*given as depth"
    ):
        ConvNet((3, 8, 8), 1, generator=generator)
    with pytest.raises(InputError, match=r"pool \(8, 2\) at most until one place is left"):
        ConvNet((8, 2), 1, channels=(2, 2, 2), generator=generator)
    with pytest.raises(InputError, match=r"x must have shape \(\*, 64\)"):
        ConvNet((8, 8), 1, generator=generator)(torch.zeros(2, 63))
