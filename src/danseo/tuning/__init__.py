"""Searching for good settings of a training command with Optuna."""
