"""Runs as tables: list, summary, seeds, KLUE, sweep, ablation, systems, comparison."""
