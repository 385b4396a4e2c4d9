"""Predictions and evaluation with a finished run."""
