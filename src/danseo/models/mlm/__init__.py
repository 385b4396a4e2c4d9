"""Masked language models: loading, objectives, and input lengths."""
