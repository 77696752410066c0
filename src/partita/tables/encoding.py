r"""From a table in its own units to the columns a model lives on, and back.

.. math:: z = (x - m) / s, \qquad \log p(x) = \log p(z) - \textstyle\sum_i \log s_i
          (theory/scoring.md, eq. 5.9)

Zeros and ones, counts and ``raw`` real columns stay as they are, spins are relabeled (no mass
changes), real columns are standardized, and the Jacobian is counted so that scores are densities in
the table's own units. ``scaled`` centers real columns and divides all of them by one common scale,
which keeps the shape of a cloud of points as it is. ``median`` cuts real columns in two: its scores
are masses of the binary table, and there is no way back. For models of spins, ``signs`` reads zeros
and ones as -1 and +1, ``spins`` leaves spins as they are and ``median-signs`` cuts real columns.
For models of categories, ``category`` numbers each column's values from 0, and ``quantile`` cuts
real columns into parts of about equally many rows. ``mixed`` treats each column as its schema says:
real ones are standardized, zeros and ones and counts stay, categories are numbered, and only
observed real columns count in the Jacobian (theory/mixed_tables.md, eq. 45.3).

Letters: N rows, D columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
import torch

from partita.core.arguments import check_choice
from partita.core.support import Binary, Count, Real, Spin, Support
from partita.errors import RunError, invalid
from partita.runtime.files import JsonObject, read_record
from partita.tables.arrays import row_ranges
from partita.tables.categories import (
    Lists,
    categories_of,
    check_known,
    common_deviation,
    deviations,
    from_codes,
    quantile_cuts,
    to_bins,
    to_codes,
    to_rank,
)
from partita.tables.infer import ALLOWED, outside
from partita.tables.on_disk import OnDisk
from partita.tables.rows import Rows
from partita.tables.schema import KINDS as COLUMN_KINDS
from partita.tables.schema import (
    NOT_MODELED,
    Labels,
    Law,
    label_of,
    labels_from_json,
    labels_to_json,
)

Plain = Literal["binary", "spin", "count", "raw", "signs", "spins", "steps"]
Kind = Literal[Plain, "real", "scaled", "median", "median-signs", "category", "quantile", "mixed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PLAIN: dict[str, Callable[[int], Support]] = {  # kinds that learn nothing from data
    "binary": Binary,
    "spin": Spin,
    "count": Count,
    "raw": Real,
    "signs": Binary,
    "spins": Spin,
    "steps": Real,
}
AFFINE = {"spin": (-1.0, 2.0), "signs": (0.5, 0.5)}  # shift and scale where they are not 0 and 1
CUT = ("median", "median-signs", "quantile")  # there is no way back to the table's values


@dataclass(frozen=True)
class SavedEncoding:
    """An encoding in a run's config; what is empty follows from its kind."""

    kind: Kind = "binary"
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    lists: Lists = ()
    labels: dict[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Encoding:
    """How each column becomes a column of the model.

    Arguments:
        kind: One of :data:`KINDS`.
        shift, scale: m and s of the equation, ``(D,)``; for ``"median"`` the shift is the cut.
        lists: The categories of each column, or the cuts of ``"quantile"``.
        labels: What categories that stand for words mean.
        columns: Of ``"mixed"`` tables: the kind that models take each column for.

    >>> spins = Encoding.fit(Rows([[-1.0, 1.0], [1.0, 1.0]]), "spin")
    >>> spins.encode(np.array([[-1.0, 1.0]])).tolist(), spins.log_jacobian
    ([[0.0, 1.0]], 0.0)
    """

    kind: Kind
    shift: np.ndarray
    scale: np.ndarray
    lists: Lists = ()
    labels: Labels = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    @classmethod
    def fit(cls, rows: Rows, kind: Kind, owner: str = "fit") -> "Encoding":
        """The encoding of one kind, with its numbers taken from training rows, and its categories
        from all parts of their data.
        """
        check_choice(owner, "support", kind, KINDS)
        zeros = np.zeros(rows.width)
        ones = np.ones(rows.width)
        if kind == "mixed":
            return cls._fit_mixed(rows, owner)
        if kind == "real":
            return cls(kind, rows.mean().numpy(), deviations(rows, owner))
        if kind == "scaled":
            return cls(kind, rows.mean().numpy(), common_deviation(rows, owner) * ones)
        if kind == "category":
            lists = categories_of(rows, *rows.held_out)
            return cls(kind, zeros, ones, lists, dict(rows.labels))
        if kind == "quantile":
            return cls(kind, zeros, ones, quantile_cuts(rows), dict(rows.labels))
        if kind in CUT:
            return cls(kind, np.median(to_rank(rows), axis=0), ones)
        return cls.constant(kind, rows.width)

    @classmethod
    def _fit_mixed(cls, rows: Rows, owner: str) -> "Encoding":
        """Means and deviations of real columns, 0 and 1 of the others, and the values of each
        category.
        """
        if rows.schema is None:
            allowed = "be a table whose columns have kinds"
            remedy = "Give a frame, or a .csv or .parquet file."
            raise invalid("fit", "X", allowed, "an array", remedy)
        used = rows.schema.used
        real = np.array([column.law == "real" for column in used])
        return cls(
            "mixed",
            np.where(real, rows.mean().numpy(), 0.0),
            np.where(real, deviations(rows, owner, real), 1.0),
            tuple(column.levels for column in used),
            columns=tuple(column.law for column in used),
        )

    @property
    def log_jacobian(self) -> float:
        """What is added to log p(z) to give log p(x)."""
        return -float(np.log(self.scale).sum()) if self.kind in ("real", "scaled", "mixed") else 0.0

    def log_jacobians(self, x: np.ndarray) -> np.ndarray:
        """The same for each row, ``(N, D) -> (N,)``, of whose columns only the observed ones have a
        density.
        """
        if np.isnan(x).any() and self.log_jacobian:
            return -(~np.isnan(x)).astype(np.float64) @ np.log(self.scale)
        return np.full(len(x), self.log_jacobian)

    def mean_log_jacobian(self, rows: Rows | None) -> float:
        """The mean of it over encoded rows, of which some values may be missing."""
        if rows is None or not self.log_jacobian or rows.complete():
            return self.log_jacobian
        return float(self.log_jacobians(rows.tensor().numpy()).mean())

    @property
    def plain(self) -> bool:
        """Whether columns stay as they are."""
        return self.kind in ("binary", "count", "raw", "spins", "steps")

    @property
    def states(self) -> int | None:
        """K of categories; None for other kinds."""
        longest = max(map(len, self.lists), default=1)
        return {"category": max(2, longest), "quantile": max(2, longest + 1)}.get(self.kind)

    @property
    def laws(self) -> tuple[Law, ...] | None:
        """What each column of a mixed table holds once it is encoded; None for other kinds.

        A category with one value is certain, and adds nothing to a score.
        """
        laws = zip(self.columns, self.lists, strict=False)
        found = tuple(len(values) if kind == "category" else kind for kind, values in laws)
        return found if self.columns else None

    @property
    def _coded(self) -> tuple[list[int], Lists]:
        """The columns that are categories, and their lists."""
        if self.kind == "category":
            return list(range(len(self.lists))), self.lists
        at = [i for i, kind in enumerate(self.columns) if kind == "category"]
        return at, tuple(self.lists[i] for i in at)

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Rows in the model's units, float64; NaN stays NaN, and a category that is in no list
        becomes -1.
        """
        if self.kind == "quantile":
            return to_bins(x, self.lists)
        if self.kind in CUT:
            above = np.where(np.isnan(x), np.nan, x > self.shift)
            return above if self.kind == "median" else 2 * above - 1
        x = np.asarray(x, dtype=np.float64)
        z = (x - self.shift) / self.scale
        at, lists = self._coded
        if at:
            z[:, at] = to_codes(x[:, at], lists)
        return z

    def unseen(self, x: np.ndarray) -> np.ndarray:
        """Rows with a category that training never saw, ``(N, D) -> (N,)``: no model of categories
        gives them any probability.
        """
        at, lists = self._coded
        return np.asarray((to_codes(x[:, at], lists) == -1).any(axis=1))

    def decode(self, z: np.ndarray) -> np.ndarray:
        """Rows in the table's units; the number of the part itself where the table was cut."""
        if self.kind in CUT:
            return (z + 1) / 2 if self.kind == "median-signs" else z
        x = z * self.scale + self.shift
        at, lists = self._coded
        if at:
            x[:, at] = from_codes(z[:, at], lists)
        return x

    def in_words(self, x: np.ndarray) -> np.ndarray:
        """Decoded rows with words where the table had words; the numbers themselves where it had
        none.
        """
        if not self.labels:
            return x
        return np.array([[label_of(value, self.labels) for value in row] for row in x.tolist()])

    def rows(self, rows: Rows) -> Rows:
        """Encoded rows to learn from, streamed as before; cut columns and categories are encoded at
        once where they are in memory.
        """
        if self.plain:
            return rows
        if self.kind not in (*CUT, "category", "mixed"):
            return rows.rescaled(self.shift, self.scale)
        exact = np.float64 if self.columns else np.float32  # counts may be large
        if isinstance(rows.array, OnDisk):
            encoded = rows.encoded(self._checked, exact)
        else:
            x = self._checked(rows.tensor().numpy().astype(np.float64))
            encoded = Rows(x.astype(exact), rows.weight, columns=rows.columns, missing=True)
        encoded.states, encoded.laws = self.states, self.laws
        return encoded

    def _checked(self, x: np.ndarray) -> np.ndarray:
        return self.encode(self.check(x, "fit"))

    def check(self, x: np.ndarray, owner: str, first: int = 0) -> np.ndarray:
        """Return ``x`` if every value that is not missing can be encoded without loss, else raise
        in one sentence.

        ``first`` is the number of its first row, where it is a part of a larger table.
        """
        if self.columns:
            self._check_columns(x, owner, first)
        if self.kind == "category":
            check_known(x, self.lists, self.labels, owner, first)
        allowed, remedy = "finite numbers", ""
        bad = np.isinf(x)
        if self.support is not None:
            allowed, remedy = self.support.in_words(), self.support.remedy()
            bad = ~np.isnan(x) & self.support.outside(torch.from_numpy(x)).numpy()
        if bad.any():
            row, column = np.argwhere(bad)[0]
            got = f"{x[row, column]:g} at row {first + row}, column {column}"
            raise invalid(owner, "X", f"hold {allowed}", got, remedy)
        return x

    def _check_columns(self, x: np.ndarray, owner: str, first: int) -> None:
        """Every value of a mixed table that is not missing is one that its column may hold."""
        for i, (kind, values) in enumerate(zip(self.columns, x.T, strict=True)):
            if kind == "category":
                bad = ~np.isin(values, self.lists[i])
                allowed = "categories seen in training"
            else:
                bad = outside(kind, values)
                allowed = ALLOWED[kind]
            bad &= ~np.isnan(values)
            if bad.any():
                row = int(bad.argmax())
                got = f"{values[row]:g} at row {first + row}"
                raise invalid(owner, "X", f"hold {allowed} in column {i}", got)

    @property
    def support(self) -> Support | None:
        """What values columns may hold; None where any finite number does."""
        if self.kind not in PLAIN:
            return None
        return PLAIN[self.kind](len(self.shift))

    def as_json(self) -> JsonObject:
        """For a run's config; numbers come back bit for bit, and those that the kind already tells
        are left out.
        """
        if self.kind in PLAIN:
            return {"kind": self.kind}
        found: JsonObject = {
            "lists": list(map(list, self.lists)),
            "labels": labels_to_json(self.labels),
            "columns": list(self.columns),
        }
        if self.columns or not self.lists:
            found |= {"shift": self.shift.tolist(), "scale": self.scale.tolist()}
        return {"kind": self.kind, **{name: value for name, value in found.items() if value}}

    @classmethod
    def from_json(cls, value: JsonObject | None, width: int) -> "Encoding":
        """The encoding in a run's config; columns as they are where it names none."""
        saved = SavedEncoding()
        if value is not None:
            check_choice("load", "encoding", value.get("kind"), KINDS)
            saved = read_record(SavedEncoding, value, "config.json: encoding")
        if saved.kind in PLAIN:
            return cls.constant(saved.kind, width)
        shift = np.array(saved.shift or [0.0] * width, dtype=float)
        scale = np.array(saved.scale or [1.0] * width, dtype=float)
        labels = labels_from_json(saved.labels)
        made = cls(saved.kind, shift, scale, saved.lists, labels, saved.columns)
        made._check_whole(width)
        return made

    def _check_whole(self, width: int) -> None:
        """What was read has a number, and where the encoding has them a list and a kind, for every
        column.
        """
        listed = width * (self.kind in ("category", "quantile", "mixed"))
        lengths = len(self.shift), len(self.scale), len(self.lists), len(self.columns)
        whole = (
            lengths == (width, width, listed, width * (self.kind == "mixed"))
            and np.isfinite([*self.shift, *self.scale]).all()
            and (self.scale > 0).all()
            and all((np.diff(values) > 0).all() for values in self.lists)
            and set(self.columns) <= set(COLUMN_KINDS) - {"date", *NOT_MODELED}
            and all(self._coded[1])
        )
        if not whole:
            raise RunError(
                f"load: config.json: encoding must say how each of {width} columns is encoded as "
                f"{self.kind}; it does not."
            )

    @classmethod
    def constant(cls, kind: Kind, width: int) -> "Encoding":
        """Zeros and ones or counts as they are, or spins: nothing to learn from data."""
        shift, scale = AFFINE.get(kind, (0.0, 1.0))
        return cls(kind, np.full(width, shift), np.full(width, scale))


def infer_kind(rows: Rows) -> Kind:
    """The narrowest kind that holds all rows: zeros and ones, spins, else real.

    >>> (
    ...     infer_kind(Rows([[0, 1], [1, 1]])),
    ...     infer_kind(Rows([[-1, 1]])),
    ...     infer_kind(Rows([[0.5, 1]])),
    ... )
    ('binary', 'spin', 'real')
    """
    if rows.binarize is not None:
        return "binary"
    fits: dict[Kind, Support] = {"binary": Binary(rows.width), "spin": Spin(rows.width)}
    for part in row_ranges(len(rows), rows.width):
        x = rows.batch(torch.arange(part.start, part.stop), generator=torch.Generator()).x
        fits = {kind: support for kind, support in fits.items() if not support.outside(x).any()}
    return next(iter(fits)) if fits else "real"
