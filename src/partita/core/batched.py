r"""A log density that somebody wrote, as one function from rows to numbers.

.. math:: x \in \mathbb R^{n \times D} \;\mapsto\; \big(\log f(x_1), \ldots, \log f(x_n)\big)
          \in [-\infty, \infty)^n

How the function wants its argument is discovered by calling it on a few rows: as a batch or as one
row, as a tensor, an array or a dict of named variables. Minus infinity and NaN are zero density.

Letters: n rows, D coordinates.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from partita.core.arguments import check_width
from partita.errors import InputError, invalid, one_line
from partita.runtime import deadline

LogDensity = Callable[..., object]
AT_ONCE = 4096  # rows of one call: each may meet all of a data set inside it
STEP = 1e-4  # of the difference that a gradient is held against, in float64
SAME = {torch.float64: 1e-8, torch.float32: 1e-3}  # how far one row alone may differ from a batch
# what calling a function in a way that it was not written for raises
MISUSE = (TypeError, KeyError, IndexError, AttributeError)
ONE_NUMBER = "return one real number for each row"


class Layout(NamedTuple):
    """Names and shapes of the variables that the D coordinates of a row are made of, in order."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def named(self, x: Tensor) -> dict[str, Tensor]:
        """The variables of rows, ``(*, D)`` to one ``(*, *shape)`` for each name.

        >>> Layout(("a", "b"), ((), (2,))).named(torch.arange(3.0))["b"]
        tensor([1., 2.])
        """
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        parts = x.split(sizes, -1)
        return {
            name: part.reshape((*x.shape[:-1], *shape))
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def coordinates(self) -> tuple[str, ...]:
        """A name for each coordinate.

        >>> Layout(("a", "b"), ((), (2,))).coordinates()
        ('a', 'b[0]', 'b[1]')
        """
        return tuple(
            name + "".join(f"[{i}]" for i in index)
            for name, shape in zip(self.names, self.shapes, strict=True)
            for index in np.ndindex(*shape)
        )


class _Way(NamedTuple):
    """One way to call the function: its name, and the call with rows ``(n, D)``."""

    how: str
    call: Callable[[Tensor], Tensor]
    dtype: torch.dtype
    torch: bool


class _NotThisWay(Exception):
    """The function answered, with something else than a number for each row."""


class Batched:
    """``log_density`` as a function from rows ``(n, D)`` to float64 numbers ``(n,)``.

    A batch is preferred, then ``torch.func.vmap`` over one row, then a loop. The way is found at
    the first call, from its first rows.

    Arguments:
        log_density: Of a batch ``(n, D)`` or of one row ``(D,)``, as a tensor or an array; where
            ``layout`` is known, of a dict of variables too.
        width: The number of coordinates D.
        layout: Of named variables.
        owner: What errors speak for.

    Attributes:
        calls: Rows evaluated.
        nans: Rows whose density was not a number; they count as zero density.
        how: ``torch batch``, ``numpy batch``, ``torch vmap`` or ``row by row``; empty before the
            first call.
        differentiable: Whether autograd gives the slope of the function.

    >>> f = Batched(lambda x: -0.5 * x @ x, 2)
    >>> f(torch.eye(2)), f.how, f.differentiable
    (tensor([-0.5000, -0.5000], dtype=torch.float64), 'torch vmap', True)
    """

    def __init__(
        self,
        log_density: LogDensity,
        width: int,
        *,
        layout: Layout | None = None,
        owner: str = "log_z",
    ) -> None:
        if not callable(log_density):
            raise invalid(
                owner,
                "log_density",
                "be a function of a row of coordinates",
                one_line(log_density)[:80],
                "As in lambda x: -0.5 * (x**2).sum(-1).",
            )
        self.log_density, self.width, self.layout, self.owner = log_density, width, layout, owner
        self.calls, self.nans, self.how, self.differentiable = 0, 0, "", False
        self._way: _Way | None = None
        self._seconds, self._timed = 0.0, 0

    @property
    def batched(self) -> bool:
        """Whether many rows cost one call."""
        return self.how != "row by row"

    def __call__(self, x: Tensor) -> Tensor:
        """log f at rows, ``(n, D) -> (n,)``; minus infinity where there is no density."""
        check_width(self.owner, "the rows", x, self.width, "log_density")
        if type(x) is not Tensor and self._way is not None and self._way.torch:
            return self._way.call(x)  # a tensor that follows what is computed, not numbers
        x = x.to("cpu", torch.float64)
        if not len(x):
            return x.new_zeros(0)
        way = self._way or self._discovered(x.detach())
        if not way.torch:
            x = x.detach()
        begun = deadline.now()
        values = torch.cat([self._values(way, part) for part in x.split(AT_ONCE)])
        self.calls += len(x)
        self._timed += len(x)
        self._seconds += deadline.now() - begun
        return self._without_nans(x, values)

    @property
    def seconds_each(self) -> float:
        """Seconds that one row took, on average over all calls so far."""
        return self._seconds / max(1, self._timed)

    def gradient(self, x: Tensor) -> Tensor:
        """The slope of log f at rows, ``(n, D) -> (n, D)``; only where it is differentiable."""
        assert self._way is not None and self.differentiable
        self.calls += len(x)
        return torch.cat([_slope(self._way, part.double()) for part in x.split(AT_ONCE)])

    def _discovered(self, x: Tensor) -> _Way:
        """The first way that gives each of a few rows a number of its own, and the same alone as
        among others.
        """
        # as many rows as there are coordinates could be mistaken for one another
        few = x[torch.arange(3 if self.width == 2 else 2) % len(x)]
        reasons: list[Exception] = []
        for way in _ways(self.log_density, self.layout):
            self.calls += 2 * len(few) + 1
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about calls it was not written for
                    values, alone, again = way.call(few), way.call(few[:1]), way.call(few)
            except Exception as reason:
                reasons.append(reason)
                continue
            if not _alike(values, again, 0.0):
                raise invalid(
                    self.owner,
                    "log_density",
                    "give the same number for the same row",
                    "two numbers from two calls",
                    "Fix its random numbers.",
                )
            if _alike(values[:1], alone, SAME[way.dtype]):
                self._way, self.how = way, way.how
                with torch.no_grad():
                    finite = x[:AT_ONCE][self._values(way, x[:AT_ONCE]).isfinite()]
                # of no finite row it cannot be seen; evaluators then do without slopes
                self.differentiable = way.torch and len(finite) > 0 and _has_slope(way, finite[:2])
                return way
            reasons.append(_NotThisWay("numbers of a row that depend on the other rows"))
        raise self._refusal(reasons, few[0])

    def _refusal(self, reasons: list[Exception], row: Tensor) -> InputError:
        """The reason that says most: an answer of the wrong form, else an error of its own, else
        the last.
        """
        answers = [reason for reason in reasons if isinstance(reason, _NotThisWay)]
        own = [reason for reason in reasons if not isinstance(reason, (*MISUSE, _NotThisWay))]
        foreign = [reason for reason in own if not _of_torch(reason)]
        reason = (foreign[-1:] or answers[-1:] or own[-1:] or reasons[-1:])[0]
        if isinstance(reason, _NotThisWay):
            return invalid(self.owner, "log_density", ONE_NUMBER, str(reason))
        return self._raised(reason, row)

    def _raised(self, reason: Exception, row: Tensor) -> InputError:
        said = " ".join(str(reason).split())[:200]
        at = "[" + ", ".join(f"{value:.4g}" for value in row[:8].tolist())
        at += ", ...]" if len(row) > 8 else "]"
        got = f"{type(reason).__name__} ({said}) at the row {at}"
        return invalid(self.owner, "log_density", ONE_NUMBER, got)

    def _values(self, way: _Way, x: Tensor) -> Tensor:
        try:
            return way.call(x)
        except Exception as reason:
            for row in x:
                try:
                    way.call(row[None])
                except Exception as single:
                    raise self._raised(single, row) from single
            raise self._raised(reason, x[0]) from reason

    def _without_nans(self, x: Tensor, values: Tensor) -> Tensor:
        infinite = (values == torch.inf).nonzero()
        if len(infinite):
            raise self._raised(ArithmeticError("plus infinity, so Z is"), x[int(infinite[0])])
        nan = values.isnan()
        self.nans += int(nan.sum())
        return torch.where(nan, -torch.inf, values)


def _ways(f: LogDensity, layout: Layout | None) -> Iterator[_Way]:
    """All ways to call ``f``, the fastest first."""

    def plain(x: object) -> object:
        return x

    def arrays(x: object) -> object:
        if isinstance(x, dict):
            return {name: part.numpy().copy() for name, part in x.items()}
        return x.numpy().copy() if isinstance(x, Tensor) else x

    shown: list[Callable[[Tensor], object]] = [plain]
    if layout is not None:
        shown.insert(0, layout.named)
    for how in ("torch batch", "numpy batch", "torch vmap", "row by row"):
        for show in shown:
            if how == "numpy batch":
                yield _Way(how, _numpy_batch(f, show, arrays), torch.float64, False)
                # of a tensor, to an array
                yield _Way(how, _numpy_batch(f, show, plain), torch.float64, False)
                continue
            for dtype in SAME:
                yield _Way(how, _with_torch(how, f, show, dtype), dtype, True)
            if how == "row by row":
                yield _Way(how, _numpy_rows(f, show, arrays), torch.float64, False)
                yield _Way(how, _numpy_rows(f, show, plain), torch.float64, False)


def _with_torch(
    how: str, f: LogDensity, show: Callable[[Tensor], object], dtype: torch.dtype
) -> Callable[[Tensor], Tensor]:
    def one(row: Tensor) -> Tensor:
        result = f(show(row))
        if not isinstance(result, Tensor):
            raise _NotThisWay(f"{one_line(result)[:60]} of type {type(result).__name__}")
        return result

    def call(x: Tensor) -> Tensor:
        x = x.to(dtype)
        if how == "torch batch":
            return _numbers(one(x), len(x))
        if how == "torch vmap":
            return _numbers(torch.func.vmap(one)(x), len(x))
        return torch.cat([_numbers(one(row), 1) for row in x])

    return call


def _numpy_batch(
    f: LogDensity, show: Callable[[Tensor], object], arrays: Callable[[object], object]
) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        with np.errstate(all="ignore"):
            return _numbers(f(arrays(show(x))), len(x))

    return call


def _numpy_rows(
    f: LogDensity, show: Callable[[Tensor], object], arrays: Callable[[object], object]
) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        with np.errstate(all="ignore"):
            return torch.cat([_numbers(f(arrays(show(row))), 1) for row in x])

    return call


def _numbers(result: object, n: int) -> Tensor:
    """What a function returned, as ``(n,)`` in float64."""
    if result is None:
        raise _NotThisWay("None")
    values = result if isinstance(result, Tensor) else torch.as_tensor(_array(result))
    if values.is_complex():
        raise _NotThisWay("complex numbers")
    shape = tuple(values.shape)
    if shape not in ((n,), (n, 1)) and not (n == 1 and values.numel() == 1):
        what = "one row" if n == 1 else f"{n} rows"
        raise _NotThisWay(f"shape {shape} for {what}")
    return values.to("cpu", torch.float64).reshape(n)


def _array(result: object) -> np.ndarray:
    try:
        values = np.asarray(result)
    except ValueError:
        raise _NotThisWay("a ragged list") from None
    if values.dtype.kind not in "biufc":
        raise _NotThisWay(f"{one_line(result)[:60]} of type {type(result).__name__}")
    return values


def _alike(a: Tensor, b: Tensor, tolerance: float) -> bool:
    return torch.allclose(a.detach(), b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)


def _slope(way: _Way, x: Tensor) -> Tensor:
    x = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(way.call(x).sum(), x)
    return slope


def _has_slope(way: _Way, x: Tensor) -> bool:
    """Whether autograd runs, and its slopes are those of small differences: a function that leaves
    torch for a part of its work has others.
    """
    try:
        slope = _slope(way, x)
        scale = STEP if way.dtype is torch.float64 else 100 * STEP
        step = scale * (1 + x.abs())
        with torch.no_grad():
            rise = way.call(x + step) - way.call(x - step)
    except Exception:
        return False
    expected = 2 * (slope * step).sum(-1)
    size = 2 * (slope * step).abs().sum(-1) + 1e-12
    return bool(((rise - expected).abs() <= 0.01 * size + 1e-4 * scale).all())


def _of_torch(reason: Exception) -> bool:
    """Whether torch or NumPy refused the argument, and not the function."""
    return isinstance(reason, RuntimeError | ValueError) and not isinstance(reason, InputError)
