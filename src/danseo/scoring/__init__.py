"""Scores of predictions: metrics with intervals, floors, breakdowns, comparisons."""
