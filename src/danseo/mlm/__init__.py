"""Masked language models: probes, and overlap of texts."""
