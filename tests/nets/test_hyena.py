"""Hyena's filters and the recurrences distilled from them."""

import pytest
import torch
from torch import Tensor, nn

from partita.errors import InputError
from partita.nets import Hyena
from partita.nets.fftconv import spectrum
from partita.nets.hyena import Distilled, ImplicitFilter, distil
from partita.nets.hyena.distil import Poles, poles_of


def test_filters_do_not_change_with_length_or_declared_maximum(generator: torch.Generator) -> None:
    filters = ImplicitFilter(3, 2, generator=generator).double()
    short, long = filters(10), filters(5000)
    torch.testing.assert_close(short, long[..., :10], rtol=0, atol=1e-14)
    ops = [
        Hyena(3, 2, max_length=m, generator=torch.Generator().manual_seed(0))
        for m in (64, 4096, None)
    ]
    u = torch.randn(1, 64, 3, generator=generator)
    for op in ops[1:]:
        torch.testing.assert_close(op(u), ops[0](u), rtol=0, atol=0)


@torch.no_grad()
def test_kept_filters_are_made_anew_when_anything_changes(generator: torch.Generator) -> None:
    """Parameters in place, behind autograd's back too, length, dtype, and the module of the filters
    itself.
    """
    op, u = Hyena(3, 2, generator=generator), torch.randn(1, 300, 3, generator=generator)

    def fresh(length: int) -> Tensor:
        h = op.filters(length)
        v, (*gates, _, _) = op.project(u[:, :length].to(h))
        return op.out(op.operate(v, (*gates, h, spectrum(h, length))).mT)

    for change in (
        lambda: None,
        lambda: op.filters.floor.add_(0.1),
        lambda: op.filters.direct.data.mul_(2),
        op.double,
    ):
        change()
        for length in (300, 200, 300, 300):
            torch.testing.assert_close(
                op(u[:, :length].to(op.short)), fresh(length), rtol=0, atol=0
            )
    before, op.filters = op(u.double()), Given(distil(op, 120, 5).poles)  # type: ignore[assignment]
    assert not torch.allclose(op(u.double()), before)


def test_windows_are_what_the_equation_says(generator: torch.Generator) -> None:
    """In float64, over many blocks, and where they have faded; no value is subnormal, which would
    be slow.
    """
    filters = ImplicitFilter(5, 1, shortest=0.5, longest=3000.0, generator=generator).double()
    t = torch.arange(1000, dtype=torch.float64)
    expected = (
        torch.exp(-t * filters.log_decay.detach().exp()[:, None]) + filters.floor.detach()[:, None]
    )
    torch.testing.assert_close(filters.window(1000).detach(), expected, rtol=1e-13, atol=0)
    single = ImplicitFilter(5, 1, shortest=0.5, longest=3000.0, generator=generator)
    single.floor.data.zero_()
    assert (single.window(100_000) >= torch.finfo(torch.float32).tiny).all()


def test_filters_fade_and_are_about_equally_strong_at_first(generator: torch.Generator) -> None:
    h = ImplicitFilter(16, 2, longest=100.0, generator=generator)(5000)
    energy = h[..., 1:].norm(dim=-1)
    assert energy.min() > 0.05 and energy.max() < 5
    assert (h[..., -100:].abs().amax(-1) < 0.05).all()


def test_sums_of_powers_are_found_exactly(generator: torch.Generator) -> None:
    t = torch.arange(60, dtype=torch.float64)
    h = torch.stack([0.9**t - 0.5 * (-0.7) ** t, 0.95**t * torch.cos(0.4 * t)])
    h[:, 0] += 2.0
    found = poles_of(h, 2)
    assert found.error.max() < 1e-10
    torch.testing.assert_close(
        found.filter(200)[0, 199], (0.9 ** torch.tensor(199.0)).double(), rtol=0, atol=1e-9
    )
    torch.testing.assert_close(found.direct, torch.tensor([2.0, 2.0]).double(), rtol=0, atol=1e-8)
    assert found.pole.abs().max() <= 1


def decode(distilled: Distilled, u: Tensor) -> Tensor:
    state, ys = distilled.start(len(u)), []
    for t in range(u.shape[1]):
        y, state = distilled.step(u[:, t], state)
        ys.append(y)
    return torch.stack(ys, 1)


class Given(nn.Module):
    """Filters that are what they are said to be."""

    def __init__(self, poles: Poles) -> None:
        super().__init__()
        self.poles = poles

    def forward(self, length: int) -> Tensor:
        return self.poles.filter(length)


@torch.no_grad()
def test_a_distilled_recurrence_decodes_the_operator_with_its_filters(
    generator: torch.Generator,
) -> None:
    op = Hyena(4, 2, generator=generator).double()
    u = torch.randn(2, 120, 4, dtype=torch.float64, generator=generator)
    distilled = distil(op, 120, 10)
    approximate = decode(distilled, u)
    op.filters = Given(distilled.poles)  # type: ignore[assignment]
    torch.testing.assert_close(approximate, op(u), rtol=0, atol=1e-10)


@torch.no_grad()
def test_the_reported_error_is_that_of_the_filters_and_falls_with_poles(
    generator: torch.Generator,
) -> None:
    op = Hyena(4, 2, generator=generator).double()
    h, errors = op.filters(120), []
    for K in (4, 16, 59):
        distilled = distil(op, 120, K)
        relative = (distilled.poles.filter(120) - h).norm(dim=-1) / h.norm(dim=-1)
        assert distilled.error == pytest.approx(float(relative.max()))
        errors.append(float(relative.square().mean()))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_a_filter_of_zeros_has_no_error() -> None:
    found = poles_of(torch.zeros(20), 3)
    assert float(found.error) == 0 and not found.filter(20).any()


def test_too_many_poles_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(
        InputError,
        match="distil: K must be at most half the length of the filters less one, 4; got 5",
    ):
        distil(Hyena(2, 1, generator=generator), 10, 5)


def test_inference_mode_leaves_training_possible() -> None:
    """What a forward pass under inference mode keeps must not be met by autograd later."""
    u = torch.ones(1, 7, 2)
    seen = Hyena(2, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before = seen(u).clone()
    for op in (seen, Hyena(2, generator=torch.Generator().manual_seed(0))):
        y = op(u)
        torch.testing.assert_close(y, before)
        y.square().sum().backward()
        assert all(p.grad is not None for p in op.parameters())
