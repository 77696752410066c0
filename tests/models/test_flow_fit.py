"""Flows fitted to what is known: a Gaussian, a conditional, outliers, any units; and columns that
have no density.
"""

import math
from typing import Any

import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

import partita
from partita.errors import InputError, PartitaWarning
from partita.models import Flow
from partita.tables import as_rows


def gaussian(generator: torch.Generator, n: int) -> tuple[Tensor, Any]:
    factor = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.4, 0.3, 2.0]], dtype=torch.float64)
    mean = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64) @ factor.mT + mean
    return x, multivariate_normal(mean.numpy(), (factor @ factor.mT).numpy())


def test_a_flow_fitted_to_a_gaussian_reaches_its_likelihood(generator: torch.Generator) -> None:
    """The paired difference from the truth on fresh rows is within the standard error of the
    truth's own mean.
    """
    x, truth = gaussian(generator, 4000)
    test, _ = gaussian(generator, 2000)
    flow = Flow(3, 3, widths=(16,), generator=generator)
    run = partita.fit(flow, x, steps=600, batch_size=200, learning_rate=3e-3, generator=generator)
    q = partita.evaluate(flow, test, generator=generator)
    exact = truth.logpdf(test.numpy())
    assert run.config["objective"]["part"] == "ExactLikelihood" and q.kind == "exact"
    assert abs(q.value - exact.mean()) < exact.std() / math.sqrt(len(test))


def test_a_conditional_flow_learns_the_conditional(generator: torch.Generator) -> None:
    """Rows are x followed by its context, a year whose units must not matter; the truth is N(2 c,
    0.5^2), c in decades after 2000.
    """
    c = torch.randn(3000, 1, generator=generator)
    table = torch.cat([2 * c + 0.5 * torch.randn(3000, 1, generator=generator), 2000 + 10 * c], 1)
    flow = Flow(1, 2, widths=(16,), context=1, generator=generator)
    partita.fit(
        flow, table[:2000], steps=300, batch_size=200, learning_rate=1e-2, generator=generator
    )
    exact = torch.distributions.Normal(2 * c[2000:, 0], 0.5).log_prob(table[2000:, 0]).mean()
    assert partita.evaluate(flow, table[2000:], generator=generator).value == pytest.approx(
        exact.item(), abs=0.05
    )
    context = torch.full((4000, 1), 2015.0)
    draws = flow.draw(4000, context=context, generator=generator)
    assert draws.mean().item() == pytest.approx(
        3.0, abs=0.1
    ) and draws.std().item() == pytest.approx(0.5, abs=0.05)
    with pytest.raises(InputError, match=r"context must have shape \(5, 1\); got None"):
        flow.draw(5, generator=generator)


def test_outliers_do_not_run_away(generator: torch.Generator) -> None:
    """One row in five hundred lies far out in every column, as in real tables."""
    x = torch.randn(3000, 6, generator=generator)
    x[::500] *= 60
    flow = Flow(6, 8, widths=(64, 64), generator=generator)
    run = partita.fit(flow, x, steps=120, batch_size=256, learning_rate=3e-3, generator=generator)
    assert (
        run.stopped == "finished"
        and run.history[-1]["model"] < 12
        and torch.isfinite(flow.log_prob(x)).all()
    )


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_learning_does_not_depend_on_the_units(scale: float, generator: torch.Generator) -> None:
    x = torch.randn(400, 2, generator=generator) + 5
    flow = Flow(2, 2, widths=(8,), generator=generator)
    run = partita.fit(flow, scale * x, steps=30, batch_size=100, generator=generator)
    assert run.history[-1]["model"] == pytest.approx(
        2 * math.log(scale) + math.log(2 * math.pi) + 1, abs=0.5
    )


def warnings(x: Tensor, generator: torch.Generator) -> list[str]:
    return Flow(x.shape[1], 2, widths=(4,), generator=generator).data_warnings(
        as_rows(x), generator=generator
    )


def test_degenerate_columns_are_named(generator: torch.Generator) -> None:
    x = torch.randn(300, 3, generator=generator)
    assert warnings(x, generator) == []
    assert (
        "column 3 is a copy of column 1, so the density is degenerate"
        in warnings(torch.cat([x, 2 * x[:, 1:2] + 1], 1), generator)[0]
    )
    assert (
        "column 3 is a linear function of the columns before it"
        in warnings(torch.cat([x, x.sum(1, keepdim=True)], 1), generator)[0]
    )
    discrete = torch.cat([x[:, :1], torch.randint(0, 3, (300, 1), generator=generator).float()], 1)
    assert (
        "column 1 takes one value" in warnings(discrete, generator)[0]
        and "dequantize it" in warnings(discrete, generator)[0]
    )
    with pytest.warns(PartitaWarning, match="column 1 takes one value"):
        partita.fit(
            Flow(2, 2, widths=(4,), generator=generator), discrete, steps=2, generator=generator
        )


def test_copies_are_named_in_small_tables_and_of_the_context(generator: torch.Generator) -> None:
    wide = torch.randn(20, 15, generator=generator).repeat(1, 2)
    assert "column 15 is a copy of column 0" in warnings(wide, generator)[0]
    x = torch.randn(100, 2, generator=generator)
    rows = as_rows(torch.cat([x, -x[:, 1:]], 1))
    flow = Flow(2, 2, widths=(4,), context=1, generator=generator)
    assert (
        "column 1 is a copy of column 0 of the context"
        in flow.data_warnings(rows, generator=generator)[0]
    )
    years = torch.cat(
        [
            torch.randn(3000, 1, generator=generator),
            torch.randint(0, 60, (3000, 1), generator=generator),
        ],
        1,
    )
    assert (
        "column 1 has 60 different values in 3000 rows, so it is discrete"
        in warnings(years, generator)[0]
    )
