"""Figures: pure functions from data and palette to a Plotly figure, one idea a file."""
