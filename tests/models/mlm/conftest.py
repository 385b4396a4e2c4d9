from tests.mlm.conftest import passages, text_file, tokenizers

__all__ = ["passages", "text_file", "tokenizers"]
