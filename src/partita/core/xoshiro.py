"""Bernoulli draws on the CPU from xoshiro128++ in sixteen lanes that become vector instructions (Blackman and Vigna 2021).

Torch's Mersenne Twister makes one number at a time; in block Gibbs its draws would cost a quarter of the matrix products.
"""

import numpy as np
from numba import njit, uint32

LANES = 16


@njit("void(float32[::1], float32[::1], uint32[:, ::1])", cache=True)
def draw_bernoulli(p: np.ndarray, out: np.ndarray, state: np.ndarray) -> None:
    """Write ones with probability ``p`` and zeros into ``out``; ``state`` (4, LANES) moves on.

    24 random bits are compared with p, which is the resolution of ``torch.rand`` too; p = 0 and p = 1 are exact.
    """
    n = p.shape[0]
    bits = np.empty(16, np.uint32)
    for start in range(0, n, 16):
        for lane in range(16):
            s0, s1, s2, s3 = state[0, lane], state[1, lane], state[2, lane], state[3, lane]
            total = uint32(s0 + s3)
            bits[lane] = uint32((total << uint32(7)) | (total >> uint32(25))) + s0
            shifted = uint32(s1 << uint32(9))
            s2 ^= s0
            s3 ^= s1
            s1 ^= s2
            s0 ^= s3
            state[0, lane], state[1, lane], state[2, lane] = s0, s1, s2 ^ shifted
            state[3, lane] = uint32(s3 << uint32(11)) | uint32(s3 >> uint32(21))
        if start + 16 <= n:
            for lane in range(16):
                u = np.float32(np.int32(bits[lane] >> uint32(8)))
                out[start + lane] = np.float32(u < p[start + lane] * np.float32(16777216.0))
        else:
            for lane in range(n - start):
                u = np.float32(np.int32(bits[lane] >> uint32(8)))
                out[start + lane] = np.float32(u < p[start + lane] * np.float32(16777216.0))
