"""The wrong examples themselves, each in the form of its task; the most confident mistake first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from danseo.display.table import Table
from danseo.metrics.answering import exact_match
from danseo.metrics.tagging import spans_of
from danseo.records import Prediction
from danseo.tasks.task import Task

Mistake = tuple[float, dict[str, str]]
"""How bad it is, and what there is to see: part -> content."""
_AROUND = 60  # characters of a passage on either side of the answer
_NOTHING = "(none)"
_GOLD, _ANSWER = "gold where wrong", "answer where wrong"


@dataclass(frozen=True)
class Ranked:
    """The wrong examples, the one most worth reading first."""

    positions: list[int]
    """Where each stands among the examples."""
    parts: list[dict[str, str]]
    """What there is to see of each: part -> content."""
    order: str
    """The order in words."""


def ranked_mistakes(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction]) -> Ranked:
    """All wrong examples, by confidence where it is known, else by how much is wrong."""
    makers: dict[str, Callable[[Task, Any, Prediction], Mistake | None]] = {
        "classify": _label,
        "labels": _several,
        "score": _number,
        "tag": _entities,
        "parse": _tree,
        "answer": _answer,
        "track": _state,
    }
    made = (makers[task.kind](task, *pair) for pair in zip(examples, predictions, strict=True))
    found = [(mistake, position) for position, mistake in enumerate(made) if mistake]
    known = task.kind not in ("classify", "answer") or all(each.probabilities for each in predictions)
    if known:
        found.sort(key=lambda pair: -pair[0][0])  # of equal ones the first of the file
    order = _ORDER[task.kind] if known else "in the order of the file"
    return Ranked([position for _, position in found], [parts for (_, parts), _ in found], order)


def mistakes_table(task: Task, examples: Sequence[Any], predictions: Sequence[Prediction], most: int) -> Table:
    """The first of the wrong examples: one row per part of each."""
    ranked = ranked_mistakes(task, examples, predictions)
    rows: list[tuple[object, ...]] = [
        (number, part, " ⏎ ".join(content.split("\n")))
        for number, (position, parts) in enumerate(zip(ranked.positions[:most], ranked.parts, strict=False), 1)
        for part, content in {"guid": examples[position].guid, **parts}.items()
    ]
    note = f"{min(most, len(ranked.positions))} of {len(ranked.positions)} wrong examples, {ranked.order}"
    return Table("wrong examples", ("number", "part", "content"), rows, note)


_ORDER = {
    "classify": "most confident first",
    "labels": "most mistakes first",
    "score": "farthest off first",
    "tag": "most mistakes first",
    "parse": "most mistakes first",
    "answer": "most confident first",
    "track": "most mistakes first",
}


def _sure(answer: str, confidence: float | None) -> str:
    return f"{answer} ({confidence:.3f})" if confidence is not None else answer


def _label(task: Task, example: Any, prediction: Prediction) -> Mistake | None:
    if prediction.answer == example.gold:
        return None
    confidence = (prediction.probabilities or {}).get(prediction.answer)
    parts = dict(_texts(task, example)) | {"gold": example.gold, "answer": _sure(prediction.answer, confidence)}
    return confidence or 0.0, parts


def _several(task: Task, example: Any, prediction: Prediction) -> Mistake | None:
    gold, answer = set(example.gold), set(prediction.answer)
    if gold == answer:
        return None
    sure = prediction.probabilities or {}
    shown = _joined([_sure(label, sure.get(label)) for label in prediction.answer])
    return float(len(gold ^ answer)), dict(_texts(task, example)) | {"gold": _joined(example.gold), "answer": shown}


def _texts(task: Task, example: Any) -> Iterator[tuple[str, str]]:
    if task.form == "relation":
        yield "text", _marked(example)
    elif task.form == "choices":
        yield "text", example.text
        yield from zip(task.labels, example.choices, strict=True)
    else:
        names = task.parts if task.form == "pair" else ("text",)
        yield from zip(names, (example.text, example.pair), strict=False)


def _marked(example: Any) -> str:
    """The sentence with its entities in brackets: [한빛:ORG subject]의 대표 [김철수:PER object]."""
    text = str(example.text)
    roles = ((example.subject, "subject"), (example.object, "object"))
    marks = [(e.end, f":{e.type} {role}]") for e, role in roles] + [(e.start, "[") for e, _ in roles]
    for position, mark in sorted(marks, key=lambda mark: -mark[0]):  # one entity may lie in the other
        text = text[:position] + mark + text[position:]
    return text


def _number(task: Task, example: Any, prediction: Prediction) -> Mistake | None:
    error = float(prediction.answer) - example.gold
    if not error:
        return None
    return abs(error), dict(_texts(task, example)) | {
        "gold": f"{example.gold:.2f}",
        "answer": f"{prediction.answer:.2f} ({error:+.2f})",
    }


def _entities(task: Task, example: Any, prediction: Prediction) -> Mistake | None:
    gold, answer = (_named(tags, example.text) for tags in (example.gold, prediction.answer))
    missed, extra = (_listed(one, other) for one, other in ((gold, answer), (answer, gold)))
    if not missed and not extra:
        return None
    count = float(len(missed) + len(extra))
    return count, {"text": example.text, _GOLD: _joined(missed), _ANSWER: _joined(extra)}


def _named(tags: Sequence[str], text: str) -> dict[tuple[int, int, str], str]:
    """Entities by their place among the characters that are no spaces, which are not scored; as 서울:LC."""
    kept = [position for position, character in enumerate(text) if character != " "]
    spans = spans_of([tags[position] for position in kept])
    return {(start, end, kind): f"{text[kept[start] : kept[end - 1] + 1]}:{kind}" for start, end, kind in spans}


def _listed(one: dict[Any, str], other: dict[Any, str]) -> list[str]:
    return [shown for position, shown in one.items() if position not in other]


def _joined(parts: Sequence[str]) -> str:
    return ", ".join(parts) or _NOTHING


def _tree(task: Task, example: Any, prediction: Prediction) -> Mistake | None:
    words = ["ROOT", *example.words]
    wrong = [
        (f"{words[position]} → {words[due]} {relation}", f"{words[position]} → {words[head]} {label}")
        for position, ((due, relation), (head, label)) in enumerate(
            zip(example.gold, prediction.answer, strict=True), 1
        )
        if (due, relation) != (head, label)
    ]
    if not wrong:
        return None
    gold, answer = zip(*wrong, strict=True)
    return float(len(wrong)), {"text": " ".join(example.words), _GOLD: _joined(gold), _ANSWER: _joined(answer)}


def _answer(task: Task, example: Any, prediction: Prediction) -> Mistake | None:
    if exact_match([example.gold], [prediction.answer]).value() == 100:
        return None
    none = (prediction.probabilities or {}).get("")
    confidence = None if none is None else 1 - none if prediction.answer else none
    parts = {"passage": _around(example), "question": example.question}
    golds = " | ".join(dict.fromkeys(example.gold)) or _NOTHING
    return confidence or 0.0, parts | {"gold": golds, "answer": _sure(prediction.answer or _NOTHING, confidence)}


def _around(example: Any) -> str:
    """The passage near the first accepted answer, or its beginning where there is none."""
    text = example.text
    start = example.starts[0] if example.starts else 0
    end = start + len(example.gold[0]) if example.gold else start + _AROUND
    first, last = max(0, start - _AROUND), min(len(text), end + _AROUND)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def _state(task: Task, example: Any, prediction: Prediction) -> Mistake | None:
    missed = [value for value in example.gold if value not in set(prediction.answer)]
    extra = [value for value in prediction.answer if value not in set(example.gold)]
    if not missed and not extra:
        return None
    turn = "\n".join(example.turns[-3:])
    return float(len(missed) + len(extra)), {"turns": turn, _GOLD: _joined(missed), _ANSWER: _joined(extra)}
