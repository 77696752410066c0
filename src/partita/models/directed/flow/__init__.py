"""Normalizing flows: layers, the model, its own verification, and gray levels as real numbers."""

from partita.models.directed.flow.flow import Flow
from partita.models.directed.flow.images import Dequantized, evaluate_levels
from partita.models.directed.flow.verify import Verdict, verify_flow

__all__ = ["Dequantized", "Flow", "Verdict", "evaluate_levels", "verify_flow"]
