"""Encoders: a pretrained body with one head per task type."""
