"""Fitting weights: batches, steps, schedules, averages; torch lives here and in models/."""
