"""Fits: the same from the same seed, through kills and resumes; and every option against its arithmetic written out."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import partita
from partita.core.errors import DataError, Diverged, InputError, RunError
from partita.core.quantity import Quantity
from partita.core.support import Binary
from partita.models import RBM, MaxEnt
from partita.objectives import CD, PCD, ExactLikelihood
from partita.samplers import Gibbs, Tempering
from partita.training import Settings, budget, checkpoint, loop, start
from partita.training.optimisers import learning_rate_at
from partita.training.session import Session
from partita.training.validation import pessimistic

STEPS = 120


def rows(n: int = 60, width: int = 4, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    """Zeros and ones with correlated columns."""
    g = torch.Generator().manual_seed(seed)
    cause = torch.rand(n, 1, generator=g)
    return (torch.rand(n, width, generator=g) < 0.2 + 0.6 * cause).to(dtype)


def machine(seed: int = 0, hidden: int = 3) -> RBM:
    return RBM(4, hidden, scale=0.3, generator=torch.Generator().manual_seed(seed))


OBJECTIVES = {
    "exact": ExactLikelihood(),
    "cd": CD(Gibbs(), steps=2),
    "pcd": PCD(Gibbs(), chains=10),
    "tempered": PCD(Tempering(Gibbs(), betas=(0.0, 0.5, 1.0)), chains=6, steps=2),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "exact": {"steps": 12},
    "cd": {"steps": STEPS, "optimizer": "adam", "learning_rate": 0.01, "schedule": "cosine"},
    "pcd": {"steps": STEPS, "batch_size": 16, "momentum": 0.5, "average": 0.3},
    "tempered": {"steps": STEPS, "batch_size": 25, "average": 0.2, "l2": 1e-3},
}
EVERY = pytest.mark.parametrize("name", list(OBJECTIVES))


def scenario(name: str, out: Path | None = None, resume: bool = False, **more: Any) -> Any:
    """One fit with validation, averages and chains, a function of its name alone."""
    g = torch.Generator().manual_seed(7)
    return partita.fit(
        machine(), rows(), OBJECTIVES[name], validation=rows(20, seed=2), out=out, resume=resume, generator=g, **{**OPTIONS[name], **more}
    )


def die_at(step: int, *, while_saving: bool = False) -> None:
    """From now on this process kills itself after so many updates, or in the middle of its next save after them."""
    advance, save_file = Session.advance, checkpoint.save_file
    count = 0

    def counted(self: Session) -> dict[str, float]:
        nonlocal count
        record = advance(self)
        count += 1
        if count >= step and not while_saving:
            os.kill(os.getpid(), signal.SIGKILL)
        return record

    def cut(tensors: dict, path: Path, metadata: dict) -> None:
        save_file(tensors, path, metadata=metadata)
        if count >= step:
            Path(path).write_bytes(Path(path).read_bytes()[:100])
            os.kill(os.getpid(), signal.SIGKILL)

    Session.advance = counted  # type: ignore[method-assign]
    if while_saving:
        checkpoint.save_file = cut


def same(a: Any, b: Any) -> bool:
    """Equal in every bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_identical(folder: Path, reference: Path) -> None:
    """Weights to use, last and averaged; chains, optimiser, generator; metrics without their clock; config."""
    for file in ("last.safetensors", "model.safetensors"):
        saved, expected = (checkpoint.load(f / "checkpoints" / file) for f in (folder, reference))
        assert same(saved, expected), [key for key in expected if not same(saved.get(key), expected[key])]
    metrics = [[json.loads(line) for line in (f / "metrics.jsonl").read_text().splitlines()] for f in (folder, reference)]
    assert timeless(metrics[0]) == timeless(metrics[1])
    configs = [json.loads((f / "config.json").read_text()) for f in (folder, reference)]
    assert configs[0] == configs[1]


@EVERY
def test_a_seed_makes_a_run_bit_for_bit(name: str, tmp_path: Path) -> None:
    first, again = scenario(name, tmp_path / "a"), scenario(name, tmp_path / "b")
    assert_identical(tmp_path / "a", tmp_path / "b")
    assert same(dict(first.model.state_dict()), dict(again.model.state_dict()))
    other = partita.fit(machine(), rows(), OBJECTIVES[name], generator=torch.Generator().manual_seed(8), **OPTIONS[name])
    if name != "exact":
        assert not torch.equal(first.model.W, other.model.W)


@EVERY
def test_saving_and_torchs_own_randomness_change_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = scenario(name)
    monkeypatch.setattr(loop, "SAVE_SECONDS", -1.0)  # save after every step
    with torch.random.fork_rng():
        torch.manual_seed(99)
        noisy = scenario(name, tmp_path / "run")
    assert same(dict(quiet.model.state_dict()), dict(noisy.model.state_dict()))
    assert timeless(quiet.history) == timeless(noisy.history)


@EVERY
@pytest.mark.parametrize("share", [0.0, 0.4, 0.97])
def test_ctrl_c_saves_and_a_resumed_run_ends_the_same(name: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario(name, tmp_path / "whole")
    total = checkpoint.load(tmp_path / "whole" / "checkpoints" / "last.safetensors")["step"]
    stop = max(1, int(share * total))
    advance = Session.advance

    def pressed(self: Session) -> dict[str, float]:
        record = advance(self)
        if self.step == stop:
            signal.raise_signal(signal.SIGINT)
        return record

    with monkeypatch.context() as patch:
        patch.setattr(Session, "advance", pressed)
        partial = scenario(name, tmp_path / "run")
    assert (partial.stopped, partial.steps) == ("interrupted", stop)
    assert partita.load(tmp_path / "run").stopped == "interrupted"  # it can be used as it is
    resumed = scenario(name, tmp_path / "run", resume=True)
    assert_identical(tmp_path / "run", tmp_path / "whole")
    assert resumed.steps == total
    assert timeless(resumed.history) == timeless(partita.load(tmp_path / "whole").history)


KILL = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("scenario", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
from pathlib import Path
module.loop.SAVE_SECONDS = float(sys.argv[5])
module.die_at(int(sys.argv[4]), while_saving=sys.argv[6] == "saving")
module.scenario(sys.argv[2], Path(sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "save_seconds", "when"), [("tempered", 0.02, "stepping"), ("pcd", 0.02, "saving"), ("pcd", 1000.0, "stepping")]
)
def test_a_run_killed_at_a_random_step_and_resumed_ends_bit_identical(name: str, save_seconds: float, when: str, tmp_path: Path) -> None:
    step = random.Random(f"{name} {when} {save_seconds}").randrange(20, STEPS - 10)
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", KILL, __file__, name, str(folder), str(step), str(save_seconds), when]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "checkpoints" / "model.safetensors").exists()
    reached = checkpoint.load(folder / "checkpoints" / "last.safetensors")["step"]
    assert reached == 0 if save_seconds > 1 else reached <= step
    scenario(name, folder, resume=True)
    scenario(name, tmp_path / "whole")
    assert_identical(folder, tmp_path / "whole")


def test_a_finished_run_can_be_resumed_to_no_effect(tmp_path: Path) -> None:
    scenario("pcd", tmp_path / "a")
    scenario("pcd", tmp_path / "b")
    scenario("pcd", tmp_path / "b", resume=True)
    assert_identical(tmp_path / "b", tmp_path / "a")


# minutes


def test_minutes_fix_the_steps_and_record_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LEAST_STEPS", 30)
    timed = scenario("tempered", tmp_path / "timed", steps=None, minutes=1e-3)
    n = timed.config["steps"]
    assert timed.steps == n >= 30
    assert partita.load(tmp_path / "timed").config["steps"] == n
    counted = scenario("tempered", steps=n, validations=timed.config["fit"]["validations"])
    assert same(dict(timed.model.state_dict()), dict(counted.model.state_dict()))
    assert timeless(timed.history) == timeless(counted.history)


def test_a_timed_run_is_resumed_with_its_own_number_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock says the second time."""
    advance = Session.advance
    monkeypatch.setattr(start, "steps_within", lambda *_: 80)

    def pressed(self: Session) -> dict[str, float]:
        record = advance(self)
        if self.step == 33:
            signal.raise_signal(signal.SIGINT)
        return record

    with monkeypatch.context() as patch:
        patch.setattr(Session, "advance", pressed)
        scenario("pcd", tmp_path / "run", steps=None, minutes=1.0)
    monkeypatch.setattr(start, "steps_within", lambda *_: 500)
    resumed = scenario("pcd", tmp_path / "run", resume=True, steps=None, minutes=1.0)
    whole = scenario("pcd", steps=80)
    assert resumed.steps == resumed.config["steps"] == 80
    assert same(dict(resumed.model.state_dict()), dict(whole.model.state_dict()))


def test_the_number_of_steps_comes_from_their_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves one second a step leaves 60 steps less the warm-up in a minute."""
    now = [0.0]
    advance = Session.advance

    def slow(self: Session) -> dict[str, float]:
        now[0] += 1.0
        return advance(self)

    monkeypatch.setattr(Session, "advance", slow)
    monkeypatch.setattr(budget.time, "monotonic", lambda: now[0])
    run = scenario("pcd", steps=None, minutes=1.0)
    assert run.steps == 60 - 5 - 4  # five to warm up, four seconds to time
    now[0] = 0.0
    assert scenario("pcd", steps=None, minutes=1e-6).steps == budget.LEAST_STEPS


# options, each against the same arithmetic written out


def log_likelihood(x: Tensor, w: Tensor, W: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Weighted mean, by enumeration over x and h."""
    xs, hs = (torch.tensor(list(product([0.0, 1.0], repeat=n)), dtype=torch.float64) for n in W.shape)

    def log_phi(v: Tensor) -> Tensor:
        return torch.logsumexp((v @ b)[:, None] + hs @ c + v @ W @ hs.T, 1)

    return (w * log_phi(x)).sum() / w.sum() - torch.logsumexp(log_phi(xs), 0)


def descend(
    x: Tensor, rates: list[float], momentum: float = 0.0, l1: float = 0.0, l2: float = 0.0, w: Tensor | None = None
) -> list[list[Tensor]]:
    """Gradient ascent by hand; W, b and c after every step."""
    model = machine().double()
    values = [p.detach().clone() for p in (model.W, model.b, model.c)]
    velocity, path = [torch.zeros_like(v) for v in values], []
    for rate in rates:
        leaves = [v.clone().requires_grad_() for v in values]
        loss = -log_likelihood(x, torch.ones(len(x)).double() if w is None else w, *leaves)
        gradients = list(torch.autograd.grad(loss, leaves))
        gradients[0] = gradients[0] + l1 * values[0].sign() + l2 * values[0]  # the weights alone are penalised
        velocity = [momentum * v + g for v, g in zip(velocity, gradients, strict=True)]
        values = [v - rate * u for v, u in zip(values, velocity, strict=True)]
        path.append(values)
    return path


def fitted(x: Tensor, steps: int, **options: Any) -> RBM:
    settings = {"optimizer": "sgd", "learning_rate": 0.5, "schedule": "constant", "average": 0.0, "batch_size": 0, "initialise": False}
    return partita.fit(machine().double(), x, ExactLikelihood(), steps=steps, generator=torch.Generator(), **{**settings, **options}).model  # type: ignore[return-value]


def assert_weights(model: RBM, expected: list[Tensor]) -> None:
    for got, want in zip((model.W, model.b, model.c), expected, strict=True):
        torch.testing.assert_close(got.detach(), want, atol=1e-11, rtol=0)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize(
    ("schedule", "shape"),
    [("constant", lambda t: 1.0), ("linear", lambda t: 1 - t), ("cosine", lambda t: 0.5 * (1 + math.cos(math.pi * t)))],
)
def test_steps_follow_the_schedule(schedule: str, shape: Any, momentum: float) -> None:
    x = rows(dtype=torch.float64)
    rates = [0.5 * shape(t / 7) for t in range(7)]
    assert_weights(fitted(x, 7, schedule=schedule, momentum=momentum), descend(x, rates, momentum)[-1])
    settings = Settings(steps=7, learning_rate=0.5, schedule=schedule)  # type: ignore[arg-type]
    assert [learning_rate_at(t, 7, settings) for t in range(7)] == pytest.approx(rates)


@pytest.mark.parametrize(("l1", "l2"), [(0.1, 0.0), (0.0, 0.3), (0.05, 0.2)])
def test_penalties_pull_at_the_weights_and_not_at_the_biases(l1: float, l2: float) -> None:
    x = rows(dtype=torch.float64)
    assert_weights(fitted(x, 4, l1=l1, l2=l2), descend(x, [0.5] * 4, l1=l1, l2=l2)[-1])


def test_a_penalised_maxent_optimum_is_where_the_moments_differ_by_the_penalty(generator: torch.Generator) -> None:
    """All of theta is penalised: E_data[phi] - E_model[phi] = l2 theta, also where the plain optimum is at infinity."""
    x = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], dtype=torch.float64)  # the first column is constant
    model = MaxEnt("pairwise", Binary(3), generator=generator).double()
    run = partita.fit(model, x, l2=0.1, generator=generator)
    states = torch.tensor(list(product([0.0, 1.0], repeat=3)), dtype=torch.float64)
    pairs = lambda v: torch.cat([v, torch.stack([v[:, 0] * v[:, 1], v[:, 0] * v[:, 2], v[:, 1] * v[:, 2]], 1)], 1)  # noqa: E731
    p = torch.softmax(pairs(states) @ model.theta.detach(), 0)
    torch.testing.assert_close(pairs(x).mean(0) - p @ pairs(states), 0.1 * model.theta.detach(), atol=1e-7, rtol=0)
    assert run.stopped == "converged"


def test_a_weight_is_a_repetition(generator: torch.Generator) -> None:
    x, counts = rows(8, dtype=torch.float64), torch.tensor([3, 1, 2, 1, 4, 1, 2, 2])
    repeated = x.repeat_interleave(counts, 0)
    weighted = fitted(x, 6, sample_weight=counts.numpy() * 10.0)  # only ratios count
    assert_weights(weighted, descend(x, [0.5] * 6, w=counts.double())[-1])
    assert_weights(fitted(repeated, 6), descend(x, [0.5] * 6, w=counts.double())[-1])
    ends = []
    for data, weight in ((x, counts), (repeated, None)):
        model = MaxEnt("independent", Binary(4), generator=generator).double()
        ends.append(partita.fit(model, data, sample_weight=weight, l2=1e-3, generator=generator).model.theta.detach())
    torch.testing.assert_close(*ends, atol=1e-6, rtol=0)


@pytest.mark.parametrize("share", [0.4, 0.2, 1.0])
def test_the_average_is_that_of_every_tenth_step(share: float, tmp_path: Path) -> None:
    x, steps = rows(dtype=torch.float64), 60
    path = descend(x, [0.5] * steps)
    expected: list[Tensor] = []
    for k in range(1, 7):
        rate = max(min(1.0, 10 / (share * steps)), 1 / k)
        now = path[10 * k - 1]
        expected = now if k == 1 else [(1 - rate) * e + rate * v for e, v in zip(expected, now, strict=True)]
    assert_weights(fitted(x, steps, average=share, out=tmp_path / "run"), expected)
    assert_weights(partita.load(tmp_path / "run", weights="average").model, expected)  # type: ignore[arg-type]
    assert_weights(partita.load(tmp_path / "run", weights="last").model, path[-1])  # type: ignore[arg-type]


def test_a_batch_is_a_part_of_a_fresh_order_and_an_epoch_sees_no_row_twice() -> None:
    seen: list[Tensor] = []

    class Spy(ExactLikelihood):
        def losses(self, model: Any, batch: Any, state: Any, *, generator: torch.Generator) -> Any:
            seen.append(batch.index)
            return super().losses(model, batch, state, generator=generator)

    partita.fit(machine(), rows(50), Spy(), optimizer="sgd", batch_size=16, epochs=4, generator=torch.Generator().manual_seed(1))
    assert [len(index) for index in seen] == [16] * 12  # three batches an epoch; two rows wait for the next order
    for epoch in range(4):
        assert len(torch.cat(seen[3 * epoch : 3 * epoch + 3]).unique()) == 48
    assert not torch.equal(seen[0], seen[3])
    assert len(torch.cat(seen).unique()) == 50


# validation


def score(model: RBM, x: Tensor) -> float:
    weights = [p.detach().double() for p in (model.W, model.b, model.c)]
    return log_likelihood(x.double(), torch.ones(len(x)).double(), *weights).item()


def test_the_best_validated_weights_are_kept(tmp_path: Path) -> None:
    """Held-out rows unlike the training rows, whose columns agree: learning makes them less likely, so an early look is the best."""
    held_out = torch.tensor([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]]).repeat(5, 1)
    agreeing = torch.cat([torch.zeros(30, 4), torch.ones(30, 4)])
    run = partita.fit(
        machine(), agreeing, OBJECTIVES["pcd"], validation=held_out, validate_every=2, epochs=20, batch_size=20, average=0.0,
        learning_rate=0.3, out=tmp_path / "run", generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    scores = run.series("validation")
    best_step, best = max(scores, key=lambda pair: pair[1])
    assert [step for step, _ in scores] == list(range(6, 61, 6))
    assert best_step < 60
    assert score(run.model, held_out) == pytest.approx(best, abs=1e-4)  # type: ignore[arg-type]
    assert [record["best"] for record in run.history if "best" in record] == [max(s for _, s in scores[: i + 1]) for i in range(10)]
    last = partita.load(tmp_path / "run", weights="last").model
    assert score(last, held_out) == pytest.approx(scores[-1][1], abs=1e-4)  # type: ignore[arg-type]
    assert best > scores[-1][1] + 0.01


def test_patience_stops_a_fit_that_does_not_improve() -> None:
    run = partita.fit(
        machine(), rows(), ExactLikelihood(), validation=1 - rows(20, seed=2), validate_every=5, patience=3, steps=400, optimizer="sgd",
        batch_size=0, learning_rate=0.5, average=0.0, generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    scores = [value for _, value in run.series("validation")]
    assert run.stopped == "early stop"
    best = int(np.argmax(scores))
    assert len(scores) == best + 1 + 3
    assert run.steps == 5 * len(scores)
    assert score(run.model, 1 - rows(20, seed=2)) == pytest.approx(scores[best], abs=1e-4)  # type: ignore[arg-type]


def test_without_patience_it_goes_on() -> None:
    run = scenario("pcd", patience=0)
    assert (run.stopped, run.steps) == ("finished", STEPS)


def test_looking_at_held_out_rows_changes_nothing(tmp_path: Path) -> None:
    for folder, held_out in (("with", rows(20, seed=2)), ("without", None)):
        partita.fit(
            machine(), rows(), OBJECTIVES["pcd"], validation=held_out, steps=60, average=0.5, out=tmp_path / folder,
            generator=torch.Generator().manual_seed(3),
        )  # fmt: skip
    for weights in ("last", "average"):
        looked, blind = (dict(partita.load(tmp_path / folder, weights=weights).model.state_dict()) for folder in ("with", "without"))
        assert same(looked, blind)


def test_validation_scores_the_averaged_weights() -> None:
    run = partita.fit(
        machine(), rows(), OBJECTIVES["pcd"], validation=rows(20, seed=2), steps=40, validate_every=100, average=0.5,
        generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    ((step, value),) = run.series("validation")
    assert step == 40
    assert score(run.model, rows(20, seed=2)) == pytest.approx(value, abs=1e-5)  # type: ignore[arg-type]


# what is handed in


@pytest.mark.parametrize("model_type", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "bool", "list", "tensor"])
def test_rows_of_any_type_fit_a_model_of_any_type(kind: str, model_type: torch.dtype) -> None:
    x = rows()
    data: Any = {"list": x.tolist(), "tensor": x.int()}.get(kind)
    data = x.numpy().astype(kind) if data is None else data
    weights = []
    for given in (data, x):
        for name in ("pcd", "exact"):
            model = machine().to(model_type)
            partita.fit(model, given, OBJECTIVES[name], sample_weight=np.ones(60), steps=3, generator=torch.Generator().manual_seed(0))
            assert model.W.dtype == model_type
            weights.append(model.W.detach())
    assert torch.equal(weights[0], weights[2])
    assert torch.equal(weights[1], weights[3])


NAN = np.where(np.eye(4) > 0, np.nan, 0.0)


@pytest.mark.parametrize(
    ("x", "more", "words"),
    [
        (NAN, {}, r"fit: x must .*finite.*"),
        (np.full((5, 4), np.inf), {}, r"fit: x must .*finite.*"),
        (np.full((5, 4), 0.5), {}, r"fit: x must hold only 0 and 1; got 0\.5 in column 0\. Cut the values at a threshold"),
        (np.zeros((5, 3)), {}, r"fit: x must have shape \(\*, 4\) to match RBM\(4, 3\); got \(5, 3\)\."),
        (np.zeros((0, 4)), {}, r"fit: x must .*row"),
        (np.zeros((1, 4)), {}, r"fit: x must have at least 2 rows; got 1\."),
        (np.array([["a", "b", "c", "d"]] * 3), {}, r"fit: x must .*"),
        (np.zeros((5, 4)), {"validation": np.zeros((2, 3))}, r"fit: validation must have shape \(\*, 4\) to match RBM\(4, 3\); got"),
        (np.zeros((5, 4)), {"validation": np.full((2, 4), 2.0)}, r"fit: validation must hold only 0 and 1; got 2 in column 0\."),
        (np.zeros((5, 4)), {"sample_weight": [1, 2]}, r"fit: weight must have shape \(5,\), one number per row; got shape \(2,\)\."),
        (np.zeros((5, 4)), {"sample_weight": [1, 2, -1, 0, 0]}, r"fit: weight must be finite and at least 0; got -1\.0 at row 2\."),
        (np.zeros((5, 4)), {"epochs": 1, "steps": 2}, r"fit: one of epochs, steps and minutes must be given; got epochs and steps\."),
        (np.zeros((5, 4)), {"steps": 0}, r"fit: steps must be a whole number of at least 1; got 0\."),
        (np.zeros((5, 4)), {"minutes": 0.0}, r"fit: minutes must be a finite number above 0; got 0\.0\."),
        (np.zeros((5, 4)), {"learning_rate": 0.0}, r"fit: learning_rate must be a finite number above 0; got 0\.0\."),
        (np.zeros((5, 4)), {"learning_rate": math.nan}, r"fit: learning_rate must be a finite number above 0; got nan\."),
        (np.zeros((5, 4)), {"momentum": 1.5}, r"fit: momentum must lie in \[0, 1\]; got 1\.5\."),
        (np.zeros((5, 4)), {"average": -0.1}, r"fit: average must lie in \[0, 1\]; got -0\.1\."),
        (np.zeros((5, 4)), {"l2": -1.0}, r"fit: l2 must be a finite number of at least 0; got -1\.0\."),
        (np.zeros((5, 4)), {"batch_size": -1}, r"fit: batch_size must be a whole number of at least 0; got -1\."),
        (np.zeros((5, 4)), {"optimizer": "adamw"}, r"fit: optimizer must be one of 'sgd', 'adam', 'lbfgs', 'natural'; got 'adamw'\."),
        (np.zeros((5, 4)), {"schedule": "step"}, r"fit: schedule must be one of 'linear', 'constant', 'cosine'; got 'step'\."),
        (np.zeros((5, 4)), {"resume": True}, r"fit: out must be the folder of the run to resume; got None\."),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_the_model_stays(x: np.ndarray, more: dict, words: str, generator: torch.Generator) -> None:
    model = machine()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises((InputError, DataError), match=words) as caught:
        partita.fit(model, x, PCD(chains=4), generator=generator, **more)
    assert "\n" not in str(caught.value)
    assert same(dict(model.state_dict()), before)


@pytest.mark.parametrize("objective", [PCD(), CD()], ids=["PCD", "CD"])
def test_lbfgs_refuses_a_random_loss(objective: Any, generator: torch.Generator) -> None:
    words = rf"fit: optimizer='lbfgs' must go with ExactLikelihood and batch_size=0, .*; got {type(objective).__name__} and batch_size=0\."
    with pytest.raises(InputError, match=words):
        partita.fit(machine(), rows(), objective, optimizer="lbfgs", generator=generator)


def test_lbfgs_refuses_batches(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"got ExactLikelihood and batch_size=16\. Use 'sgd' or 'adam'\."):
        partita.fit(machine(), rows(), ExactLikelihood(), optimizer="lbfgs", batch_size=16, generator=generator)


def test_a_folder_that_holds_a_run_is_never_written_over(tmp_path: Path) -> None:
    scenario("exact", tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=r"fit: out must be a new folder; .* already holds a run\. Choose another name, or resume it\."):
        scenario("pcd", tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_there_must_be_something_to_resume(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"load: RUN must be a folder with a config\.json.*; found none in"):
        scenario("pcd", tmp_path / "nothing", resume=True)


def test_another_objective_is_refused_when_resumed(tmp_path: Path) -> None:
    scenario("pcd", tmp_path / "run")
    for name in ("exact", "cd", "tempered"):
        with pytest.raises(RunError, match=r"fit: objective must be that of the run in .*'chains': 10.*, to resume it; got \{'part': '"):
            scenario(name, tmp_path / "run", resume=True, optimizer="sgd", batch_size=16, steps=STEPS)
    with pytest.raises(RunError, match=r"fit: optimizer must be that of the run in .*, sgd, to resume it; got adam\."):
        scenario("pcd", tmp_path / "run", resume=True, optimizer="adam")
    scenario("pcd", tmp_path / "again")
    assert_identical(tmp_path / "run", tmp_path / "again")  # nothing was touched


# divergence


@pytest.mark.parametrize("rate", [1e4, 1e38])
@pytest.mark.parametrize("name", ["pcd", "cd"])
def test_a_rate_that_diverges_is_named_and_nothing_is_lost(name: str, rate: float, tmp_path: Path) -> None:
    model, out = machine(), tmp_path / "run"
    with pytest.raises(
        Diverged, match=r"^fit: (the loss of 'model'|parameter '\w+' of RBM\(4, 3\)) must .*finite.*Lower learning_rate \(now [\de+]+\)"
    ):
        partita.fit(model, rows(), OBJECTIVES[name], optimizer="sgd", learning_rate=rate, steps=100, out=out, generator=torch.Generator())
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
    saved = checkpoint.load(out / "checkpoints" / "last.safetensors")
    assert all(torch.isfinite(value).all() for value in saved["model"].values())
    assert partita.fit(machine(), rows(), OBJECTIVES[name], optimizer="sgd", learning_rate=0.1, steps=100, out=out, resume=True,
                       generator=torch.Generator()).steps == 100  # fmt: skip


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
    """Good steps, then a rate that explodes, once on the very step that enters the average: what was learned before is kept."""
    calm = learning_rate_at

    def explode(step: int, total: int, settings: Settings) -> float:
        return calm(step, total, settings) if step < last_calm else rate

    monkeypatch.setattr("partita.training.session.learning_rate_at", explode)
    model, x = machine().double(), rows(dtype=torch.float64)
    options: dict[str, Any] = {"optimizer": "sgd", "batch_size": 0, "learning_rate": 0.5, "schedule": "constant", "initialise": False}
    with pytest.raises(Diverged, match=words):
        partita.fit(model, x, ExactLikelihood(), average=0.4, steps=60, generator=torch.Generator(), **options)
    path = descend(x, [0.5] * 40)
    expected = path[9]
    for k in range(2, 1 + last_calm // 10):
        share = max(10 / 24, 1 / k)
        expected = [(1 - share) * e + share * v for e, v in zip(expected, path[10 * k - 1], strict=True)]
    assert_weights(model, expected)


@pytest.mark.parametrize("objective", ["pcd", PCD])
def test_an_objective_is_an_object(objective: Any, generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"fit: objective must be an object such as PCD\(\); got "):
        partita.fit(RBM(4, 3, generator=generator), torch.eye(4), objective, steps=1, generator=generator)


def test_complex_numbers_are_refused(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match=r"fit: x must hold real numbers; got complex ones\."):
        partita.fit(RBM(4, 3, generator=generator), torch.eye(4, dtype=torch.complex64), steps=1, generator=generator)


def test_a_failed_annealing_is_no_score() -> None:
    fine = Quantity(-2.0, -3.0, -1.0, level=0.95, kind="upper", details={"ess": 9.0})
    assert pessimistic(fine) == -3.0 and pessimistic(Quantity(-2.0)) == -2.0
    for details in ({"ess": 1.1}, {"ess": 9.0, "mass_of_rows": 1.5}):
        assert pessimistic(replace(fine, details=details)) == float("-inf")
