r"""State-space models: one linear operator seen as a recurrence, a convolution, an FFT and a
matrix.

.. math:: x_t = \bar A x_{t-1} + \bar B u_t, \quad y_t = C x_t + D u_t
    \quad\Longleftrightarrow\quad y = h * u, \;\; h_t = C \bar A^t \bar B + D \delta_t
          (theory/sequences.md, eq. 22.2)

The continuous model x'(s) = A x(s) + B u(s) becomes the discrete one over steps of size dt by the
bilinear rule or by holding u constant.

Letters: N state, D width (independent channels) or, beside C, the direct term; L length; dt step
size.
"""

from abc import abstractmethod
from typing import Annotated, TypeAlias

import torch
from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.arguments import LARGEST, Flag, PositiveInt, check_count, check_real, one_of
from partita.errors import invalid
from partita.nets.base import linear
from partita.nets.fftconv import Toeplitz, causal_convolution
from partita.nets.mixer import MatrixMixer

SSMState: TypeAlias = tuple[Tensor, Tensor, Tensor]  # two of the recurrence, and x
REMEDY = (
    "Give A eigenvalues with negative real parts, or of modulus at most 1 where it is discrete."
)


def bilinear(A: Tensor, B: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """(I - dt A / 2)^{-1} (I + dt A / 2) and (I - dt A / 2)^{-1} dt B, ``(*, N, N), (*, N),
    (*)``.
    """
    half = 0.5 * dt[..., None, None] * A
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    solved = torch.linalg.solve(
        eye - half, torch.cat([eye + half, (dt[..., None] * B).unsqueeze(-1)], -1)
    )
    return solved[..., :-1], solved[..., -1]


def zero_order_hold(A: Tensor, B: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """exp(dt A) and A^{-1} (exp(dt A) - I) B, from one exponential of the block matrix [A B; 0 0],
    also where A is singular.
    """
    N = A.shape[-1]
    block = torch.cat(
        [torch.cat([A, B.unsqueeze(-1)], -1), A.new_zeros(*A.shape[:-2], 1, N + 1)], -2
    )
    exponential = torch.linalg.matrix_exp(dt[..., None, None] * block)
    return exponential[..., :N, :N], exponential[..., :N, N]


def hippo(N: int) -> tuple[Tensor, Tensor]:
    """A and B of HiPPO-LegS (Gu et al. 2020), which keep the Legendre coefficients of all of the
    past, in float64.

    >>> hippo(2)[0].round(decimals=3).tolist()
    [[-1.0, 0.0], [-1.732, -2.0]]
    """
    scale = (2 * torch.arange(N, dtype=torch.float64) + 1).sqrt()
    diagonal = torch.diag(-torch.arange(1.0, N + 1, dtype=torch.float64))
    return diagonal - (scale[:, None] * scale).tril(-1), scale


def filter_of(A: Tensor, B: Tensor, C: Tensor, D: Tensor, length: int) -> Tensor:
    """h_t = C A^t B + D delta_t of a discrete model by doubling, ``(*, N, N), (*, N), (*, N), (*)
    -> (*, L)``.
    """
    columns, power = B.unsqueeze(-1), A
    while columns.shape[-1] < length:
        columns, power = torch.cat([columns, power @ columns], -1), power @ power
    h = (C.unsqueeze(-2) @ columns[..., :length]).squeeze(-2)
    return torch.cat([h[..., :1] + D.unsqueeze(-1), h[..., 1:]], -1)


def check_stable(owner: str, A: Tensor, *, discrete: bool) -> Tensor:
    """Return A if no mode grows: real parts at most 0, or moduli at most 1 where it is discrete."""
    eigenvalues = torch.linalg.eigvals(A.detach().double())
    worst = eigenvalues.abs().max() - 1 if discrete else eigenvalues.real.max()
    # a rotation may round to a bit above 1
    if worst > max(1e-8, 8 * min(torch.finfo(A.dtype).eps, torch.finfo(torch.float32).eps)):
        allowed = "have eigenvalues with real parts at most 0"
        if discrete:
            allowed = "have spectral radius at most 1"
        got = f"{float(worst + discrete):.6g}, so its memory explodes"
        raise invalid(owner, "A", allowed, got, REMEDY)
    return A


class SSM(MatrixMixer[SSMState]):
    """What dense and diagonal models share: D channels, each a single-input single-output model,
    without mixing between channels.

    Arguments:
        width: D channels.
        state: N.
        rule: ``"zoh"`` or ``"bilinear"``.
        shortest, longest: Steps over which the channels remember at first; 1 / dt runs between
            them.
        mix: As a mixer of a network: a linear layer before, and an activation and a linear layer
            after.
    """

    def __init__(
        self,
        width: PositiveInt,
        state: PositiveInt = 16,
        *,
        rule: Annotated[str, one_of("zoh", "bilinear")] = "zoh",
        shortest: float = 10.0,
        longest: float = 1000.0,
        mix: Flag = False,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.width, self.rule = width, rule
        like = torch.zeros(width, device=generator.device)
        self.log_dt = nn.Parameter(-log_spaced(type(self).__name__, shortest, longest, like))
        self.set_modes(state, generator)
        self.D = nn.Parameter(torch.ones_like(like))
        self.into = linear(width, width, generator=generator) if mix else nn.Identity()
        self.out = nn.Identity()
        if mix:
            gates = linear(width, 2 * width, generator=generator)
            self.out = nn.Sequential(nn.GELU(), gates, nn.GLU(-1))

    @abstractmethod
    def set_modes(self, state: int, generator: Generator) -> None:
        """Make A, B and C of all channels."""

    @abstractmethod
    def filter(self, length: int) -> Tensor:
        """h, ``(D, L)``."""

    def project(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.into(u).transpose(1, 2), (self.filter(u.shape[1]),)

    def operate(self, v: Tensor, gates: tuple[Tensor, ...]) -> Tensor:
        return causal_convolution(gates[0], v)

    def matrix(self, gates: tuple[Tensor, ...], length: int) -> Tensor:
        return Toeplitz(gates[0]).dense()[None]


class DenseSSM(SSM):
    """A model with full matrices, A from HiPPO at first.

    Arguments:
        width: D channels.
        state: N.
        rule: ``"zoh"`` or ``"bilinear"``.
        shortest, longest: Steps over which the channels remember at first; 1 / dt runs between
            them.
        mix: Linear layers before and after.

    >>> model = DenseSSM(2, 4, generator=torch.Generator().manual_seed(0))
    >>> model(torch.ones(1, 7, 2)).shape, model.dense(torch.ones(1, 7, 2)).shape
    (torch.Size([1, 7, 2]), torch.Size([1, 2, 7, 7]))
    """

    def set_modes(self, state: int, generator: Generator) -> None:
        A, B = (x.to(self.log_dt) for x in hippo(state))
        self.A = nn.Parameter(A.expand(self.width, -1, -1).clone())
        self.B = nn.Parameter(B.expand(self.width, -1).clone())
        self.C = nn.Parameter(rng.normal((self.width, state), A, generator) / state**0.5)

    def discrete(self) -> tuple[Tensor, Tensor]:
        """A and B of the recurrence, ``(D, N, N), (D, N)``; an A that lets a mode grow is
        refused.
        """
        rule = zero_order_hold if self.rule == "zoh" else bilinear
        A = check_stable("DenseSSM", self.A, discrete=False)
        return rule(*map(at_least_single, (A, self.B, self.log_dt.exp())))

    def filter(self, length: int) -> Tensor:
        return filter_of(
            *self.discrete(), at_least_single(self.C), at_least_single(self.D), length
        ).to(self.D)

    def start(self, batch: int, capacity: int) -> SSMState:
        A, B = self.discrete()
        return A, B, B.new_zeros(batch, *B.shape)

    def step(self, u: Tensor, state: SSMState) -> tuple[Tensor, SSMState]:
        (A, B, x), v = state, self.into(u)
        x = torch.einsum("dmn,bdn->bdm", A, x) + B * v.unsqueeze(-1)
        return self.out((self.C * x).sum(-1).to(v) + self.D * v), (A, B, x)


class DiagonalSSM(SSM):
    """A model whose A is diagonal with complex pairs (S4D-Lin, Gu et al. 2022); it cannot become
    unstable: Re A = -exp(.) < 0.

    Arguments:
        width: D channels.
        state: N, even: N / 2 poles and their conjugates.
        rule, shortest, longest, mix: As in :class:`DenseSSM`.
    """

    def set_modes(self, state: int, generator: Generator) -> None:
        if check_count("DiagonalSSM", "state", state, 2) % 2:
            allowed = "be even, for poles come in conjugate pairs"
            raise invalid("DiagonalSSM", "state", allowed, state)
        half = state // 2
        like = self.log_dt.detach().new_zeros(self.width, half)
        self.log_decay = nn.Parameter(torch.full_like(like, 0.5).log())
        self.frequency = nn.Parameter(
            torch.pi * torch.arange(half).expand_as(like).to(like).clone()
        )
        self.C = nn.Parameter(rng.normal((self.width, half, 2), like, generator) * 0.5**0.5)

    def poles(self) -> tuple[Tensor, Tensor]:
        """The logarithms of the discrete poles, and the residues C B, complex, ``(D, N / 2)``."""
        log_dt, log_decay, frequency, C = map(
            at_least_single, (self.log_dt, self.log_decay, self.frequency, self.C)
        )
        dt = log_dt.exp().unsqueeze(-1)
        A = torch.complex(-log_decay.exp(), frequency)
        C = torch.view_as_complex(C)
        if self.rule == "zoh":
            return dt * A, C * ((dt * A).exp() - 1) / A
        return torch.log((1 + 0.5 * dt * A) / (1 - 0.5 * dt * A)), C * dt / (1 - 0.5 * dt * A)

    def filter(self, length: int) -> Tensor:
        log_pole, residue = self.poles()
        t = torch.arange(length, device=log_pole.device)
        h = 2 * torch.einsum("dn,dnl->dl", residue, (log_pole.unsqueeze(-1) * t).exp()).real.to(
            self.D
        )
        return torch.cat([h[:, :1] + self.D[:, None], h[:, 1:]], -1)

    def start(self, batch: int, capacity: int) -> SSMState:
        log_pole, residue = self.poles()
        return log_pole.exp(), residue, log_pole.new_zeros(batch, *log_pole.shape)

    def step(self, u: Tensor, state: SSMState) -> tuple[Tensor, SSMState]:
        (pole, residue, x), v = state, self.into(u)
        x = pole * x + v.unsqueeze(-1)
        return self.out(2 * (residue * x).real.sum(-1).to(v) + self.D * v), (pole, residue, x)


def at_least_single(x: Tensor) -> Tensor:
    """Half precision as float32: there are no half complex numbers, and exponentials of half
    matrices are not to be trusted.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def log_spaced(owner: str, shortest: float, longest: float, like: Tensor) -> Tensor:
    """Logarithms of numbers spaced evenly between two on a logarithmic scale, one per channel."""
    longest = check_real(owner, "longest", longest, 0, LARGEST, open_low=True)
    check_real(owner, "shortest", shortest, 0, longest, open_low=True)
    first, last = torch.tensor([shortest, longest], dtype=like.dtype).log().tolist()
    return torch.linspace(first, last, len(like), dtype=like.dtype, device=like.device)
