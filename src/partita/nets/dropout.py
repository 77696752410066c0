r"""Dropout (Srivastava et al. 2014): numbers are left out at random while a model learns, and only
then.

.. math:: u \leftarrow u \, m / (1 - p), \qquad m \sim \mathrm{Bernoulli}(1 - p)
          (theory/sequences.md, eq. 24.5)

Nothing is dropped but inside :func:`dropping`, which hands in the randomness: a model is the same
however it is looked at, and no switch can be left in the wrong place.

Letters: p share that is left out, m which numbers stay.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Generator, Tensor, nn

from partita.core import rng
from partita.core.checks import check_real

MOST = 0.95  # share: of hardly anything that is left nothing is learned
_source: ContextVar[Generator | None] = ContextVar("dropping", default=None)


@contextmanager
def dropping(generator: Generator) -> Iterator[None]:
    """In here every :class:`Dropout` leaves out numbers, drawn from ``generator``."""
    token = _source.set(generator)
    try:
        yield
    finally:
        _source.reset(token)


class Dropout(nn.Module):
    """Leaves out each number with probability ``share`` inside :func:`dropping`, and is the
    identity elsewhere.

    >>> import torch
    >>> layer, ones = Dropout(0.5), torch.ones(1000)
    >>> with dropping(torch.Generator().manual_seed(0)):
    ...     seen = layer(ones)
    >>> sorted(set(seen.tolist())), torch.equal(layer(ones), ones)
    ([0.0, 2.0], True)
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = check_real("Dropout", "share", share, 0, MOST)

    def forward(self, u: Tensor) -> Tensor:
        generator = _source.get()
        if generator is None or not self.share:
            return u
        kept = rng.uniform(u.shape, u, generator) >= self.share
        return u * kept / (1 - self.share)

    def extra_repr(self) -> str:
        return f"{self.share:g}"
