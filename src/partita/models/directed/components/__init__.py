"""Families of mixture components, one file each."""
