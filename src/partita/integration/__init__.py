"""Integrals of exp(-F) over a few real coordinates, with an error that is bounded or estimated."""
