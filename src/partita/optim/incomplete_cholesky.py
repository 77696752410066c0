"""The incomplete Cholesky factor of a sparse matrix, in machine code by numba."""

import numpy as np

from partita.runtime.numba_cache import njit


@njit(nogil=True, cache=True)
def factorize(first: np.ndarray, columns: np.ndarray, values: np.ndarray, shift: float) -> int:
    """Overwrite the lower triangle of A + shift diag(A), diagonal last in each row, by L.

    Returns the row whose pivot is not positive, or -1.
    """
    n = len(first) - 1
    for i in range(n):
        last = first[i + 1] - 1
        for a in range(first[i], last + 1):
            j, total = columns[a], values[a]
            if a == last:
                total *= 1 + shift
            s, t = first[i], first[j]
            # rows i and j of L meet at the columns they share
            while s < a and t < first[j + 1] - 1:
                if columns[s] == columns[t]:
                    total -= values[s] * values[t]
                    s, t = s + 1, t + 1
                elif columns[s] < columns[t]:
                    s += 1
                else:
                    t += 1
            if a < last:
                values[a] = total / values[first[j + 1] - 1]
            elif total > 0:
                values[a] = np.sqrt(total)
            else:
                return i
    return -1
