"""Running text: documents, morphemes, letters, identity."""
