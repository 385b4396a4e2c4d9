"""Runs made of runs: blends of saved predictions, one file per kind of task, and averages of weights."""
