"""The local backend: constrained generation and label probabilities in batches with a shared prefix."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.models.llm.backend import ModelCall, OnCall, PromptRequest
from danseo.models.llm.batched_decoding import (
    BatchDecoder,
    ReplyTree,
    SharedPrefix,
    compute_log_sums,
    use_grouped_attention,
)
from danseo.models.llm.chat_template import ChatTokenizer
from danseo.models.llm.formats.base import Message
from danseo.models.llm.reply import is_complete


class GrammarCompiler:
    """Compiles grammars for a tokenizer, whose tables are built once."""

    def __init__(self, tokenizer: Any, vocabulary: int, ends: list[int]) -> None:
        from llguidance.hf import from_tokenizer

        self.vocabulary = vocabulary
        size = max(vocabulary, len(tokenizer))  # a tokenizer may add tokens that the model does not know
        self.tokenizer = from_tokenizer(tokenizer, n_vocab=size, eos_token=ends)

    def compile(self, request: PromptRequest) -> "GrammarConstraint | None":
        """Return the constraint of a request; None if it is unconstrained."""
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
                f"{request.guid}: its reply cannot be constrained ({matcher.get_error()}); use --unconstrained"
            )
        return GrammarConstraint(matcher, self.tokenizer.vocab_size, self.vocabulary)


class GrammarConstraint:
    """The grammar state of one reply."""

    def __init__(self, matcher: Any, size: int, vocabulary: int) -> None:
        self.matcher = matcher
        self.bits = np.full((1, (size + 31) // 32), -1, dtype=np.int32)
        self.vocabulary = vocabulary

    @property
    def is_over(self) -> bool:
        return bool(self.matcher.is_stopped())

    def take_forced_tokens(self) -> list[int]:
        """Return the tokens without alternative, and consume them."""
        tokens: list[int] = [] if self.is_over else list(self.matcher.compute_ff_tokens())
        if tokens:
            self.consume(*tokens)
        return tokens

    def consume(self, *tokens: int) -> None:
        """Consume tokens."""
        if not self.matcher.consume_tokens(list(tokens)):
            raise DanseoError(f"a reply violates its format: {self.matcher.get_error()}; use --unconstrained")

    def get_allowed_tokens(self) -> Any:
        """Return which tokens may come next, as booleans."""
        from llguidance.numpy import fill_next_token_bitmask

        fill_next_token_bitmask(self.matcher, self.bits)
        return np.unpackbits(self.bits.view(np.uint8), bitorder="little")[: self.vocabulary].astype(bool)


_ROWS, _TOKENS = 16, 16384
"""Maximum number of sequences and of tokens in a batch."""
_TREE_LOGITS = 2**27
"""Maximum number of logits when comparing labels: 512 MB."""
_LOOK_EVERY = 4  # check unconstrained replies after this many tokens


class LocalBackend:
    """A model in memory that answers requests."""

    scores_labels = True

    def __init__(
        self, model: Any, chat: ChatTokenizer, config: RunConfig, identity: str, *, is_tuned: bool = False
    ) -> None:
        self.model, self.chat, self.config, self._identity = model.eval(), chat, config, identity
        self._compiler: GrammarCompiler | None = None
        prompt = config.prompt
        may_think = prompt.thinking == "auto" and prompt.mode != "likelihood" and not is_tuned
        self.reasons = prompt.thinking == "on" or (may_think and bool(chat.thought))
        self.chat.closes_thought = not self.reasons  # a reply never begins inside a thought
        self.closing = f"</{chat.thought or 'think'}>"

    def identity(self) -> dict[str, Any]:
        known = {"here": self._identity, "dtype": str(self.model.dtype), "think": self.config.prompt.thinking}
        return known | ({"thought": "open" if self.reasons else "closed"} if self.chat.thought else {})

    def prepare(self) -> dict[str, Any]:
        known = {
            "parameters": self.model.num_parameters(),
            "dtype": str(self.model.dtype),
            "chat_template": self.chat.is_chat,
        }
        most = self.config.prompt.max_thinking_tokens
        thought = f"at most {most} tokens (--thinking off closes it)" if self.reasons else "closed before the reply"
        return known | ({"thought": thought} if self.chat.thought else {})

    def max_context(self) -> int | None:
        known = getattr(self.model.config, "max_position_embeddings", None)
        return self.config.prompt.max_context_length or known

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return len(self.chat.prompt(messages))

    @property
    def compiler(self) -> GrammarCompiler:
        """The grammar compiler, built at the first use."""
        if self._compiler is None:
            vocabulary = self.model.get_output_embeddings().weight.shape[0]
            self._compiler = GrammarCompiler(self.chat.tokenizer, vocabulary, self.chat.ends)
        return self._compiler

    def complete(self, requests: Sequence[PromptRequest], keys: Sequence[str], on_call: OnCall) -> list[str]:
        """Answer all requests, the longest first; log every batch when it ends."""
        with use_grouped_attention(self.model):
            self._answer(requests, keys, on_call)
        return []

    def _answer(self, requests: Sequence[PromptRequest], keys: Sequence[str], on_call: OnCall) -> None:
        prompts = [self.chat.prompt(request.messages) for request in requests]
        rows = self.model.get_input_embeddings().weight.shape[0]
        if any(not prompt or max(prompt) >= rows for prompt in prompts):
            raise DanseoError(f"{self.model.name_or_path}: its tokenizer makes tokens that the model lacks, or none")
        beginning = SharedPrefix(self.model, find_common_prefix(prompts))
        for positions in batches([len(prompt) + r.tokens for prompt, r in zip(prompts, requests, strict=True)]):
            began = time.monotonic()
            chosen = [requests[position] for position in positions]
            rests = [prompts[position][len(beginning) :] for position in positions]
            answer = self._score_labels if chosen[0].choices else self._generate
            replies = list(answer(chosen, rests, beginning))
            seconds = round((time.monotonic() - began) / len(positions), 4)
            for position, reply in zip(positions, replies, strict=True):
                numbers: dict[str, Any] = {
                    "prompt_tokens": len(prompts[position]),
                    "cached_tokens": len(beginning),
                    "seconds": seconds,
                }
                on_call(ModelCall(keys[position], requests[position].guid, **reply, **numbers))

    # Label probabilities

    def _score_labels(
        self, requests: Sequence[PromptRequest], rests: Sequence[list[int]], beginning: SharedPrefix
    ) -> Iterator[dict[str, Any]]:
        """Yield the log-probability of every label's reply, in parts that fit the memory."""
        choices = [request.choices or {} for request in requests]
        trees = [ReplyTree([[*self.chat.reply(text), self.chat.end] for text in some.values()]) for some in choices]
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        most = max(1, _TREE_LOGITS // (vocabulary * max(1, *(len(tree.inner) for tree in trees))))
        for first in range(0, len(requests), most):
            part = slice(first, first + most)
            stream = BatchDecoder(self.model, beginning, len(rests[part]))
            logits = stream.feed(rests[part])[:, -1]
            heads = logits.double().cpu() - compute_log_sums(logits)[:, None]
            weights = stream.score_trees(trees[part])
            for some, tree, nodes, head in zip(choices[part], trees[part], weights, heads, strict=True):
                yield _pick_label(some, tree, nodes, head)

    # Generation

    def _generate(
        self, requests: Sequence[PromptRequest], rests: Sequence[list[int]], beginning: SharedPrefix
    ) -> list[dict[str, Any]]:
        """Generate replies greedily; finished rows leave the batch."""
        rows = [ReplyRow(self, request) for request in requests]
        stream, active = BatchDecoder(self.model, beginning, len(rows)), list(range(len(rows)))
        feeds = [[*rest, *rows[position].start()] for position, rest in enumerate(rests)]
        while active:
            logits = stream.feed(feeds)[:, -1]
            feeds, kept = [], []
            for number, position in enumerate(active):
                if tokens := rows[position].next_tokens(logits[number]):
                    feeds.append(tokens)
                    kept.append(number)
            if kept and len(kept) < len(active):
                stream.keep(kept)
            active = [active[number] for number in kept]
        return [row.result() for row in rows]


class ReplyRow:
    """One reply being generated: reasoning first if requested, then tokens that its grammar allows."""

    def __init__(self, backend: LocalBackend, request: PromptRequest) -> None:
        self.backend, self.request, self.chat = backend, request, backend.chat
        self.constraint: GrammarConstraint | None = (
            backend.compiler.compile(request) if request.grammar or request.schema else None
        )
        self.thoughts: list[int] = []
        self.tokens: list[int] = []
        self.is_thinking = backend.reasons
        self.finish: str | None = None
        self.logprob = 0.0

    def start(self) -> list[int]:
        """Return the forced tokens at the start of the reply."""
        return [] if self.is_thinking else self._take_forced_tokens()

    def _take_forced_tokens(self) -> list[int]:
        tokens = self.constraint.take_forced_tokens() if self.constraint else []
        self.tokens += tokens
        return tokens

    def next_tokens(self, logits: Tensor) -> list[int]:
        """Return the next tokens; empty if the reply is finished."""
        if self.is_thinking:
            return self._think(logits)
        if self.constraint and self.constraint.is_over:
            self.finish = "stop"
            return []
        token = self._choose(logits)
        if token in self.chat.ends and (not self.constraint or self.constraint.matcher.is_accepting()):
            self.finish = "stop"
            return []
        if self.constraint:
            self.constraint.consume(token)
        self.tokens.append(token)
        more = [token, *self._take_forced_tokens()]
        return [] if self._is_over() else more

    def _choose(self, logits: Tensor) -> int:
        scores = logits.float()
        if self.constraint:
            scores = scores.masked_fill(
                ~torch.from_numpy(self.constraint.get_allowed_tokens()).to(scores.device), -torch.inf
            )
        token = int(scores.argmax())
        self.logprob += float(scores[token] - torch.logsumexp(scores, -1))
        return token

    def _is_over(self) -> bool:
        if self.constraint and self.constraint.is_over:
            self.finish = "stop"
        elif len(self.tokens) >= self.request.tokens:
            self.finish = "length"
        elif not self.constraint and len(self.tokens) % _LOOK_EVERY == 0 and self._has_ended():
            self.finish = "stop"
        return self.finish is not None

    def _has_ended(self) -> bool:
        """Return whether an unconstrained reply is complete."""
        text = self.chat.text(self.tokens)
        if self.request.ends == "object":
            return is_complete(text)
        return ("\n" if self.request.ends == "line" else "\n\n") in text.lstrip()

    def _think(self, logits: Tensor) -> list[int]:
        """Continue the reasoning until it closes or its budget is used up."""
        token = int(logits.argmax())
        self.thoughts.append(token)
        text = self.chat.tokenizer.decode(self.thoughts)
        is_spent = len(self.thoughts) >= self.backend.config.prompt.max_thinking_tokens or token in self.chat.ends
        if self.backend.closing not in text and not is_spent:
            return [token]
        self.is_thinking = False
        closing = [] if self.backend.closing in text else self.chat.reply(f"\n{self.backend.closing}\n\n")
        if token in self.chat.ends:
            self.thoughts.pop()
        kept = [] if token in self.chat.ends else [token]
        return [*kept, *closing, *self._take_forced_tokens()] or [token]

    def result(self) -> dict[str, Any]:
        """Return the fields of the call."""
        text = self.chat.text(self.tokens)
        if self.thoughts:
            closing = self.backend.closing
            thoughts = self.chat.tokenizer.decode(self.thoughts).partition(closing)[0]
            text = f"{closing.replace('/', '')}{thoughts}{closing}{text}"
        written = len(self.tokens) + len(self.thoughts)
        return {"text": text, "finish": self.finish, "reply_tokens": written, "logprob": round(self.logprob, 6)}


def _pick_label(choices: dict[str, str], tree: ReplyTree, nodes: Tensor, head: Tensor) -> dict[str, Any]:
    """Return the most likely label and the log-probabilities of all."""
    weights = {
        label: round(float(head[tree.tokens[path[0]]] + nodes[path[1:]].sum()), 6)
        for label, path in zip(choices, tree.paths, strict=True)
    }
    best = max(weights, key=lambda label: weights[label])
    return {"text": choices[best], "finish": "stop", "label_logprobs": weights, "logprob": weights[best]}


def find_common_prefix(prompts: Sequence[list[int]]) -> list[int]:
    """Return the common prefix of all prompts; every prompt keeps at least one own token."""
    if len(prompts) < 2:
        return []
    first, last = min(prompts), max(prompts)
    most = min(len(prompt) for prompt in prompts) - 1
    count = next((k for k, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), most)
    return first[: min(count, most)]


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return indices by decreasing length, in batches that fit the memory."""
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    found: list[list[int]] = []
    for position in order:
        if found and len(found[-1]) < _ROWS and (len(found[-1]) + 1) * lengths[found[-1][0]] <= _TOKENS:
            found[-1].append(position)
        else:
            found.append([position])
    return found


def load_local_backend(config: RunConfig, name: str, device: str | None, adapters: Path | None = None) -> LocalBackend:
    """Load the model of a folder or Hub id, with adapters if there are any."""
    from danseo.models.llm.loading import load_language_model
    from danseo.training.distributed import Workers

    model, tokenizer, identity = load_language_model(config, name, Workers(device).device, adapters)
    return LocalBackend(
        model, ChatTokenizer(tokenizer, config.prompt.thinking, get_end_tokens(model)), config, identity
    )


def get_end_tokens(model: Any) -> list[int]:
    """Return the end tokens of a checkpoint's generation config."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    found = list(ends) if isinstance(ends, list | tuple) else [] if ends is None else [ends]
    rows = model.get_input_embeddings().weight.shape[0]
    if not all(isinstance(end, int) and 0 <= end < rows for end in found):
        raise DanseoError(f"{model.name_or_path}: eos_token_id is no token of the model; check generation_config.json")
    return found
