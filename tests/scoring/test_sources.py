from dataclasses import replace

from danseo.records import Prediction
from danseo.scoring.breakdown import details
from danseo.tasks import TASKS
from tests.tiny import read_split


def test_relations_are_broken_down_by_source(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev")
    examples = [replace(e, source="odd" if position % 2 else "even") for position, e in enumerate(examples)]
    wrong = {e.gold: "per:title" if e.gold != "per:title" else "per:origin" for e in examples}
    predictions = [Prediction(e.guid, e.gold if e.source == "even" else wrong[e.gold]) for e in examples]
    (table,) = [table for table in details(task, examples, predictions) if table.title == "per source"]
    assert [(row[0], row[2]) for row in table.rows] == [("even", 100.0), ("odd", 0.0)]
    alone = [replace(example, source="one") for example in examples]
    assert not [table for table in details(task, alone, predictions) if table.title == "per source"]


def tables_of(task, examples, predictions, **options):
    return {table.title: table for table in details(task, examples, predictions, **options)}


def test_labels_have_their_average_precision_where_there_are_probabilities(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev", 60)
    sure = [Prediction(e.guid, e.gold, {label: float(label == e.gold) for label in task.labels}) for e in examples]
    table = tables_of(task, examples, sure)["per label"]
    assert table.columns[-1] == "AP"
    assert {row[-1] for row in table.rows} == {100.0}
    bare = tables_of(task, examples, [Prediction(e.guid, e.gold) for e in examples])["per label"]
    assert "AP" not in bare.columns
    flat = [Prediction(e.guid, e.gold, dict.fromkeys(task.labels, 1 / 30)) for e in examples]
    shares = {row[0]: (row[1], row[-1]) for row in tables_of(task, examples, flat)["per label"].rows}
    assert all(abs(area - 100 * gold / 60) < 1e-6 for gold, area in shares.values()), "no order, no precision"


def test_pairs_of_labels_that_are_taken_for_each_other_stand_first(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev")
    spouse = [e for e in examples if e.gold in ("per:spouse", "per:siblings")]
    swapped = {"per:spouse": "per:siblings", "per:siblings": "per:spouse"}
    answers = [Prediction(e.guid, swapped.get(e.gold, e.gold)) for e in examples]
    table = tables_of(task, examples, answers)["hardest pairs of labels"]
    assert [(*sorted(row[:2]), *row[2:]) for row in table.rows] == [
        ("per:siblings", "per:spouse", len(spouse), len(spouse), 100.0)
    ]


def test_pairs_that_train_has_are_told_from_others(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev", 40)
    predictions = [Prediction(e.guid, e.gold) for e in examples]
    first, second, third = (replace(e, guid=f"t{k}") for k, e in enumerate(examples[:3]))
    crossed = replace(second, object=third.object, text=second.text + third.text)
    seen = tables_of(task, examples, predictions, train=[first, crossed])["by seen entities"]
    counts = {row[0]: row[1] for row in seen.rows}
    assert counts["the pair seen in training"] >= 1
    assert counts["one seen"] >= 2
    assert sum(counts.values()) == 40
    assert "by seen entities" not in tables_of(task, examples, predictions)
