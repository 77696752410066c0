"""Frames with columns of different sorts in and out of estimators: words, counts, truth values,
numbers, and gaps in any of them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from partita.errors import Unsupported, invalid
from partita.estimators._validation import check_held
from partita.tables import Rows, Schema
from partita.tables.arrow import of_frame
from partita.tables.copies import filled_arrow
from partita.tables.frames import array_table, frame_table
from partita.tables.infer import MOST_LEVELS
from partita.tables.labels import numbered
from partita.tables.schema import Column
from partita.tables.write import arrow_table

DECLARING = ("CategoricalDtype", "Enum")  # types of pandas and polars that say which words may be


class MixedTables:
    """What a density estimator does where its columns are of different sorts; it goes before the
    density among the bases.

    ``columns`` says what columns hold where their values do not: a dict from a name (or a pattern
    with ``*``) to ``"real"``, ``"binary"``, ``"count"``, ``"category"`` or ``"ignore"``.
    ``schema_`` is what was found.
    """

    columns: Any
    schema_: Schema
    n_features_in_: int
    feature_names_in_: np.ndarray
    _polars: bool = False

    def _mixes(self) -> bool:
        """Whether columns may be of different sorts."""
        raise NotImplementedError

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Independent exact draws from the model; of mixed columns a frame like the one that was
        fitted.

        ``random_state`` None takes the estimator's own, so that repeated calls give the same draws
        where that is a number.
        """
        x = super().sample(n_samples, random_state)  # type: ignore[misc]
        return frame_of(x, self.schema_, self._polars) if self._mixes() else x

    def impute(self, X: Any, *, how: str = "auto", random_state: Any = None) -> Any:
        """X with what is missing filled from p(missing | observed); of mixed columns a frame of the
        same types.

        ``how`` is ``"mean"`` (posterior mean), ``"mode"`` (most probable value, discrete columns),
        ``"draw"`` (one draw of all missing values together), or ``"auto"``: the mean for real
        columns, the mode for others.
        """
        if not hasattr(super(), "impute"):
            raise Unsupported(
                f"{type(self).__name__} cannot fill in what is missing. Use MixtureDensity or "
                "VAEDensity instead."
            )
        x = super().impute(X, how=how, random_state=random_state)  # type: ignore[misc]
        return filled_frame(X, self.schema_, x) if self._mixes() and hasattr(X, "columns") else x

    def _table(self, X: Any, least: int = 1, reset: bool = True) -> np.ndarray:
        if not self._mixes():
            return super()._table(X, least, reset)  # type: ignore[misc]
        owner = f"{type(self).__name__}.fit"
        table, schema = _numbers(X, self.columns if reset else self.schema_, owner)
        if len(table) < least:
            raise invalid(owner, "X", f"have at least {least} rows", len(table))
        if reset:
            self.schema_ = with_declared(schema, X)
            self.n_features_in_ = table.shape[1]
            self._polars = hasattr(X, "get_columns")
            self.feature_names_in_ = np.array([column.name for column in schema.used], dtype=object)
        return table

    def _seen(self, X: Any, finite: Any = None) -> np.ndarray:
        check_is_fitted(self, "model_")
        if not self._mixes():
            return super()._seen(X, finite)  # type: ignore[misc]
        table, owner = _numbers(X, self.schema_, type(self).__name__)[0], type(self).__name__
        if not len(table):
            raise invalid(
                owner, "X", "have at least one row", len(table), "Check how the rows were selected."
            )
        return table

    def _rows(self, X: np.ndarray, sample_weight: Any) -> Rows:
        rows = super()._rows(X, sample_weight)  # type: ignore[misc]
        if self._mixes():
            rows.schema, rows.labels = self.schema_, self.schema_.labels
        return rows


def with_declared(schema: Schema, X: Any) -> Schema:
    """The schema with all words that the types of a frame's columns allow: those that no row of it
    has may be in rows to be scored.
    """
    if not hasattr(X, "columns"):
        return schema
    types = {
        str(name): kind
        for name, kind in zip(X.columns, X.dtypes, strict=True)
        if type(kind).__name__ in DECLARING
    }
    return Schema(
        tuple(
            _allowing(column, list(types[column.name].categories))
            if column.name in types
            else column
            for column in schema.columns
        )
    )


def _allowing(column: Column, words: list[Any]) -> Column:
    """A category with more words; too many of them are those of a larger table, not of this one."""
    if (
        not column.labels
        or len(words) > MOST_LEVELS
        or not all(isinstance(word, str) for word in words)
    ):
        return column
    numbers, labels = numbered(words)
    return replace(
        column,
        levels=tuple(sorted({*column.levels, *numbers.tolist()})),
        labels={**column.labels, **labels},
    )


def frame_of(x: np.ndarray, schema: Schema, polars: bool) -> Any:
    """A frame of pandas or polars with the types of a schema."""
    table = arrow_table(schema.used, x)
    if not polars:
        return table.to_pandas()
    import polars as pl

    return pl.from_arrow(table)


def filled_frame(frame: Any, schema: Schema, x: np.ndarray) -> Any:
    """A copy of a frame with its gaps filled; columns without gaps are those of the frame."""
    before = of_frame(frame, "impute")
    after = filled_arrow(before, schema, x)
    changed = [name for name in schema.names if not after.column(name).equals(before.column(name))]
    # of which nothing was there
    retyped = {name for name in changed if after.field(name).type != before.field(name).type}
    if hasattr(frame, "get_columns"):
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
    if hasattr(series, "cat"):
        out = series.cat.add_categories(
            [value for value in dict.fromkeys(values) if value not in series.cat.categories]
        )
    out.loc[gap] = [value for value, lost in zip(values, gap, strict=True) if lost]
    return out


def _numbers(X: Any, columns: Any, owner: str) -> tuple[np.ndarray, Schema]:
    check_held(owner, X)
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        table, _, schema = frame_table(X, columns, owner)
    else:
        table, _, schema = array_table(X, columns, owner)
    return table, schema
