r"""What every layer that mixes along a sequence offers: all steps at once, and one step after the
other.

.. math:: y = A(u)\, v(u), \qquad A(u) \text{ lower triangular}
          (theory/sequences.md, eq. 23.1)

State-space models, Hyena, H3 and attention are one family: v is linear in u, and the matrix A, with
whatever depends on u inside it held, acts on each channel of v.

Letters: B batch, L length, D width (channels), t step.
"""

from abc import abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from partita.errors import invalid
from partita.nets.base import Net

State = TypeVar("State")  # what a mixer remembers between steps; the next may change it in place


class Mixer(Net, Generic[State]):
    """A causal map of sequences, ``(B, L, D) -> (B, L, D)``: y at t depends on u up to t."""

    width: int
    out: nn.Module

    @abstractmethod
    def forward(self, u: Tensor) -> Tensor:
        """All steps at once."""

    @abstractmethod
    def start(self, batch: int, capacity: int) -> State:
        """The state before the first of at most ``capacity`` steps."""

    @abstractmethod
    def step(self, u: Tensor, state: State) -> tuple[Tensor, State]:
        """One step, ``(B, D) -> (B, D)``, equal to the same step of :meth:`forward`."""

    def check(self, u: Tensor) -> Tensor:
        """Return ``u`` if it is a batch of sequences of this width and of at least one step."""
        if u.dim() != 3 or u.shape[-1] != self.width or u.shape[1] == 0:
            allowed = f"have shape (B, L, {self.width}) with L of at least 1"
            raise invalid(type(self).__name__, "u", allowed, tuple(u.shape))
        return u


class MatrixMixer(Mixer[State]):
    """A mixer that is a matrix applied to each channel of v: (23.1) followed by a linear layer."""

    @abstractmethod
    def project(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """v and whatever the matrix is made of, ``(B, L, D) -> (B, D, L), ...``."""

    @abstractmethod
    def operate(self, v: Tensor, gates: tuple[Tensor, ...]) -> Tensor:
        """A v without ever forming A, ``(B, D, L) -> (B, D, L)``."""

    @abstractmethod
    def matrix(self, gates: tuple[Tensor, ...], length: int) -> Tensor:
        """A itself, ``(B, D, L, L)``; its leading dimensions may be 1 where nothing changes along
        them.
        """

    def dense(self, u: Tensor) -> Tensor:
        """The matrix that ``u`` controls, ``(B, L, D) -> (B, D, L, L)``."""
        _, gates = self.project(self.check(u))
        return self.matrix(gates, u.shape[1]).expand(len(u), self.width, -1, -1)

    def forward(self, u: Tensor) -> Tensor:
        v, gates = self.project(self.check(u))
        return self.out(self.operate(v, gates).transpose(1, 2))


def channels_first(weight: Tensor, bias: Tensor, u: Tensor) -> Tensor:
    """A linear map whose result has time last, ``(C, D), (C,), (B, L, D) -> (B, C, L)``, without a
    transposing copy.
    """
    return torch.baddbmm(bias[:, None], weight.expand(len(u), -1, -1), u.mT)


def check_capacity(steps: int, capacity: int, owner: str) -> None:
    """Refuse a step beyond the capacity given to start."""
    if steps >= capacity:
        allowed = f"be called at most {capacity} times after start"
        raise invalid(owner, "step", allowed, steps + 1, "Give start a larger capacity.")


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True where column s is not after row t, (L, L)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
