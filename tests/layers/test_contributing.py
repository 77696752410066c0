"""The model in CONTRIBUTING.md runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import partita


def test_the_skeleton_of_a_model_fits_and_scores(generator: torch.Generator) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.S)[0], names)
    x = (torch.rand(400, 5, generator=generator) < 0.3).float()
    model = names["Coins"](5, generator=generator)
    partita.fit(model, x, generator=generator)
    q = partita.evaluate(model, x, generator=generator)
    p = x.double().mean(0)
    assert q.kind == "exact"
    assert q.value == pytest.approx(float((p * p.log() + (1 - p) * (1 - p).log()).sum()), abs=1e-4)
