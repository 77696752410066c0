"""Round trips of a ladder's replicas: from the coldest rung to the hottest and back, the sign that
exchanges carry states between them.

States at the hottest rung are drawn anew at every step; a replica that went there and came back has
forgotten where it was.

Letters: C ladders, T rungs, the last at beta = 1.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class RoundTrips(NamedTuple):
    """Which replica is on each rung, which end it last saw, and how many round trips it has made.

    >>> trips = RoundTrips.begin(2, 1)
    >>> swap = torch.tensor([[1], [0]])  # the rung from which each rung's state came
    >>> trips.after(swap).after(swap).made.tolist()
    [[0], [1]]
    """

    replica: Tensor  # (T, C), by rung
    # (T, C), by replica: 0 not yet at beta = 1, 1 last there, 2 at the hottest rung since
    away: Tensor
    made: Tensor  # (T, C), by replica

    @classmethod
    def begin(cls, rungs: int, ladders: int, device: torch.device | None = None) -> "RoundTrips":
        """Every replica on the rung of its own number."""
        home = torch.arange(rungs, device=device)[:, None].repeat(1, ladders)
        return cls(home, (home == rungs - 1).long(), torch.zeros_like(home))

    def after(self, origin: Tensor) -> "RoundTrips":
        """Follow the replicas through one exchange, ``origin`` the rung from which each rung's
        state came, ``(T, C)``.
        """
        replica = self.replica.gather(0, origin)
        hot, cold = replica[:1], replica[-1:]
        was = self.away.gather(0, hot)
        away = self.away.scatter(0, hot, torch.where(was == 1, 2, was))
        made = self.made.scatter_add(0, cold, (away.gather(0, cold) == 2).long())
        return RoundTrips(replica, away.scatter(0, cold, 1), made)
