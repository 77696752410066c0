"""Bernoulli draws on the CPU from xoshiro128++ in sixteen lanes that become vector instructions
(Blackman and Vigna 2021).

Torch's Mersenne Twister makes one number at a time; in block Gibbs its draws would cost a quarter
of the matrix products.
"""

import numpy as np
from numba import uint32

from partita.runtime.numba_cache import njit

LANES = 16
BLOCK = 1024  # numbers made before they are compared, few enough to stay in the nearest cache
UNIT = np.float32(2.0**24)  # 24 random bits are compared with p: the resolution of torch.rand too


@njit(inline="always")
def next_word(state: np.ndarray, lane: int) -> int:
    """The next 32 random bits of a lane."""
    s0, s1, s2, s3 = state[0, lane], state[1, lane], state[2, lane], state[3, lane]
    total = uint32(s0 + s3)
    shifted = uint32(s1 << uint32(9))
    s2 ^= s0
    s3 ^= s1
    state[0, lane], state[1, lane], state[2, lane] = s0 ^ s3, s1 ^ s2, s2 ^ shifted
    state[3, lane] = uint32(s3 << uint32(11)) | uint32(s3 >> uint32(21))
    return uint32(uint32((total << uint32(7)) | (total >> uint32(25))) + s0)


@njit("void(float32[::1], float32[::1], uint32[:, ::1])", cache=True)
def fill_bernoulli(p: np.ndarray, out: np.ndarray, state: np.ndarray) -> None:
    """Write ones with probability ``p`` and zeros into ``out``; ``state`` (4, LANES) moves on. p =
    0 and p = 1 are exact.
    """
    bits = np.empty(BLOCK, np.int32)
    for start in range(0, p.shape[0], BLOCK):
        for first in range(0, BLOCK, LANES):
            for lane in range(LANES):
                bits[first + lane] = np.int32(next_word(state, lane) >> uint32(8))
        block, result = p[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(len(block)):
            result[i] = (
                np.float32(1.0) if np.float32(bits[i]) < block[i] * UNIT else np.float32(0.0)
            )
