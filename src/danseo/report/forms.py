"""Examples as people read them, each task in its own form: pieces of text with marks, trees, turns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from danseo.metrics.answering import exact_match
from danseo.metrics.tagging import spans_of
from danseo.plots.figures import Arcs
from danseo.records import Prediction
from danseo.tasks.task import Task

_REPLY = 400  # characters of a reply
_AROUND = 160  # characters of a passage on either side of what is marked


@dataclass(frozen=True)
class Piece:
    """A stretch of text with a mark: the type of an entity, a role; and whether it is right, wrong or missed."""

    text: str
    mark: str = ""
    state: str = ""


@dataclass(frozen=True)
class Line:
    """A named line of pieces: who says it, and what."""

    name: str
    pieces: tuple[Piece, ...]
    kind: str = ""
    """gold, answer, user, system, or nothing."""


@dataclass(frozen=True)
class Shown:
    """One example, ready for a page."""

    guid: str
    lines: tuple[Line, ...]
    tags: tuple[str, ...] = ()
    """What it can be filtered by."""
    tree: Arcs | None = None

    def as_dict(self) -> dict[str, Any]:
        lines = [
            {"name": line.name, "pieces": [{"text": p.text, "mark": p.mark, "state": p.state} for p in line.pieces]}
            for line in self.lines
        ]
        return {"guid": self.guid, "tags": list(self.tags), "lines": lines}


@dataclass(frozen=True)
class Answered:
    """An example and what one or more systems said about it."""

    task: Task
    example: Any
    answers: Mapping[str, Prediction]
    """System -> its prediction."""
    earlier: Sequence[tuple[Any, Mapping[str, Prediction]]] = field(default=())
    """Turns of the same dialogue before this one."""


def show(answered: Answered) -> Shown:
    """The example in the form of its task."""
    makers: dict[str, Callable[[Answered], Shown]] = {
        "classify": _labels,
        "labels": _several,
        "score": _labels,
        "tag": _entities,
        "parse": _tree,
        "answer": _passage,
        "track": _turns,
    }
    return makers[answered.task.kind](answered)


def show_reply(task: Task, example: Any, text: str, problems: Sequence[str]) -> Shown:
    """What was asked about, and a reply of which no answer could be read."""
    asked = show(Answered(task, example, {}))
    said = Piece(text if len(text) <= _REPLY else f"{text[:_REPLY]} …") if text.strip() else Piece("(nothing)")
    told = [problem.replace("_", " ") for problem in problems]
    lines = (*asked.lines, Line("reply", (Piece(said.text, state="wrong"),), "answer"))
    return Shown(asked.guid, (*lines, Line("problem", (Piece(", ".join(told)),))), tuple(told))


def is_right(task: Task, example: Any, answer: Any) -> bool:
    """Whether an answer is as expected; a number is when it rounds to the same half."""
    if task.kind == "answer":
        return exact_match([example.gold], [answer]).value() == 100
    if task.kind == "score":
        return abs(float(answer) - float(example.gold)) < 0.5
    if task.kind in ("track", "labels"):
        return set(answer) == set(example.gold)
    if task.kind == "tag":
        return set(spans_of(_letters(answer, example.text))) == set(spans_of(_letters(example.gold, example.text)))
    return bool(answer == example.gold)


def _letters(tags: Sequence[str], text: str) -> list[str]:
    """The tags of what is no space; spaces are not scored."""
    return [tag for tag, character in zip(tags, text, strict=True) if character != " "]


def _verdict(answered: Answered, answer: Any) -> str:
    return "right" if is_right(answered.task, answered.example, answer) else "wrong"


# Labels and numbers


def _labels(answered: Answered) -> Shown:
    example, task = answered.example, answered.task
    lines = [*_texts(task, example), Line("gold", (Piece(_said(example.gold)),), "gold")]
    for name, prediction in answered.answers.items():
        sure = (prediction.probabilities or {}).get(prediction.answer) if task.kind == "classify" else None
        shown = (_said(prediction.answer) or "(none)") + (f" ({100 * sure:.0f} %)" if sure is not None else "")
        lines.append(Line(name, (Piece(shown, state=_verdict(answered, prediction.answer)),), "answer"))
    tags = (f"gold: {example.gold}",) if task.kind == "classify" else ()
    return Shown(example.guid, tuple(lines), (*tags, *_said_tags(answered)))


def _several(answered: Answered) -> Shown:
    """Each label as right or wrong, and the missed ones."""
    example, task = answered.example, answered.task
    lines = [*_texts(task, example), Line("gold", (Piece(", ".join(example.gold) or "(none)"),), "gold")]
    wrong: set[str] = set()
    for name, prediction in answered.answers.items():
        states = sorted(_state(example, prediction), key=lambda pair: task.labels.index(pair[0]))
        pieces = [Piece(_named(label, prediction), state=state) for label, state in states]
        lines.append(Line(name, tuple(pieces) or (Piece("(none)", state="right"),), "state"))
        wrong |= {label for label, state in states if state != "right"}
    return Shown(example.guid, tuple(lines), tuple(sorted(wrong)))


def _named(label: str, prediction: Prediction) -> str:
    sure = (prediction.probabilities or {}).get(label)
    return label + (f" ({100 * sure:.0f} %)" if sure is not None else "")


def _said(answer: Any) -> str:
    return f"{answer:.2f}" if isinstance(answer, float) else str(answer)


def _said_tags(answered: Answered) -> tuple[str, ...]:
    if answered.task.kind != "classify":
        return ()
    said = (str(prediction.answer) or "(none)" for prediction in answered.answers.values())
    return tuple(dict.fromkeys(f"answer: {answer}" for answer in said))


def _texts(task: Task, example: Any) -> list[Line]:
    if hasattr(example, "subject"):
        marks = [(e.start, e.end, f"{role} {e.type}") for role, e in _roles(example)]
        return [Line("text", tuple(marked(example.text, marks)))]
    if task.form == "choices":
        named = zip(task.labels, example.choices, strict=True)
        return [Line("text", (Piece(example.text),)), *(Line(name, (Piece(text),)) for name, text in named)]
    if getattr(example, "pair", None) is None:
        return [Line("text", (Piece(example.text),))]
    names = task.parts
    return [Line(name, (Piece(text),)) for name, text in zip(names, (example.text, example.pair), strict=True)]


def _roles(example: Any) -> list[tuple[str, Any]]:
    return [("subject", example.subject), ("object", example.object)]


def marked(text: str, marks: Sequence[tuple[int, int, str]], states: Sequence[str] = ()) -> list[Piece]:
    """The text in pieces, some of them marked; of marks that overlap the later one keeps what the first leaves."""
    pieces: list[Piece] = []
    end = 0
    numbered = sorted((start, stop, mark, k) for k, (start, stop, mark) in enumerate(marks))
    for start, stop, mark, k in numbered:
        start = max(start, end)
        if start >= stop:
            continue
        pieces += [Piece(text[end:start])] if start > end else []
        pieces.append(Piece(text[start:stop], mark, states[k] if states else ""))
        end = stop
    return [*pieces, *([Piece(text[end:])] if end < len(text) else [])]


# Entities


def _entities(answered: Answered) -> Shown:
    example = answered.example
    gold = _spans(example.gold, example.text)
    found = {name: _spans(prediction.answer, example.text) for name, prediction in answered.answers.items()}
    common = set.union(set(), *(map(set, found.values())))
    lines = [Line("gold", tuple(_coloured(example.text, gold, common, "missed")), "gold")]
    lines += [
        Line(name, tuple(_coloured(example.text, spans, set(gold), "wrong")), "answer") for name, spans in found.items()
    ]
    wrong = {span[2] for spans in found.values() for span in set(spans) ^ set(gold)}
    return Shown(example.guid, tuple(lines), tuple(sorted(wrong)))


def _spans(tags: Sequence[str], text: str) -> list[tuple[int, int, str]]:
    """Entities by where they stand in the text; spaces inside do not end one."""
    kept = [position for position, character in enumerate(text) if character != " "]
    return [(kept[a], kept[b - 1] + 1, kind) for a, b, kind in spans_of([tags[position] for position in kept])]


def _coloured(text: str, spans: list[tuple[int, int, str]], due: set[tuple[int, int, str]], other: str) -> list[Piece]:
    return marked(text, spans, ["right" if span in due else other for span in spans])


# Trees


def _tree(answered: Answered) -> Shown:
    example = answered.example
    first = next(iter(answered.answers.values()), None)
    if first is None:
        return Shown(example.guid, (Line("text", (Piece(" ".join(example.words)),)),))
    wrong = frozenset(
        k for k, (g, a) in enumerate(zip(example.gold, first.answer, strict=True)) if tuple(g) != tuple(a)
    )
    lines = [Line("text", (Piece(" ".join(example.words)),))]
    for name, prediction in answered.answers.items():
        pairs = list(zip(example.gold, prediction.answer, strict=True))
        heads, both = (sum(g[0] == a[0] for g, a in pairs), sum(tuple(g) == tuple(a) for g, a in pairs))
        told = f"{heads} of {len(pairs)} heads right, {both} with their relation"
        lines.append(Line(name, (Piece(told, state="right" if both == len(pairs) else "wrong"),), "answer"))
    tags = tuple(sorted({example.gold[k][1] for k in wrong}))
    return Shown(example.guid, tuple(lines), tags, Arcs(example.words, example.gold, first.answer, wrong))


# Passages


def _passage(answered: Answered) -> Shown:
    example, text = answered.example, answered.example.text
    marks = [(start, start + len(gold), "gold") for start, gold in zip(example.starts, example.gold, strict=False)]
    for name, prediction in answered.answers.items():
        position = text.find(prediction.answer) if prediction.answer else -1
        if position >= 0 and not is_right(answered.task, example, prediction.answer):
            marks.append(
                (position, position + len(prediction.answer), "answer" if len(answered.answers) == 1 else name)
            )
    states = ["missed" if mark == "gold" else "wrong" for _, _, mark in marks]
    lines = [
        Line("passage", tuple(_cut(marked(text, marks, states)))),
        Line("question", (Piece(example.question),)),
        Line("gold", (Piece(" | ".join(dict.fromkeys(example.gold)) or "(no answer)"),), "gold"),
    ]
    for name, prediction in answered.answers.items():
        none = (prediction.probabilities or {}).get("")
        sure = f" (no answer: {100 * none:.0f} %)" if none is not None else ""
        told = Piece((prediction.answer or "(no answer)") + sure, state=_verdict(answered, prediction.answer))
        lines.append(Line(name, (told,), "answer"))
    return Shown(example.guid, tuple(lines), ("answerable" if example.gold else "unanswerable",))


def _cut(pieces: Sequence[Piece]) -> list[Piece]:
    """The passage near what is marked; long stretches between become an ellipsis."""
    found = []
    for position, piece in enumerate(pieces):
        text, is_first, is_last = piece.text, position == 0, position == len(pieces) - 1
        if piece.mark or len(text) <= 2 * _AROUND:
            found.append(piece)
        elif is_first and is_last:
            found.append(Piece(text[: 2 * _AROUND] + " …"))
        elif is_first:
            found.append(Piece("… " + text[-_AROUND:]))
        elif is_last:
            found.append(Piece(text[:_AROUND] + " …"))
        else:
            found.append(Piece(f"{text[:_AROUND]} … {text[-_AROUND:]}"))
    return found


# Dialogues


def _turns(answered: Answered) -> Shown:
    """The dialogue turn by turn; after each of the user's, what is missed or too much since the turn before."""
    lines: list[Line] = []
    said = 0
    before: dict[str, set[tuple[str, str]]] = {}
    for example, answers in (*answered.earlier, (answered.example, answered.answers)):
        for number in range(said, len(example.turns)):
            role = "user" if number % 2 == 0 else "system"
            lines.append(Line(role, (Piece(example.turns[number]),), role))
        said = len(example.turns)
        for name, prediction in answers.items():
            state = _state(example, prediction)
            fresh = sorted(state - before.get(name, set()))
            before[name] = state
            if fresh:
                lines.append(Line(name, tuple(Piece(value, state=kind) for value, kind in fresh), "state"))
    slots = {value.rsplit("-", 1)[0] for states in before.values() for value, kind in states if kind != "right"}
    return Shown(answered.example.guid, tuple(lines), tuple(sorted(slots)))


def _state(example: Any, prediction: Prediction) -> set[tuple[str, str]]:
    gold, found = set(example.gold), set(prediction.answer)
    return {
        *((value, "right") for value in gold & found),
        *((value, "missed") for value in gold - found),
        *((value, "wrong") for value in found - gold),
    }
