"""Masked language models: the head, longer inputs, how long they may be."""
