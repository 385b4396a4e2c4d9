"""Every official metric against values that the official code printed."""

import json
import math
from pathlib import Path

import pytest

from danseo.metrics import classification, parsing, regression, tagging
from danseo.metrics import dialogue_state as dialogue
from danseo.metrics import question_answering as answering
from danseo.tasks.klue.dp import COMMON
from danseo.tasks.klue.ner import TYPES
from danseo.tasks.klue.re import LABELS

LINES = (Path(__file__).parents[1] / "fixtures" / "official_metrics.jsonl").read_text().splitlines()
CASES = [json.loads(line) for line in LINES]
MEASURES = {
    "ynat/macro_f1@official-1": classification.label_macro_f1,
    "nli/accuracy@official-1": classification.accuracy,
    "sts/pearson@official-1": regression.pearson,
    "sts/f1@official-1": regression.threshold_f1,
    "ner/entity_f1@official-1": lambda g, a: tagging.entity_counts(tagging.Tagged.encode(g, a, TYPES)),
    # these vectors are flattened already: an O of [CLS] and of the last position would be part of them
    "ner/char_f1@official-1": lambda g, a: tagging.tag_macro_f1(tagging.Tagged.encode(g, a, TYPES), with_o=True),
    "re/micro_f1@official-1": classification.relation_micro_f1,
    "re/auprc@official-1": lambda g, a: classification.Ranking(
        classification.make_curves(g, [dict(zip(LABELS, row, strict=True)) for row in a], LABELS)
    ),
    "dp/uas@official-1": parsing.head_macro_f1,
    "dp/uas@micro-1": lambda g, a: parsing.attachment(g, a, labelled=False),
    "dp/las@official-1": lambda g, a: parsing.relation_macro_f1(g, a, COMMON),
    "dp/las_micro@official-1": lambda g, a: parsing.attachment(g, a, labelled=True, common=COMMON),
    "mrc/exact_match@official-1": answering.exact_match,
    "mrc/rouge_w@official-1": answering.rouge_w,
    "wos/jga@official-1": dialogue.joint_goal,
    "wos/slot_f1@official-1": dialogue.turn_f1,
}


def test_all_127_cases_are_here():
    assert len(CASES) == 127
    assert {case["metric"] for case in CASES} == set(MEASURES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['metric']}-{case['case']}")
def test_value_of_the_official_code(case):
    value = MEASURES[case["metric"]](case["golds"], case["answers"]).value()
    if case["expected"] is None:
        assert math.isnan(value)
    else:
        assert value == pytest.approx(case["expected"], abs=1e-9)
