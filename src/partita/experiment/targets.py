"""What ``partita log-z`` is about: a function in a file of the caller's, a support in a word, or
the weights of a model in an archive.
"""

import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from partita.core.protocols import EnergyModel
from partita.core.support import Binary, Categorical, Interval, Real, Spin, Support
from partita.errors import did_you_mean, invalid, one_line, unusable
from partita.models import RBM, Ising, Potts
from partita.tables import read
from partita.tables.npy import read_arrays
from partita.tables.write import plain_columns, write_columns

SUPPORTS: dict[str, type[Support]] = {
    kind.__name__.lower(): kind for kind in (Real, Interval, Binary, Spin, Categorical)
}
EXAMPLES = "real:5, interval:3:0:1, binary:60, spin:60 or categorical:20:5"


class FunctionFile(NamedTuple):
    """A function of a file, with the support or the prior that the file defines beside it."""

    function: Callable[..., object]
    support: Support | None
    prior: Sequence[object] | None


def function_in(target: str) -> FunctionFile:
    """The function that ``FILE.py:NAME`` names; the file is run."""
    name, _, attribute = target.rpartition(":")
    path = Path(name)
    if not attribute.isidentifier() or path.suffix != ".py":
        allowed = "be FILE.py:FUNCTION, or an .npz of weights with --model"
        raise invalid("log-z", "TARGET", allowed, repr(target))
    if not path.is_file():
        raise unusable("log-z", "TARGET", "be a file that exists", repr(str(path)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        got = f"{reason}"
        raise unusable("log-z", str(path), "run without an error", got) from error
    known = vars(module)
    function = known.get(attribute)
    if not callable(function):
        functions = [name for name, value in known.items() if callable(value)]
        hint = did_you_mean(attribute, functions)
        raise invalid("log-z", "TARGET", f"name a function of {path}", repr(attribute), hint)
    support = known.get("support")
    return FunctionFile(
        function, support if isinstance(support, Support) else None, known.get("prior")
    )


def support_named(text: str) -> Support:
    """The support that a word such as ``real:5`` stands for.

    >>> support_named("interval:2:0:inf")
    Interval(D=2, low=0.0, high=inf)
    """
    kind, *sizes = text.split(":")
    counts = {"interval": 3, "categorical": 2}.get(kind, 1)
    try:
        if kind not in SUPPORTS or len(sizes) != counts:
            raise ValueError
        first, *rest = sizes
        numbers = [float(one) if kind == "interval" else int(one) for one in rest]
        if any(math.isnan(one) for one in numbers):
            raise ValueError
        return SUPPORTS[kind](int(first), *numbers)  # type: ignore[call-arg]
    except ValueError as error:
        if type(error) is not ValueError:
            raise  # of the support itself, which says what it allows
        raise invalid("log-z", "support", f"be such as {EXAMPLES}", repr(text)) from None


def saved_weights(name: str, kind: str) -> EnergyModel:
    """A model whose parameters are the arrays of an .npz, under the names that it has for them."""
    makers = {"rbm": _rbm, "ising": _ising, "potts": _potts}
    if kind not in makers:
        raise invalid("log-z", "model", f"be one of {', '.join(makers)}", repr(kind))
    return makers[kind](Path(name))


def _rbm(path: Path) -> EnergyModel:
    w, b, c = _arrays(path, "rbm", W=2, b=1, c=1)
    _check_shape(path, "b and c", (len(b), len(c)), tuple(w.shape))
    model = RBM(visible=len(b), hidden=len(c), generator=torch.Generator())
    return _with(model, W=w, b=b, c=c)


def _ising(path: Path) -> EnergyModel:
    h, j = _arrays(path, "ising", h=1, J=2)
    _check_shape(path, "J", tuple(j.shape), (len(h), len(h)))
    first, second = torch.triu_indices(len(h), len(h), 1)
    _check_symmetric(path, j)
    return _with(Ising(len(h), generator=torch.Generator()), h=h, J=j[first, second])


def _potts(path: Path) -> EnergyModel:
    h, j = _arrays(path, "potts", h=2, J=4)
    sites, states = h.shape
    _check_shape(path, "J", tuple(j.shape), (sites, sites, states, states))
    first, second = torch.triu_indices(sites, sites, 1)
    _check_symmetric(path, j.permute(0, 2, 1, 3).reshape(sites * states, -1))
    return _with(Potts(sites, states, generator=torch.Generator()), h=h, J=j[first, second])


def _arrays(path: Path, kind: str, **dimensions: int) -> list[Tensor]:
    """The parameters, which must all be there with so many dimensions and finite."""
    if not path.is_file():
        raise unusable("log-z", "TARGET", "be a file that exists", repr(str(path)))
    found = read_arrays(path, dimensions)
    for name, count in dimensions.items():
        if name not in found:
            needs = ", ".join(dimensions)
            remedy = f"Save it with numpy.savez(file, {name}=...)."
            raise unusable(str(path), "arrays", f"be {needs} for {kind}", f"no {name}", remedy)
        if found[name].ndim != count:
            got = f"{name} with shape {found[name].shape}"
            raise unusable(str(path), name, f"have {count} dimensions", got)
    tensors = [torch.as_tensor(found[name]).to(torch.get_default_dtype()) for name in dimensions]
    for name, tensor in zip(dimensions, tensors, strict=True):
        if not bool(tensor.isfinite().all()):
            raise unusable(str(path), name, "be finite", "NaN or infinity")
    return tensors


def _check_shape(path: Path, name: str, got: tuple[int, ...], allowed: tuple[int, ...]) -> None:
    if got != allowed:
        raise unusable(str(path), name, f"have shape {allowed}", one_line(got))


def _check_symmetric(path: Path, j: Tensor) -> None:
    if not torch.allclose(j, j.mT, rtol=1e-4, atol=1e-6):
        remedy = "Each pair is counted once: store its coupling in both places."
        raise unusable(str(path), "J", "be symmetric", "a matrix that is not", remedy)


def _with(model: EnergyModel, **parameters: Tensor) -> EnergyModel:
    with torch.no_grad():
        for name, value in parameters.items():
            model.get_parameter(name).copy_(value)
    return model


def read_rows(name: str) -> Tensor:
    """All rows of a table of numbers."""
    return torch.as_tensor(read(Path(name)).train).to(torch.get_default_dtype())


def write_draws(draws: Tensor, path: Path) -> None:
    """Draws as a table whose columns are x0, x1, ..."""
    columns = plain_columns([f"x{i}" for i in range(draws.shape[1])], draws.numpy())
    write_columns(path, columns, draws.numpy())
