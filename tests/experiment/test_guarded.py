"""Experiments go back where a fit diverges, whoever begins them; ``guard`` may say otherwise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import partita
from partita.datasets import Dataset
from partita.errors import Diverged, PartitaWarning
from partita.estimators import AutoregressiveDensity, PrototypeEncoder, VAEDensity
from partita.experiment import Candidate, Comparison, Experiment
from partita.families import FAMILIES
from partita.tables import Rows
from partita.training import guard
from partita.training.session import Session

X = np.random.default_rng(0).normal(size=(200, 3))
SMALL: Any = {"n_hidden": 8, "epochs": 5}
LOST = "the loss must stay finite; got nan."


@pytest.fixture
def diverging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit diverges at its fourth step, until the rate is an eighth of what it was."""
    advance = Session.advance

    def diverges(self: Session) -> Any:
        if self.step == 3 and self.rate_scale > 1 / 8:
            raise Diverged(f"fit: {LOST} Lower learning_rate.")
        return advance(self)

    monkeypatch.setattr(Session, "advance", diverges)


def experiment(**options: Any) -> Experiment:
    g = torch.Generator().manual_seed(0)
    settings = {"n_hidden": 8}
    return Experiment(Dataset("rows", Rows(X)), FAMILIES["vae"], settings, options, g)


def test_an_experiment_goes_back_unless_it_is_told_to_stop() -> None:
    usual = experiment(steps=3)
    assert usual.run(usual.plan()).config["fit"]["guard"] == "rollback"
    told = experiment(steps=3, guard="stop")
    assert told.run(told.plan()).config["fit"]["guard"] == "stop"


def test_an_estimator_lowers_a_rate_that_diverges_and_says_so_once(diverging: None) -> None:
    with pytest.warns(PartitaWarning) as told:
        model = VAEDensity(**SMALL, random_state=0).fit(X)
    (text,) = [str(one.message) for one in told]
    assert text.startswith("fit: went back from step 3 to ")
    assert text.endswith(f"to go on with 0.125 of the learning rate: {LOST}")
    assert np.isfinite(model.score_samples(X)).all()
    stopping = experiment(guard="stop", epochs=5)
    with pytest.raises(Diverged, match="Lower learning_rate"):
        stopping.run(stopping.plan())


def test_an_encoder_goes_back_too() -> None:
    model = PrototypeEncoder(n_components=3, n_prototypes=(4,), epochs=1, random_state=0).fit(X)
    assert model.run_.config["fit"]["guard"] == "rollback"


def test_a_candidate_that_diverges_while_it_is_timed_is_fitted_all_the_same(
    diverging: None, tmp_path: Path
) -> None:
    """Of a comparison by minutes, whose steps are timed on a copy first."""
    data = Dataset("rows", Rows(X[:150]), test=Rows(X[150:]))
    comparison = Comparison(data, {}, limit=0.02, out=tmp_path)
    result = comparison.enter(Candidate("vae", FAMILIES["vae"], {"n_hidden": 8}))
    assert result.problem == "" and result.score is not None
    assert result.run is not None and result.run.config["fit"]["guard"] == "rollback"


def test_a_fit_by_minutes_that_diverges_while_it_is_timed_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advance = Session.advance
    timed: list[int] = []

    def diverges(self: Session) -> Any:
        if not timed:
            timed.append(self.step)
            raise Diverged("fit: the loss must stay finite; got nan.")
        return advance(self)

    monkeypatch.setattr(Session, "advance", diverges)
    one = experiment(minutes=0.005)
    run = one.run(one.plan())
    assert timed == [0] and run.stopped == "finished" and not run.warnings


def skewed(n: int = 2000) -> np.ndarray:
    """Integers of several scales, of which some columns are zero but for a few rows far out."""
    g = np.random.default_rng(0)
    columns = [
        g.integers(27, 80, n),
        np.where(g.random(n) < 0.97, 0, g.normal(0, 1500, n)),
        g.integers(76, 100, n),
        np.where(g.random(n) < 0.9, g.normal(0, 3, n), 300 * g.standard_t(1, n)),
        g.normal(34, 10, n),
        np.where(g.random(n) < 0.95, g.normal(0, 20, n), g.normal(0, 4000, n)),
    ]
    return np.column_stack(columns).round()


def test_integers_on_skewed_scales_are_fitted_by_defaults() -> None:
    """Batches with rows far out have losses beyond 20 nats a column once the others are learned; no
    rate is to blame, so that nothing is gone back from.
    """
    x = skewed()
    g = torch.Generator().manual_seed(0)
    options = {"epochs": 20, "guard": "stop"}
    one = Experiment(Dataset("rows", Rows(x)), FAMILIES["vae"], {}, options, g)
    run = one.run(one.plan())
    losses = [loss for _, loss in run.series("model")]
    assert max(losses) > guard.RUNAWAY_NATS_PER_COLUMN * x.shape[1]
    assert run.stopped == "finished" and losses[-1] < losses[0]


@pytest.mark.parametrize("kind", [VAEDensity, AutoregressiveDensity])
def test_a_large_count_begins_with_a_large_loss_and_is_fitted(kind: Any) -> None:
    """Counts up to some hundred thousand, read as Poisson: thousands of nats at the first step."""
    pd, g = pytest.importorskip("pandas"), np.random.default_rng(2)
    sums = np.where(g.random(300) < 0.4, 0, g.lognormal(8, 1.3, 300).clip(0, 3e5).round())
    frame = pd.DataFrame({"sum": sums.astype(int), "age": g.normal(40, 10, 300)})
    columns = {"sum": "count", "age": "real"}
    with pytest.warns(PartitaWarning) as told:
        model = kind(support="mixed", columns=columns, epochs=5, random_state=0).fit(frame)
    first = model.run_.series("model")[0][1]
    assert first > 10 * guard.RUNAWAY_NATS_PER_COLUMN * 2 and model.run_.stopped == "finished"
    assert [str(one.message) for one in told] == [f"fit: {guard.FAR_OUT}"]


def test_the_command_line_goes_back_and_prints_it(
    diverging: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from partita.cli.app import app

    monkeypatch.chdir(tmp_path)
    np.savetxt("rows.csv", X, delimiter=",", header="a,b,c", comments="")
    words = ["fit", "vae", "rows.csv", "--epochs", "5", "--out", "run", "--quiet", "--no-report"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert done.stderr.count("Warning: went back from step") == 1
    records = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    assert any("went back" in record.get("done", "") for record in records)
    assert partita.load("run").stopped == "finished"
