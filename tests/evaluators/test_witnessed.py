"""Importance sampling beside draws of another method: what they certify and contradict."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import partita
from partita.core import Real
from partita.core.quantity import Quantity, Verdict
from partita.errors import Diverged
from partita.evaluators import ImportanceSampling
from partita.evaluators.partition.bridge import acceptance_ratio
from partita.evaluators.partition.importance.student_mixture import around
from partita.evaluators.partition.importance.witnessed import ENOUGH, witnessed
from partita.models import NeuralEnergy

AWAY = 6.0


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Pair(torch.nn.Module):
    """Two unit normals in five coordinates, of equal mass; with the reference of the model, which
    is taken away here, log Z of both together is 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.nn.Parameter(torch.tensor(2.5 * math.log(2 * math.pi) + math.log(2)))

    def forward(self, x: Tensor) -> Tensor:
        ends = torch.stack([(x - s * AWAY / 2).square().sum(-1) for s in (-1, 1)])
        return self.offset - torch.logsumexp(-0.5 * ends, 0) - 0.5 * x.square().sum(-1)


def pair() -> NeuralEnergy:
    return NeuralEnergy(Pair(), Real(5))


def draws(modes: tuple[int, ...], n: int, seed: int) -> Tensor:
    """Exact draws of these of the two normals, of each as many."""
    g = seeded(seed)
    side = torch.tensor(modes)[torch.arange(n) % len(modes)] * 2.0 - 1
    return torch.randn(n, 5, generator=g) + side[:, None] * AWAY / 2


def seen(x: Tensor, verdict: Verdict = "loose") -> Quantity:
    """What another method says that drew ``x``."""
    return Quantity(0.0, -0.3, 0.3, kind="estimate", verdict=verdict, details={"draws": x})


@pytest.fixture(scope="module")
def of_both() -> Quantity:
    return ImportanceSampling()(pair(), generator=seeded(0))


def test_what_was_found_once_is_certified_where_no_draw_shows_more(of_both: Quantity) -> None:
    lone = replace(of_both, verdict="do not publish")
    heard = witnessed(lone, seen(draws((0, 1), 1000, 1)), pair())
    assert heard.trusted and heard.low <= 0 <= heard.high
    assert heard.width < 1.5 * lone.width < 0.1  # neither wider for what is known


@torch.no_grad()
def test_draws_of_a_mode_that_the_mixture_lacks_contradict(of_both: Quantity) -> None:
    """A proposal at one of the modes alone, as if no search had found the other; half, and one in
    fifty, of the draws lie there.
    """
    q, model = of_both, pair()
    center = torch.full((1, 5), -AWAY / 2, dtype=torch.float64)
    students = around(center, torch.eye(5).to(center)[None], 30.0)
    one = replace(q.details["proposal"], students=students, share=1e-12)
    x = one.draw(4000, seeded(2))
    log_w = -model.free_energy(x.float()).double() - one.log_density(x)
    value = float(torch.logsumexp(log_w, 0)) - math.log(len(x))
    assert value == pytest.approx(-math.log(2), abs=0.05)  # confident, and wrong
    details = {**q.details, "proposal": one, "log_w": log_w, "of_known_modes": "tight"}
    wrong = replace(q, value=value, low=value - 0.02, high=value + 0.02, details=details)
    for there in (500, 20):
        y = torch.cat([draws((0,), 1000 - there, 3), draws((1,), there, 4)])
        heard = witnessed(wrong, seen(y), model)
        assert heard.verdict == "do not publish" and heard.high > 0
    unseen = seen(draws((0,), 1000, 5))
    assert witnessed(wrong, unseen, model).verdict == "tight"  # what no method can see


def test_who_is_not_trusted_lifts_no_verdict(of_both: Quantity) -> None:
    lone = replace(of_both, verdict="do not publish")
    unsure = seen(draws((0, 1), 1000, 1), "do not publish")
    assert not witnessed(lone, unsure, pair()).trusted


def test_zero_density_at_either_end_breaks_no_bridge() -> None:
    g = seeded(7)
    w, v = torch.randn(2000, generator=g), torch.randn(2000, generator=g) - 1
    whole = acceptance_ratio(w, v).value
    cut = torch.cat([w, torch.full((2000,), -math.inf)])
    assert acceptance_ratio(cut, v).value == pytest.approx(whole - math.log(2), abs=0.2)
    far = torch.cat([v, torch.tensor([1e12, 1e30])])
    assert acceptance_ratio(w, far).value == pytest.approx(whole, abs=0.01)
    with pytest.raises(Diverged, match="no state of either end"):
        acceptance_ratio(cut[2000:], -cut[2000:])


def test_a_density_that_is_zero_on_a_side_is_trusted_too() -> None:
    def half(x: Tensor) -> Tensor:
        return torch.where(x[:, 0] > 0, -0.5 * x.square().sum(-1), -math.inf)

    q = partita.log_z(half, Real(4), generator=0)
    truth = 2 * math.log(2 * math.pi) - math.log(2)
    assert q.trusted and q.width < 0.2
    assert abs(q.value - truth) < 0.05  # about five standard errors


def test_few_draws_bear_no_witness(of_both: Quantity) -> None:
    few = draws((0, 1), ENOUGH - 1, 6).repeat(10, 1)
    assert witnessed(of_both, seen(few), pair()) is of_both


def test_two_far_modes_are_certified_without_annealing() -> None:
    def log_density(x: Tensor) -> Tensor:
        far = torch.stack([-0.5 * (x - 4 * s).square().sum(-1) for s in (-1, 1)])
        return torch.logsumexp(far, 0)

    q = partita.log_z(log_density, Real(4), generator=3)
    truth = math.log(2) + 2 * math.log(2 * math.pi)
    assert q.trusted and q.width < 0.1
    assert abs(q.value - truth) < 0.05  # about five standard errors
    assert list(q.details["tried"]) == ["ImportanceSampling", "NestedSampling"]
    assert abs(float(q.draws[:, 0].sign().mean())) < 0.2  # four deviations of a thousand draws
