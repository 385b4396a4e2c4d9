"""Many runs: sweeps, searches with Optuna, tuning of a training command, and mining of hard examples."""
