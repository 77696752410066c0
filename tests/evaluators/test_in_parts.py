"""A table scored some rows after the others gives the score of the whole table."""

import pytest
import torch

import partita
from partita.core.quantity import Quantity, pooled
from partita.evaluators import AIS, Enumeration, likelihood
from partita.models import PPCA, RBM
from partita.tables import Rows


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "CELLS_AT_ONCE", 100)


@pytest.mark.parametrize(
    "evaluator", [None, Enumeration(), AIS(50, chains=16)], ids=["default", "enumeration", "ais"]
)
def test_an_energy_model_by_one_log_z(
    evaluator: object, few_at_once: None, generator: torch.Generator
) -> None:
    model = RBM(6, 3, generator=generator)
    x = (torch.rand(83, 6, generator=generator) < 0.5).double().numpy()
    whole = partita.evaluate(
        model, torch.from_numpy(x), evaluator=evaluator, generator=torch.Generator().manual_seed(0)
    )
    parts = partita.evaluate(
        model, Rows(x), evaluator=evaluator, generator=torch.Generator().manual_seed(0)
    )
    assert parts.details["parts"] == 6 and parts.n == 83
    for name in ("value", "low", "high"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), abs=1e-10)
    assert parts.se_data == pytest.approx(whole.se_data, rel=1e-9)
    assert (parts.kind, parts.method) == (whole.kind, whole.method) and "rows" not in parts.details


def test_a_model_with_an_exact_density(few_at_once: None, generator: torch.Generator) -> None:
    model, x = PPCA(4, 2, generator=generator), torch.randn(90, 4, generator=generator)
    whole = partita.evaluate(model, x, generator=generator)
    assert partita.evaluate(model, Rows(x.numpy()), generator=generator).value == pytest.approx(
        whole.value, abs=1e-12
    )


def test_pooled_errors_are_those_of_a_common_log_z() -> None:
    parts = [
        Quantity(-1.0, -1.2, -0.8, kind="estimate", n=10, se_data=0.1),
        Quantity(-4.0, -4.2, -3.8, kind="estimate", n=30, se_data=0.1),
    ]
    q = pooled(parts)
    assert (q.value, q.low, q.high) == pytest.approx((-3.25, -3.45, -3.05))
