"""From outcomes of single items to scores with intervals: overall, by distance, with controls and baselines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from danseo.metrics.statistic import mean
from danseo.probing.items import BASELINES, ProbeItem
from danseo.probing.rules import CUTS, RULES, hits
from danseo.probing.windows import BUCKETS, NO_ANTECEDENT, bucket_of

RULE_SCORES = tuple(f"{rule}@{cut}" for rule in (*RULES, "piece") for cut in CUTS)
_BY_DISTANCE = ("strict@1", "strict@5", "lenient@1", "choice@1")


@dataclass
class Outcome:
    """What happened at one gap."""

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


def wilson(successes: int, total: int) -> tuple[float, float] | None:
    """The 95 % interval of a share, by Wilson."""
    if not total:
        return None
    from scipy.stats import binomtest

    bounds = binomtest(successes, total).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


def composite(weights: Sequence[float], values: Sequence[float | None]) -> float | None:
    """The weighted mean; a probe that the set does not have counts neither above nor below the line."""
    pairs = [(weight, value) for weight, value in zip(weights, values, strict=True) if value is not None]
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else None


def mcnemar(a: Sequence[bool], b: Sequence[bool]) -> float:
    """The exact test on the items that only one of two checkpoints got right."""
    from danseo.scoring.resampling import clusters_of, mcnemar_p

    p = mcnemar_p(mean([float(hit) for hit in a]), mean([float(hit) for hit in b]), clusters_of(None, len(a)))
    assert p is not None
    return p


def baseline_hits(item: ProbeItem) -> dict[str, bool]:
    """What the guesses without a model would score."""
    found = {name: hits(item.target, item.baselines.get(name, ())) for name in BASELINES}
    return {f"{name}/{score}": hit for name, scores in found.items() for score, hit in scores.items()}


def share(flags: Iterable[bool]) -> dict[str, Any]:
    """A share with its interval."""
    known = list(flags)
    bounds = wilson(sum(known), len(known))
    if bounds is None:
        return {"value": None, "low": None, "high": None, "hits": 0, "n": 0}
    return {"value": sum(known) / len(known), "low": bounds[0], "high": bounds[1], "hits": sum(known), "n": len(known)}


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All scores of one probe."""
    covered = [outcome for outcome in outcomes if outcome.covered]
    made: dict[str, Any] = {
        "n": len(outcomes),
        "scores": _scores(outcomes, ""),
        "unfiltered": _scores(outcomes, "unfiltered/"),
        "coverage": share(outcome.covered for outcome in outcomes)["value"],
        "covered_scores": _scores(covered, ""),
        "no_candidate": share(outcome.no_candidate for outcome in outcomes)["value"],
        "antecedent_in_window": share(outcome.antecedent_in_window for outcome in outcomes)["value"],
        "respelled": share(outcome.respelled for outcome in outcomes)["value"],
        "by_distance": _by_distance(outcomes),
        "baselines": _baselines(outcomes),
    }
    if any("control/strict@1" in outcome.hits for outcome in outcomes):
        made["without_antecedent"] = _scores(outcomes, "control/")
    if chosen := [outcome for outcome in outcomes if outcome.rank is not None]:
        made |= _choice(chosen)
    return made


def _scores(outcomes: Sequence[Outcome], prefix: str) -> dict[str, Any]:
    names = [name for name in RULE_SCORES if outcomes and f"{prefix}{name}" in outcomes[0].hits]
    return {name: share(outcome.hits[f"{prefix}{name}"] for outcome in outcomes) for name in names}


def _choice(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    ranks = [outcome.rank or 1 for outcome in outcomes]
    given = [outcome.given for outcome in outcomes if outcome.given is not None]
    return {
        "choice@1": share(rank == 1 for rank in ranks),
        "choice_mrr": sum(1 / rank for rank in ranks) / len(ranks),
        "choice_chance": sum(1 / max(1, outcome.choices) for outcome in outcomes) / len(outcomes),
        "exact@1": share(outcome.hits["exact@1"] for outcome in outcomes),
        **({"given@1": share(given)} if given else {}),
    }


def _by_distance(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    rows = []
    for name in (*(bucket[2] for bucket in BUCKETS), NO_ANTECEDENT):
        part = [outcome for outcome in outcomes if bucket_of(outcome.distance) == name]
        if part:
            scores = {key: share(o.hits[key] for o in part) for key in _BY_DISTANCE if key in part[0].hits}
            inside = sum(outcome.antecedent_in_window for outcome in part)
            rows.append({"distance": name, "n": len(part), "in_window": inside, **scores})
    return rows


def _baselines(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    names = outcomes[0].baselines if outcomes else {}
    made: dict[str, Any] = {}
    for name in names:
        baseline, score = name.split("/")
        made.setdefault(baseline, {})[score] = share(outcome.baselines[name] for outcome in outcomes)
    return made


def bits(outcomes: Sequence[Outcome], names: Iterable[str]) -> dict[str, str]:
    """Hits item by item as 0 and 1, so that a later checkpoint can be compared pair by pair."""
    known = [name for name in names if outcomes and name in outcomes[0].hits]
    return {name: "".join("01"[outcome.hits[name]] for outcome in outcomes) for name in known}


def by_kind(outcomes: Sequence[Outcome], make: Callable[[list[Outcome]], Any]) -> Mapping[str, Any]:
    """Something for each kind of item that there is."""
    kinds = dict.fromkeys(outcome.item.kind for outcome in outcomes)
    return {kind: make([outcome for outcome in outcomes if outcome.item.kind == kind]) for kind in kinds}
