"""Answers of several members to questions as one: summed probabilities of their candidates, or votes."""

import math
from functools import cache

from danseo.data.halves import in_half
from danseo.ensembling.blend import Array, Blended, require_kept, shares, trusted
from danseo.metrics.answering import best_overlap
from danseo.predictions.evidence import Spans as Candidates
from danseo.predictions.thresholds import fitted_threshold
from danseo.records import Prediction
from danseo.runs.answers import Members


class Spans:
    """mrc: the same text from several members counts together, "" among them.

    How likely no answer has to be is settled anew for the whole, on the select half: what served each member does not
    serve their average.
    """

    threshold: float | None = None
    """What was settled last; it comes on top of the members' own. None for votes, and without a select half."""

    def __init__(self, members: Members, method: str) -> None:
        self.members, self.method = members, method
        self.guids = [p.guid for p in members.listed[0].predictions]
        self.select = in_half(members.task, members.examples, "select")
        self.overlap = cache(best_overlap)  # weights are fitted by blending again and again
        if method != "vote":
            kept = require_kept(members, method, "scores of answers")
            self.tables = [[scored(listed, method) for listed in member] for member in kept]

    def __call__(self, weights: Array) -> Blended:
        if self.method == "vote":
            return self._voted(trusted(shares(weights), self.members)), None
        rows = [(t, w) for t, w in zip(self.tables, shares(weights).tolist(), strict=True) if w > 0]
        columns = range(len(self.guids))
        kept = self._settled([pooled([(t[position], w) for t, w in rows], self.method) for position in columns])
        return [answer(guid, candidates) for guid, candidates in zip(self.guids, kept, strict=True)], kept

    def _settled(self, candidates: list[Candidates]) -> list[Candidates]:
        """The candidates with the score of no answer moved to where it serves the select half best."""
        if not self.select:
            return candidates
        golds = [self.members.examples[position].gold for position in self.select]
        threshold = fitted_threshold(golds, [candidates[position] for position in self.select], self.overlap)
        self.threshold = threshold
        return [[*listed[:-1], ("", listed[-1][1] - threshold)] for listed in candidates]

    def _voted(self, weights: Array) -> list[Prediction]:
        """The text with the most votes; the chance of no answer is the mean of what the members say."""
        predictions = []
        for position, guid in enumerate(self.guids):
            votes: dict[str, float] = {}
            none = 0.0
            for member, weight in zip(self.members.listed, weights.tolist(), strict=True):
                given = member.predictions[position]
                votes[given.answer] = votes.get(given.answer, 0.0) + weight
                none += weight * (given.probabilities or {}).get("", float(given.answer == ""))
            best = max(votes, key=lambda text: (votes[text], text))
            predictions.append(Prediction(guid, best, {"": min(1.0, none / float(weights.sum()))}))
        return predictions


def scored(candidates: Candidates, method: str) -> dict[str, float]:
    """Text -> its score: as it is for logit, else the logarithm of its probability among the candidates."""
    if method == "logit":
        return dict(candidates)
    highest = max(score for _, score in candidates)
    total = highest + math.log(sum(math.exp(score - highest) for _, score in candidates))
    return {text: score - total for text, score in candidates}


def pooled(members: list[tuple[dict[str, float], float]], method: str) -> Candidates:
    """The candidates of all, best first, "" at the end; a text that a member lacks is at best as good as its last."""
    texts = dict.fromkeys(text for table, _ in members for text in table if text)
    found = {}
    for text in (*texts, ""):
        if method == "prob":
            total = sum(weight * math.exp(table[text]) for table, weight in members if text in table)
            found[text] = math.log(total) if total > 0 else -745.0
        else:
            found[text] = sum(weight * table.get(text, min(table.values())) for table, weight in members)
    bar = found.pop("")
    return [*sorted(found.items(), key=lambda pair: (-pair[1], pair[0])), ("", bar)]


def answer(guid: str, candidates: Candidates) -> Prediction:
    """The best text unless none is likelier."""
    *spans, (_, bar) = candidates
    text, score = spans[0] if spans else ("", -math.inf)
    p_none = 1 / (1 + math.exp(min(max(score - bar, -50.0), 50.0)))
    return Prediction(guid, "" if bar > score else text, {"": p_none})
