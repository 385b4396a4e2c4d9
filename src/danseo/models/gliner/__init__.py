"""GLiNER models: entities named by words, found without training or after it."""
