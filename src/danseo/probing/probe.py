"""Probing: a model and frozen items in, scores out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from danseo.errors import DanseoError
from danseo.probing.asking import TOP, Answer, Question, ask
from danseo.probing.choice import choice_of, greedy_fills, rank
from danseo.probing.items import ProbeItem, items_hash
from danseo.probing.pieces import WordPieces
from danseo.probing.rules import CUTS, hits
from danseo.probing.score import RULE_SCORES, Outcome, baseline_hits, bits, by_kind, composite, summary
from danseo.probing.windows import Spelling, Window, Windows, without_mentions
from danseo.text.morphology import Analyser

if TYPE_CHECKING:
    from danseo.models.masked.load import MaskedModel
    from danseo.probing.filter import Mask

WEIGHTS = (0.4, 0.3, 0.3)
_PAIRED = (*RULE_SCORES, "choice@1", "exact@1")
Progress = Callable[[int, int], None]
"""Called with the number of answered questions and that of all."""


@dataclass(frozen=True)
class ProbeOptions:
    """How to probe.

    quick asks once per item: no choice among nouns, no masks for several pieces, no control. spelling: natural puts the
    mask in place of the noun's pieces, separate writes it into the text, as the old way has it.
    """

    seq_len: int | None = None
    weights: tuple[float, float, float] = WEIGHTS
    quick: bool = False
    spelling: Spelling = "natural"


@dataclass(frozen=True)
class ProbeResult:
    """What a model scored on a set of items."""

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
        """One score of one probe with its interval; empty where the set or the run has none."""
        probe = self.probes.get(kind, {})
        return probe.get(score) or probe.get("scores", {}).get(score) or {}

    def value(self, kind: str, score: str) -> float | None:
        """One score of one probe from 0 to 1, or None."""
        return self.share(kind, score).get("value")

    def composite(self, rule: str = "strict") -> float | None:
        """The weighted mean of repeated@1, repeated@5 and LAMBADA@1 by a rule."""
        parts = (("repeated", f"{rule}@1"), ("repeated", f"{rule}@5"), ("lambada", f"{rule}@1"))
        return composite(self.weights, [self.value(*part) for part in parts])

    def headline(self) -> dict[str, float | None]:
        """The few numbers to follow during a training, from 0 to 1."""
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
            "hits": {kind: dict(found) for kind, found in self.hits.items()},
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
    from danseo.models.masked.lengths import readable_length

    if not items:
        raise DanseoError("there are no probe items to ask; make some with `danseo data probes`")
    options, start = options or ProbeOptions(), time.perf_counter()
    seq_len = readable_length(masked.model.config, masked.tokenizer, options.seq_len)
    guide = _Guide.of(masked, analyser)
    ready = time.perf_counter()
    windows = Windows(masked.tokenizer, seq_len, options.spelling)
    outcomes = _outcomes(masked, items, windows, guide, options.quick, on_progress)
    seconds = {"noun_filter": ready - start, "probing": time.perf_counter() - ready}
    return ProbeResult(
        name=masked.name,
        seq_len=seq_len,
        spelling=options.spelling,
        items=items_hash(items),
        analyser=guide.version,
        weights=options.weights,
        probes=by_kind(outcomes, summary),
        hits=by_kind(outcomes, lambda part: bits(part, _PAIRED)),
        seconds=seconds,
    )


@dataclass(frozen=True)
class _Guide:
    """What is known of a vocabulary: its pieces as words, which are nouns, and how words are spelled."""

    words: Sequence[str]
    nouns: "Mask"
    pieces: WordPieces
    version: str

    @classmethod
    def of(cls, masked: "MaskedModel", analyser: Analyser | None) -> "_Guide":
        from danseo.data.find import cache_root
        from danseo.probing.filter import noun_mask, piece_words
        from danseo.text.morphology import KiwiAnalyser

        analyser, words = analyser or KiwiAnalyser(), piece_words(masked.tokenizer)
        nouns = noun_mask(masked.tokenizer, words, analyser, cache_root())
        return cls(words, nouns, WordPieces(masked.tokenizer), analyser.version)


def _outcomes(
    masked: "MaskedModel",
    items: Sequence[ProbeItem],
    windows: Windows,
    guide: _Guide,
    quick: bool,
    on_progress: Progress,
) -> list[Outcome]:
    framed = list(windows.of(items))
    questions = [Question(window.ids, window.position, TOP) for window in framed]
    choices = [] if quick else [choice_of(item, w, guide.pieces) for item, w in zip(items, framed, strict=True)]
    asked = [choice.questions(masked.tokenizer.mask_token_id) for choice in choices]
    if not quick:
        controls = windows.of([without_mentions(item) for item in items])
        questions += [Question(window.ids, window.position, TOP) for window in controls]
    answers = iter(
        ask(masked, [*questions, *(q for group in asked for q in group)], _counter(on_progress, questions, asked))
    )
    plain = [next(answers) for _ in items]
    outcomes = [_outcome(*parts, guide) for parts in zip(items, framed, plain, strict=True)]
    if not quick:
        for outcome in outcomes:
            outcome.hits |= {f"control/{name}": hit for name, hit in _hits(outcome.item, next(answers), guide).items()}
        for outcome, choice, group in zip(outcomes, choices, asked, strict=True):
            _add_choice(outcome, choice.scores([next(answers) for _ in group]))
        _add_exact(masked, outcomes, framed, guide)
    return outcomes


def _counter(on_progress: Progress, questions: Sequence[Any], asked: Sequence[Sequence[Any]]) -> Callable[[int], None]:
    total, done = len(questions) + sum(map(len, asked)), 0

    def count(number: int) -> None:
        nonlocal done
        done += number
        on_progress(done, total)

    return count


def _outcome(item: ProbeItem, window: Window, answer: Answer, guide: _Guide) -> Outcome:
    target = guide.pieces.in_gap(item.target, item)
    unfiltered = hits(item.target, [guide.words[piece] for piece in answer.top])
    unfiltered |= {f"piece@{cut}": target[:1] != () and target[0] in answer.top[:cut] for cut in CUTS}
    return Outcome(
        item=item,
        covered=len(target) == 1,
        antecedent_in_window=window.antecedent_in_window,
        distance=window.distance,
        respelled=window.respelled,
        no_candidate=not any(guide.nouns[piece] for piece in answer.top),
        hits={**_hits(item, answer, guide), **{f"unfiltered/{name}": hit for name, hit in unfiltered.items()}},
        baselines=baseline_hits(item),
    )


def _hits(item: ProbeItem, answer: Answer, guide: _Guide) -> dict[str, bool]:
    """The scores after the noun filter, which is help at test time: a verb can no longer stand in the way."""
    nouns = [piece for piece in answer.top if guide.nouns[piece]]
    target = guide.pieces.in_gap(item.target, item)
    found = hits(item.target, [guide.words[piece] for piece in nouns])
    return found | {f"piece@{cut}": target[:1] != () and target[0] in nouns[:cut] for cut in CUTS}


def _add_choice(outcome: Outcome, scores: Mapping[str, float]) -> None:
    item = outcome.item
    outcome.rank, outcome.choices = rank(scores, item.target, item.candidates), len({*item.candidates, item.target})
    outcome.hits["choice@1"] = outcome.rank == 1
    if item.given:
        outcome.given = rank(scores, item.target, item.given) == 1


def _add_exact(masked: "MaskedModel", outcomes: Sequence[Outcome], windows: Sequence[Window], guide: _Guide) -> None:
    """exact@1: as many masks as the target has pieces, filled from left to right, are just the target."""
    targets = [guide.pieces.in_gap(outcome.item.target, outcome.item) for outcome in outcomes]
    fills = greedy_fills(masked, windows, [len(target) for target in targets])
    for outcome, target, fill in zip(outcomes, targets, fills, strict=True):
        outcome.hits["exact@1"] = bool(target) and fill == target
