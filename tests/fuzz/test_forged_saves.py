"""Saves whose numbers somebody chose: what they point at is there, or the save is refused before
anything is looked up by them.

Labels of chains and states of sites are indices of machine code, which looks wherever they say.
"""

import functools
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.fuzz import subjects
from tests.fuzz.tensors import LAST, MODEL
from tests.pressing import interrupted_after

import partita
from partita.errors import InputError, PartitaError, RunError
from partita.models import DPMixture, Flow, Potts
from partita.objectives import PCD, CollapsedGibbs, InstantiatedGibbs
from partita.runtime.files import check_like
from partita.samplers import Gibbs
from partita.training import checkpoint

MIXINGS = ("lu", "permutation", "reverse", "none")


def flow(mixing: str = "lu", seed: int = 0, **more: Any) -> Flow:
    return Flow(
        4, 3, widths=(4,), mixing=mixing, generator=torch.Generator().manual_seed(seed), **more
    )


@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_flow_takes_up_the_orders_of_another(mixing: str, generator: torch.Generator) -> None:
    """The ways back, which are not saved, follow."""
    one, other = flow(mixing), flow(mixing, seed=1)
    other.load_state_dict(one.state_dict())
    x = torch.randn(5, 4, generator=generator)
    assert torch.equal(one.log_prob(x), other.log_prob(x))
    torch.testing.assert_close(other.to_data(one.to_latent(x)[0]), x)


@pytest.mark.parametrize("order", [[0, 1, 2, 7], [0, 1, 2, -1], [0, 1, 1, 2]], ids=repr)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_an_order_of_columns_is_one(mixing: str, order: list[int]) -> None:
    weights = flow(mixing).state_dict()
    for name in [name for name in weights if name.endswith("order")]:
        with pytest.raises(RunError, match="order of 4 columns must hold each of 0 to 3 once"):
            flow(mixing).load_state_dict({**weights, name: torch.tensor(order)})


def test_indices_that_earlier_saves_hold_are_left_out() -> None:
    own, image = flow(), flow(image=(1, 2, 2))
    for model, names in (
        (own, ("chain.1.kept", "chain.1.back")),
        (image, ("chain.1.conditioner.moved", "chain.4.inverse")),
    ):
        checkpoint.load_weights(
            model, {**model.state_dict(), **dict.fromkeys(names, torch.full((2,), 99))}
        )


@functools.cache
def draws() -> dict[str, torch.Tensor]:
    """What a fitted mixture holds."""
    return dict(subjects.fitted("DirichletProcessMixture").model_.state_dict())


def blank() -> DPMixture:
    """A mixture of the same columns that holds nothing yet."""
    return DPMixture(draws()["mean"].shape[-1], generator=torch.Generator())


@pytest.mark.parametrize(
    "change",
    [
        {"owner": -1},
        {"owner": 99},
        {"count": 0.0},
        {"count": 2.5},
        {"partitions": -1},
        {"partitions": 99},
        {"alphas": -1.0},
        {"alphas": torch.nan},
    ],
    ids=repr,
)
def test_draws_of_a_model_are_of_its_clusters(change: dict[str, float]) -> None:
    forged = {name: torch.full_like(draws()[name], value) for name, value in change.items()}
    with pytest.raises(RunError, match="must be of the clusters saved with them"):
        checkpoint.load_weights(blank(), {**draws(), **forged})


@pytest.mark.parametrize(
    "name", ["sweeps", "alphas", "partitions", "owner", "count", "mean", "scatter"]
)
def test_draws_of_a_model_belong_together(name: str) -> None:
    with pytest.raises(RunError, match="Restore the file"):
        checkpoint.load_weights(blank(), {**draws(), name: draws()[name][:-1]})
    checkpoint.load_weights(blank(), draws())


def stopped(folder: Path, model: Any, x: torch.Tensor, objective: Any, **options: Any) -> Any:
    """A fit that Ctrl-C stopped after its first update, and how to go on with it."""

    def fit(**more: Any) -> Any:
        return partita.fit(
            model(),
            x,
            objective,
            out=folder,
            generator=torch.Generator().manual_seed(0),
            **options,
            **more,
        )

    interrupted_after(1, lambda: fit(steps=3))
    (folder / MODEL).unlink()
    return lambda: fit(steps=3, resume=True)


def forge(folder: Path, change: Any) -> None:
    """The last save with another state of the objective, and the checksum that belongs to it."""
    tree = checkpoint.load_tree(folder / LAST)
    change(tree)
    for path in (folder / LAST).parent.iterdir():
        path.unlink()
    checkpoint.save_tree(folder / LAST, tree)


def state_of(tree: Any) -> list[Any]:
    return tree["processes"][0]["objective"]


def fill(value: float) -> Any:
    return lambda tree: state_of(tree)[0].fill_(value)


def swap(place: int, value: Any) -> Any:
    return lambda tree: state_of(tree).__setitem__(place, value(state_of(tree)[place]))


@pytest.mark.parametrize(
    "objective",
    [CollapsedGibbs(chains=2), InstantiatedGibbs(chains=2)],
    ids=["collapsed", "instantiated"],
)
@pytest.mark.parametrize(
    "change",
    [
        fill(-1),
        fill(2**31 - 1),
        fill(15),
        swap(0, lambda z: z[:, :5].clone()),
        swap(0, lambda z: torch.cat([z, z], 1)),
        swap(1, torch.neg),
        swap(4, torch.zeros_like),
        swap(2, lambda held: [[count + 1, mean, scatter] for count, mean, scatter in held]),
        swap(
            2, lambda held: [[count, mean[:, :1].clone(), scatter] for count, mean, scatter in held]
        ),
    ],
    ids=["below", "huge", "above", "fewer", "more", "alpha", "stride", "counts", "narrow"],
)
def test_chains_of_partitions_are_of_these_rows(
    objective: Any, change: Any, tmp_path: Path
) -> None:
    x = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
    go_on = stopped(
        tmp_path / "run", lambda: DPMixture(2, generator=torch.Generator()), x, objective
    )
    forge(tmp_path / "run", change)
    with pytest.raises(RunError, match="Restore the file"):
        go_on()


@pytest.mark.parametrize("value", [-1.0, 3.0, 1e9, torch.nan])
def test_states_of_sites_are_states(
    value: float, tmp_path: Path, generator: torch.Generator
) -> None:
    """In chains that are taken up, in rows of training data that a model was saved with, and
    wherever else they come from.
    """
    x = torch.randint(3, (16, 3), generator=generator).float()
    options = {"optimizer": "adam", "batch_size": 8}
    go_on = stopped(
        tmp_path / "run",
        lambda: Potts(3, 3, generator=torch.Generator()),
        x,
        PCD(chains=4),
        **options,
    )
    forge(tmp_path / "run", lambda tree: state_of(tree)[0][0].fill_(value))
    with pytest.raises(InputError, match="whole numbers from 0 to 2"):
        go_on()
    model = Potts(3, 3, generator=generator)
    model.anchors.fill_(value)
    model.anchored.fill_(True)
    with pytest.raises(InputError, match="anchors must"):
        model.anchor_rows(2)
    with pytest.raises(InputError, match=r"Gibbs: x must have shape \(\*, 3\)"):
        Gibbs().step(
            model, Gibbs().init(model, torch.zeros(2, 4), generator=generator), generator=generator
        )


def smaller(tree: Any) -> None:
    """An average of other sizes."""
    tree["average"]["values"]["W"] = tree["average"]["values"]["W"][:1].clone()


def remembered(tree: Any) -> None:
    """An optimizer that remembers a gradient of other sizes, of which torch's pass over all weights
    would read past the end.
    """
    tree["optimizer"]["state"][0]["exp_avg"] = torch.zeros(1)


def without_rate(tree: Any) -> None:
    tree["rate_scale"] = None


def of_others(tree: Any) -> None:
    """Best weights that are not of this model."""
    tree["best"] |= {"weights": {"V": torch.zeros(2)}, "score": 0.0}


@pytest.mark.parametrize(
    "change",
    [smaller, remembered, of_others, swap(1, lambda mu: mu[:1].clone()), without_rate],
    ids=["average", "optimizer", "best", "state", "rate"],
)
def test_what_does_not_fit_is_said_to_be_of_another_fit(
    change: Any, tmp_path: Path, generator: torch.Generator
) -> None:
    x = torch.randint(2, (16, 3), generator=generator).float()
    options = {"optimizer": "adam", "batch_size": 8}
    go_on = stopped(
        tmp_path / "run",
        lambda: partita.models.RBM(3, 2, generator=torch.Generator()),
        x,
        PCD(chains=4),
        **options,
    )
    forge(tmp_path / "run", change)
    with pytest.raises(RunError, match=r"last\.safetensors"):
        go_on()


def test_an_entry_says_what_there_is_none_of() -> None:
    with pytest.raises(RunError, match="a must say score"):
        check_like({"name": "x"}, {"name": str, "score": (dict, type(None))}, "a", whole=True)


@pytest.mark.parametrize(
    "x",
    [torch.ones(2, 3).to_sparse(), torch.ones(2, 3, device="meta"), 1j * torch.ones(2, 3)],
    ids=["sparse", "meta", "complex"],
)
def test_rows_are_dense_and_there(x: torch.Tensor, generator: torch.Generator) -> None:
    model = partita.models.RBM(3, 2, generator=generator)
    for use in (
        lambda: partita.evaluate(model, x, generator=generator),
        lambda: partita.fit(model, x, steps=1, generator=generator),
    ):
        with pytest.raises(InputError, match="x must"):
            use()


def test_whether_to_initialize_is_a_flag(generator: torch.Generator) -> None:
    with pytest.raises(InputError, match="initialize must be True or False"):
        partita.fit(
            partita.models.RBM(3, 2, generator=generator),
            np.ones((4, 3)),
            steps=1,
            initialize=torch.ones(2),
            generator=generator,
        )


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        (
            "MixturePPCADensity",
            ("weights", "use", "component.loadings"),
            lambda held: torch.full_like(held, torch.nan),
        ),
        (
            "BayesianLinearRegression",
            ("fitted", "scale_", "array"),
            lambda held: torch.full_like(held, 5e-324),
        ),
        ("BayesianLogisticRegression", ("fitted", "draws_", "by", "w"), lambda held: held[:0]),
        ("PrototypeEncoder", ("kept", "clusters", 0, 0), lambda held: held[:, :1]),
        ("PrototypeEncoder", ("kept", "standardization", 1), lambda held: held[:1].expand(4)),
    ],
)
def test_what_was_fitted_is_whole(
    name: str, place: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    """Numbers that nothing can be computed with, and sizes that do not belong together."""
    folder = shutil.copytree(subjects.saved(name), tmp_path / "run")
    held = tree = checkpoint.load_tree(folder / MODEL)
    for key in place[:-1]:
        held = held[key]
    held[place[-1]] = value(held[place[-1]])
    checkpoint.save_tree(folder / MODEL, tree)
    with warnings.catch_warnings(action="ignore"), pytest.raises(PartitaError):
        partita.estimators.load(folder).predict(subjects.rows(name)[0])
