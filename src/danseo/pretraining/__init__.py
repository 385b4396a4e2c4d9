"""Masked-language-model training: text in, checkpoints out; and entities that repeat themselves."""
