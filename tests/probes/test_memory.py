"""Memory that is known by construction: closed form, a leaky integrator, a finite convolution, a
module that looks ahead.
"""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from partita.errors import InputError
from partita.models import Autoregressive
from partita.nets import LSTM, Attention, CausalConv, DenseSSM, DiagonalSSM, Hyena
from partita.probes.memory import attention_by_distance, memory, state_space_memory


def draw(L: int, D: int, generator: torch.Generator) -> Tensor:
    return torch.randn(2, L, D, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("kind", [DenseSSM, DiagonalSSM])
def test_state_space_models_match_their_closed_form(kind: type, generator: torch.Generator) -> None:
    model = kind(1, 6, generator=generator).double()
    found = memory(model, draw(200, 1, generator))
    torch.testing.assert_close(found.size, model.filter(200)[0].detach().abs(), rtol=0, atol=1e-12)
    if kind is DenseSSM:
        A, B = model.discrete()
        closed = state_space_memory(A[0], B[0], model.C[0], model.D[0], 200)
        torch.testing.assert_close(found.size, closed.size, rtol=0, atol=1e-12)
        assert closed.length == found.length


def test_a_leaky_integrator_forgets_where_its_powers_meet_the_tolerance() -> None:
    one, leak = torch.ones(1, dtype=torch.float64), torch.tensor([[0.5]], dtype=torch.float64)
    found = state_space_memory(leak, one, one, torch.zeros((), dtype=torch.float64), 200)
    assert found.length == int(np.floor(np.log2(1 / found.tolerance)))
    coarse = state_space_memory(leak.float(), one.float(), one.float(), torch.zeros(()), 200)
    assert coarse.length < found.length  # the dtype decides what is still there


class Leaky(nn.Module):
    """y(t) = y(t - 1) / 2 + u(t), one step after the other."""

    def forward(self, u: Tensor) -> Tensor:
        y, ys = torch.zeros_like(u[:, 0]), []
        for t in range(u.shape[1]):
            y = 0.5 * y + u[:, t]
            ys.append(y)
        return torch.stack(ys, 1)


def test_the_probe_of_a_leaky_integrator_finds_its_powers(generator: torch.Generator) -> None:
    found = memory(Leaky(), draw(200, 2, generator))
    torch.testing.assert_close(
        found.size, 0.5 ** torch.arange(200, dtype=torch.float64), rtol=0, atol=0
    )
    assert found.length == int(np.floor(np.log2(1 / found.tolerance))) and found.causal


@pytest.mark.parametrize(("kernel", "gap"), [(1, 1), (4, 1), (3, 5)])
def test_a_finite_convolution_remembers_its_reach(
    kernel: int, gap: int, generator: torch.Generator
) -> None:
    found = memory(CausalConv(4, kernel, gap, generator=generator).double(), draw(40, 4, generator))
    assert found.length == gap * (kernel - 1) and found.count == kernel and found.causal


@pytest.mark.parametrize("kind", [Hyena, Attention, LSTM])
def test_layers_are_seen_to_be_causal(kind: type, generator: torch.Generator) -> None:
    assert memory(kind(8, generator=generator).double(), draw(64, 8, generator)).causal
    assert memory(kind(8, generator=generator), draw(64, 8, generator).float()).causal


def test_a_module_that_looks_ahead_is_caught(generator: torch.Generator) -> None:
    class Ahead(nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return u + 1e-6 * u.roll(-1, 1)

    assert memory(Ahead(), draw(20, 2, generator)).causal is False


class Backwards(nn.Module):
    def forward(self, u: Tensor) -> Tensor:
        return u.flip(1)


class Blind(nn.Module):
    def forward(self, u: Tensor) -> Tensor:
        return torch.ones_like(u)


def test_a_reversal_is_caught_and_a_constant_remembers_nothing(generator: torch.Generator) -> None:
    # its later half looks back only
    assert memory(Backwards(), draw(20, 2, generator)).causal is False
    found = memory(Blind(), draw(20, 2, generator))
    assert found.length == -1 and found.causal


def test_logits_by_distance_are_the_mean_of_the_pairs_and_their_intervals_cover(
    generator: torch.Generator,
) -> None:
    """Independent blocks of draws cover a long run's mean: 40 intervals at 95 %, at least 31 cover
    (false alarm 1e-4).
    """
    model = Autoregressive(
        12,
        states=5,
        backbone="attention",
        width=8,
        layers=2,
        options={"heads": 2},
        generator=generator,
    ).double()
    long = attention_by_distance(model, draws=20_000, generator=generator).mean[1, 3]
    blocks = [attention_by_distance(model, draws=20, generator=generator) for _ in range(40)]
    assert sum(bool(b.low[1, 3] <= long <= b.high[1, 3]) for b in blocks) >= 31
    assert blocks[0].mean.shape == (2, 12)


@torch.no_grad()
def test_logits_are_those_of_the_first_layer_written_out(generator: torch.Generator) -> None:
    model = Autoregressive(
        4,
        states=3,
        backbone="attention",
        width=4,
        layers=1,
        options={"heads": 1},
        generator=generator,
    ).double()
    key = torch.Generator().manual_seed(1)
    found = attention_by_distance(model, draws=2, generator=key)
    tokens = torch.floor(
        3 * torch.rand(2, 4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    )
    u = torch.cat([model.first.expand(2, 1, -1), model.one.embed(tokens[:, :-1])], 1)
    block = model.net.blocks[0]
    _, (q, k) = block.mixer.project(block.mixer_norm(u))  # type: ignore[union-attr, operator]
    pairs = [[float(q[b, 0, t] @ k[b, 0, t - 2]) for t in (2, 3)] for b in range(2)]
    assert float(found.mean[0, 2]) == pytest.approx(np.mean(pairs))


def test_bad_input_is_named(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"u must have shape \(B, L, D\) with L of at least 2"):
        memory(nn.Identity(), torch.zeros(2, 1, 3))
    one = torch.ones(1)
    with pytest.raises(
        InputError,
        match=r"state_space_memory: A must have spectral radius at most 1; got 1.5, so its memory",
    ):
        state_space_memory(torch.tensor([[1.5]]), one, one, torch.zeros(()), 10)
    model = Autoregressive(4, states=3, backbone="conv", width=4, layers=1, generator=generator)
    with pytest.raises(
        InputError, match="model must be a model of tokens with backbone 'attention'"
    ):
        attention_by_distance(model, generator=generator)
