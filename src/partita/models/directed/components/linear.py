"""Products and solutions with one small matrix for each row or column, or one for all of them.

Letters: B rows, D columns, d latent dimensions, q = d + 1, K components.
"""

import torch
from torch import Tensor
from torch.nn import functional


def solve_factor(factor: Tensor, drive: Tensor, transpose: bool = False) -> Tensor:
    """L^-1 or L^-T times vectors, ``(K, B or 1, d, d), (K, d, B) -> (K, d, B)``."""
    factor = factor.mT if transpose else factor
    if factor.shape[1] == 1:
        return torch.linalg.solve_triangular(factor[:, 0], drive, upper=transpose)
    return torch.linalg.solve_triangular(factor, drive.mT[..., None], upper=transpose)[..., 0].mT


def times(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Products ``(K, D or 1, q, q), (K, D, q) -> (K, D, q)`` with symmetric matrices."""
    if matrices.shape[1] == 1:
        return vectors @ matrices[:, 0]
    return (matrices @ vectors[..., None])[..., 0]


def over(mask: Tensor | None, values: Tensor) -> Tensor:
    """Sums of column values over what was observed, ``(K, D) -> (K, B or 1)``."""
    return values.sum(-1, keepdim=True) if mask is None else values @ mask


def over_columns(values: Tensor, columns: int) -> Tensor:
    """Sums of what each column has, or all have alike, ``(K, D or 1, *) -> (K, *)``."""
    return values.sum(1) if values.shape[1] > 1 else columns * values[:, 0]


def weighted(S: Tensor, weight: Tensor) -> Tensor:
    """The sum over columns of weights times matrices, ``(K, D or 1, q, q), (K, D) -> (K, q,
    q)``.
    """
    weight = weight if S.shape[1] > 1 else weight.sum(1, keepdim=True)
    return (S * weight[..., None, None]).sum(1)


def whitener(zz: Tensor) -> Tensor:
    """Q with (z, 1) = Q (z', 1) for a z' of mean 0 and covariance I, from sums of E[(z, 1)(z, 1)'],
    ``(K, q, q)``.
    """
    eye = torch.eye(zz.shape[-1], dtype=zz.dtype, device=zz.device)
    n = zz[:, -1:, -1:]
    moments = torch.where(n > 0, zz / n.clamp_min(torch.finfo(n.dtype).tiny), eye)
    mean = moments[:, :-1, -1:]
    factor = torch.linalg.cholesky(moments[:, :-1, :-1] - mean @ mean.mT)
    top = torch.cat([factor, mean], -1)
    return torch.cat([top, eye[-1:].expand(len(zz), -1, -1)], 1)


def canonical_loadings(w: Tensor, S: Tensor | None, zz: Tensor) -> tuple[Tensor, Tensor | None]:
    """Loadings and their covariances where z has mean 0 and covariance I over the data, and the
    columns of V are orthogonal.

    The first change is parameter expansion (Liu, Rubin and Wu 1998), which makes EM faster and
    never lowers the likelihood; the second is a rotation, which the likelihood does not see.
    """
    Q = whitener(zz)
    w = w @ Q
    moments = w.mT @ w
    if S is not None:
        S = Q.mT[:, None] @ S @ Q[:, None]
        moments = moments + over_columns(S, w.shape[1])
    turn = functional.pad(torch.linalg.eigh(moments[:, :-1, :-1])[1].flip(-1), (0, 1, 0, 1))
    turn[:, -1, -1] = 1.0
    return w @ turn, None if S is None else turn.mT[:, None] @ S @ turn[:, None]
