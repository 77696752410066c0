"""Models and networks built in Python with settings of any sort: they are there, or an error of
partita's says what was asked for.
"""

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import junk
from tests.fuzz.cases import bounded, cases, only_named_errors

from partita import models, nets
from partita.core.protocols import Built
from partita.core.registry import MODELS, example_arguments
from partita.errors import InputError, TooLarge

G = torch.Generator().manual_seed(0)
# arguments of each network, beside the generator; models have examples
NETS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "MLP": ((2, 1), {"widths": (4,)}),
    "ConvNet": (((4, 4), 2), {"channels": (2,)}),
    "ConvDecoder": ((2, (4, 4)), {"channels": (2,)}),
    "Attention": ((4, 2), {}),
    "CausalConv": ((4,), {}),
    "DenseSSM": ((4,), {}),
    "DiagonalSSM": ((4,), {}),
    "H3": ((4,), {}),
    "Hyena": ((4,), {}),
    "LSTM": ((4,), {}),
    "SequenceNet": ((4, 1), {}),
}
KINDS: dict[str, Any] = {**MODELS, **nets.NETS}
NAMES = st.sampled_from(sorted(KINDS))


def arguments_of(name: str) -> dict[str, Any]:
    """Small ones, by name."""
    if name in MODELS:
        return next(iter(example_arguments(MODELS[name], G).values()))
    args, more = NETS[name]
    bound = inspect.signature(nets.NETS[name]).bind_partial(*args, **more)
    return {**bound.arguments, "generator": G}


@st.composite
def odd_arguments(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Of which one or two are anything."""
    name = draw(NAMES)
    odd = draw(
        st.lists(
            st.sampled_from(list(inspect.signature(KINDS[name]).parameters)),
            min_size=1,
            max_size=2,
        )
    )
    return name, {**arguments_of(name), **{parameter: draw(junk.values()) for parameter in odd}}


def test_every_model_and_network_is_built() -> None:
    assert NETS.keys() == nets.NETS.keys()
    for name in KINDS:
        KINDS[name](**arguments_of(name))


@cases(0.05)
@given(odd_arguments())
def test_constructors(case: tuple[str, dict[str, Any]]) -> None:
    name, arguments = case
    with only_named_errors():
        KINDS[name](**arguments)


@pytest.mark.parametrize("generator", [None, 0, "cpu", torch.device("cpu")], ids=repr)
@pytest.mark.parametrize("name", ["RBM", "MLP", "VAE", "DPMixture"])
def test_randomness_is_a_generator(name: str, generator: Any) -> None:
    with pytest.raises(InputError, match=f"{name}: generator must be a torch.Generator"):
        KINDS[name](**{**arguments_of(name), "generator": generator})


@pytest.mark.parametrize(
    ("name", "size"),
    [("RBM", "hidden"), ("MLP", "inputs"), ("Ising", "visible"), ("DPMixture", "visible")],
)
@pytest.mark.parametrize("count", [10**12, 10**18])
def test_sizes_that_no_memory_holds(name: str, size: str, count: int) -> None:
    with bounded(), pytest.raises(TooLarge, match="more memory than there is"):
        KINDS[name](**{**arguments_of(name), size: count})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("MLP", {"widths": 3}),
        ("VAE", {"widths": "x"}),
        ("Flow", {"widths": torch.ones(2)}),
        ("SigmoidBelief", {"hidden": 2}),
        ("Flow", {"image": 3}),
        ("Encoder", {"shape": range(3)}),
        ("ConvNet", {"channels": 3}),
        ("GAN", {"net": len}),
        ("MaxEnt", {"support": 3}),
        ("Mixture", {"laws": 3}),
        ("VAE", {"laws": 3}),
        ("SequenceNet", {"options": ["order"]}),
        ("Hyena", {"filter": {"a": 1}}),
        ("DenseSSM", {"longest": "x"}),
        ("DenseSSM", {"mix": torch.ones(2)}),
        ("Ising", {"fields": 1e308}),
        ("ConvNet", {"separable": torch.ones(2)}),
        ("DPMixture", {"known_scale": 10**400}),
    ],
)
def test_settings_of_another_sort(name: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must "):
        KINDS[name](**{**arguments_of(name), **wrong})


def test_a_whole_number_is_a_frequency_too() -> None:
    assert (
        nets.Hyena(4, filter={"frequency": 4}, generator=torch.Generator())(torch.zeros(1, 5, 4))
        .isfinite()
        .all()
    )


def test_the_signature_stays() -> None:
    """What looks at a constructor sees its own parameters."""
    assert issubclass(models.RBM, Built)
    assert list(inspect.signature(models.RBM).parameters)[:2] == ["visible", "hidden"]
