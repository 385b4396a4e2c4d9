"""Probe a masked language model: score its predictions on a fixed set of items."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from danseo.errors import DanseoError
from danseo.mlm.probing.items import ProbeItem, hash_items
from danseo.mlm.probing.score import (
    RULE_SCORES,
    TOP_KS,
    ItemResult,
    average_scores,
    build_noun_mask,
    decode_vocabulary,
    encode_hits,
    group_by_kind,
    score_baselines,
    score_guesses,
    summarize_results,
)
from danseo.mlm.probing.windows import Spelling, Window, WindowBuilder, WordTokenizer, remove_mentions
from danseo.text.morphology import Analyser, KiwiAnalyser

if TYPE_CHECKING:
    from danseo.mlm.probing.score import Mask
    from danseo.models.mlm.masked_model import MaskedModel

TOP = 50  # guesses that the noun filter chooses from, as in earlier results


@dataclass(frozen=True)
class GapQuery:
    """A window with one gap: request the `top` best tokens, the log-probabilities of `tokens`, or both."""

    ids: tuple[int, ...]
    position: int
    top: int = 0
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class GapPrediction:
    """The best tokens in order, and the log-probability of each requested token."""

    top: list[int]
    log_probabilities: dict[int, float] = field(default_factory=dict)


def predict_gaps(
    masked: "MaskedModel", queries: Sequence[GapQuery], on_done: Callable[[int], None] = lambda n: None
) -> list[GapPrediction]:
    """Return one prediction per query, in order; a query is one row of a forward pass."""
    predictions: list[GapPrediction | None] = [None] * len(queries)
    size = len(masked.tokenizer)
    batches = masked.compute_gap_logits([q.ids for q in queries], [q.position for q in queries], on_done)
    for part, logits in batches:
        rows = logits[:, :size]  # a padded vocabulary has rows without tokens
        most = min(size, max(queries[k].top for k in part))
        best = rows.topk(most, dim=-1).indices.tolist() if most else [[]] * len(part)
        totals = rows.logsumexp(-1)
        for row, k in enumerate(part):
            wanted = list(queries[k].tokens)
            values = (rows[row, wanted] - totals[row]).tolist() if wanted else []
            predictions[k] = GapPrediction(best[row][: queries[k].top], dict(zip(wanted, values, strict=True)))
    return [prediction for prediction in predictions if prediction is not None]


PrefixKey = tuple[int, tuple[int, ...]]
"""The number of tokens of a word and its first tokens: words with the same prefix share a query."""


@dataclass
class WordChoice:
    """One gap and its candidate words as tokens; a word with unknown tokens has none."""

    window: Window
    words: Mapping[str, tuple[int, ...]]
    wanted: dict[PrefixKey, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tokens in self.words.values():
            for position, token in enumerate(tokens):
                self.wanted.setdefault((len(tokens), tokens[:position]), set()).add(token)

    def make_queries(self, mask: int) -> list[GapQuery]:
        """Return the queries of PLL-w2r, which masks a token and those to its right within the word."""
        return [_make_query(self.window, key, mask, tokens) for key, tokens in self.wanted.items()]

    def compute_scores(self, predictions: Sequence[GapPrediction]) -> dict[str, float]:
        """Return the pseudo-log-likelihood of every word."""
        known = dict(zip(self.wanted, predictions, strict=True))
        return {
            word: sum(known[len(tokens), tokens[:k]].log_probabilities[token] for k, token in enumerate(tokens))
            if tokens
            else float("-inf")
            for word, tokens in self.words.items()
        }


def _make_query(window: Window, key: PrefixKey, mask: int, tokens: set[int], top: int = 0) -> GapQuery:
    count, start = key
    ids, position = window.fill([*start, *[mask] * (count - len(start))])
    return GapQuery(ids, position + len(start), top, tuple(sorted(tokens)))


def make_choice(item: ProbeItem, window: Window, tokenizer: WordTokenizer) -> WordChoice:
    """Return the choice between the target and the other nouns of its text."""
    words = dict.fromkeys((item.target, *item.candidates, *item.given))
    return WordChoice(window, {word: tokenizer.tokenize_in_gap(word, item) for word in words})


def rank_target(scores: Mapping[str, float], target: str, among: Sequence[str]) -> int:
    """Return the rank of the target, 1 for the best; a target with unknown tokens is last."""
    others = [scores[word] for word in among if word != target]
    if scores[target] == float("-inf"):
        return len(others) + 1
    return 1 + sum(value > scores[target] for value in others)


def fill_greedily(masked: "MaskedModel", windows: Sequence[Window], lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Fill each window with so many tokens from left to right, the most probable one at each step."""
    fills: list[tuple[int, ...]] = [() for _ in windows]
    mask = masked.tokenizer.mask_token_id
    for step in range(max(lengths, default=0)):
        unfinished = [k for k, length in enumerate(lengths) if length > step]
        queries = [_make_query(windows[k], (lengths[k], fills[k]), mask, set(), top=1) for k in unfinished]
        for k, prediction in zip(unfinished, predict_gaps(masked, queries), strict=True):
            fills[k] += tuple(prediction.top[:1])
    return fills


WEIGHTS = (0.4, 0.3, 0.3)
_PAIRED = (*RULE_SCORES, "choice@1", "exact@1")
Progress = Callable[[int, int], None]
"""Called with the number of finished queries and the total."""


@dataclass(frozen=True)
class ProbeOptions:
    """Settings of a probe.

    quick makes one prediction per item and skips the choice, exact and control scores. spelling: natural puts the mask
    in place of the noun's tokens, separate writes it into the text, as earlier results did.
    """

    seq_len: int | None = None
    weights: tuple[float, float, float] = WEIGHTS
    quick: bool = False
    spelling: Spelling = "natural"


@dataclass(frozen=True)
class ProbeResult:
    """The scores of a model on a set of items."""

    name: str
    seq_len: int
    spelling: Spelling
    items: str
    analyser: str
    weights: tuple[float, float, float]
    probes: Mapping[str, Any]
    hits: Mapping[str, Mapping[str, str]]
    seconds: Mapping[str, float] = field(default_factory=dict)

    def share(self, kind: str, score: str) -> Mapping[str, Any]:
        """Return one score of one probe with its interval; empty if there is none."""
        probe = self.probes.get(kind, {})
        return probe.get(score) or probe.get("scores", {}).get(score) or {}

    def value(self, kind: str, score: str) -> float | None:
        """Return one score of one probe from 0 to 1, or None."""
        return self.share(kind, score).get("value")

    def composite(self, rule: str = "strict") -> float | None:
        """Return the weighted mean of repeated@1, repeated@5 and LAMBADA@1 by a rule."""
        parts = (("repeated", f"{rule}@1"), ("repeated", f"{rule}@5"), ("lambada", f"{rule}@1"))
        return average_scores(self.weights, [self.value(*part) for part in parts])

    def headline(self) -> dict[str, float | None]:
        """Return the few scores to follow during training, from 0 to 1."""
        names = ("strict@1", "strict@5", "choice@1")
        return {**{name: self.value("repeated", name) for name in names}, "composite": self.composite()}

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "seq_len": self.seq_len,
            "spelling": self.spelling,
            "eval_set_hash": self.items,
            "analyser": self.analyser,
            "weights": list(self.weights),
            "headline": self.headline(),
            "probes": dict(self.probes),
            "hits": {kind: dict(hits) for kind, hits in self.hits.items()},
            "seconds": dict(self.seconds),
        }


def probe_model(
    masked: "MaskedModel",
    items: Sequence[ProbeItem],
    options: ProbeOptions | None = None,
    analyser: Analyser | None = None,
    on_progress: Progress = lambda done, total: None,
) -> ProbeResult:
    """Score a model on a set of items."""
    from danseo.models.mlm.positions import choose_length

    if not items:
        raise DanseoError("no probe items: the set is empty; make some with `danseo data probes`")
    options, start = options or ProbeOptions(), time.perf_counter()
    seq_len = choose_length(masked.model.config, masked.tokenizer, options.seq_len)
    windows = WindowBuilder(masked.tokenizer, seq_len, options.spelling)
    vocabulary = _Vocabulary.load(masked, analyser)
    ready = time.perf_counter()
    results = _probe_items(masked, items, windows, vocabulary, options.quick, on_progress)
    seconds = {"noun_filter": ready - start, "probing": time.perf_counter() - ready}
    return ProbeResult(
        name=masked.name,
        seq_len=seq_len,
        spelling=options.spelling,
        items=hash_items(items),
        analyser=vocabulary.version,
        weights=options.weights,
        probes=group_by_kind(results, summarize_results),
        hits=group_by_kind(results, lambda part: encode_hits(part, _PAIRED)),
        seconds=seconds,
    )


@dataclass(frozen=True)
class _Vocabulary:
    """A model's vocabulary: its tokens as words, which of them are nouns, and a tokenizer for words."""

    words: Sequence[str]
    nouns: "Mask"
    tokenizer: WordTokenizer
    version: str

    @classmethod
    def load(cls, masked: "MaskedModel", analyser: Analyser | None) -> "_Vocabulary":
        from danseo.data.find import cache_root

        analyser, words = analyser or KiwiAnalyser(), decode_vocabulary(masked.tokenizer)
        nouns = build_noun_mask(masked.tokenizer, words, analyser, cache_root())
        return cls(words, nouns, WordTokenizer(masked.tokenizer), analyser.version)


def _probe_items(
    masked: "MaskedModel",
    items: Sequence[ProbeItem],
    windows: WindowBuilder,
    vocabulary: _Vocabulary,
    quick: bool,
    on_progress: Progress,
) -> list[ItemResult]:
    gap_windows = list(windows.build(items))
    queries = [GapQuery(window.ids, window.position, TOP) for window in gap_windows]
    choices: list[WordChoice] = []
    if not quick:
        choices = [make_choice(*pair, vocabulary.tokenizer) for pair in zip(items, gap_windows, strict=True)]
        controls = windows.build([remove_mentions(item) for item in items])
        queries += [GapQuery(window.ids, window.position, TOP) for window in controls]
    choice_queries = [choice.make_queries(masked.tokenizer.mask_token_id) for choice in choices]
    every = [*queries, *(query for group in choice_queries for query in group)]
    predictions = iter(predict_gaps(masked, every, _count_progress(on_progress, len(every))))
    plain = [next(predictions) for _ in items]
    results = [_make_result(*parts, vocabulary) for parts in zip(items, gap_windows, plain, strict=True)]
    if not quick:
        for result in results:
            control = _score_filtered(result.item, next(predictions), vocabulary)
            result.hits |= {f"control/{name}": hit for name, hit in control.items()}
        for result, choice, group in zip(results, choices, choice_queries, strict=True):
            _add_choice(result, choice.compute_scores([next(predictions) for _ in group]))
        _add_exact(masked, results, gap_windows, vocabulary)
    return results


def _count_progress(on_progress: Progress, total: int) -> Callable[[int], None]:
    done = 0

    def count(number: int) -> None:
        nonlocal done
        done += number
        on_progress(done, total)

    return count


def _make_result(item: ProbeItem, window: Window, prediction: GapPrediction, vocabulary: _Vocabulary) -> ItemResult:
    unfiltered = _score_tokens(item, prediction.top, vocabulary)
    return ItemResult(
        item=item,
        covered=len(vocabulary.tokenizer.tokenize_in_gap(item.target, item)) == 1,
        antecedent_in_window=window.antecedent_in_window,
        distance=window.distance,
        respelled=window.respelled,
        no_candidate=not any(vocabulary.nouns[token] for token in prediction.top),
        hits=_score_filtered(item, prediction, vocabulary)
        | {f"unfiltered/{name}": hit for name, hit in unfiltered.items()},
        baselines=score_baselines(item),
    )


def _score_filtered(item: ProbeItem, prediction: GapPrediction, vocabulary: _Vocabulary) -> dict[str, bool]:
    """Return the hits after the noun filter, which removes guesses of other parts of speech."""
    return _score_tokens(item, [token for token in prediction.top if vocabulary.nouns[token]], vocabulary)


def _score_tokens(item: ProbeItem, tokens: Sequence[int], vocabulary: _Vocabulary) -> dict[str, bool]:
    """Return the hits of ranked tokens by every rule; token@k compares with the first token of the target."""
    target = vocabulary.tokenizer.tokenize_in_gap(item.target, item)
    hits = score_guesses(item.target, [vocabulary.words[token] for token in tokens])
    return hits | {f"token@{k}": bool(target) and target[0] in tokens[:k] for k in TOP_KS}


def _add_choice(result: ItemResult, scores: Mapping[str, float]) -> None:
    item = result.item
    result.rank = rank_target(scores, item.target, item.candidates)
    result.choices = len({*item.candidates, item.target})
    result.hits["choice@1"] = result.rank == 1
    if item.given:
        result.given = rank_target(scores, item.target, item.given) == 1


def _add_exact(
    masked: "MaskedModel", results: Sequence[ItemResult], windows: Sequence[Window], vocabulary: _Vocabulary
) -> None:
    """Add exact@1: as many masks as the target has tokens, filled from left to right, give the target."""
    targets = [vocabulary.tokenizer.tokenize_in_gap(result.item.target, result.item) for result in results]
    fills = fill_greedily(masked, windows, [len(target) for target in targets])
    for result, target, fill in zip(results, targets, fills, strict=True):
        result.hits["exact@1"] = bool(target) and fill == target
