r"""The score of independent columns: what a model must beat to have learned anything.

.. math:: \frac1N \sum_n \sum_i \log \hat p_i(x_{ni}), \qquad \hat p_i \text{ frequencies, or a
          normal density}

Letters: N rows, D columns.
"""

import numpy as np

from partita.core.support import Count, Product, Real, Sequence
from partita.report.context import Subject
from partita.tables import Rows

ROWS = 20_000  # of each part: enough for frequencies


def independent_columns(subject: Subject) -> float | None:
    """Mean log-likelihood of the scored rows, in nats, if each column were drawn alone; None where
    there is no such model.
    """
    support = subject.model.support
    if subject.dataset is None or subject.rows is None or isinstance(support, Product | Count):
        return None
    known, scored = (_encoded(subject, rows) for rows in (subject.dataset.train, subject.rows))
    if isinstance(support, Sequence):
        return _pooled(known, scored, support)
    if not isinstance(support, Real):
        return _frequencies(known, scored)
    if not (np.nanstd(known, 0) > 0).all():  # a constant column has no density
        return None
    return _normal(known, scored) + float(subject.encoding.log_jacobians(scored).mean())


def _encoded(subject: Subject, rows: Rows) -> np.ndarray:
    part = rows.take(np.arange(min(ROWS, len(rows))))
    return subject.encoding.encode(part.tensor(subject.generator(8)).numpy().astype(np.float64))


def _normal(known: np.ndarray, scored: np.ndarray) -> float:
    from scipy.stats import norm

    terms = norm.logpdf(scored, np.nanmean(known, 0), np.nanstd(known, 0))
    return float(np.nansum(terms, 1).mean())


def _frequencies(known: np.ndarray, scored: np.ndarray) -> float:
    """Half a row more of every value, so that none is impossible."""
    total = 0.0
    values = np.unique(np.concatenate([known, scored]))
    values = values[~np.isnan(values)]
    for column, x in zip(known.T, scored.T, strict=True):
        counts = np.array([(column == v).sum() for v in values]) + 0.5
        log_p = np.log(counts / counts.sum())
        there = x[~np.isnan(x)]
        total += float(log_p[np.searchsorted(values, there)].sum())
    return total / len(scored)


def _pooled(known: np.ndarray, scored: np.ndarray, support: Sequence) -> float | None:
    """Tokens of text: one table of frequencies for all steps."""
    if not support.discrete or support.element.width > 1:
        return None
    return _frequencies(known.reshape(-1, 1), scored.reshape(-1, 1)) * scored.shape[1]
