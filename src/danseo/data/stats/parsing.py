"""Statistics of dependency trees."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from danseo.data.stats.view import (
    Checks,
    Length,
    View,
    checks_table,
    count_characters,
    count_checks,
    count_flags,
)
from danseo.display.plots.figures import Chart, split_curves
from danseo.display.table import Table
from danseo.extras import is_installed
from danseo.records import ParseExample
from danseo.tasktypes.base import Splits, Task
from danseo.tasktypes.rendering import percent
from danseo.text.morphology import get_tagger

_MAX_DISTANCE = 15


def make_view(task: Task) -> View:
    return View(
        label="relation",
        unit="word",
        labels=lambda example: (relation for _, relation in example.gold),
        texts=lambda example: (" ".join(example.words),),
        lengths={
            "sentence": count_characters(lambda example: " ".join(example.words)),
            "word": Length("characters", lambda examples: [len(w) for e in examples for w in e.words], is_text=True),
            "words per sentence": Length("words", lambda examples: [len(example.words) for example in examples]),
            "way to the head": Length("words", measure_distances),
        },
        key=lambda example, normalize: tuple(map(normalize, example.words)),
        tables=lambda splits: [_tree_table(splits), _seen_table(splits), None if task.custom else _tags_table(splits)],
        panels=lambda splits: [_distance_panel(splits)],
    )


def count_roots(example: ParseExample) -> int:
    return sum(head == 0 for head, _ in example.gold)


def has_crossing_arcs(example: ParseExample) -> bool:
    """Return whether two arcs cross, which makes a tree non-projective; the root has no arc."""
    arcs = sorted((min(k, head), max(k, head)) for k, (head, _) in enumerate(example.gold, 1) if head)
    return any(a < c < b < d for (a, b), (c, d) in combinations(arcs, 2))


def has_loop(example: ParseExample) -> bool:
    """Return whether some word never reaches the root."""
    heads = [head for head, _ in example.gold]
    for position in range(1, len(heads) + 1):
        for _ in heads:
            position = heads[position - 1] if position else 0
        if position:
            return True
    return False


def measure_distances(examples: Sequence[ParseExample]) -> list[int]:
    """Return how many words away the head of each word is; roots have none."""
    return [abs(head - k) for example in examples for k, (head, _) in enumerate(example.gold, 1) if head]


_SENTENCE_CHECKS = {
    "the last word is a root": lambda e: e.gold[-1][0] == 0,
    "several roots": lambda e: count_roots(e) > 1,
    "no root": lambda e: count_roots(e) == 0,
    "arcs cross (non-projective)": has_crossing_arcs,
    "a loop": has_loop,
    "words differ from the text": lambda e: bool(e.text) and list(e.words) != e.text.split(),
}


def _tree_table(splits: Splits) -> Table:
    """Return the direction of heads, and roots, crossings and loops."""
    arcs = {
        split: [(e.guid, head - k) for e in examples for k, (head, _) in enumerate(e.gold, 1) if head]
        for split, examples in splits.items()
    }
    right = {split: count_flags((guid, steps > 0) for guid, steps in each) for split, each in arcs.items()}
    next_word = {split: count_flags((guid, steps == 1) for guid, steps in each) for split, each in arcs.items()}
    words = [("head to the right", "words but roots", right), ("head is the next word", "words but roots", next_word)]
    return checks_table("Trees", [*words, *count_checks(_SENTENCE_CHECKS, "sentences", splits)])


def _seen_table(splits: Splits) -> Table | None:
    """Return how many words of the second split are in the first."""
    if len(splits) != 2:
        return None
    (first, before), (second, after) = splits.items()
    known = {word for example in before for word in example.words}
    seen = count_flags((example.guid, word in known) for example in after for word in example.words)
    return checks_table(f"Seen in {first} already", [("word form", "words", {second: seen})])


def _tags_table(splits: Splits) -> Table | None:
    """Return how often Kiwi's POS tags, mapped to KLUE's, are the gold ones; on dev, else on the only split."""
    split, examples = list(splits.items())[-1]
    if not all(example.pos for example in examples):
        return None
    if not is_installed("kiwipiepy"):
        return checks_table(
            "POS tags of Kiwi", [], "Kiwi is not installed; pip install 'danseo[ko]' to compare its tags"
        )
    tagger = get_tagger()
    tagged = zip(examples, tagger.tag_words(example.words for example in examples), strict=True)
    pairs = [(e.guid, gold, tag) for e, tags in tagged for gold, tag in zip(e.pos, tags, strict=True)]
    lasts = [(guid, gold.split("+")[-1], tag.split("+")[-1]) for guid, gold, tag in pairs]
    checks: Checks = [
        (name, "words", {split: count_flags((guid, gold == tag) for guid, gold, tag in found)})
        for name, found in (("the last tag agrees with gold", lasts), ("all tags agree with gold", pairs))
    ]
    wrong = Counter(f"{gold} as {tag}" for _, gold, tag in lasts if gold != tag).most_common(5)
    note = "The official parser reads the last tag of each word. Most frequent differences: "
    note += ", ".join(f"{what} ({count:,})" for what, count in wrong) or "none"
    return checks_table(f"POS tags of {tagger.version}, mapped to KLUE's", checks, note)


def _distance_panel(splits: Splits) -> Chart:
    points = {}
    for split, examples in splits.items():
        counter = Counter(measure_distances(examples))
        last = min(max(counter, default=1), _MAX_DISTANCE)
        points["distance", split] = [(k, percent(counter[k], counter.total()) or 0.0) for k in range(1, last + 1)]
    labels = "words from a word to its head", "% of the words"
    return Chart(split_curves(points), *labels, title="How far the head is", from_zero=True)
