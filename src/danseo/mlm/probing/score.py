"""Probe scores with intervals from the results of single items: overall, by distance, controls and baselines."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danseo.errors import DataError
from danseo.files import write_atomically
from danseo.metrics.statistic import mean
from danseo.mlm.probing.items import BASELINES, ProbeItem
from danseo.mlm.probing.windows import BUCKETS, NO_ANTECEDENT, name_bucket
from danseo.text.documents import hash_tokenizer
from danseo.text.morphology import NOUNS, Analyser

TOP_KS = (1, 5)


def clean_token(token: str) -> str:
    """Return a token as a word: NFC, without continuation marks and blanks."""
    return unicodedata.normalize("NFC", token).replace("##", "").strip(" \t\r\n▁Ġ")


def match_lenient(target: str, guess: str) -> bool:
    """Return whether one contains the other, even a single syllable (the rule of earlier results)."""
    return guess in target or target in guess


_RULES: dict[str, Callable[[str, str], bool]] = {
    "strict": lambda target, guess: guess == target,
    "lenient": match_lenient,
    "lenient_min2": lambda target, guess: match_lenient(target, guess) and min(len(guess), len(target)) >= 2,
}


def score_guesses(target: str, guesses: Sequence[str]) -> dict[str, bool]:
    """Return the hits of ranked guesses: strict@1, strict@5, lenient@1 and so on."""
    target = clean_token(target)
    words = [clean_token(guess) for guess in guesses[: max(TOP_KS)]]
    matches = {name: [bool(word) and rule(target, word) for word in words] for name, rule in _RULES.items()}
    return {f"{name}@{k}": any(hits[:k]) for name, hits in matches.items() for k in TOP_KS}


RULE_SCORES = tuple(f"{rule}@{k}" for rule in (*_RULES, "token") for k in TOP_KS)
_BY_DISTANCE = ("strict@1", "strict@5", "lenient@1", "choice@1")


@dataclass
class ItemResult:
    """The result of one item."""

    item: ProbeItem
    covered: bool
    antecedent_in_window: bool
    distance: int | None
    respelled: bool
    no_candidate: bool
    hits: dict[str, bool]
    """By score: strict@1 … after the noun filter, unfiltered/strict@1 …, control/strict@1 …, choice@1, exact@1."""
    rank: int | None = None
    choices: int = 0
    given: bool | None = None
    baselines: dict[str, bool] = field(default_factory=dict)


def compute_wilson_interval(successes: int, total: int) -> tuple[float, float] | None:
    """Return the 95 % Wilson interval of a share."""
    if not total:
        return None
    from scipy.stats import binomtest

    bounds = binomtest(successes, total).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


def average_scores(weights: Sequence[float], values: Sequence[float | None]) -> float | None:
    """Return the weighted mean of the scores that are not None."""
    pairs = [(weight, value) for weight, value in zip(weights, values, strict=True) if value is not None]
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else None


def compute_mcnemar_p(a: Sequence[bool], b: Sequence[bool]) -> float:
    """Return the p-value of McNemar's exact test on paired hits."""
    from danseo.scoring.resampling import mcnemar_p, number_clusters

    p = mcnemar_p(mean([float(hit) for hit in a]), mean([float(hit) for hit in b]), number_clusters(None, len(a)))
    assert p is not None
    return p


def score_baselines(item: ProbeItem) -> dict[str, bool]:
    """Return the hits of the baselines' guesses."""
    scores = {name: score_guesses(item.target, item.baselines.get(name, ())) for name in BASELINES}
    return {f"{name}/{score}": hit for name, hits in scores.items() for score, hit in hits.items()}


def compute_share(flags: Iterable[bool]) -> dict[str, Any]:
    """Return a share with its interval."""
    known = list(flags)
    bounds = compute_wilson_interval(sum(known), len(known))
    if bounds is None:
        return {"value": None, "low": None, "high": None, "hits": 0, "n": 0}
    return {"value": sum(known) / len(known), "low": bounds[0], "high": bounds[1], "hits": sum(known), "n": len(known)}


def summarize_results(results: Sequence[ItemResult]) -> dict[str, Any]:
    """Return all scores of one probe."""
    covered = [result for result in results if result.covered]
    scores: dict[str, Any] = {
        "n": len(results),
        "scores": _compute_scores(results, ""),
        "unfiltered": _compute_scores(results, "unfiltered/"),
        "coverage": compute_share(result.covered for result in results)["value"],
        "covered_scores": _compute_scores(covered, ""),
        "no_candidate": compute_share(result.no_candidate for result in results)["value"],
        "antecedent_in_window": compute_share(result.antecedent_in_window for result in results)["value"],
        "respelled": compute_share(result.respelled for result in results)["value"],
        "by_distance": _group_by_distance(results),
        "baselines": _summarize_baselines(results),
    }
    if any("control/strict@1" in result.hits for result in results):
        scores["without_antecedent"] = _compute_scores(results, "control/")
    if chosen := [result for result in results if result.rank is not None]:
        scores |= _summarize_choice(chosen)
    return scores


def _compute_scores(results: Sequence[ItemResult], prefix: str) -> dict[str, Any]:
    names = [name for name in RULE_SCORES if results and f"{prefix}{name}" in results[0].hits]
    return {name: compute_share(result.hits[f"{prefix}{name}"] for result in results) for name in names}


def _summarize_choice(results: Sequence[ItemResult]) -> dict[str, Any]:
    ranks = [result.rank or 1 for result in results]
    given = [result.given for result in results if result.given is not None]
    return {
        "choice@1": compute_share(rank == 1 for rank in ranks),
        "choice_mrr": sum(1 / rank for rank in ranks) / len(ranks),
        "choice_chance": sum(1 / max(1, result.choices) for result in results) / len(results),
        "exact@1": compute_share(result.hits["exact@1"] for result in results),
        **({"given@1": compute_share(given)} if given else {}),
    }


def _group_by_distance(results: Sequence[ItemResult]) -> list[dict[str, Any]]:
    rows = []
    for name in (*(bucket[2] for bucket in BUCKETS), NO_ANTECEDENT):
        part = [result for result in results if name_bucket(result.distance) == name]
        if part:
            scores = {
                key: compute_share(result.hits[key] for result in part) for key in _BY_DISTANCE if key in part[0].hits
            }
            inside = sum(result.antecedent_in_window for result in part)
            rows.append({"distance": name, "n": len(part), "in_window": inside, **scores})
    return rows


def _summarize_baselines(results: Sequence[ItemResult]) -> dict[str, Any]:
    names = results[0].baselines if results else {}
    scores: dict[str, Any] = {}
    for name in names:
        baseline, score = name.split("/")
        scores.setdefault(baseline, {})[score] = compute_share(result.baselines[name] for result in results)
    return scores


def encode_hits(results: Sequence[ItemResult], names: Iterable[str]) -> dict[str, str]:
    """Encode the hits of all items as a string of 0 and 1, for later paired comparisons."""
    known = [name for name in names if results and name in results[0].hits]
    return {name: "".join("01"[result.hits[name]] for result in results) for name in known}


def group_by_kind(results: Sequence[ItemResult], make: Callable[[list[ItemResult]], Any]) -> Mapping[str, Any]:
    """Apply a function to the results of each probe kind."""
    kinds = dict.fromkeys(result.item.kind for result in results)
    return {kind: make([result for result in results if result.item.kind == kind]) for kind in kinds}


Mask = NDArray[np.bool_]


def decode_vocabulary(tokenizer: Any) -> list[str]:
    """Return every token of the vocabulary as a word, by its id."""
    return [clean_token(text) for text in tokenizer.batch_decode([[number] for number in range(len(tokenizer))])]


def build_noun_mask(tokenizer: Any, words: list[str], analyser: Analyser, cache: Path) -> Mask:
    """Return True for each token with a noun among its morphemes, False for special tokens."""
    version = analyser.version.replace(" ", "-").replace("/", "-")
    path = cache / "probing" / f"nouns-{hash_tokenizer(tokenizer)}-{version}.bits"
    if (cached := _read_cached_mask(path, len(words))) is not None:
        return cached
    mask = np.zeros(len(words), dtype=bool)
    filled = [number for number, word in enumerate(words) if word]
    for number, morphemes in zip(filled, analyser.find_nouns(words[k] for k in filled), strict=True):
        mask[number] = any(morpheme.tag in NOUNS for morpheme in morphemes)
    mask[[number for number in tokenizer.all_special_ids if number < len(mask)]] = False
    write_atomically(path, np.packbits(mask).tobytes())
    return mask


def _read_cached_mask(path: Path, size: int) -> Mask | None:
    try:
        bits = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except OSError:
        return None
    if len(bits) != (size + 7) // 8:
        raise DataError(f"corrupted cache: {path}; delete it")
    return np.unpackbits(bits, count=size).astype(bool)
