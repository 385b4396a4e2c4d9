"""Statistics of dialogues and their states: slots, values, and values that are not in the dialogue."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from danseo.data.stats.view import (
    Checks,
    Length,
    View,
    checks_table,
    count_characters,
    count_flags,
    distribution_table,
)
from danseo.display.plots.figures import Chart, split_curves
from danseo.display.table import Table
from danseo.records import DialogueExample
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.dialogue_state import slot_of
from danseo.tasktypes.rendering import percent

_SPECIAL = ("dontcare", "yes", "no")  # values that are no words of the dialogue


def make_view(task: Task) -> View:
    return View(
        label="slot",
        unit="value in the state of a turn",
        labels=lambda example: map(slot_of, example.gold),
        texts=lambda example: example.turns[-2:],
        lengths={
            "dialogue so far": count_characters(lambda example: "\n".join(example.turns)),
            "last user turn": count_characters(lambda example: example.turns[-1]),
            "dialogue": Length("user turns", lambda es: [(len(e.turns) + 1) // 2 for e in select_last_turns(es)]),
            "state of a turn": Length("slots", lambda examples: [len(example.gold) for example in examples]),
            "state of the last turn": Length("slots", lambda es: [len(e.gold) for e in select_last_turns(es)]),
        },
        key=lambda example, normalize: tuple(map(normalize, example.turns)),
        gold=lambda example: frozenset(example.gold),
        tables=_make_tables,
        panels=lambda splits: [_growth_panel(splits)],
    )


def _make_tables(splits: Splits) -> list[Table | None]:
    tables = (_domain_table, _special_table, _state_table, _unsaid_table, _seen_table)
    return [make_table(splits) for make_table in tables]


def get_value(entry: str) -> str:
    """Return the value of domain-slot-value; it may contain hyphens."""
    return entry.split("-", 2)[2]


def select_last_turns(examples: Sequence[DialogueExample]) -> list[DialogueExample]:
    """Return the last turn of every dialogue."""
    last: dict[str, DialogueExample] = {}
    for example in examples:
        if example.dialogue not in last or len(example.turns) > len(last[example.dialogue].turns):
            last[example.dialogue] = example
    return list(last.values())


def _special_table(splits: Splits) -> Table:
    values = {s: [get_value(entry) for e in examples for entry in e.gold] for s, examples in splits.items()}
    counts = {s: Counter(value if value in _SPECIAL else "a text" for value in each) for s, each in values.items()}
    return distribution_table("Kinds of values (in all turns)", "value", counts, independent=False)


def _domain_table(splits: Splits) -> Table:
    last = {split: select_last_turns(examples) for split, examples in splits.items()}
    counts = {split: Counter(domain for e in examples for domain in e.domains) for split, examples in last.items()}
    sizes = ", ".join(f"{split} {len(examples):,}" for split, examples in last.items())
    note = f"Dialogues: {sizes}; one has several domains."
    return distribution_table("Domains (one per dialogue and domain)", "domain", counts, independent=False, note=note)


def _find_values(examples: Sequence[DialogueExample]) -> Iterator[tuple[DialogueExample, str, bool, bool]]:
    """Yield every text value with its slot, whether it is in the dialogue, and whether it is without spaces."""
    for example in examples:
        text = "\n".join(example.turns)
        text_without_spaces = text.replace(" ", "")
        for entry in example.gold:
            if (value := get_value(entry)) not in _SPECIAL:
                yield example, slot_of(entry), value in text, value.replace(" ", "") in text_without_spaces


def _unsaid_table(splits: Splits) -> Table:
    """Return the slots whose values cannot be copied from the dialogue."""
    counts: dict[str, dict[str, Counter[bool]]] = {split: defaultdict(Counter) for split in splits}
    for split, examples in splits.items():
        for _, slot, _, is_said in _find_values(examples):
            counts[split][slot][is_said] += 1
    totals: Counter[str] = Counter()
    for by_slot in counts.values():
        totals.update({slot: counter[False] for slot, counter in by_slot.items() if counter[False]})
    rows: list[tuple[object, ...]] = []
    for slot, _ in totals.most_common(12):
        cells = [(by[slot].total(), percent(by[slot][False], by[slot].total())) for by in counts.values()]
        rows.append((slot, *(number for pair in cells for number in pair)))
    columns = ("slot", *(name for split in splits for name in (f"{split} values", f"{split} not said %")))
    return Table("Values that were not said so far (without spaces): the slots with most", columns, rows)


def _pair_states(examples: Sequence[DialogueExample]) -> list[tuple[str, dict[str, str], dict[str, str]]]:
    """Return the guid of every turn with the state before and after it."""
    states = {(e.dialogue, len(e.turns)): {slot_of(entry): get_value(entry) for entry in e.gold} for e in examples}
    return [
        (e.guid, states.get((e.dialogue, len(e.turns) - 2), {}), states[e.dialogue, len(e.turns)]) for e in examples
    ]


def _state_table(splits: Splits) -> Table:
    """Return how states change, and whether their values are in the dialogue."""
    pairs = {split: _pair_states(examples) for split, examples in splits.items()}
    tests: dict[str, Callable[[dict[str, str], dict[str, str]], bool]] = {
        "state as before": lambda before, after: before == after,
        "state loses a slot": lambda before, after: not before.keys() <= after.keys(),
        "state changes a value": lambda before, after: any(after.get(k, v) != v for k, v in before.items()),
    }
    checks: Checks = [
        (
            name,
            "turns",
            {split: count_flags((guid, test(a, b)) for guid, a, b in each) for split, each in pairs.items()},
        )
        for name, test in tests.items()
    ]
    twice = {
        split: count_flags((e.guid, len(set(map(slot_of, e.gold))) < len(e.gold)) for e in examples)
        for split, examples in splits.items()
    }
    values = {split: list(_find_values(examples)) for split, examples in splits.items()}
    exact = {split: count_flags((e.guid, not is_said) for e, _, is_said, _ in each) for split, each in values.items()}
    loose = {split: count_flags((e.guid, not is_said) for e, _, _, is_said in each) for split, each in values.items()}
    checks.append(("slot given twice", "turns", twice))
    checks += [("not said so far", "text values", exact), ("not said so far, without spaces", "text values", loose)]
    return checks_table("States", checks)


def _seen_table(splits: Splits) -> Table | None:
    """Return how many values of the second split are in the first."""
    if len(splits) != 2:
        return None
    (first, before), (second, after) = splits.items()
    known = {entry for example in before for entry in example.gold}
    values = {get_value(entry) for entry in known}
    last = [(example.guid, entry) for example in select_last_turns(after) for entry in example.gold]
    exact = count_flags((guid, entry in known) for guid, entry in last)
    anywhere = count_flags((guid, get_value(entry) in values) for guid, entry in last)
    checks = {"slot with this value": exact, "value, any slot": anywhere}
    return checks_table(
        f"Seen in {first} already", [(name, "values of last turns", {second: count}) for name, count in checks.items()]
    )


def _growth_panel(splits: Splits) -> Chart:
    """Return how many slots are filled after each user turn."""
    points = {}
    for split, examples in splits.items():
        sizes: dict[int, list[int]] = defaultdict(list)
        for example in examples:
            sizes[(len(example.turns) + 1) // 2].append(len(example.gold))
        frequent = [turn for turn in sorted(sizes) if len(sizes[turn]) >= 10]
        points["slots", split] = [(turn, sum(sizes[turn]) / len(sizes[turn])) for turn in frequent]
    title = "How states grow (turns with 10 or more dialogues)"
    return Chart(split_curves(points), "user turn", "mean slots filled", title=title, from_zero=True)
