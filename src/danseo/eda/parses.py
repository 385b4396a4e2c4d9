"""Dependency trees: their shape (dp)."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from danseo.display.table import Table
from danseo.eda.counting import checks_table, percent, tally, tally_flags
from danseo.eda.panels import Line, Lines
from danseo.eda.view import Length, Splits, View, characters
from danseo.records import ParseExample

_FARTHEST = 15


def roots(example: ParseExample) -> int:
    return sum(head == 0 for head, _ in example.gold)


def crosses(example: ParseExample) -> bool:
    """Whether two arcs of the tree cross, which makes it non-projective; the root's arc is none."""
    arcs = sorted((min(k, head), max(k, head)) for k, (head, _) in enumerate(example.gold, 1) if head)
    return any(a < c < b < d for (a, b), (c, d) in combinations(arcs, 2))


def loops(example: ParseExample) -> bool:
    """Whether some word never reaches the root."""
    heads = [head for head, _ in example.gold]
    for position in range(1, len(heads) + 1):
        for _ in heads:
            position = heads[position - 1] if position else 0
        if position:
            return True
    return False


def distances(examples: Sequence[ParseExample]) -> list[int]:
    """How many words lie between a word and its head, counting the head; roots have none."""
    return [abs(head - k) for example in examples for k, (head, _) in enumerate(example.gold, 1) if head]


def check_table(splits: Splits) -> Table:
    """Roots, directions and crossings."""
    tests = {
        "the last word is a root": lambda e: e.gold[-1][0] == 0,
        "several roots": lambda e: roots(e) > 1,
        "no root": lambda e: roots(e) == 0,
        "arcs cross (non-projective)": crosses,
        "a loop": loops,
        "words differ from the text": lambda e: bool(e.text) and list(e.words) != e.text.split(),
    }
    sentences = [(name, "sentences", {s: tally(e, test) for s, e in splits.items()}) for name, test in tests.items()]
    arcs = {
        s: [(e.guid, head > k, head == k + 1) for e in examples for k, (head, _) in enumerate(e.gold, 1) if head]
        for s, examples in splits.items()
    }
    right = {s: tally_flags((guid, later) for guid, later, _ in found) for s, found in arcs.items()}
    beside = {s: tally_flags((guid, after) for guid, _, after in found) for s, found in arcs.items()}
    words = [("head to the right", "words but roots", right), ("head is the next word", "words but roots", beside)]
    return checks_table("Trees", [*words, *sentences])


def memory_table(splits: Splits) -> Table | None:
    """How many words of dev a parser has met."""
    if len(splits) != 2:
        return None
    (first, before), (second, after) = splits.items()
    known = {word for example in before for word in example.words}
    seen = tally_flags((example.guid, word in known) for example in after for word in example.words)
    return checks_table(f"Seen in {first} already", [("word form", "words", {second: seen})])


def distance_panel(splits: Splits) -> Lines:
    """How far away heads are."""
    lines = []
    for split, examples in splits.items():
        counter = Counter(distances(examples))
        last = min(max(counter, default=1), _FARTHEST)
        points = [(k, percent(counter[k], counter.total()) or 0.0) for k in range(1, last + 1)]
        lines.append(Line("distance", split, points))
    return Lines("How far the head is", lines, "words from a word to its head", "% of the words")


def _tables(splits: Splits) -> list[Table]:
    return [table for table in (check_table(splits), memory_table(splits)) if table]


DP = View(
    label="relation",
    unit="word",
    labels=lambda example: (relation for _, relation in example.gold),
    texts=lambda example: (" ".join(example.words),),
    lengths={
        "sentence": characters(lambda example: " ".join(example.words)),
        "word": Length(
            "characters", lambda examples: [len(word) for example in examples for word in example.words], is_text=True
        ),
        "words per sentence": Length("words", lambda examples: [len(example.words) for example in examples]),
        "way to the head": Length("words", distances),
    },
    key=lambda example, loose: tuple(map(loose, example.words)),
    tables=_tables,
    panel=distance_panel,
)
