"""Scores of predictions: metrics with intervals, baselines, breakdowns, comparisons."""
