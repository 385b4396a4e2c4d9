"""Published scores: the bundled file, its filters, and what is kept apart."""

import pytest

from danseo.errors import DanseoError
from danseo.tables.published import (
    filter_published,
    find_comparable_scores,
    find_model_scores,
    make_published_table,
    read_published,
)
from danseo.tasks import TASKS


def test_every_score_has_a_source_and_a_known_metric_or_an_own_name():
    scores = read_published()
    assert len(scores) > 600
    metrics = {id_ for task in TASKS.values() for id_ in task.metrics}
    for score in scores:
        assert score.task in TASKS
        assert score.source
        assert 0 <= score.value <= 100
        assert "/" not in score.metric or score.metric in metrics or "@subword-" in score.metric, score.metric
        assert score.metric.split("/")[0] in (score.task, score.metric)
        assert score.status in ("valid", "doubtful", "invalid")
        assert score.is_valid or score.note, "a reason"
        assert score.reported_by in ("authors", "rerun", "others")
        assert len(score.note) < 120
    keys = [(s.model, s.metric, s.task, s.split, s.source, s.value, s.note) for s in scores]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("split", "entity", "jga"), [("test", 84.60, 47.49), ("dev", 83.81, 47.41)])
def test_the_tables_of_the_paper_are_complete(split, entity, jga):
    official = {id_ for task in TASKS.values() for id_ in task.columns.values()}
    for name in ("klue/bert-base", "klue/roberta-small", "KLUE-RoBERTa-base", "klue/roberta-large", "XLM-R-large"):
        found = {s.metric: s.value for s in find_model_scores(name) if (s.split, s.reported_by) == (split, "authors")}
        assert found.keys() == official, name
    base = {s.metric: s.value for s in find_model_scores("klue/roberta-base@main") if s.reported_by == "authors"
            and s.split == split}  # fmt: skip
    assert (base["ner/entity_f1@official-1"], base["wos/jga@official-1"]) == (entity, jga)


@pytest.mark.parametrize(
    ("metric", "low", "high"), [("ner/entity_f1@official-1", 83.66, 84.94), ("dp/las@official-1", 87.23, 88.18)]
)
def test_reruns_of_the_official_code_have_a_range(metric, low, high):
    values = [s.value for s in find_model_scores("klue/roberta-base") if (s.metric, s.reported_by) == (metric, "rerun")]
    assert (len(values), min(values), max(values)) == (8, low, high)


def test_only_valid_scores_of_the_same_metric_and_split_are_comparable():
    found = find_comparable_scores("nli/accuracy@official-1")
    assert {score.split for score in found} == {"dev"}
    assert not [score for score in found if "Gemini" in score.model], "invalid"
    assert found[0].value == max(score.value for score in found)


def test_filters_and_headings():
    found = filter_published(TASKS["re"], "ROBERTA-large", "dev")
    assert {score.task for score in found} == {"re"}
    assert {score.split for score in found} == {"dev"}
    headings = [heading for heading, _ in make_published_table(filter_published(TASKS["ner"])).sections()]
    assert "ner/entity_f1@official-1, dev" in headings
    assert "ner/entity_f1@official-1, test" in headings
    assert len(set(headings)) == len(headings)
    with pytest.raises(DanseoError, match=r"klue/roberta-base"):
        filter_published(model="klue/robertabase")
    with pytest.raises(DanseoError, match="known: test"):
        filter_published(split="validation")


def test_the_command_lists_scores_with_their_sources(invoke):
    result = invoke("published", "NER", "--model", "klue/roberta-base", "--json")
    assert result.code == 0
    scores = result.json["scores"]
    assert result.json["count"] == len(scores)
    assert {(s["split"], s["value"]) for s in scores if s["reported_by"] == "authors"} >= {
        ("test", 84.6),
        ("dev", 83.81),
    }
    text = invoke("published", "wos").out
    assert "invalid" in text
    assert "KLUE-benchmark/KLUE" in text
    for arguments in (["nre"], ["ner", "--model", "nothing"], ["--split", "x"]):
        wrong = invoke("published", *arguments)
        assert wrong.code == 2
        assert wrong.complaint
