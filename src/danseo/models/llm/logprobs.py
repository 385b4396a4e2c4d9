"""Label log-probabilities from a server's top_logprobs; nothing is estimated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALTERNATIVES = 20
"""Maximum number of alternatives per token that servers return."""
_MAX_UNKNOWN = 0.01
"""Maximum share of probability that may be in tokens that were not returned."""


@dataclass(frozen=True)
class TokenLogprobs:
    """A token of a reply with its log-probability and its alternatives."""

    token: bytes
    logprob: float
    others: tuple[tuple[bytes, float], ...]


def read_token_logprobs(document: Mapping[str, Any]) -> list[TokenLogprobs] | None:
    """Return the tokens of a chat completion; None if the server returns no alternatives."""
    try:
        steps = [_read_step(entry) for entry in document["choices"][0]["logprobs"]["content"]]
    except (LookupError, TypeError, AttributeError):
        return None
    return steps if steps and any(step.others for step in steps) else None


def _read_step(entry: Mapping[str, Any]) -> TokenLogprobs:
    token = _read_bytes(entry)
    others = ((_read_bytes(other), check_logprob(other["logprob"])) for other in entry.get("top_logprobs") or ())
    return TokenLogprobs(
        token,
        check_logprob(entry["logprob"]),
        tuple(pair for pair in others if pair[0] != token and pair[1] > -math.inf),
    )


def check_logprob(value: Any) -> float:
    """Return a log-probability; raise ValueError for NaN or a positive number."""
    logprob = float(value)
    if not logprob < 1:
        raise ValueError(f"{logprob} is no log-probability")
    return logprob


def _read_bytes(entry: Mapping[str, Any]) -> bytes:
    """Return the bytes of a token, which may be part of a syllable."""
    values = entry.get("bytes")
    return bytes(values) if isinstance(values, list) and values else str(entry["token"]).encode()


def compute_label_logprobs(steps: Sequence[TokenLogprobs], replies: Mapping[str, str]) -> dict[str, float] | None:
    """Return label -> log-probability, from the tokens at which replies of labels differ.

    Return None if the reply is no label, or if more than a hundredth of the probability is not assigned to one label:
    it is outside of the alternatives, or in one that several labels share.
    """
    written = {label: _strip_whitespace(text.encode()) for label, text in replies.items()}
    if len(set(written.values())) < len(written):
        return None
    found: dict[str, float] = {}
    so_far, logprob, unknown = b"", 0.0, 0.0
    for step in steps:
        candidates = _match_labels(so_far, written)
        if len(candidates) < 2:
            break
        for token, alone in step.others:
            fits = _match_labels(so_far + token, written)
            if len(fits) == 1:
                found[fits[0]] = _add_logs(found.get(fits[0]), logprob + alone)
            elif fits:
                unknown += math.exp(logprob + alone)
        known = math.exp(step.logprob) + sum(math.exp(alone) for _, alone in step.others)
        unknown += math.exp(logprob) * max(0.0, 1 - known)
        so_far, logprob = _strip_whitespace(so_far + step.token), logprob + step.logprob
    candidates = _match_labels(so_far, written)
    if len(candidates) != 1:
        return None
    found[candidates[0]] = _add_logs(found.get(candidates[0]), logprob)
    if unknown > _MAX_UNKNOWN * sum(map(math.exp, found.values())) or not all(map(math.isfinite, found.values())):
        return None
    return {label: round(found[label], 6) for label in replies if label in found}


def _match_labels(begun: bytes, written: Mapping[str, bytes]) -> list[str]:
    """Return the labels whose replies begin like this, ignoring whitespace."""
    begun = _strip_whitespace(begun)
    return [label for label, text in written.items() if text.startswith(begun) or begun.startswith(text)]


def _strip_whitespace(text: bytes) -> bytes:
    return b"".join(text.split())


def _add_logs(old: float | None, new: float) -> float:
    """Return the log of the sum of two probabilities given as logs."""
    if old is None:
        return new
    high, low = max(old, new), min(old, new)
    return high + math.log1p(math.exp(low - high))
