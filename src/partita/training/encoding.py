r"""From a table in its own units to the columns a model lives on, and back.

.. math:: z = (x - m) / s, \qquad \log p(x) = \log p(z) - \textstyle\sum_i \log s_i          (theory/scoring.md, eq. 5.9)

Zeros and ones stay as they are, spins are relabelled (no mass changes), real columns are standardised, and the Jacobian is
counted so that scores are densities in the table's own units. ``median`` cuts real columns in two: its scores are masses of the
binary table, and there is no way back.

Letters: N rows, D columns.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from partita.core.checks import check_choice
from partita.core.errors import invalid
from partita.core.support import Binary, Spin, Support
from partita.data import Rows
from partita.data.tables import chunks

Kind = Literal["binary", "spin", "real", "median"]
KINDS: tuple[Kind, ...] = ("binary", "spin", "real", "median")


@dataclass(frozen=True)
class Encoding:
    """How each column becomes a column of the model.

    Arguments:
        kind: ``"binary"``, ``"spin"``, ``"real"`` or ``"median"``.
        shift, scale: m and s of the equation, ``(D,)``; for ``"median"`` the shift is the cut.

    >>> spins = Encoding.fit(Rows([[-1.0, 1.0], [1.0, 1.0]]), "spin")
    >>> spins.encode(np.array([[-1.0, 1.0]])).tolist(), spins.log_jacobian
    ([[0.0, 1.0]], 0.0)
    """

    kind: Kind
    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, rows: Rows, kind: Kind, owner: str = "fit") -> "Encoding":
        """The encoding of one kind, with its numbers taken from training rows."""
        check_choice(owner, "support", kind, KINDS)
        if kind == "real":
            return cls(kind, rows.mean().numpy(), _deviations(rows, owner))
        if kind == "median":
            return cls(kind, np.median(rows.tensor().numpy(), axis=0).astype(float), np.ones(rows.width))
        return cls.constant(kind, rows.width)

    @property
    def log_jacobian(self) -> float:
        """What is added to log p(z) to give log p(x)."""
        return -float(np.log(self.scale).sum()) if self.kind == "real" else 0.0

    @property
    def plain(self) -> bool:
        """Whether columns stay as they are."""
        return self.kind == "binary"

    def encode(self, x: np.ndarray) -> np.ndarray:
        """Rows in the model's units, float64; NaN stays NaN."""
        if self.kind == "median":
            return np.where(np.isnan(x), np.nan, x > self.shift)
        return (np.asarray(x, dtype=np.float64) - self.shift) / self.scale

    def decode(self, z: np.ndarray) -> np.ndarray:
        """Rows in the table's units; the zeros and ones themselves where the table was cut."""
        return z if self.kind == "median" else z * self.scale + self.shift

    def rows(self, rows: Rows) -> Rows:
        """Encoded rows to learn from; untouched, and streamed as before, where nothing changes."""
        if self.plain:
            return rows
        return Rows(self.encode(rows.tensor().numpy()).astype(np.float32), rows.weight, columns=rows.columns)

    def check(self, x: np.ndarray, owner: str) -> np.ndarray:
        """Return ``x`` if every value that is not missing can be encoded without loss, else raise in one sentence."""
        support = self.support
        outside = np.isinf(x) if support is None else ~np.isnan(x) & support.outside(torch.from_numpy(x)).numpy()
        if outside.any():
            row, column = np.argwhere(outside)[0]
            allowed, remedy = ("finite numbers", "") if support is None else (support.in_words(), support.remedy())
            raise invalid(owner, "X", f"hold {allowed}", f"{x[row, column]:g} at row {row}, column {column}", remedy)
        return x

    @property
    def support(self) -> Support | None:
        """What values columns may hold; None where any finite number does."""
        return {"binary": Binary, "spin": Spin}[self.kind](len(self.shift)) if self.kind in ("binary", "spin") else None

    def as_json(self) -> dict[str, Any]:
        """For a run's config; numbers come back bit for bit, and those that the kind already tells are left out."""
        told = self.kind in ("binary", "spin")
        return {"kind": self.kind} if told else {"kind": self.kind, "shift": self.shift.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None, width: int) -> "Encoding":
        """The encoding in a run's config; columns as they are where it names none."""
        kind = "binary" if value is None else value.get("kind")
        check_choice("load", "encoding", kind, KINDS)
        if value is None or kind in ("binary", "spin"):
            return cls.constant(kind, width)
        return cls(kind, np.array(value["shift"]), np.array(value["scale"]))

    @classmethod
    def constant(cls, kind: Kind, width: int) -> "Encoding":
        """Zeros and ones as they are, or spins: nothing to learn from data."""
        ones = np.ones(width)
        return cls(kind, -ones, 2 * ones) if kind == "spin" else cls(kind, 0 * ones, ones)


def infer_kind(rows: Rows) -> Kind:
    """The narrowest kind that holds all rows: zeros and ones, spins, else real.

    >>> infer_kind(Rows([[0, 1], [1, 1]])), infer_kind(Rows([[-1, 1]])), infer_kind(Rows([[0.5, 1]]))
    ('binary', 'spin', 'real')
    """
    if rows.binarize is not None:
        return "binary"
    fits: dict[Kind, Support] = {"binary": Binary(rows.width), "spin": Spin(rows.width)}
    for part in chunks(len(rows), rows.width):
        x = rows.batch(torch.arange(part.start, part.stop), generator=torch.Generator()).x
        fits = {kind: support for kind, support in fits.items() if not support.outside(x).any()}
    return next(iter(fits)) if fits else "real"


def _deviations(rows: Rows, owner: str) -> np.ndarray:
    """Standard deviations; a column that does not vary has no density, and is named."""
    deviations = np.sqrt(rows.variance().numpy())
    flat = np.flatnonzero(deviations <= 1e-12 * np.maximum(1.0, np.abs(rows.mean().numpy())))
    if len(flat):
        names = rows.columns or range(rows.width)
        raise invalid(owner, "X", "vary in every column to have a density", f"one value throughout column {names[flat[0]]!r}",
                      "Leave constant columns out.")  # fmt: skip
    return deviations
