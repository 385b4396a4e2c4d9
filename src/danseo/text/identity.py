"""What identifies a text and a tokenizer, wherever they lie."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from danseo.errors import DataError
from danseo.text.documents import text_files


def text_identity(paths: Sequence[Path]) -> str:
    """Sixteen hex digits of the files: their bytes, in order."""
    digest = hashlib.sha256()
    for file in (file for path in paths for file in text_files(path)):
        try:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from None
    return digest.hexdigest()[:16]


def tokenizer_identity(tokenizer: Any) -> str:
    """Sixteen hex digits of what a tokenizer makes of text: its rules, vocabulary and special pieces."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}  # set by use
    specials = sorted(tokenizer.special_tokens_map.items(), key=str)
    return hashlib.sha256(json.dumps([rules, specials], sort_keys=True, default=str).encode()).hexdigest()[:16]
