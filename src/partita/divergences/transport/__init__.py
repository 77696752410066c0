"""Optimal transport: exact plans with their proofs, entropic ones at scale, closed forms on the
line and between normals.
"""

from partita.divergences.transport.costs import cost_matrix
from partita.divergences.transport.exact import TransportPlan, exact_transport, wasserstein
from partita.divergences.transport.gaussian import gaussian_entropic_transport, gaussian_transport
from partita.divergences.transport.line import line_transport, sliced_transport, sliced_wasserstein
from partita.divergences.transport.sinkhorn import Entropic, sinkhorn, sinkhorn_divergence

__all__ = [
    "Entropic",
    "TransportPlan",
    "cost_matrix",
    "exact_transport",
    "gaussian_entropic_transport",
    "gaussian_transport",
    "line_transport",
    "sinkhorn",
    "sinkhorn_divergence",
    "sliced_transport",
    "sliced_wasserstein",
    "wasserstein",
]
