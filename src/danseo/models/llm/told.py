"""What every label weighs by what a server tells of the tokens it did not write; nothing is guessed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALTERNATIVES = 20
"""As many as servers tell for a token."""
_MOST_UNTOLD = 0.01
"""The largest share of the labels' weight that may lie in what was not told."""


@dataclass(frozen=True)
class Step:
    """A token of a reply with its log-probability, and others that might have stood in its place."""

    token: bytes
    logprob: float
    others: tuple[tuple[bytes, float], ...]


def steps_of(document: Mapping[str, Any]) -> list[Step] | None:
    """The tokens of a chat completion; None where the server tells no alternatives."""
    try:
        told = document["choices"][0]["logprobs"]["content"]
        steps = [_step(entry) for entry in told]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None
    return steps if steps and any(step.others for step in steps) else None


def _step(entry: Mapping[str, Any]) -> Step:
    token = _bytes(entry)
    others = ((_bytes(other), float(other["logprob"])) for other in entry.get("top_logprobs") or ())
    return Step(token, float(entry["logprob"]), tuple(pair for pair in others if pair[0] != token))


def _bytes(entry: Mapping[str, Any]) -> bytes:
    """A token may be a part of a syllable, which only its bytes can tell."""
    given = entry.get("bytes")
    return bytes(given) if isinstance(given, list) and given else str(entry["token"]).encode()


def told_weights(steps: Sequence[Step], replies: Mapping[str, str]) -> dict[str, float] | None:
    """Label -> log-probability of a reply that begins as only this label's does.

    None where the reply is no label, or where more than a hundredth of the weight may belong to labels that were not
    told apart: beyond the alternatives, or in one that several labels share.
    """
    written = {label: _squeezed(text.encode()) for label, text in replies.items()}
    if len(set(written.values())) < len(written):
        return None
    found: dict[str, float] = {}
    so_far, logprob, untold = b"", 0.0, 0.0
    for step in steps:
        left = _fitting(so_far, written)
        if len(left) < 2:
            break
        for token, alone in step.others:
            fits = _fitting(so_far + token, written)
            if len(fits) == 1:
                found[fits[0]] = _added(found.get(fits[0]), logprob + alone)
            elif fits:
                untold += math.exp(logprob + alone)
        known = math.exp(step.logprob) + sum(math.exp(alone) for _, alone in step.others)
        untold += math.exp(logprob) * max(0.0, 1 - known)
        so_far, logprob = so_far + step.token, logprob + step.logprob
    left = _fitting(so_far, written)
    if len(left) != 1:
        return None
    found[left[0]] = _added(found.get(left[0]), logprob)
    if untold > _MOST_UNTOLD * sum(map(math.exp, found.values())):
        return None
    return {label: round(found[label], 6) for label in replies if label in found}


def _fitting(begun: bytes, written: Mapping[str, bytes]) -> list[str]:
    """The labels whose replies begin so, white space aside; what follows a whole reply does not matter."""
    begun = _squeezed(begun)
    return [label for label, text in written.items() if text.startswith(begun) or begun.startswith(text)]


def _squeezed(text: bytes) -> bytes:
    return b"".join(text.split())


def _added(old: float | None, new: float) -> float:
    """The log of the sum of two weights."""
    if old is None:
        return new
    high, low = max(old, new), min(old, new)
    return high + math.log1p(math.exp(low - high))
