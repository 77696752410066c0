"""Site Gibbs in machine code: chains side by side in vector lanes for two values, one chain after
the other for more.

Random bits are those of :mod:`partita.core.xoshiro`, whose states are seeded from the caller's
generator; what a chain draws does not depend on how many threads there are: each takes some of the
chains, without Python's lock. Log-odds are rounded to float32 and uniform numbers have 24 bits, as
torch's float32 ones have.

Letters: C chains, D sites, E edges, K values, S sweeps.
"""

import math

import numpy as np
from numba import float32, int32, uint32

from partita.core.xoshiro import UNIT, next_word
from partita.runtime.numba_cache import njit

# chains side by side: several vector registers of them, so that finding a neighbor costs little
# beside the sums
LANES = 64
LOG2_E = np.float32(1 / math.log(2))
# of 2^f for |f| <= 1/2, to 1e-7
POWERS = [np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7)]
C0, C1, C2, C3, C4, C5, C6 = POWERS
LARGEST = np.float32(80.0)


@njit(fastmath=True)
def _exp(y: float) -> float:
    """e^y in float32 from additions, products and a shift of the exponent, which become vector
    instructions.
    """
    t = min(max(y, -LARGEST), LARGEST) * LOG2_E
    n = np.floor(t + float32(0.5))
    f = t - n
    power = C0 + f * (C1 + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    return power * np.int32((int32(n) + int32(127)) << int32(23)).view(np.float32)


@njit(nogil=True, cache=True, fastmath=True)
def sweep_two_values(
    from_block: int,
    to_block: int,
    x: np.ndarray,
    orders: np.ndarray,
    values: np.ndarray,
    start: np.ndarray,
    bias: np.ndarray,
    beta: np.ndarray,
    first: np.ndarray,
    neighbors: np.ndarray,
    weights: np.ndarray,
    seeds: np.ndarray,
) -> None:
    """Move some blocks of ``x`` (C, D) in place through the sites of every order (S, D).

    ``start`` and ``bias`` are (1, D), or (C, D) where chains differ.
    """
    chains, sites = x.shape
    own, away = bias.shape[0] > 1, start.shape[0] > 1
    low, high = np.int8(values[0]), np.int8(values[1])
    for block in range(from_block, to_block):
        begin = block * LANES
        width = min(LANES, chains - begin)
        state = seeds[block].copy()
        local = np.zeros((sites, LANES), np.int8)  # this block's chains side by side
        field = np.zeros((sites, LANES) if own else (1, 1), np.float32)
        begun = np.zeros((sites, LANES) if away else (1, 1), np.float32)
        for lane in range(width):
            for i in range(sites):
                local[i, lane] = np.int8(x[begin + lane, i])
                if own:
                    field[i, lane] = bias[begin + lane, i]
                if away:
                    begun[i, lane] = start[begin + lane, i]
        hot = np.zeros(LANES, np.float32)
        for lane in range(width):
            hot[lane] = beta[begin + lane]
        total = np.zeros(LANES, np.float32)
        bits = np.zeros(LANES, np.float32)
        for s in range(orders.shape[0]):
            for step in range(sites):
                i = orders[s, step]
                for lane in range(LANES):
                    total[lane] = field[i, lane] if own else bias[0, i]
                for k in range(first[i], first[i + 1]):
                    j, w = neighbors[k], weights[k]
                    for lane in range(LANES):
                        total[lane] += w * float32(local[j, lane])
                for lane in range(LANES):
                    bits[lane] = float32(int32(next_word(state, lane) >> uint32(8)))
                for lane in range(LANES):
                    first_odds = begun[i, lane] if away else start[0, i]
                    odds = (float32(1.0) - hot[lane]) * first_odds + hot[lane] * total[lane]
                    local[i, lane] = (
                        high if bits[lane] * (float32(1.0) + _exp(-odds)) < UNIT else low
                    )
        for lane in range(width):
            for i in range(sites):
                x[begin + lane, i] = float32(local[i, lane])


@njit(nogil=True, cache=True, fastmath=True)
def sweep_many_values(
    from_chain: int,
    to_chain: int,
    x: np.ndarray,
    orders: np.ndarray,
    start: np.ndarray,
    bias: np.ndarray,
    beta: np.ndarray,
    first: np.ndarray,
    neighbors: np.ndarray,
    weights: np.ndarray,
    seeds: np.ndarray,
) -> None:
    """Move some chains of ``x`` (C, D), whole numbers, in place; ``weights`` (2 E, K, K) has the
    neighbor's state first.

    ``start`` is (1, D, K), or (C, D, K) where chains differ.
    """
    sites, states = bias.shape
    for c in range(from_chain, to_chain):
        state = seeds[c].copy()
        begun = start[c if start.shape[0] > 1 else 0]
        hot = beta[c]
        logits = np.empty(states, np.float32)
        for s in range(orders.shape[0]):
            for step in range(sites):
                i = orders[s, step]
                for v in range(states):
                    logits[v] = bias[i, v]
                for k in range(first[i], first[i + 1]):
                    row = weights[k, x[c, neighbors[k]]]
                    for v in range(states):
                        logits[v] += row[v]
                top = float32(-np.inf)
                for v in range(states):
                    logits[v] = (float32(1.0) - hot) * begun[i, v] + hot * logits[v]
                    top = max(top, logits[v])
                for v in range(states):
                    logits[v] = _exp(logits[v] - top)
                x[c, i] = _pick(logits, float32(int32(next_word(state, 0) >> uint32(8))) / UNIT)


@njit
def _pick(weights: np.ndarray, u: np.floating) -> int:
    """The first index whose share of the cumulative weight exceeds u."""
    total = float32(0.0)
    for v in range(len(weights)):
        total += weights[v]
    target, seen = u * total, float32(0.0)
    for v in range(len(weights) - 1):
        seen += weights[v]
        if target < seen:
            return v
    return len(weights) - 1
