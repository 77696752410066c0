"""A fit that diverges is named, and what was learned before is kept."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.by_hand import assert_weights, descend
from tests.training.small_fits import OBJECTIVES, machine, rows

import partita
from partita.errors import Diverged
from partita.objectives import ExactLikelihood
from partita.training import Settings, checkpoint
from partita.training.optimizers import learning_rate_at


@pytest.mark.parametrize("rate", [1e4, 1e38])
@pytest.mark.parametrize("name", ["pcd", "cd"])
def test_a_rate_that_diverges_is_named_and_nothing_is_lost(
    name: str, rate: float, tmp_path: Path
) -> None:
    model, out = machine(), tmp_path / "run"
    with pytest.raises(
        Diverged,
        match=r"^fit: (the loss of 'model'|parameter '\w+' of RBM\(4, 3\)) must .*finite.*Lower "
        r"learning_rate \(now [\de+]+\)",
    ):
        partita.fit(
            model,
            rows(),
            OBJECTIVES[name],
            optimizer="sgd",
            learning_rate=rate,
            steps=100,
            out=out,
            generator=torch.Generator(),
        )
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
    saved = checkpoint.load_tree(out / "checkpoints" / "last.safetensors")
    assert all(torch.isfinite(value).all() for value in saved["model"].values())
    assert (
        partita.fit(
            machine(),
            rows(),
            OBJECTIVES[name],
            optimizer="sgd",
            learning_rate=0.1,
            steps=100,
            out=out,
            resume=True,
            generator=torch.Generator(),
        ).steps
        == 100
    )


@pytest.mark.parametrize(
    ("last_calm", "rate", "words"),
    [
        (45, 1e30, r"the loss of 'model' must stay finite and small; got .* at step 46"),
        (39, math.inf, r"parameter '\w' of RBM\(4, 3\) must be finite"),
    ],
    ids=["loss", "parameter"],
)
def test_after_a_late_divergence_the_averaged_weights_stay(
    last_calm: int, rate: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good steps, then a rate that explodes, once on the very step that enters the average: what
    was learned before is kept.
    """
    calm = learning_rate_at

    def explode(step: int, total: int, settings: Settings) -> float:
        return calm(step, total, settings) if step < last_calm else rate

    monkeypatch.setattr("partita.training.session.learning_rate_at", explode)
    model, x = machine().double(), rows(dtype=torch.float64)
    options: dict[str, Any] = {
        "optimizer": "sgd",
        "batch_size": 0,
        "learning_rate": 0.5,
        "schedule": "constant",
        "initialize": False,
    }
    with pytest.raises(Diverged, match=words):
        partita.fit(
            model,
            x,
            ExactLikelihood(),
            average=0.4,
            steps=60,
            generator=torch.Generator(),
            **options,
        )
    path = descend(x, [0.5] * 40)
    expected = path[9]
    for k in range(2, 1 + last_calm // 10):
        share = max(10 / 24, 1 / k)
        expected = [
            (1 - share) * e + share * v for e, v in zip(expected, path[10 * k - 1], strict=True)
        ]
    assert_weights(model, expected)
