"""Dialogues and their states: slots, values, and values that nobody said (wos)."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from danseo.display.table import Table
from danseo.eda.counting import Tally, checks_table, distribution_table, percent, tally_flags
from danseo.eda.panels import Line, Lines
from danseo.eda.view import Length, Splits, View, characters
from danseo.records import DialogueExample
from danseo.tasks.wos import slot_of

SPECIAL = ("dontcare", "yes", "no")  # values that are answers, not words of the dialogue


def value_of(entry: str) -> str:
    """The value in domain-slot-value; it may hold hyphens itself."""
    return entry.split("-", 2)[2]


def last_turns(examples: Sequence[DialogueExample]) -> list[DialogueExample]:
    """Of every dialogue the turn that knows the most."""
    last: dict[str, DialogueExample] = {}
    for example in examples:
        if example.dialogue not in last or len(example.turns) > len(last[example.dialogue].turns):
            last[example.dialogue] = example
    return list(last.values())


def _kind(value: str) -> str:
    return value if value in SPECIAL else "a text"


def kind_table(splits: Splits) -> Table:
    counts = {
        split: Counter(_kind(value_of(entry)) for example in examples for entry in example.gold)
        for split, examples in splits.items()
    }
    return distribution_table("Kinds of values (in all turns)", "value", counts, independent=False)


def domain_table(splits: Splits) -> Table:
    finals = {split: last_turns(examples) for split, examples in splits.items()}
    counts = {split: Counter(domain for e in examples for domain in e.domains) for split, examples in finals.items()}
    sizes = ", ".join(f"{split} {len(examples):,}" for split, examples in finals.items())
    note = f"Dialogues: {sizes}; one has several domains."
    return distribution_table("Domains (one per dialogue and domain)", "domain", counts, independent=False, note=note)


def spoken(examples: Sequence[DialogueExample]) -> Iterator[tuple[DialogueExample, str, bool, bool]]:
    """Every text value: is it in the dialogue so far as it stands, and is it when spaces do not count?"""
    for example in examples:
        said = "\n".join(example.turns)
        tight = said.replace(" ", "")
        for entry in example.gold:
            if (value := value_of(entry)) not in SPECIAL:
                yield example, slot_of(entry), value in said, value.replace(" ", "") in tight


def unspoken_table(splits: Splits) -> Table:
    """Slots whose values a tracker cannot copy."""
    counts: dict[str, dict[str, Counter[bool]]] = {split: defaultdict(Counter) for split in splits}
    for split, examples in splits.items():
        for _, slot, _, tight in spoken(examples):
            counts[split][slot][tight] += 1
    totals: Counter[str] = Counter()
    for by in counts.values():
        totals.update({slot: counter[False] for slot, counter in by.items() if counter[False]})
    rows: list[tuple[object, ...]] = []
    for slot, _ in totals.most_common(12):
        cells = [(by[slot].total(), percent(by[slot][False], by[slot].total())) for by in counts.values()]
        rows.append((slot, *(number for pair in cells for number in pair)))
    columns = ("slot", *(name for split in splits for name in (f"{split} values", f"{split} not said %")))
    return Table("Values that were not said so far (spaces aside): the slots with most", columns, rows)


def _steps(examples: Sequence[DialogueExample]) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Every turn's guid with the state before it and after it."""
    states = {(e.dialogue, len(e.turns)): {slot_of(entry): value_of(entry) for entry in e.gold} for e in examples}
    for example in examples:
        before = states.get((example.dialogue, len(example.turns) - 2), {})
        yield example.guid, before, states[example.dialogue, len(example.turns)]


def check_table(splits: Splits) -> Table:
    """How states move, and whether their values can be found in the dialogue."""
    checks: dict[str, tuple[str, dict[str, Tally]]] = {
        name: ("turns", {})
        for name in ("state as before", "state loses a slot", "state changes a value", "slot given twice")
    }
    checks |= {name: ("text values", {}) for name in ("not said so far", "not said so far, spaces aside")}
    for split, examples in splits.items():
        steps, values = list(_steps(examples)), list(spoken(examples))
        tallies = (
            tally_flags((guid, before == after) for guid, before, after in steps),
            tally_flags((guid, not before.keys() <= after.keys()) for guid, before, after in steps),
            tally_flags((guid, any(after.get(k, v) != v for k, v in before.items())) for guid, before, after in steps),
            tally_flags((e.guid, len({slot_of(entry) for entry in e.gold}) < len(e.gold)) for e in examples),
            tally_flags((example.guid, not exact) for example, _, exact, _ in values),
            tally_flags((example.guid, not tight) for example, _, _, tight in values),
        )
        for (_, found), one in zip(checks.values(), tallies, strict=True):
            found[split] = one
    return checks_table("States", [(name, unit, found) for name, (unit, found) in checks.items()])


def memory_table(splits: Splits) -> Table | None:
    """How many of dev's values a tracker has met."""
    if len(splits) != 2:
        return None
    (first, before), (second, after) = splits.items()
    known = {entry for example in before for entry in example.gold}
    words = {value_of(entry) for entry in known}
    final = [(example.guid, entry) for example in last_turns(after) for entry in example.gold]
    exact = tally_flags((guid, entry in known) for guid, entry in final)
    anywhere = tally_flags((guid, value_of(entry) in words) for guid, entry in final)
    checks = [("slot with this value", exact), ("value, any slot", anywhere)]
    return checks_table(
        f"Seen in {first} already", [(name, "values of last turns", {second: found}) for name, found in checks]
    )


def growth_panel(splits: Splits) -> Lines:
    """How many slots are filled after each user turn."""
    lines = []
    for split, examples in splits.items():
        sizes: dict[int, list[int]] = defaultdict(list)
        for example in examples:
            sizes[(len(example.turns) + 1) // 2].append(len(example.gold))
        points = [(turn, sum(sizes[turn]) / len(sizes[turn])) for turn in sorted(sizes) if len(sizes[turn]) >= 10]
        lines.append(Line("slots", split, points))
    return Lines("How states grow (turns with 10 or more dialogues)", lines, "user turn", "mean slots filled")


def _tables(splits: Splits) -> list[Table]:
    tables = [
        domain_table(splits), kind_table(splits), check_table(splits), unspoken_table(splits), memory_table(splits)
    ]  # fmt: skip
    return [table for table in tables if table]


WOS = View(
    label="slot",
    unit="value in the state of a turn",
    labels=lambda example: map(slot_of, example.gold),
    texts=lambda example: example.turns[-2:],
    lengths={
        "dialogue so far": characters(lambda example: "\n".join(example.turns)),
        "last user turn": characters(lambda example: example.turns[-1]),
        "dialogue": Length("user turns", lambda es: [(len(example.turns) + 1) // 2 for example in last_turns(es)]),
        "state of a turn": Length("slots", lambda examples: [len(example.gold) for example in examples]),
        "state of the last turn": Length("slots", lambda es: [len(example.gold) for example in last_turns(es)]),
    },
    key=lambda example, loose: tuple(map(loose, example.turns)),
    gold=lambda example: frozenset(example.gold),
    tables=_tables,
    panel=growth_panel,
)
