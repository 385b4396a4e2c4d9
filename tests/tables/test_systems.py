"""The table of NER systems: counts at three levels, for KLUE and for own tagging tasks."""

import json
from pathlib import Path

import pytest

from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_prompt_command import run

CASE = json.loads((Path(__file__).parent.parent / "fixtures" / "ner_replies.json").read_text("utf-8"))[
    "three_level_metrics"
]


def make_reply(sentence: dict) -> str:
    """Write the answered entities of a sentence as a reply; None is a reply that cannot be read."""
    if sentence["pred"] is None:
        return "I do not know."
    parts = [{"text": sentence["text"][a:b], "type": type_, "occ": 0} for a, b, type_ in sentence["pred"]]
    return json.dumps({"entities": parts})


def test_counts_of_an_own_tagging_task(tmp_path, capsys):
    rows = [
        {"text": s["text"], "spans": [{"start": a, "end": b, "label": type_} for a, b, type_ in s["gold"]]}
        for s in CASE["sentences"]
    ]
    for name, written in (("train", [*rows, {"text": "I", "spans": []}]), ("dev", rows)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written), "utf-8")
    task = tmp_path / "tags.toml"
    task.write_text('type = "tagging"\ntext = "text"\nspans = "spans"\ntrain = "train.jsonl"\ndev = "dev.jsonl"\n')
    replies = {json.dumps(s["text"]): make_reply(s) for s in CASE["sentences"]}

    def answer(body: dict, before: int) -> dict:
        asked = body["messages"][-1]["content"]
        return make_completion(next(reply for text, reply in replies.items() if text in asked))

    with serving(answer) as (url, _):
        code, _, err = run(capsys, "prompt", task, "-m", "server:stub", "--url", url, "--runs", tmp_path / "runs")
        assert code == 0, err
        part = ("prompt", task, "-m", "server:stub", "--url", url, "--limit", 2, "--runs", tmp_path / "runs")
        code, _, err = run(capsys, *part)
        assert code == 0, err
    command = ("runs", tmp_path / "runs", "--table", "ner-systems", "--task", task)
    (row,) = json.loads(run(capsys, *command, "--json")[1])
    expected = CASE["expected"]
    assert (row["sentences"], row["correct sentences"]) == (3, expected["sentence"]["correct"])
    for level, name in (("entity", "entity"), ("token", "token_type_only_non_O")):
        counts = expected[name]
        gold, right, f1 = counts["gold"], counts["tp"], counts["f1"]
        answered = round(right / counts["precision"])
        found = [row[f"{level} {count}"] for count in ("total", "correct", "FP", "FN")]
        assert found == [gold, right, answered - right, gold - right]
        assert next(value for key, value in row.items() if key.startswith(f"{level} F1")) == pytest.approx(100 * f1)
    code, out, err = run(capsys, *command, "--format", "markdown")
    assert code == 0, err
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
    levels = {cells[2]: cells[3:] for cells in lines if cells[2:3] and cells[2] in ("sentence", "entity", "token")}
    assert "2 dev examples" in out, "a run on a part of dev is left out and named"
    assert levels["sentence"] == ["3", "1", "–", "–", "33.33", "–", "–"]
    assert levels["entity"] == ["3", "1", "1", "2", "50.00", "33.33", "40.00"]
