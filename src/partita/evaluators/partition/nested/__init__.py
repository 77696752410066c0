"""Nested sampling: live points that climb the likelihood through shrinking volumes."""
