"""Importance sampling from a mixture that was fitted to the density."""
