"""From which score on a span counts: one threshold per type, tuned on training examples that nobody learned from."""

from collections.abc import Mapping, Sequence

from danseo.models.spans import Span

LEAST, USUAL = 0.05, 0.5
_GRID = [step / 20 for step in range(1, 20)]


def tuned(found: Sequence[Sequence[Span]], gold: Sequence[Sequence[Span]], types: Sequence[str]) -> dict[str, float]:
    """The threshold of each type with the best F1 on spans; of equals that nearest to the usual one."""
    return {type: max(_GRID, key=lambda t: (_f1(found, gold, type, t), -abs(t - USUAL))) for type in types}


def _f1(found: Sequence[Sequence[Span]], gold: Sequence[Sequence[Span]], type: str, threshold: float) -> float:
    hits = guesses = wanted = 0
    for spans, right in zip(found, gold, strict=True):
        guessed = {span[:2] for span in spans if span.type == type and span.score >= threshold}
        real = {span[:2] for span in right if span.type == type}
        hits, guesses, wanted = hits + len(guessed & real), guesses + len(guessed), wanted + len(real)
    return 2 * hits / max(1, guesses + wanted)


def passing(spans: Sequence[Span], thresholds: Mapping[str, float]) -> list[Span]:
    """Those that reach the threshold of their type; their scores are stretched so that it lies at a half."""
    return [
        span._replace(score=0.5 + 0.5 * (span.score - low) / max(1e-6, 1 - low))
        for span in spans
        if span.score >= (low := thresholds.get(span.type, USUAL))
    ]
