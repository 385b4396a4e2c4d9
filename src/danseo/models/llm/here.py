"""A language model that runs here: replies written or weighed in batches, behind a beginning that is computed once."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from danseo.config import RunConfig
from danseo.models.llm.asking import Message
from danseo.models.llm.attention import shared_keys
from danseo.models.llm.calls import Call, Request
from danseo.models.llm.guide import Guide, Guides
from danseo.models.llm.reply import is_complete
from danseo.models.llm.source import OnCall
from danseo.models.llm.stream import Beginning, Stream, Tree, log_sums
from danseo.models.llm.writing import Writing

_ROWS, _TOKENS = 16, 16384
"""Most sequences, and most tokens of them, at a time."""
_TREE_LOGITS = 2**27
"""Most logits of replies that are weighed at a time: 512 MB."""
_LOOK_EVERY = 4  # tokens, at which a free reply is looked at
CLOSING = "</think>"


class Here:
    """Answers requests with a model in memory."""

    weighs = True

    def __init__(self, model: Any, writing: Writing, config: RunConfig, identity: str) -> None:
        self.model, self.writing, self.config, self._identity = model.eval(), writing, config, identity
        self._guides: Guides | None = None

    def identity(self) -> dict[str, Any]:
        return {"here": self._identity, "dtype": str(self.model.dtype), "think": self.config.prompt.think}

    def ready(self) -> dict[str, Any]:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return {"parameters": parameters, "dtype": str(self.model.dtype), "chat_template": self.writing.is_chat}

    def room(self) -> int | None:
        known = getattr(self.model.config, "max_position_embeddings", None)
        return self.config.prompt.context or known

    def count(self, messages: Sequence[Message]) -> int:
        return len(self.writing.prompt(messages))

    @property
    def guides(self) -> Guides:
        """Built at the first use: a moment for large vocabularies."""
        if self._guides is None:
            vocabulary = self.model.get_output_embeddings().weight.shape[0]
            self._guides = Guides(self.writing.tokenizer, vocabulary, self.writing.ends)
        return self._guides

    def answer(self, requests: Sequence[Request], keys: Sequence[str], on_call: OnCall) -> list[str]:
        """All requests, the longest first; every batch is noted as it ends."""
        with shared_keys(self.model):
            self._answer(requests, keys, on_call)
        return []

    def _answer(self, requests: Sequence[Request], keys: Sequence[str], on_call: OnCall) -> None:
        prompts = [self.writing.prompt(request.messages) for request in requests]
        beginning = Beginning(self.model, common_beginning(prompts))
        for positions in batches([len(prompt) + r.tokens for prompt, r in zip(prompts, requests, strict=True)]):
            began = time.monotonic()
            chosen = [requests[position] for position in positions]
            rests = [prompts[position][len(beginning) :] for position in positions]
            answer = self._weigh if chosen[0].choices else self._write
            replies = list(answer(chosen, rests, beginning))
            seconds = round((time.monotonic() - began) / len(positions), 4)
            for position, reply in zip(positions, replies, strict=True):
                numbers: dict[str, Any] = {
                    "prompt_tokens": len(prompts[position]),
                    "cached_tokens": len(beginning),
                    "seconds": seconds,
                }
                on_call(Call(keys[position], requests[position].guid, **reply, **numbers))

    # Weighing

    def _weigh(
        self, requests: Sequence[Request], rests: Sequence[list[int]], beginning: Beginning
    ) -> Iterator[dict[str, Any]]:
        """The log-probability of every reply and its end, in parts that the memory holds."""
        choices = [request.choices or {} for request in requests]
        trees = [Tree([[*self.writing.reply(text), self.writing.end] for text in some.values()]) for some in choices]
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        most = max(1, _TREE_LOGITS // (vocabulary * max(1, *(len(tree.inner) for tree in trees))))
        for first in range(0, len(requests), most):
            part = slice(first, first + most)
            stream = Stream(self.model, beginning, len(rests[part]))
            logits = stream.feed(rests[part])[:, -1]
            heads = logits.double().cpu() - log_sums(logits)[:, None]
            weights = stream.weigh(trees[part])
            for some, tree, nodes, head in zip(choices[part], trees[part], weights, heads, strict=True):
                yield _weighed(some, tree, nodes, head)

    # Writing

    def _write(
        self, requests: Sequence[Request], rests: Sequence[list[int]], beginning: Beginning
    ) -> list[dict[str, Any]]:
        """Greedy replies; tokens without an alternative are taken as they are, rows that are done leave."""
        rows = [Row(self, request) for request in requests]
        stream, active = Stream(self.model, beginning, len(rows)), list(range(len(rows)))
        feeds = [[*rest, *rows[position].start()] for position, rest in enumerate(rests)]
        while active:
            logits = stream.feed(feeds)[:, -1]
            feeds, kept = [], []
            for number, position in enumerate(active):
                if tokens := rows[position].go_on(logits[number]):
                    feeds.append(tokens)
                    kept.append(number)
            if kept and len(kept) < len(active):
                stream.keep(kept)
            active = [active[number] for number in kept]
        return [row.result() for row in rows]


class Row:
    """One reply as it is written: thoughts first where they are asked for, then what its guide allows."""

    def __init__(self, here: Here, request: Request) -> None:
        self.here, self.request, self.writing = here, request, here.writing
        self.guide: Guide | None = here.guides.of(request) if request.grammar or request.schema else None
        self.thoughts: list[int] = []
        self.tokens: list[int] = []
        self.is_thinking = here.config.prompt.think == "on"
        self.finish: str | None = None
        self.logprob = 0.0

    def start(self) -> list[int]:
        """What the reply begins with in any case."""
        return [] if self.is_thinking else self._forced()

    def _forced(self) -> list[int]:
        tokens = self.guide.forced() if self.guide else []
        self.tokens += tokens
        return tokens

    def go_on(self, logits: Tensor) -> list[int]:
        """The next tokens; none where the reply is over."""
        if self.is_thinking:
            return self._think(logits)
        if self.guide and self.guide.is_over:
            self.finish = "stop"
            return []
        token = self._choose(logits)
        if token in self.writing.ends and (not self.guide or self.guide.matcher.is_accepting()):
            self.finish = "stop"
            return []
        if self.guide:
            self.guide.take(token)
        self.tokens.append(token)
        more = [token, *self._forced()]
        return [] if self._is_over() else more

    def _choose(self, logits: Tensor) -> int:
        scores = logits.float()
        if self.guide:
            scores = scores.masked_fill(~torch.from_numpy(self.guide.allowed()).to(scores.device), -torch.inf)
        token = int(scores.argmax())
        self.logprob += float(scores[token] - torch.logsumexp(scores, -1))
        return token

    def _is_over(self) -> bool:
        if self.guide and self.guide.is_over:
            self.finish = "stop"
        elif len(self.tokens) >= self.request.tokens:
            self.finish = "length"
        elif not self.guide and len(self.tokens) % _LOOK_EVERY == 0 and self._has_ended():
            self.finish = "stop"
        return self.finish is not None

    def _has_ended(self) -> bool:
        """Whether a free reply holds all that is read of it."""
        text = self.writing.text(self.tokens)
        if self.request.ends == "object":
            return is_complete(text)
        return ("\n" if self.request.ends == "line" else "\n\n") in text.lstrip()

    def _think(self, logits: Tensor) -> list[int]:
        """Thoughts until they close; once the budget is spent, they are closed."""
        token = int(logits.argmax())
        self.thoughts.append(token)
        text = self.writing.tokenizer.decode(self.thoughts)
        is_spent = len(self.thoughts) >= self.here.config.prompt.think_tokens or token in self.writing.ends
        if CLOSING not in text and not is_spent:
            return [token]
        self.is_thinking = False
        closing = [] if CLOSING in text else self.writing.reply(f"\n{CLOSING}\n\n")
        if token in self.writing.ends:
            self.thoughts.pop()
        kept = [] if token in self.writing.ends else [token]
        return [*kept, *closing, *self._forced()] or [token]

    def result(self) -> dict[str, Any]:
        """What goes into the record."""
        text = self.writing.text(self.tokens)
        if self.thoughts:
            thoughts = self.writing.tokenizer.decode(self.thoughts).partition(CLOSING)[0]
            text = f"<think>{thoughts}{CLOSING}{text}"
        written = len(self.tokens) + len(self.thoughts)
        return {"text": text, "finish": self.finish, "reply_tokens": written, "logprob": round(self.logprob, 6)}


def _weighed(choices: dict[str, str], tree: Tree, nodes: Tensor, head: Tensor) -> dict[str, Any]:
    """The weight of each label: of the first token after the prompt, and of those below it."""
    weights = {
        label: round(float(head[tree.tokens[path[0]]] + nodes[path[1:]].sum()), 6)
        for label, path in zip(choices, tree.paths, strict=True)
    }
    best = max(weights, key=lambda label: weights[label])
    return {"text": choices[best], "finish": "stop", "weights": weights, "logprob": weights[best]}


def common_beginning(prompts: Sequence[list[int]]) -> list[int]:
    """The tokens that all prompts begin with; every prompt keeps one for itself."""
    if len(prompts) < 2:
        return []
    first, last = min(prompts), max(prompts)
    most = min(len(prompt) for prompt in prompts) - 1
    count = next((k for k, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), most)
    return first[: min(count, most)]


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Places by falling length, in batches that the memory holds."""
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    found: list[list[int]] = []
    for position in order:
        if found and len(found[-1]) < _ROWS and (len(found[-1]) + 1) * lengths[found[-1][0]] <= _TOKENS:
            found[-1].append(position)
        else:
            found.append([position])
    return found


def load_here(config: RunConfig, name: str, device: str | None, adapters: Path | None = None) -> Here:
    """The model of a folder or Hub id, on a device, with adapters where there are some."""
    from danseo.models.llm.loading import load_language_model
    from danseo.training.workers import Workers

    model, tokenizer, identity = load_language_model(config, name, Workers(device).device, adapters)
    return Here(model, Writing(tokenizer, config.prompt.think, ends_of(model)), config, identity)


def ends_of(model: Any) -> list[int]:
    """The tokens that end texts, as the checkpoint itself says."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    if ends is None:
        return []
    return [int(end) for end in ends] if isinstance(ends, list | tuple) else [int(ends)]
