"""A sampler of partitions in a comparison: as many sweeps as an interval takes, or a line that says
why there are none.
"""

from typing import Any

import numpy as np
import pytest
import torch
from tests.experiment.test_fair_time import clouds

from partita.evaluators import evaluate
from partita.experiment.compare import Candidate, Comparison
from partita.families import FAMILIES
from partita.models import DPMixture
from partita.objectives import CollapsedGibbs
from partita.runtime import deadline
from partita.training import fit


@pytest.mark.parametrize("each", [0.5, 20.0])
def test_a_sampler_has_as_many_sweeps_as_an_interval_takes_or_none(
    each: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 12 seconds: eight sweeps at least and a score with an interval, or a line that says
    why there is none.
    """
    seconds, update = [0.0], CollapsedGibbs.update

    def counted(self: CollapsedGibbs, *given: Any, **options: Any) -> Any:
        seconds[0] += each
        return update(self, *given, **options)

    monkeypatch.setattr(CollapsedGibbs, "update", counted)
    monkeypatch.setattr(deadline.time, "monotonic", lambda: seconds[0])
    entry = Comparison(clouds(), limit=0.2).enter(
        Candidate("dpmm", FAMILIES["dpmm"], {"n_moves": 1})
    )
    if each < 1:
        assert (
            entry.score is not None
            and entry.run is not None
            and entry.run.steps >= CollapsedGibbs.fewest == 8
        )
        assert np.isfinite([entry.score.low, entry.score.high]).all()
    else:
        assert entry.score is None and entry.problem == (
            "fit: the time must be enough for 8 sweeps of CollapsedGibbs, for of fewer draws "
            "nothing tells how far off a score is; "
            "got 0.0 seconds, and each takes 20.0. Give more minutes."
        )


def test_eight_sweeps_have_an_interval() -> None:
    g = torch.Generator().manual_seed(0)
    model, x = DPMixture(2, generator=g), clouds().train
    fit(model, x, CollapsedGibbs(moves=1), steps=CollapsedGibbs.fewest, generator=g)
    q = evaluate(model, x.tensor(), generator=g)
    assert np.isfinite([q.low, q.high]).all() and q.low < q.value < q.high
