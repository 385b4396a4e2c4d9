"""Searches by Optuna: what may be chosen, and the study that sweeps and `danseo tune` share."""
