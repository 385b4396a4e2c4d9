"""From messages to tokens and back, by the model's own chat template where it has one."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from danseo.errors import DanseoError
from danseo.models.llm.asking import Message

_SAMPLE = "가나다"


class Writing:
    """A tokenizer as prompts and replies need it."""

    def __init__(self, tokenizer: Any, think: str = "auto", ends: Sequence[int] = ()) -> None:
        self.tokenizer, self.think = tokenizer, think
        self._known_ends = list(ends)
        if tokenizer.eos_token_id is None and not ends:
            raise DanseoError(f"{tokenizer.name_or_path}: its tokenizer has no piece that ends a text (eos_token)")

    @property
    def is_chat(self) -> bool:
        """Whether the model has a chat template; others read plain text."""
        return bool(self.tokenizer.chat_template)

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The tokens before the reply; training and asking use the same."""
        text = self._chat(messages) if self.is_chat else _plain(messages)
        ids: list[int] = self.tokenizer(text, add_special_tokens=not self.is_chat)["input_ids"]
        while not self.is_chat and ids and ids[-1] == self.tokenizer.eos_token_id:
            ids = ids[:-1]  # of tokenizers that end every text
        return ids

    def reply(self, text: str) -> list[int]:
        """The tokens of a reply without its end."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """What tokens say."""
        said: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return said

    @cached_property
    def end(self) -> int:
        """The token that ends a reply: that of the chat template, or the one that ends texts."""
        if self.is_chat:
            asked = [{"role": "user", "content": _SAMPLE}]
            whole = self._template([*asked, {"role": "assistant", "content": _SAMPLE}], False)
            rest = whole.rpartition(_SAMPLE)[2]
            special = set(self.tokenizer.all_special_ids) | set(self.tokenizer.added_tokens_decoder)
            tokens = self.tokenizer(rest, add_special_tokens=False)["input_ids"]
            for token in tokens:
                if token in special:
                    return int(token)
        ends = self._known_ends or [self.tokenizer.eos_token_id]
        return int(self.tokenizer.eos_token_id if self.tokenizer.eos_token_id is not None else ends[0])

    @property
    def ends(self) -> list[int]:
        """All tokens after which nothing is read."""
        own = [] if self.tokenizer.eos_token_id is None else [int(self.tokenizer.eos_token_id)]
        return list(dict.fromkeys([self.end, *own, *self._known_ends]))

    def _chat(self, messages: Sequence[Message]) -> str:
        """By the template; where it has no place for the task, that goes before the first question."""
        try:
            return self._template(messages, True)
        except DanseoError:
            first, second, *rest = messages
            joined = {"role": "user", "content": f"{first['content']}\n\n{second['content']}"}
            return self._template([joined, *rest], True)

    def _template(self, messages: Sequence[Message], asks: bool) -> str:
        options = {} if self.think == "auto" else {"enable_thinking": self.think == "on"}
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages), tokenize=False, add_generation_prompt=asks, **options
                )
            )
        except Exception as error:  # a template is a program of others, and may raise anything
            raise DanseoError(
                f"{self.tokenizer.name_or_path}: its chat template fails ({' '.join(str(error).split())[:120]})"
            ) from None


def _plain(messages: Sequence[Message]) -> str:
    """Plain text: the task, questions with their replies below, and the last question with a place for its reply."""
    parts = [f"{message['content']}\n" + ("" if message["role"] == "user" else "\n") for message in messages]
    return "".join(parts)
