"""Files in the wrong place: gold and predictions swapped, or data of another task."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.tasks import TASKS


@pytest.fixture(scope="module")
def files(tmp_path_factory, sample: Path) -> dict[str, str]:
    """Gold and predictions of three tasks: ynat and ner of the sample, and one of our own."""
    folder = tmp_path_factory.mktemp("files")
    found = {}
    for name in ("ynat", "ner"):
        task = TASKS[name]
        gold = sample / task.folder / task.file("dev")
        answers = [{"guid": e.guid, "answer": e.gold} for e in task.read(gold)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, answers)), "utf-8")
        found |= {f"{name}_gold": str(gold), f"{name}_answers": str(folder / f"{name}.jsonl")}
    rows = [{"guid": str(k + 1), "text": f"글 {k}", "answer": "ABAB"[k]} for k in range(4)]
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    text = 'type = "classification"\ntrain = "own.jsonl"\ndev = 0.5\ntext = "text"\nlabel = "answer"\n'
    (folder / "own.toml").write_text(text, "utf-8")
    answers = [{"guid": row["guid"], "answer": row["answer"]} for row in rows]
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)), "utf-8")
    own = {"own": "own.toml", "own_gold": "own.jsonl", "own_answers": "answers.jsonl"}
    return found | {key: str(folder / name) for key, name in own.items()} | {"ynat": "ynat", "dp": "dp"}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("score ynat ynat_answers ynat_gold", ("predictions", "gold file comes first")),
        ("compare ynat ynat_answers ynat_gold", ("predictions", "gold file comes first")),
        ("score own own_answers own_gold", ("predictions", "gold file comes first")),
        ("score ynat ynat_gold ynat_gold", ("gold answers of the task ynat",)),
        ("compare ynat ynat_gold ynat_answers ner_gold", ("gold answers of the task ner",)),
        ("score own own_gold ynat_gold", ("gold answers of the task ynat",)),
        ("score dp ner_gold ner_answers", ("task ner, not of dp",)),
        ("score ynat ner_gold ner_answers", ("task ner, not of ynat",)),
        ("score own ynat_gold own_answers", ("task ynat, not of own",)),
        ("score ynat ynat_gold ner_answers", ("klue-ner", "ynat-")),
        ("data check ynat_gold", ("is a file, not a task",)),
    ],
)
def test_the_hint_names_what_the_file_is(files, command, words):
    arguments = [files.get(word, word) for word in command.split()]
    found = CliRunner().invoke(cli, arguments)
    assert all(word in str(found.exception) for word in words), found.exception


def test_gold_with_columns_like_predictions_is_read(files):
    found = CliRunner().invoke(cli, ["score", files["own"], files["own_gold"], files["own_answers"], "--json"])
    assert json.loads(found.stdout)["scores"][0]["value"] == 100


def test_data_check_names_a_file_of_another_task(files, tmp_path):
    folder = tmp_path / TASKS["nli"].folder
    folder.mkdir()
    for split, key in (("train", "ynat_gold"), ("dev", "ynat_answers")):
        (folder / TASKS["nli"].file(split)).write_bytes(Path(files[key]).read_bytes())
    found = CliRunner().invoke(cli, ["data", "check", "nli", "--data", str(tmp_path), "--json"])
    notes = [report["note"] for report in json.loads(found.stdout)["files"][:2]]
    assert "task ynat, not of nli" in notes[0]
    assert "predictions" in notes[1]
