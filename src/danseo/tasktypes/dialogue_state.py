"""Dialogue state tracking: what the user wants so far, as domain-slot-value, after each user turn."""

from collections.abc import Sequence
from typing import Any

from danseo.display.table import Table
from danseo.errors import DanseoError
from danseo.files import quote
from danseo.language import _
from danseo.records import DialogueExample, Prediction
from danseo.rows import Row
from danseo.tasktypes.base import ErrorDescription, Examples, Predictions, Systems, Task, TaskType
from danseo.tasktypes.combination import Combined, Combiner, Members, normalize_weights
from danseo.tasktypes.decoding import Array
from danseo.tasktypes.inputs import Input
from danseo.tasktypes.rendering import (
    ANSWER_WRONG,
    GOLD_WRONG,
    EarlierTurns,
    RenderedExample,
    RenderedLine,
    TextSpan,
    compare_sets,
    count_sets,
    found_table,
    join_parts,
    plain_line,
    zip_counts,
)

State = dict[str, tuple[str, ...]]
"""Slot -> its entries in a state."""


class DialogueState(TaskType):
    """The answer is a tuple of domain-slot-value texts; the labels are the slots."""

    name = "dialogue_state"
    resampling_unit = "dialogue"
    row_unit = "dialogues"
    row_note = "Rows are dialogues; an example is a user turn with what was said before."
    length_unit = "turns"
    legend = _("✓ right, − missed, ✗ wrong, whatever is new since the turn before")
    default_combination = "vote"  # runs save only their answers
    is_custom = False
    perturbations = ()  # the values of gold are words of the user

    def measure_length(self, example: Any) -> int:
        return len(example.turns)

    def make_example(self, task: Task, guid: str, text: str) -> Any:
        return DialogueExample(guid, guid, (text,), ())

    def validate(self, task: Task, example: Any, answer: Any) -> tuple[str, ...]:
        if not isinstance(answer, list | tuple) or not all(isinstance(value, str) for value in answer):
            raise ValueError("the answer should be a list of domain-slot-value texts")
        for value in answer:
            if problem := find_problem(task, value):
                raise ValueError(problem)
        return tuple(answer)

    def majority_answer(self, example: Any, most_frequent: Any) -> Any:
        return ()

    # Scoring

    def breakdown(self, task: Task, examples: Examples, predictions: Predictions) -> list[Table]:
        states = [(set(e.gold), set(p.answer)) for e, p in zip(examples, predictions, strict=True)]
        domains = list(dict.fromkeys(map(domain_of, task.labels)))
        return [
            found_table("per domain", "domain", zip_counts(domains, *count_sets(states, domain_of))),
            found_table("per slot", "slot", zip_counts(task.labels, *count_sets(states, slot_of))),
            turn_table(examples, states),
        ]

    def describe_error(self, task: Task, example: Any, prediction: Prediction) -> ErrorDescription | None:
        missed = [value for value in example.gold if value not in set(prediction.answer)]
        extra = [value for value in prediction.answer if value not in set(example.gold)]
        if not missed and not extra:
            return None
        turns = "\n".join(example.turns[-3:])
        parts = {"turns": turns, GOLD_WRONG: join_parts(missed), ANSWER_WRONG: join_parts(extra)}
        return ErrorDescription(float(len(missed) + len(extra)), parts)

    def is_correct(self, example: Any, answer: Any) -> bool:
        return set(answer) == set(example.gold)

    # Rendering

    def render(self, task: Task, example: Any, answers: Systems, earlier: EarlierTurns = ()) -> RenderedExample:
        """Render the dialogue turn by turn; after each user turn, what is missed or wrong since the turn before."""
        lines: list[RenderedLine] = []
        rendered = 0
        before: dict[str, set[tuple[str, str]]] = {}
        for turn, predictions in (*earlier, (example, answers)):
            for number in range(rendered, len(turn.turns)):
                role = "user" if number % 2 == 0 else "system"
                lines.append(plain_line(role, turn.turns[number], role))
            rendered = len(turn.turns)
            for name, prediction in predictions.items():
                state = compare_sets(turn.gold, prediction.answer)
                new = sorted(state - before.get(name, set()))
                before[name] = state
                if new:
                    spans = tuple(TextSpan(value, state=verdict) for value, verdict in new)
                    lines.append(RenderedLine(name, spans, "state"))
        slots = {value.rsplit("-", 1)[0] for states in before.values() for value, v in states if v != "right"}
        return RenderedExample(example.guid, tuple(lines), tuple(sorted(slots)))

    def find_earlier(self, examples: Sequence[Any], position: int) -> range:
        dialogue, start = examples[position].dialogue, position
        while start > 0 and examples[start - 1].dialogue == dialogue:
            start -= 1
        return range(start, position)

    def make_combiner(self, members: Members, method: str) -> Combiner:
        return SlotCombiner(members, method)


def slot_of(value: str) -> str:
    """Return the domain-slot part; the value itself may hold hyphens."""
    return "-".join(value.split("-", 2)[:2])


def domain_of(value: str) -> str:
    """Return the domain of a slot or of a value."""
    return value.split("-")[0]


def find_problem(task: Task, value: str) -> str:
    """Return what is wrong with an entry of a state; "" if nothing is."""
    if value.count("-") < 2:
        return f"{quote(value)} should look like domain-slot-value"
    if slot_of(value) not in task.labels:
        return f"unknown slot {quote(slot_of(value))}; `danseo tasks {task.name}` lists the {len(task.labels)} slots"
    return ""


def turn_table(examples: Sequence[Any], states: Sequence[tuple[set[str], set[str]]]) -> Table:
    """Return the joint goal accuracy of each user turn."""
    turns: dict[int, list[bool]] = {n: [] for n in sorted({(len(example.turns) + 1) // 2 for example in examples})}
    for example, (gold, answer) in zip(examples, states, strict=True):
        turns[(len(example.turns) + 1) // 2].append(gold == answer)
    rows: list[tuple[object, ...]] = [
        (number, len(hits), 100 * sum(hits) / len(hits)) for number, hits in turns.items()
    ]
    return Table("per user turn", ("turn", "n", "joint goal accuracy"), rows)


def dialogue_input() -> Input:
    """Return the input of a dialogue whose last turn is the user's."""
    return Input("dialogue: a list of turns with role and text, the user first and last", _read_dialogue)


def _read_dialogue(row: Row, guid: str) -> DialogueExample:
    turns = row.children("dialogue")
    for number, turn in enumerate(turns):
        if turn.text("role") != ("user", "sys")[number % 2]:
            raise turn.error("turns should alternate between user and sys, the user first")
    if len(turns) % 2 == 0:
        raise row.error("the last turn should be the user's")
    return DialogueExample(guid, guid, tuple(turn.text("text") for turn in turns), gold=())


class SlotCombiner(Combiner):
    """Votes on every slot; "not mentioned" is one of the choices."""

    def __init__(self, members: Members, method: str) -> None:
        if method != "vote":
            name = members.task.name
            raise DanseoError(f"--method {method}: runs of {name} keep only their answers; use --method vote")
        super().__init__(members, method)
        self.order = {slot: position for position, slot in enumerate(self.labels)}
        self.states = [[group_by_slot(p.answer) for p in m.predictions] for m in members.members]

    def __call__(self, weights: Array) -> Combined:
        votes = self.weight_votes(normalize_weights(weights)).tolist()
        columns = zip(self.guids, zip(*self.states, strict=True), strict=True)
        return [Prediction(guid, self._vote(states, votes)) for guid, states in columns], None

    def _vote(self, states: tuple[State, ...], weights: list[float]) -> tuple[str, ...]:
        slots = {slot for state in states for slot in state}
        answer: list[str] = []
        for slot in sorted(slots, key=self.order.__getitem__):
            votes: dict[tuple[str, ...], float] = {}
            for state, weight in zip(states, weights, strict=True):
                votes[state.get(slot, ())] = votes.get(state.get(slot, ()), 0.0) + weight
            best = max(votes, key=lambda entries: (votes[entries], entries))
            answer += best
        return tuple(answer)


def group_by_slot(answer: tuple[str, ...]) -> State:
    """Return the entries of a state by slot."""
    state: State = {}
    for entry in answer:
        state[slot_of(entry)] = (*state.get(slot_of(entry), ()), entry)
    return state


TYPE = DialogueState()
