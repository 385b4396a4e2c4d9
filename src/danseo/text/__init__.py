"""Running text: documents, morphemes, normalization."""
