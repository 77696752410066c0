"""Fits by closed-form updates: the same from the same seed, through Ctrl-C and resume; validation,
minutes, warnings, weights.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.pressing import interrupted_after
from torch import Tensor

import partita
from partita.errors import InputError
from partita.models import PPCA, DPMixture, Mixture, MixturePPCA
from partita.objectives import EM, CollapsedGibbs, OnlineEM
from partita.training import checkpoint, loop


def table(n: int = 150, seed: int = 0, gaps: float = 0.1) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=g) + 4 * (torch.rand(n, 1, generator=g) < 0.4)
    gap = torch.rand(x.shape, generator=g) < gaps
    gap[:, 0] = False
    return torch.where(gap, torch.nan, x)


MODELS: dict[str, Any] = {
    "mixture": lambda g: Mixture(3, 3, generator=g),
    "ppca": lambda g: PPCA(3, 2, prior="ard", generator=g),
    "mixture-ppca": lambda g: MixturePPCA(2, 3, 1, generator=g),
}
CASES = [
    ("mixture", EM(restarts=2)),
    ("ppca", EM()),
    ("mixture-ppca", EM()),
    ("mixture", OnlineEM(batch=40)),
]
EVERY = pytest.mark.parametrize(
    ("name", "objective"), CASES, ids=lambda c: c if isinstance(c, str) else type(c).__name__
)


def scenario(
    name: str, objective: Any, out: Path | None = None, resume: bool = False, **more: Any
) -> Any:
    g = torch.Generator().manual_seed(7)
    options = {"epochs": 30, "tolerance": 0.0, "validation": table(40, 1), **more}
    return partita.fit(
        MODELS[name](g), table(), objective, out=out, resume=resume, generator=g, **options
    )


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list | tuple) else a == b


def assert_same_folders(one: Path, other: Path) -> None:
    for file in ("last.safetensors", "model.safetensors"):
        saved, expected = (checkpoint.load_tree(f / "checkpoints" / file) for f in (one, other))
        assert same(saved, expected), [
            key for key in expected if not same(saved[key], expected[key])
        ]


@EVERY
def test_a_seed_makes_a_run_bit_for_bit(name: str, objective: Any, tmp_path: Path) -> None:
    scenario(name, objective, tmp_path / "a")
    scenario(name, objective, tmp_path / "b")
    assert_same_folders(tmp_path / "a", tmp_path / "b")


@EVERY
@pytest.mark.parametrize("stop", [1, 17])
def test_ctrl_c_saves_and_a_resumed_run_ends_the_same(
    name: str, objective: Any, stop: int, tmp_path: Path
) -> None:
    scenario(name, objective, tmp_path / "whole")
    cut = interrupted_after(stop, lambda: scenario(name, objective, tmp_path / "cut"))
    assert cut.stopped == "interrupted"
    run = scenario(name, objective, tmp_path / "cut", resume=True)
    assert (run.stopped, run.steps) == ("finished", 30)
    assert_same_folders(tmp_path / "cut", tmp_path / "whole")
    again = partita.load(tmp_path / "cut")
    assert same(dict(again.model.state_dict()), dict(run.model.state_dict()))


@EVERY
def test_saving_after_every_step_changes_nothing(
    name: str, objective: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = scenario(name, objective)
    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)
    assert same(
        dict(quiet.model.state_dict()),
        dict(scenario(name, objective, tmp_path / "run").model.state_dict()),
    )


def test_a_fit_stops_where_the_loss_no_longer_falls() -> None:
    run = scenario("mixture", EM(), epochs=500, tolerance=1e-5, validation=None)
    losses = [loss for _, loss in run.series("loss")]
    assert run.stopped == "converged" and len(losses) == run.steps < 500
    assert losses[-2] - losses[-1] <= 1e-5 < losses[-3] - losses[-2]


def test_the_best_validated_weights_are_kept_and_the_last_are_validated() -> None:
    run = scenario("mixture", EM(), epochs=500, tolerance=1e-6)
    scores = run.series("validation")
    assert scores[-1][0] == run.steps
    held_out = float(run.model.log_prob(table(40, 1)).detach().mean())
    assert held_out == pytest.approx(max(score for _, score in scores), abs=1e-9)


def test_minutes_become_updates_and_leave_the_start_as_it_was() -> None:
    g = torch.Generator().manual_seed(7)
    timed = partita.fit(
        MODELS["mixture"](g), table(), EM(), minutes=0.004, tolerance=0.0, generator=g
    )
    steps = timed.config["steps"]
    g = torch.Generator().manual_seed(7)
    counted = partita.fit(
        MODELS["mixture"](g), table(), EM(), steps=steps, tolerance=0.0, generator=g
    )
    assert steps >= 10 and same(dict(timed.model.state_dict()), dict(counted.model.state_dict()))


def test_weights_count_rows() -> None:
    x = table(60, gaps=0.0)
    weight = torch.randint(1, 4, (60,), generator=torch.Generator().manual_seed(0))
    models = []
    for rows, given in ((x, weight), (x.repeat_interleave(weight, 0), None)):
        g = torch.Generator().manual_seed(1)
        model = PPCA(3, 1, generator=g)
        partita.fit(model, rows, EM(), sample_weight=given, tolerance=1e-11, generator=g)
        models.append(model)
    torch.testing.assert_close(models[0].log_prob(x), models[1].log_prob(x), atol=1e-6, rtol=0)
    with pytest.raises(
        InputError, match=r"weight must be finite and at least 0; got -1.0 at row 0"
    ):
        partita.fit(PPCA(3, 1, generator=g), x, EM(), sample_weight=-torch.ones(60), generator=g)


def test_cautions_are_saved_and_warned_of(tmp_path: Path) -> None:
    x = table(40, gaps=0.0)
    x[:, 2] = x[:, 1]
    g = torch.Generator().manual_seed(0)
    with pytest.warns(
        partita.training.PartitaWarning,
        match="the covariance of components 0, 1 is singular: its eigenvalues are held",
    ):
        run = partita.fit(Mixture(2, 3, generator=g), x, EM(), out=tmp_path / "run", generator=g)
    assert partita.load(tmp_path / "run").warnings == run.warnings != []


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", 0.1), ("l2", 1e-3), ("batch_size", 16), ("optimizer", "adam")],
)
def test_options_of_optimizers_are_refused(name: str, value: Any) -> None:
    with pytest.raises(
        InputError,
        match=f"fit: {name} must be left out with EM, whose updates are closed-form; got {value}",
    ):
        scenario("mixture", EM(), **{name: value})


def test_a_table_on_disk_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = table(500, gaps=0.0).numpy().astype(np.float64)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    monkeypatch.setattr("partita.tables.arrays.CHUNK", 300)
    g = torch.Generator().manual_seed(0)
    streamed = Mixture(2, 3, generator=g)
    partita.fit(streamed, mapped, EM(), epochs=10, tolerance=0.0, generator=g)
    monkeypatch.undo()
    g = torch.Generator().manual_seed(0)
    whole = Mixture(2, 3, generator=g)
    partita.fit(whole, x, EM(), epochs=10, tolerance=0.0, generator=g)
    torch.testing.assert_close(
        streamed.log_prob(torch.from_numpy(x)),
        whole.log_prob(torch.from_numpy(x)),
        atol=1e-9,
        rtol=0,
    )


def test_a_time_to_spend_goes_with_models_that_cannot_be_scored_before_the_first_update(
    generator: torch.Generator,
) -> None:
    x = table(60, gaps=0.0)
    model = DPMixture(3, generator=generator)
    run = partita.fit(
        model, x[:40], CollapsedGibbs(), validation=x[40:], minutes=0.005, generator=generator
    )
    assert run.steps >= 1
    assert run.series("validation")
