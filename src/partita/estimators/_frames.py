"""Frames with columns of different sorts in and out of estimators: words, counts, truth values,
numbers, and gaps in any of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_is_fitted

from partita.errors import invalid
from partita.estimators._density import Density
from partita.estimators._parameters import RandomState
from partita.estimators._validation import check_held
from partita.tables import Rows, Schema
from partita.tables.arrays import Frame, PolarsFrame
from partita.tables.arrow import of_frame
from partita.tables.copies import filled_arrow
from partita.tables.files import array_table, frame_table
from partita.tables.infer import MOST_LEVELS
from partita.tables.laws import with_laws
from partita.tables.rows import Weight
from partita.tables.schema import Column, numbered
from partita.tables.write import arrow_table

DECLARING = ("CategoricalDtype", "Enum")  # types of pandas and polars that say which words may be


class MixedTables(Density):
    """A density estimator whose columns may be of different sorts; it goes before other densities
    among the bases.

    ``columns`` says what columns hold where their values do not: a dict from a name (or a pattern
    with ``*``) to ``"real"``, ``"binary"``, ``"count"``, ``"overdispersed"``, ``"category"``,
    ``"date"`` or ``"ignore"``.
    ``schema_`` is what was found.
    """

    columns: dict[str, str] | None

    def _mixes(self) -> bool:
        """Whether columns may be of different sorts."""
        return self.support == "mixed"

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> Any:
        """Independent exact draws from the model; of mixed columns a frame like the one that was
        fitted, real columns rounded as there and clipped to their range.

        ``random_state`` None takes the estimator's own, so that repeated calls give the same draws
        where that is a number.
        """
        x = super().sample(n_samples, random_state)
        return frame_of(x, self.schema_, self._polars) if self._mixes() else x

    def impute(self, X: object, *, how: str = "auto", random_state: RandomState = None) -> Any:
        """X with what is missing filled from p(missing | observed), as of every density estimator;
        of mixed columns a frame of the same types.
        """
        x = super().impute(X, how=how, random_state=random_state)
        return filled_frame(X, self.schema_, x) if self._mixes() and isinstance(X, Frame) else x

    def _table(self, X: object, least: int = 1, reset: bool = True) -> np.ndarray:
        if not self._mixes():
            return super()._table(X, least, reset)
        owner = f"{type(self).__name__}.fit"
        table, schema = _numbers(X, self.columns if reset else self.schema_, owner)
        if len(table) < least:
            raise invalid(owner, "X", f"have at least {least} rows", len(table))
        if reset:
            rows = Rows(table, missing=True, owner=owner)
            self.schema_ = with_laws(with_declared(schema, X), rows)
            self.n_features_in_ = table.shape[1]
            self._polars = isinstance(X, PolarsFrame)
            self.feature_names_in_ = np.array([column.name for column in schema.used], dtype=object)
        return table

    def _seen(self, X: object, allow_nan: bool | None = None) -> np.ndarray:
        check_is_fitted(self, "model_")
        if not self._mixes():
            return super()._seen(X, allow_nan)
        owner = type(self).__name__
        table, _ = _numbers(X, self.schema_, owner)
        if not len(table):
            remedy = "Check how the rows were selected."
            raise invalid(owner, "X", "have at least one row", len(table), remedy)
        return table

    def _rows(self, X: np.ndarray, sample_weight: Weight | None) -> Rows:
        rows = super()._rows(X, sample_weight)
        if self._mixes():
            rows.schema, rows.labels = self.schema_, self.schema_.labels
        return rows


def with_declared(schema: Schema, X: object) -> Schema:
    """The schema with all words that the types of a frame's columns allow: those that no row of it
    has may be in rows to be scored.
    """
    types = dict(zip(map(str, X.columns), X.dtypes, strict=True)) if isinstance(X, Frame) else {}
    words = {
        name: list(kind.categories)
        for name, kind in types.items()
        if type(kind).__name__ in DECLARING
    }
    return Schema(tuple(_allowing(column, words.get(column.name, [])) for column in schema.columns))


def _allowing(column: Column, words: list[str]) -> Column:
    """A category with more words; too many of them are those of a larger table, not of this one."""
    text = all(isinstance(word, str) for word in words)
    if not column.labels or not words or len(words) > MOST_LEVELS or not text:
        return column
    numbers, labels = numbered(words)
    return replace(
        column,
        levels=tuple(sorted({*column.levels, *numbers.tolist()})),
        labels={**column.labels, **labels},
    )


def frame_of(x: np.ndarray, schema: Schema, polars: bool) -> Any:
    """A frame of pandas or polars with the types of a schema; dates that were words are words."""
    columns, x = schema.carried(x)
    table = arrow_table(columns, x)
    for i, column in enumerate(columns):
        if "%" in column.dtype:
            table = table.set_column(i, column.name, pa.array(column.words(x[:, i])))
    if not polars:
        return table.to_pandas()
    import polars as pl

    return pl.from_arrow(table)


def filled_frame(frame: Any, schema: Schema, x: np.ndarray) -> Any:
    """A copy of a frame with its gaps filled; columns without gaps are those of the frame."""
    before, polars = of_frame(frame, "impute"), isinstance(frame, PolarsFrame)
    after = filled_arrow(before, schema, x)
    changed = [name for name in schema.names if not after.column(name).equals(before.column(name))]
    # of which nothing was there
    retyped = {name for name in changed if after.field(name).type != before.field(name).type}
    if polars:
        import polars as pl

        new: Any = pl.from_arrow(after)
        return frame.with_columns(
            new[name] if name in retyped else new[name].cast(frame.schema[name]) for name in changed
        )
    out = frame.copy()
    # labels of pandas may be other than words
    for label, name in zip(frame.columns, before.column_names, strict=True):
        if name in retyped:
            out[label] = after.column(name).to_pandas().set_axis(frame.index)
        elif name in changed:
            out[label] = _filled_series(frame[label], after.column(name).to_pylist())
    return out


def _filled_series(series: Any, values: list[Any]) -> Any:
    """A column of pandas with its gaps taken from a list of its length."""
    out, gap = series.copy(), series.isna()
    if type(series.dtype).__name__ == "CategoricalDtype":
        out = series.cat.add_categories(
            [value for value in dict.fromkeys(values) if value not in series.cat.categories]
        )
    out.loc[gap] = [value for value, lost in zip(values, gap, strict=True) if lost]
    return out


def _numbers(
    X: Any, columns: dict[str, str] | Schema | None, owner: str
) -> tuple[np.ndarray, Schema]:
    check_held(owner, X)
    table, _, schema = (frame_table if isinstance(X, Frame) else array_table)(X, columns, owner)
    return table, schema
