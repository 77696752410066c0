"""Probes: what a model can do, measured from outside."""
