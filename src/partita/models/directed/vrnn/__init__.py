"""The variational recurrent network: sequences with latent variables at every step."""

from partita.models.directed.vrnn.model import VRNN

__all__ = ["VRNN"]
