from dataclasses import replace

from danseo.records import Prediction
from danseo.scoring.breakdown import details
from danseo.tasks import TASKS
from tests.tiny import read_split


def test_relations_are_broken_down_by_source(sample):
    task, examples = TASKS["re"], read_split(sample, "re", "dev")
    examples = [replace(e, source="odd" if place % 2 else "even") for place, e in enumerate(examples)]
    wrong = {e.gold: "per:title" if e.gold != "per:title" else "per:origin" for e in examples}
    predictions = [Prediction(e.guid, e.gold if e.source == "even" else wrong[e.gold]) for e in examples]
    (table,) = [table for table in details(task, examples, predictions) if table.title == "per source"]
    assert [(row[0], row[2]) for row in table.rows] == [("even", 100.0), ("odd", 0.0)]
    alone = [replace(example, source="one") for example in examples]
    assert not [table for table in details(task, alone, predictions) if table.title == "per source"]
