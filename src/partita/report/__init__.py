"""Figures and pages about fits: plotly is imported only when one is drawn."""
