"""What holds for every objective: it raises the exact likelihood from random parameters, counts
weights, and resumes bit for bit.
"""

from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

import partita
from partita.core import rng
from partita.core.protocols import Batch
from partita.core.support import Binary
from partita.families.by_gradient import NAMED, OBJECTIVES, named_objective
from partita.models import RBM, MaxEnt
from partita.objectives import (
    CD,
    NCE,
    PCD,
    ExactLikelihood,
    PseudoLikelihood,
    RatioMatching,
    ScoreMatching,
)
from partita.samplers import Gibbs, Tempering
from partita.tables import as_rows
from partita.training import checkpoint
from partita.training.session import Session, start_session

STATES = torch.tensor(list(product([0.0, 1.0], repeat=5)))
DISCRETE: dict[str, Any] = {
    "exact": ExactLikelihood(),
    "cd": CD(Gibbs(), steps=2),
    "pcd": PCD(chains=64),
    "tempered": PCD(Tempering(Gibbs(), betas=(0.0, 0.5, 1.0)), chains=32),
    "replay": PCD(chains=300, active=64, restart=0.1, steps=2),
    "nce": NCE(ratio=10),
    "pseudo-likelihood": PseudoLikelihood(),
    "ratio-matching": RatioMatching(),
}
REAL: dict[str, Any] = {
    "exact": ExactLikelihood(),
    "pcd": PCD(chains=64),
    "replay": PCD(chains=300, active=64, restart=0.1, steps=2),
    "nce": NCE(ratio=10),
    "nce, wide noise": NCE(Normal(0.0, 3.0)),
    "score-matching": ScoreMatching(),
    "sliced": ScoreMatching("sliced"),
    "denoising": ScoreMatching("denoising", sigma=0.2),
}


def randomized(model: Any, seed: int, scale: float) -> Any:
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((0.2 if name == "log_sigma" else scale) * torch.randn(p.shape, generator=g))
    return model


def binary_rows(n: int = 1500) -> Tensor:
    teacher = randomized(RBM(5, 3, generator=torch.Generator()), 8, 1.5)
    with torch.no_grad():
        return STATES[rng.categorical(-teacher(STATES), torch.Generator().manual_seed(0), n)]


def real_rows(n: int = 1500) -> Tensor:
    g = torch.Generator().manual_seed(4)
    x = torch.randn(n, 2, generator=g) * torch.tensor([0.5, 0.8])
    return x + torch.where(torch.rand(n, 1, generator=g) < 0.6, 1.0, -1.0) * torch.tensor(
        [1.0, 0.7]
    )


MODELS: dict[str, Callable[[], Any]] = {
    "rbm": lambda: randomized(RBM(5, 3, generator=torch.Generator()), 1, 1.0),
    "maxent": lambda: randomized(
        MaxEnt("pairwise", Binary(5), generator=torch.Generator()), 2, 1.0
    ),
}


def exact_likelihood(model: Any, x: Tensor) -> float:
    return partita.evaluate(
        model, x, evaluator=partita.evaluators.Enumeration(), generator=torch.Generator()
    ).value


@cache
def best_likelihood(kind: str) -> float:
    """What exact maximum likelihood reaches."""
    model, x = MODELS[kind](), binary_rows()
    partita.fit(
        model, x, ExactLikelihood(), initialize=False, steps=30, generator=torch.Generator()
    )
    return exact_likelihood(model, x)


@pytest.mark.parametrize("name", list(DISCRETE))
@pytest.mark.parametrize("kind", list(MODELS))
def test_it_raises_the_exact_likelihood_of_binary_rows(
    kind: str, name: str, generator: torch.Generator
) -> None:
    model, x = MODELS[kind](), binary_rows()
    options = (
        {"steps": 30}
        if name == "exact"
        else {"optimizer": "adam", "learning_rate": 0.02, "batch_size": 100, "steps": 250}
    )
    before, possible = exact_likelihood(model, x), best_likelihood(kind)
    partita.fit(model, x, DISCRETE[name], initialize=False, generator=generator, **options)
    assert exact_likelihood(model, x) > before + 0.5 * (possible - before)
    assert possible > before + 0.3  # there was something to gain


@pytest.mark.parametrize("name", list(REAL))
def test_it_raises_the_exact_likelihood_of_real_rows(name: str, generator: torch.Generator) -> None:
    def start() -> RBM:
        return randomized(RBM(2, 4, visible_units="gaussian", generator=torch.Generator()), 3, 0.7)

    model, x = start(), real_rows()
    options = (
        {"steps": 30}
        if name == "exact"
        else {"optimizer": "adam", "learning_rate": 0.02, "batch_size": 100, "steps": 300}
    )
    before = exact_likelihood(model, x)
    partita.fit(model, x, REAL[name], initialize=False, generator=generator, **options)
    assert exact_likelihood(model, x) > before + 0.1


@pytest.mark.parametrize("name", ["nce", "score-matching", "sliced", "denoising"])
def test_it_raises_the_likelihood_of_a_model_known_by_quadrature(
    name: str, quartic: Any, density: Any, draws: Any, generator: torch.Generator
) -> None:
    truth, model = quartic([0.3, 0.9, -0.5]), quartic([-0.5, -0.4, -0.05])
    x = draws(truth, 2000, np.random.default_rng(1))

    def likelihood(m: Any) -> float:
        return float(-m(x).mean().detach()) - density(m)[1]

    before = likelihood(model)
    partita.fit(
        model,
        x,
        REAL[name],
        optimizer="adam",
        learning_rate=0.02,
        batch_size=200,
        steps=300,
        generator=generator,
    )
    assert before + 0.7 * (likelihood(truth) - before) < likelihood(model)


# resuming


RESUMED: dict[str, tuple[Any, Callable[[], Any], Callable[[], Tensor]]] = {
    "nce": (NCE(ratio=3), MODELS["rbm"], binary_rows),
    "nce, given noise": (
        NCE(Normal(0.0, 3.0), 2),
        lambda: RBM(2, 3, visible_units="gaussian", generator=torch.Generator()),
        real_rows,
    ),
    "replay": (PCD(chains=50, active=8, restart=0.2), MODELS["rbm"], binary_rows),
    "sliced": (
        ScoreMatching("sliced"),
        lambda: RBM(2, 3, visible_units="gaussian", generator=torch.Generator()),
        real_rows,
    ),
    "pseudo-likelihood": (PseudoLikelihood(), MODELS["rbm"], binary_rows),
}


@pytest.mark.parametrize("name", list(RESUMED))
def test_a_resumed_fit_is_the_same_bit_for_bit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, make, rows = RESUMED[name]
    options: dict[str, Any] = {
        "steps": 60,
        "optimizer": "adam",
        "learning_rate": 0.02,
        "batch_size": 50,
        "average": 0.3,
    }

    def run(out: Path, **more: Any) -> Any:
        return partita.fit(
            make(),
            rows(),
            objective,
            out=out,
            generator=torch.Generator().manual_seed(2),
            **options,
            **more,
        )

    whole, advance = run(tmp_path / "whole"), Session.advance

    def stops_at_23(self: Session) -> Any:
        if self.step == 23:
            checkpoint.save_tree(
                tmp_path / "parts" / "checkpoints" / "last.safetensors", self.tree()
            )
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(Session, "advance", stops_at_23)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts")
    monkeypatch.setattr(Session, "advance", advance)
    again = run(tmp_path / "parts", resume=True)
    for p, q in zip(
        whole.model.state_dict().values(), again.model.state_dict().values(), strict=True
    ):
        assert torch.equal(p, q)
    ends = [
        checkpoint.load_tree(tmp_path / part / "checkpoints" / "last.safetensors")
        for part in ("whole", "parts")
    ]
    assert_same(ends[0]["processes"], ends[1]["processes"])
    assert_same(ends[0]["optimizer"], ends[1]["optimizer"])


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


def test_minutes_leave_the_learned_normalizer_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warm-up that is timed moves c, and puts it back: a fit of as many steps ends in the same
    place.
    """
    monkeypatch.setattr("partita.training.budget.WARM_UP_SECONDS", (0.05, 0.05))
    x, make = binary_rows(), MODELS["rbm"]
    timed = partita.fit(make(), x, NCE(), minutes=0.005, generator=torch.Generator().manual_seed(2))
    counted = partita.fit(
        make(), x, NCE(), steps=timed.steps, generator=torch.Generator().manual_seed(2)
    )
    assert timed.series("log_normalizer")[-1] == counted.series("log_normalizer")[-1]


def test_extras_are_optimized_and_go_through_the_wrapper() -> None:
    model, objective = MODELS["rbm"](), NCE()
    settings = partita.training.Settings(
        steps=5, batch_size=50, optimizer="adam", learning_rate=0.1
    )
    session = start_session(
        model,
        as_rows(binary_rows()),
        objective,
        settings,
        generator=torch.Generator().manual_seed(0),
    )
    c = session.state.module.c
    assert any(p is c for group in session.optimizer.param_groups for p in group["params"])
    before = c.item()
    session.advance()
    assert session.state.module.c.item() != before
    assert session.tree()["processes"][0]["objective"] == [{"c": session.state.module.c}]


# weights


@pytest.mark.parametrize(
    "name", ["exact", "pseudo-likelihood", "ratio-matching", "nce", "cd", "pcd", "replay"]
)
def test_weights_count_rows_in_the_data_term(name: str) -> None:
    """The same randomness with weights and without: the difference is that of the data's rows
    alone.
    """
    model, objective, x = MODELS["rbm"](), DISCRETE[name], binary_rows(40)
    weight = torch.linspace(0.0, 2.0, 40)
    state = objective.init(model, as_rows(x), generator=torch.Generator().manual_seed(1))

    def loss(w: Tensor | None) -> float:
        return objective.losses(
            model, Batch(x, w), state, generator=torch.Generator().manual_seed(2)
        )[0]["model"].item()

    once, twice, plain = loss(weight), loss(2 * weight), loss(None)
    assert loss(torch.ones(40)) == pytest.approx(plain, abs=1e-5)
    assert abs(once - plain) > 1e-3  # weights matter
    rest = loss(0 * weight)  # what does not depend on the data's rows
    assert twice - once == pytest.approx(once - rest, abs=1e-4)


# names


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_name_is_an_objective_of_the_table(name: str) -> None:
    objective = named_objective(
        {
            "objective": name,
            "n_chains": 16,
            "n_steps": 2,
            "centered": None,
            "noise_ratio": 4,
            "sigma": 0.3,
        }
    )
    assert type(objective).__name__ == NAMED[name].part
    if name == "replay":
        assert objective == PCD(chains=160, active=16, steps=2, restart=0.05)
    if name == "denoising-score-matching":
        assert objective == ScoreMatching("denoising", sigma=0.3)
    if name == "nce":
        assert objective == NCE(ratio=4)
