"""Figures and pages about fits; plotly and jinja2 are imported only when one is drawn."""
