"""Replies held to their shape: at every place only tokens that can still become a right reply may be chosen."""

import json
from typing import Any

import numpy as np

from danseo.errors import DanseoError
from danseo.models.llm.calls import Request


class Guides:
    """Makes guides for a tokenizer; building its tables takes a moment, so it is done once."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: list[int]) -> None:
        from llguidance.hf import from_tokenizer

        self.vocabulary = vocabulary
        self.tokenizer = from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=ends)

    def of(self, request: Request) -> "Guide | None":
        """The guide of a request; None where it is free."""
        from llguidance import LLMatcher

        if request.grammar is not None:
            grammar = LLMatcher.grammar_from_lark(request.grammar)
        elif request.schema is not None:
            options: Any = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(request.schema), overrides=options)
        else:
            return None
        matcher = LLMatcher(self.tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise DanseoError(
                f"{request.guid}: its reply cannot be held to its shape ({matcher.get_error()}); use --free"
            )
        return Guide(matcher, self.vocabulary)


class Guide:
    """One reply on its way."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self.matcher = matcher
        self.bits = np.full((1, (vocabulary + 31) // 32), -1, dtype=np.int32)
        self.vocabulary = vocabulary

    @property
    def is_over(self) -> bool:
        return bool(self.matcher.is_stopped())

    def forced(self) -> list[int]:
        """The tokens to which there is no alternative; they are taken."""
        tokens: list[int] = [] if self.is_over else list(self.matcher.compute_ff_tokens())
        if tokens:
            self.take(*tokens)
        return tokens

    def take(self, *tokens: int) -> None:
        """Go on with these tokens."""
        if not self.matcher.consume_tokens(list(tokens)):
            raise DanseoError(f"a reply left its shape: {self.matcher.get_error()}; use --free")

    def allowed(self) -> Any:
        """Which tokens may come next, as flags."""
        from llguidance.numpy import fill_next_token_bitmask

        fill_next_token_bitmask(self.matcher, self.bits)
        return np.unpackbits(self.bits.view(np.uint8), bitorder="little")[: self.vocabulary].astype(bool)
