"""Directed models: drawn from the top down, many with an exact density."""
