"""Encoders: a pretrained body, one head per kind of task."""
