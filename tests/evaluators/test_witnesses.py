"""What a number must answer to: forward annealing, witnesses, and draws that saw nothing."""

import math

import pytest
import torch
from tests.truth.hard_models import FAMILIES, curie_weiss, random_rbm, real_model, wells
from torch import Tensor, nn

from partita.core.quantity import Quantity
from partita.core.support import Binary
from partita.evaluators import AIS, SMC, ReverseAIS, Sandwich
from partita.evaluators.partition.witnesses import without_rows
from partita.models import RBM, NeuralEnergy


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Needle(nn.Module):
    """One state among 2^n that holds a share of the mass; all others are alike."""

    def __init__(self, bits: int, share: float) -> None:
        super().__init__()
        self.at = (torch.rand(bits, generator=seeded(5)) < 0.5).float()
        self.depth = nn.Parameter(torch.tensor(bits * math.log(2) + math.log(share / (1 - share))))

    def forward(self, x: Tensor) -> Tensor:
        return -self.depth * (x == self.at).all(-1) + 0 * x.sum(-1)


@pytest.mark.parametrize("family", ["Curie-Weiss in a field", "wells"])
def test_reverse_annealing_from_rows_of_one_mode_covers_or_is_not_trusted(family: str) -> None:
    case = curie_weiss(1, "skewed", field=0.02) if "field" in family else wells(0, "skewed")
    q = ReverseAIS(start="data")(case.model, generator=seeded(1))
    assert q.low <= case.log_z <= q.high or not q.trusted
    assert q.verdict != "tight"


def test_reverse_annealing_from_rows_of_the_model_stays_tight() -> None:
    case = curie_weiss(0, "fair", field=0.02)
    q = ReverseAIS(start="data")(case.model, generator=seeded(0))
    assert q.verdict == "tight" and q.low <= case.log_z <= q.high and q.width < 1.2


def test_no_chain_of_its_own_licenses_an_answer_that_passed_a_needle_by() -> None:
    """Rows show the needle, and one settled end of the annealing fell into it."""
    net = Needle(20, 0.9)
    rows = (torch.rand(200, 20, generator=seeded(6)) < 0.5).float()
    rows[:180] = net.at
    truth = math.log(2.0**20 - 1 + math.exp(net.depth.item()))
    q = ReverseAIS()(NeuralEnergy(net, Binary(20)), rows=rows, generator=seeded(0))
    assert not q.trusted and q.low <= truth <= q.high


def test_chains_that_were_evened_out_answer_to_the_way_down() -> None:
    """Student's t with half a degree of freedom on the plane, and one row at its mode."""
    nu, D = 0.5, 2
    truth = math.lgamma(nu / 2) - math.lgamma((nu + D) / 2) + 0.5 * D * math.log(nu * math.pi)
    case = real_model(
        lambda x: 0.5 * (nu + D) * torch.log1p(x.square().sum(-1) / nu),
        D,
        torch.zeros(1, D),
        "fair",
        truth,
    )
    q = SMC()(case.model, generator=seeded(1))
    assert q.low <= truth <= q.high


@pytest.mark.parametrize("evaluate", [AIS(), SMC(), ReverseAIS()])
def test_fair_rows_keep_what_is_easy_tight(evaluate: AIS) -> None:
    case = random_rbm(0, "fair", 1.0)
    q = evaluate(case.model, generator=seeded(0))
    assert q.verdict == "tight" and q.low <= case.log_z <= q.high and q.width < 0.6


@pytest.mark.parametrize("evaluate", [AIS(50, 64), ReverseAIS(50, 64), Sandwich(50, 64)])
def test_equal_weights_without_rows_leave_room_for_what_no_draw_saw(evaluate: AIS) -> None:
    """Without couplings all weights are the same, and their standard error is zero."""
    model = RBM(6, 2, scale=0.0, generator=seeded(0))
    q = evaluate(model, generator=seeded(0))
    assert q.high - q.value >= math.log1p(3 / 64) - 1e-9 and q.verdict != "tight"


def test_room_for_the_unseen_is_not_added_to_what_reaches_farther() -> None:
    q = without_rows(Quantity(1.0, 0.5, 1.5, level=0.95, kind="estimate"), 128)
    assert (q.low, q.high, q.verdict) == (0.5, 1.5, "loose")


@pytest.mark.slow
def test_ladders_that_mix_slowly_stop_no_search_for_a_better_path() -> None:
    """Eight blunt templates and noise, of equal mass: rungs that follow the first path alone agree
    with both of its sides on half of the mass.
    """
    model, truth = FAMILIES["templates 150, blunt"](101, "fair")
    q = Sandwich()(model.double(), generator=seeded(1101))
    assert q.trusted and q.width < 0.4
    assert abs(q.value - truth) < 0.1  # about four standard errors
