"""Masked-word probes: frozen sets of gaps in real text, and what a masked language model puts into them."""
