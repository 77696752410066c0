"""Sequential Monte Carlo: unbiased, with a variance from one run that is the spread of many, and a
verdict that sees few founders.
"""

import math

import pytest
import torch

from partita.diagnostics.weights import summarize_weights
from partita.errors import PartitaError
from partita.evaluators import SMC, Enumeration
from partita.evaluators.partition.annealing import (
    Annealing,
    anneal,
    even_temperatures,
    from_reference,
)
from partita.models import RBM
from partita.samplers import Gibbs

RUNS = 200


def rbm(scale: float, generator: torch.Generator) -> RBM:
    return RBM(10, 5, scale=scale, generator=generator).double()


@pytest.mark.parametrize("resample_below", [0.3, 0.7])
def test_its_variance_comes_from_one_run_and_is_the_spread_of_many(
    resample_below: float, generator: torch.Generator
) -> None:
    """200 runs: their spread is known to 5 %, the mean claim to about 3 %; bounds at four of them,
    below and above, and as much for systematic resampling, which is evener than what the variance
    is derived for. Z is unbiased to four of its standard errors.
    """
    model, betas = rbm(4.0, generator), even_temperatures(12)
    runs = [
        anneal(
            model,
            Gibbs(),
            betas,
            from_reference(model, 128, generator),
            resample_below=resample_below,
            generator=generator,
        )
        for _ in range(RUNS)
    ]
    reports = [summarize_weights(run.by_founder) for run in runs]
    found = torch.tensor([report.log_mean for report in reports], dtype=torch.float64) + float(
        model.reference().log_z
    )
    claimed = math.sqrt(sum(report.se**2 for report in reports) / RUNS)
    relative = (found - Enumeration()(model).value).exp()
    assert any(len(run.founders.unique()) < 128 for run in runs)
    assert 0.76 < claimed / float(relative.std()) < 1.5
    assert abs(float(relative.mean()) - 1) < 4 * float(relative.std()) / math.sqrt(RUNS)


def test_what_descends_from_few_starts_is_not_to_be_published() -> None:
    """Equal weights look healthy; that all of them descend from two starts does not."""
    run = Annealing(
        torch.zeros(64, 1),
        torch.zeros(64, dtype=torch.float64),
        torch.zeros(1),
        torch.linspace(0, 1, 2),
        torch.arange(64) % 2,
        torch.zeros(64, dtype=torch.float64),
    )
    report = summarize_weights(run.by_founder)
    assert report.ess == pytest.approx(2) and report.log_mean == pytest.approx(0)
    assert report.se == pytest.approx(math.sqrt(1 / 2 - 1 / 64))


def test_a_share_outside_zero_to_one_is_refused() -> None:
    with pytest.raises(PartitaError, match=r"SMC: resample_below must lie between 0 and 1; got 2"):
        SMC(resample_below=2)
