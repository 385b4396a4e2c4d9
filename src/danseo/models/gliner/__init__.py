"""GLiNER models: entity types given as words, zero-shot or fine-tuned."""
