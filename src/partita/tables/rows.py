r"""Rows to learn from: an array, a tensor or a memory map, with weights, and with gray levels made
binary on the way.

Dynamic binarization reads gray levels as probabilities and draws anew in every batch, so that

.. math:: E[x_i] = \overline{g}_i, \qquad \mathrm{Var}[x_i] = \overline{g}_i (1 - \overline{g}_i),
          \qquad g = \text{gray} / \text{scale}

Letters: N rows, B batch, D columns.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike
from torch import Tensor

from partita.core.protocols import Batch, Data
from partita.core.rng import bernoulli
from partita.errors import invalid, one_line
from partita.runtime.seeds import OneIn, Within, row_numbers
from partita.tables.arrays import (
    Columns,
    TableLike,
    aligned,
    as_table,
    check_finite_table,
    pieces,
    row_ranges,
)
from partita.tables.schema import Labels, Law, Schema

Binarize = Literal["dynamic"] | float | None
Weight = ArrayLike | Tensor


class Rows:
    """A table that is read one batch at a time; it implements :class:`partita.core.protocols.Data`.

    Arguments:
        x: Array (also a memory map, which stays on disk), tensor, frame or list, (N, D), of any
            real dtype.
        weight: One nonnegative number per row; kept with mean one.
        binarize: ``None``; ``"dynamic"`` to draw zeros and ones from the gray levels anew in every
            batch; or a threshold in (0, 1).
        scale: The gray level that means one; by default 255 for bytes above 1, else 1.
        columns: Names, by default those of a frame.
        missing: Whether NaN is kept, as a value that was not observed; refused otherwise.
        owner: The caller's name in error messages.

    >>> rows = Rows([[0, 255], [0, 0]], binarize=0.5, scale=255)
    >>> rows, rows.mean().tolist()
    (Rows(2 x 2, binarize=0.5), [0.0, 0.5])
    """

    def __init__(
        self,
        x: TableLike,
        weight: Weight | None = None,
        binarize: Binarize = None,
        *,
        scale: float | None = None,
        columns: Sequence[str] | None = None,
        missing: bool = False,
        owner: str = "Rows",
    ) -> None:
        self.array, names = as_table(x, owner)
        self.columns = names
        if columns is not None:
            self.columns = _check_columns(columns, self.array.shape[1], owner)
        check_finite_table(self.array, self.columns, owner, missing and binarize is None)
        self.binarize: Binarize = _check_binarize(binarize, owner)
        self.scale = scale if binarize is None else _gray_scale(self.array, scale, owner)
        self.weight: Tensor | None = None
        if weight is not None:
            self.weight = check_weight(weight, len(self.array), owner)
        self.labels: Labels = {}  # what numbers that stand for words mean
        self.states: int | None = None  # of encoded categories: K
        self.schema: Schema | None = None  # what the columns of a table hold
        self.laws: tuple[Law, ...] | None = None  # of encoded columns of different sorts
        # the other parts of the same data: what they hold are categories too
        self.held_out: tuple[Rows, ...] = ()
        # row numbers, listed or as a choice that computes them
        self._selected: np.ndarray | OneIn | Within | None = None
        self._encode: Callable[[np.ndarray], np.ndarray] | None = None
        self._mean: Tensor | None = None
        wide = self.array.dtype.kind == "f" and self.array.dtype.itemsize >= 8
        self._type = np.dtype(np.float64 if wide else np.float32)

    @property
    def width(self) -> int:
        """Number of columns D."""
        return self.array.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the batches."""
        return torch.float64 if self._type == np.float64 else torch.float32

    def __len__(self) -> int:
        return len(self.array) if self._selected is None else len(self._selected)

    def __repr__(self) -> str:
        weighted = "" if self.weight is None else ", weighted"
        binarize = "" if self.binarize is None else f", binarize={self.binarize!r}"
        return f"Rows({len(self)} x {self.width}{weighted}{binarize})"

    def batch(self, index: Tensor, *, generator: torch.Generator) -> Batch:
        """The rows numbered ``index`` (a LongTensor), on the generator's device."""
        x = self._draw(index.cpu().numpy(), generator)
        weight = None if self.weight is None else self.weight[index.cpu()].to(x)
        return Batch(x=x, weight=weight, row=index)

    def tensor(self, generator: torch.Generator | None = None) -> Tensor:
        """All rows as one batch, (N, D); dynamic binarization needs the generator."""
        if generator is None and self.binarize == "dynamic":
            allowed = "be given when binarize='dynamic' draws the rows anew"
            raise invalid("Rows.tensor", "generator", allowed, None)
        generator = torch.Generator() if generator is None else generator
        out = torch.empty(len(self), self.width, dtype=self.dtype, device=generator.device)
        for part in row_ranges(*out.shape):
            out[part] = self._draw(np.arange(part.start, part.stop), generator)
        return out

    def mean(self) -> Tensor:
        """Weighted column means of what batches hold on average, of the values that are there, in
        float64, (D,).
        """
        if self._mean is None:
            self._mean = self._average(lambda values: values)
        return self._mean.clone()

    def variance(self) -> Tensor:
        """Weighted column variances (divided by N) of what batches hold, in float64, (D,)."""
        mean = self.mean()
        if self.binarize is not None:
            return mean * (1 - mean)
        return self._average(lambda values: (values - mean.numpy()) ** 2)

    def _view(self) -> "Rows":
        view = copy(self)
        view._mean = None
        return view

    def take(self, index: Tensor | np.ndarray | Sequence[int]) -> "Rows":
        """A view of some rows, by number or by a mask; the table is not copied, and weights get
        mean one again.
        """
        view, chosen = self._view(), row_numbers(index, len(self))
        view._selected = chosen if self._selected is None else np.asarray(self._selected[chosen])
        if self.weight is not None:
            view.weight = check_weight(self.weight[chosen], len(chosen), "Rows.take")
        return view

    def one_in(self, m: int, key: int) -> "tuple[Rows, Rows]":
        """Of every ``m`` rows one, drawn by the key, and the others; as views that hold no list of
        row numbers.
        """
        others = OneIn(len(self), m, key, others=True)
        return self._chosen(OneIn(len(self), m, key)), self._chosen(others)

    def _chosen(self, choice: OneIn) -> "Rows":
        if self.weight is not None:
            return self.take(choice[np.arange(len(choice))])
        view = self._view()
        view._selected = choice if self._selected is None else Within(self._selected, choice)
        return view

    def weighted(self, weight: Weight, owner: str = "Rows.weighted") -> "Rows":
        """The same rows with other weights."""
        view = self._view()
        view.weight = check_weight(weight, len(self), owner)
        return view

    def binarized(self, binarize: Binarize, owner: str = "Rows.binarized") -> "Rows":
        """The same rows with another way, or none, of making them binary."""
        view = self._view()
        view.binarize = _check_binarize(binarize, owner)
        if binarize is not None:
            view.scale = _gray_scale(self.array, self.scale, owner)
        return view

    def rescaled(self, shift: np.ndarray, scale: np.ndarray) -> "Rows":
        """The same rows as (x - shift) / scale, computed as they are read, so that a table on disk
        stays there.

        >>> Rows([[1.0, 2.0]]).rescaled(
        ...     np.array([1.0, 0.0]), np.array([1.0, 4.0])
        ... ).tensor().tolist()
        [[0.0, 0.5]]
        """
        return self._mapped(lambda x: (x - shift) / scale, self._type)

    def encoded(self, encode: Callable[[np.ndarray], np.ndarray], dtype: DTypeLike) -> "Rows":
        """The same rows as a function of them, ``(B, D) -> (B, D)``, computed in float64 as they
        are read; labels and schema are dropped.

        >>> Rows([[1.0, 2.0]]).encoded(lambda x: 10 * x, np.float32).tensor().tolist()
        [[10.0, 20.0]]
        """
        view = self._mapped(encode, np.dtype(dtype))
        view.labels, view.schema, view.held_out = {}, None, ()
        return view

    def _mapped(self, encode: Callable[[np.ndarray], np.ndarray], dtype: np.dtype) -> "Rows":
        view, before = self._view(), self._encode
        view._encode = encode if before is None else lambda x: encode(before(x))
        view._type = dtype
        return view

    def parts(self, generator: torch.Generator | None = None) -> Iterator[np.ndarray]:
        """All rows as batches hold them, chunk by chunk; gray levels are made binary by draws from
        the generator, by default of a fixed seed.
        """
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        for part in row_ranges(len(self), self.width):
            yield self._draw(np.arange(part.start, part.stop), generator).numpy()

    def complete(self) -> bool:
        """Whether no value is missing."""
        return not any(np.isnan(part).any() for part in self.parts())

    def numbers_per_row(self) -> float:
        """How many values of a row are there, on average: what bits per dimension are counted
        by.
        """
        return sum(int((~np.isnan(part)).sum()) for part in self.parts()) / len(self)

    def _average(self, of: Callable[[np.ndarray], np.ndarray]) -> Tensor:
        """Weighted column means of a function of the values that are there."""
        total, mass = np.zeros(self.width), np.zeros(self.width)
        for values, weight in self._expected():
            lost = np.isnan(values)
            total += weight @ (np.where(lost, 0.0, of(values)) if lost.any() else of(values))
            mass += weight @ ~lost if lost.any() else weight.sum()
        if (mass == 0).any():
            column = int(np.flatnonzero(mass == 0)[0])
            name = column if self.columns is None else repr(self.columns[column])
            allowed = "have an observed value in every column"
            got = f"none in column {name}"
            raise invalid("Rows", "x", allowed, got, "Leave that column out.")
        complete = (mass == mass[0]).all() and abs(mass[0] - len(self)) < 1e-6
        return torch.from_numpy(total / (len(self) if complete else mass))

    def _read(self, index: np.ndarray) -> np.ndarray:
        rows = index if self._selected is None else np.asarray(self._selected[index])
        values = self.array[rows]
        if self._encode is not None:
            values = self._encode(values.astype(np.float64, copy=False))
        return values.astype(self._type, copy=False)

    def _draw(self, index: np.ndarray, generator: torch.Generator) -> Tensor:
        x = aligned(torch.from_numpy(self._read(index))).to(generator.device)
        if self.binarize is None:
            return x
        gray = x / (self.scale or 1.0)
        if isinstance(self.binarize, str):
            return bernoulli(gray, generator)
        return (gray > self.binarize).to(x.dtype)

    def _expected(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for part in row_ranges(len(self), self.width):
            values = self._read(np.arange(part.start, part.stop))
            if self.binarize is not None:
                gray = values / (self.scale or 1.0)
                values = gray if isinstance(self.binarize, str) else gray > self.binarize
            weight = np.ones(len(values)) if self.weight is None else self.weight[part].numpy()
            yield values.astype(np.float64, copy=False), weight


def as_rows(
    x: "Rows | TableLike",
    weight: Weight | None = None,
    owner: str = "fit",
    *,
    missing: bool = False,
) -> Rows:
    """Rows from Rows, a tensor, a NumPy array, a pandas or polars frame, or nested lists, checked.

    >>> as_rows(torch.eye(3), owner="fit")
    Rows(3 x 3)
    """
    if isinstance(x, Data):  # sequences and other data of that role are read as they are
        rows = cast("Rows", x)
        return rows if weight is None else rows.weighted(weight, owner)
    return Rows(cast("TableLike", x), weight, missing=missing, owner=owner)


def _check_columns(columns: Sequence[str], width: int, owner: str) -> Columns:
    if len(columns) != width:
        raise invalid(owner, "columns", f"name {width} columns", f"{len(columns)} names")
    return tuple(map(str, columns))


def check_weight(weight: Weight, n: int, owner: str) -> Tensor:
    """One nonnegative number per row, with mean one."""
    try:
        mass = torch.as_tensor(np.asarray(weight, dtype=np.float64)).clone()
    except (TypeError, ValueError, OverflowError) as error:
        got = one_line(weight)[:60]
        raise invalid(owner, "weight", "be numbers that float64 holds", got) from error
    if mass.shape != (n,):
        raise invalid(
            owner, "weight", f"have shape ({n},), one number per row", f"shape {tuple(mass.shape)}"
        )
    bad = (~torch.isfinite(mass) | (mass < 0)).nonzero()
    if len(bad):
        got = f"{mass[bad[0]].item()} at row {bad[0].item()}"
        raise invalid(owner, "weight", "be finite and at least 0", got)
    if mass.sum() == 0:
        remedy = "Leave weight out to weigh all rows alike."
        raise invalid(owner, "weight", "have a sum above 0", "only zeros", remedy)
    return mass / mass.mean()


def _check_binarize(binarize: Binarize, owner: str) -> Binarize:
    """A way to make rows binary, or none."""
    if binarize is None or (isinstance(binarize, str) and binarize == "dynamic"):
        return binarize
    if isinstance(binarize, (int, float)) and 0 < binarize < 1:
        return float(binarize)
    allowed = "be None, 'dynamic' or a threshold between 0 and 1"
    raise invalid(owner, "binarize", allowed, repr(binarize))


def _gray_scale(table: np.ndarray, scale: float | None, owner: str) -> float:
    """The gray level that means one; gray levels beyond it are refused."""
    ends = [end for part in pieces(table) for end in (part.min(), part.max())]
    low, high = float(min(ends)), float(max(ends))
    if scale is None:
        scale = 255.0 if table.dtype == np.uint8 and high > 1 else 1.0
    if low < 0 or high > scale:
        allowed = f"hold gray levels from 0 to {scale:g} to be made binary"
        remedy = "Give the largest gray level as scale, or leave binarize out."
        raise invalid(owner, "x", allowed, f"values from {low:g} to {high:g}", remedy)
    return float(scale)
