"""Exports of runs: one module per format."""
