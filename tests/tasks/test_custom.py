"""Custom tasks: described, checked, trained, scored and used like those of KLUE; bad ones are one line."""

import gzip
import json
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import danseo as python
from danseo.cli import cli
from danseo.data.find import load, load_splits
from danseo.data.schema_inference import describe_files
from danseo.data.stats import describe
from danseo.errors import DanseoError
from danseo.tasks import get_task
from danseo.tasks.custom.tables import parse_hub_name
from danseo.tasktypes import TASK_TYPES
from danseo.tasktypes.tagging import spread_tags
from tests.conftest import ROOT

from .conftest import encoder, make_tiny_encoder, run_json, write_lines

pytest.importorskip("torch")
pytest.importorskip("sklearn")

GOOD, BAD = "좋은 멋진 훌륭한 재미있는".split(), "나쁜 지루한 싫은 형편없는".split()


def sentences(count, seed):
    rng = random.Random(seed)
    for number in range(count):
        words, label = ((GOOD, "아주 긍정"), (BAD, "부정"))[number % 2]
        yield " ".join([*rng.choices(words, k=2), "영화", str(rng.randint(0, 99))]), label


def write_csv(path, rows):
    lines = ["리뷰,분류", *(f'"{text},\n그렇다 ""정말""",{label}' for text, label in rows)]
    path.write_bytes(("\n".join(lines) + "\n").encode("cp949"))


def write_pairs(path, rows):
    lines = [f'{text}\t"{text.split()[0]} 영화다\t{label}' for text, label in rows]
    path.write_bytes(gzip.compress("\n".join(["sentence1\tsentence2\tgold_label", *lines]).encode()))


def write_scores(path, rows):
    write_lines(path, [{"text": text, "score": 12.75 if label == "부정" else len(text) / 8} for text, label in rows])


def write_tags(path, rows):
    lines = []
    for text, label in rows:
        type_ = "NEG" if label == "부정" else "POS"
        tags = (f"B-{type_}", f"I-{type_}", "O", "O")
        lines += [*(f"{word}\t{tag}" for word, tag in zip(text.split(), tags, strict=True)), ""]
    path.write_text("\n".join(lines), "utf-8")


def write_spans(path, rows):
    spans = [(text, {"start": 0, "end": len(text.split()[0]), "label": label}) for text, label in rows]
    write_lines(path, [{"text": text, "entities": [span]} for text, span in spans])


def write_relations(path, rows):
    lines = []
    for number, (text, label) in enumerate(rows):
        subject = {"start": 0, "end": len(text.split()[0]), "type": "MOOD"}
        object_ = {"start": text.index("영화"), "end": text.index("영화") + 2}
        lines.append({"sentence": text, "subj": subject, "obj": object_, "label": label if number % 3 else "none"})
    write_lines(path, lines)


def write_trees(path, rows):
    lines = []
    for number, (text, label) in enumerate(rows, 1):
        lines.append(f"# sent_id = s{number}")
        words = text.split()
        for k, word in enumerate(words, 1):
            relation = "amod" if label == "부정" else "nmod"
            head, relation = (k + 1, relation) if k < len(words) else (0, "root")
            lines.append(f"{k}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    path.write_text("\n".join(lines), "utf-8")


def write_questions(path, rows):
    paragraphs = []
    for number, (text, _) in enumerate(rows):
        answer = {"text": text.split()[0], "answer_start": 0}
        qa = {"id": f"q{number}", "question": "어떤 영화인가?", "answers": [answer]}
        paragraphs.append({"context": text, "qas": [qa]})
    path.write_text(json.dumps({"data": [{"title": "영화", "paragraphs": paragraphs}]}, ensure_ascii=False), "utf-8")


CASES = {
    "review": (write_csv, "csv", "classification", "linear"),
    "claim": (write_pairs, "tsv.gz", "classification", "linear"),
    "rating": (write_scores, "jsonl", "regression", "linear"),
    "mood": (write_tags, "conll", "tagging", "majority"),
    "span": (write_spans, "jsonl", "tagging", "majority"),
    "link": (write_relations, "jsonl", "relation", "linear"),
    "tree": (write_trees, "conllu", "parsing", "majority"),
    "question": (write_questions, "json", "question_answering", "majority"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("custom")
    for name, (write, suffix, _, _) in CASES.items():
        write(folder / f"{name}_train.{suffix}", sentences(40, 1))
        write(folder / f"{name}_dev.{suffix}", sentences(24, 2))
    make_tiny_encoder(folder, [*GOOD, *BAD, "영화", "그렇다", "정말", *map(str, range(100))])
    return folder


def train(task, *words):
    return run_json("train", task, *words)["run"]


@pytest.mark.parametrize("name", CASES)
def test_every_type_from_describing_to_comparing(danseo, folder, name):
    _, suffix, type_, baseline = CASES[name]
    task = f"{name}.toml"
    danseo("data", "describe", f"{name}_train.{suffix}", f"{name}_dev.{suffix}", "--out", task)
    assert get_task(task).type.name == type_
    assert "40 examples" in danseo("data", "check", task)
    assert "question type" not in danseo("data", "stats", task)
    runs = [train(task, "-m", baseline), train(task, *encoder())]
    assert train(task, "-m", baseline) == runs[0], "the same command returns the run"
    (folder / task).rename(folder / f"{name}.away")  # the runs do not need the file
    assert run_json("eval", runs[1])["scores"][0]["id"] in TASK_TYPES[type_].custom_metrics
    assert danseo("eval", runs[0], "--details", "--errors", "2")
    assert name in danseo("runs", "--task", name)
    assert danseo("compare", *runs)
    assert danseo("runs", "--table", "sweep", "--task", name)
    (folder / f"{name}.away").rename(folder / task)


def test_runs_predict_and_are_combined(danseo, folder):
    danseo("data", "describe", "review_train.csv", "review_dev.csv", "--out", "again.toml")
    runs = [train("again.toml", *encoder(seed)) for seed in (1, 2)]
    linear = train("again.toml", "-m", "linear")
    (folder / "lines.jsonl").write_text('{"리뷰": "훌륭한 멋진 영화", "guid": "a"}\n나쁜 영화\n', "utf-8")
    answers = [json.loads(line) for line in danseo("predict", linear, "lines.jsonl").splitlines()]
    assert [answer["answer"] for answer in answers] == ["아주 긍정", "부정"]
    for command in ("ensemble", "soup"):
        assert run_json("eval", run_json(command, *runs)["run"])["scores"]
    gold = Path(runs[0]) / "predictions" / "dev.jsonl"
    assert "classify/accuracy@1" in danseo("score", "again.toml", "review_dev.csv", gold)


def test_multiple_choice(danseo, folder):
    for split, count in (("train", 40), ("dev", 24)):
        rows = []
        for number, (text, label) in enumerate(sentences(count, len(split))):
            choices = {"a": GOOD[number % 4], "b": BAD[number % 4]}
            rows.append({"context": text, **choices, "right": "b" if label == "부정" else "a"})
        write_lines(folder / f"choice_{split}.jsonl", rows)
    described = 'type = "multiple_choice"\ntrain = "choice_train.jsonl"\ndev = "choice_dev.jsonl"\ntext = "context"\n'
    (folder / "choice.toml").write_text(described + 'choices = ["a", "b"]\nlabel = "right"\n', "utf-8")
    assert "40 examples" in danseo("data", "check", "choice.toml")
    assert danseo("data", "stats", "choice.toml")
    runs = [train("choice.toml", "-m", "majority"), train("choice.toml", *encoder())]
    assert "choose/accuracy@1" in danseo("eval", runs[1], "--details", "--errors", "2")
    assert danseo("compare", *runs)
    (folder / "chosen.jsonl").write_text('{"context": "좋은 영화", "a": "멋진", "b": "싫은"}\n', "utf-8")
    answer = json.loads(danseo("predict", runs[1], "chosen.jsonl"))
    assert answer["answer"] == max(answer["probabilities"], key=answer["probabilities"].get)
    danseo("export", runs[1], "--to", "onnx", "--out", "exported")
    exported = json.loads(danseo("predict", "exported", "chosen.jsonl"))
    assert exported["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-4)
    scores = [run_json("eval", model)["scores"][0]["value"] for model in (runs[1], "exported")]
    assert scores[0] == scores[1]


def test_sweeps_tuning_and_python_take_a_task_file(danseo, folder):
    danseo("data", "describe", "review_train.csv", "review_dev.csv", "--out", "studied.toml")
    (folder / "grid.toml").write_text('task = "studied.toml"\n[grid]\nmodel = ["majority", "linear"]\n', "utf-8")
    assert "linear" in danseo("sweep", "grid.toml")
    (folder / "space.toml").write_text("weight_decay = [0.0, 0.1]\n", "utf-8")
    search = ["--space", "space.toml", "--trials", "1", "--storage", "sqlite:///study.db"]
    assert "classify/macro_f1@1" in danseo("tune", "train", "studied.toml", *encoder(3), *search)
    assert "studied" in danseo("doctor", "studied.toml")
    run = python.train("studied.toml", "linear")
    assert [answer.answer for answer in run.predict([{"리뷰": "훌륭한 멋진 영화"}])] == ["아주 긍정"]
    dev = python.load("studied.toml", "dev")
    assert python.score("studied.toml", dev, [example.gold for example in dev]).value == 100
    assert len(python.compare(run, python.train("studied.toml", "majority")).differences) == 2


OTHER = ROOT.parent / "shared" / "data"
READY = {
    "nsmc": "other/nsmc",
    "kornli": "other/kornlu/KorNLI",
    "korsts": "other/kornlu/KorSTS",
    "korquad1": "other/korquad",
    "kobest-boolq": "other/kobest/BoolQ",
    "kobest-copa": "other/kobest/COPA",
    "kobest-hellaswag": "other/kobest/HellaSwag",
    "kobest-sentineg": "other/kobest/SentiNeg",
    "kobest-wic": "other/kobest/WiC",
    "ud-korean-gsd": "other/ud",
    "ud-korean-kaist": "other/ud",
    "wnut17": "english_ner/wnut17",
}


def test_bundled_task_files():
    assert {path.stem for path in ROOT.glob("configs/tasks/*.toml")} == READY.keys()
    for name in READY:
        task = get_task(f"{name}.toml")
        assert task.custom.source
        assert task.custom.licence
        assert task.headline in task.type.custom_metrics
        metric, command = (ROOT / "configs" / "tasks" / f"{name}.toml").read_text("utf-8").splitlines()[1:3]
        assert metric.startswith("# Official metric: ")
        match = re.search(r"danseo data describe (\S+) --out", command)
        assert name.startswith("ud-") or (match and parse_hub_name(match[1]))


@pytest.mark.parametrize("name", READY)
def test_bundled_tasks_read_the_real_files(name):
    if not OTHER.is_dir():
        pytest.skip("the real files are not in ../shared/data")
    examples = load(get_task(f"{name}.toml"), "dev", OTHER / READY[name])
    assert len(examples) >= 400


def test_a_share_is_held_out_by_label_and_group(folder):
    rows = [f"글 {k} {text},{label},{k // 4}" for k, (text, label) in enumerate(sentences(200, 3))]
    (folder / "grouped.csv").write_text("\n".join(["text,label,author", *rows]), "utf-8")
    described = 'type = "classification"\ntrain = "grouped.csv"\ndev = 0.2\ntext = "text"\nlabel = "label"\n'
    (folder / "plain.toml").write_text(described, "utf-8")
    (folder / "grouped.toml").write_text(described + 'group = "author"\n', "utf-8")
    train, dev = (load(get_task(str(folder / "plain.toml")), split, folder) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (160, 40)
    assert sum(example.gold == "부정" for example in dev) == 20
    train, dev = (load(get_task(str(folder / "grouped.toml")), split, folder) for split in ("train", "dev"))
    assert len(dev) == 40
    assert {example.source for example in train}.isdisjoint(example.source for example in dev)


def test_tags_of_tokens_become_tags_of_characters():
    text, tags = spread_tags(["New", "York", "is", "Big"], ["B-LOC", "I-LOC", "O", "I-X"])
    assert text == "New York is Big"
    assert tags == (*["B-LOC"], *["I-LOC"] * 7, *["O"] * 4, "B-X", "I-X", "I-X")


TASK = 'type = "classification"\ntrain = "t.csv"\ndev = "d.csv"\ntext = "text"\nlabel = "label"\n'
CSV = "text,label\n가,A\n나,B\n"
SPANS = '{"text": "가나", "spans": [{"start": 1, "end": 5, "label": "X"}]}\n'


@pytest.mark.parametrize(
    ("task", "train", "message"),
    [
        (TASK.replace('"label"', '"lable"'), CSV, "t.csv, line 2: column 'lable' is missing; it has text, label"),
        (TASK.replace("text =", "txt ="), CSV, "unknown key 'txt'; did you mean 'text'?"),
        (TASK.replace("classification", "sort"), CSV, "type = 'sort': should be one of classification"),
        (TASK.replace("type =", "kind ="), CSV, "unknown key 'kind'"),
        (TASK.replace("d.csv", "t.csv"), CSV, "train and dev are the same file"),
        (TASK.replace('"d.csv"', "1.5"), CSV, "a share should be between 0 and 1"),
        (TASK, "text,label\n가,A\n나,A\n", "all 2 examples are A"),
        (TASK, "text,label\n가,A,B\n", "line 2: 3 fields instead of 2"),
        (TASK, 'text,label\n다,A\n"가,A\n나,B\n', "t.csv, line 3: a quotation mark is never closed"),
        (TASK, 'text,label\n"가\n나",A\n"다\n라"\n', "t.csv, line 4: 1 fields instead of 2"),
        (TASK, "text,label\n가,\n나,B\n", "column 'label' is empty"),
        (TASK, f"{CSV}다,A\n".encode().replace("나".encode(), "나".encode("cp949")), "t.csv, line 3: not UTF-8"),
        (TASK.replace("classification", "regression"), CSV, "should be a number, not 'A'"),
        (
            TASK.replace("classification", "tagging") + 'spans = "spans"\n',
            SPANS,
            "1..5 does not lie in the text of 2 characters",
        ),
        (TASK.replace("t.csv", "x.csv"), CSV, "x.csv is not in"),
    ],
)
def test_bad_input_is_one_line(tmp_path, task, train, message):
    if "spans" in task:
        task = task.replace("t.csv", "t.jsonl")
    (tmp_path / "own.toml").write_text(task, "utf-8")
    name = "t.jsonl" if "spans" in task else "t.csv"
    (tmp_path / name).write_bytes(train if isinstance(train, bytes) else train.encode())
    (tmp_path / "d.csv").write_text("text,label\n라,A\n마,B\n", "utf-8")
    with pytest.raises(DanseoError) as caught:
        get_task(str(tmp_path / "own.toml"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_check_and_stats_count_the_same_duplicates_and_leaks(tmp_path):
    rows = {
        "train": ["하나,가,나,a", "하나,가,나,b", "하나,다,나,a", "둘,가,나,a"],
        "dev": ["하나,다,나,a", "셋,가,나,b"],
    }
    for split, lines in rows.items():
        (tmp_path / f"{split}.csv").write_text("\n".join(["context,a,b,right", *lines]), "utf-8")
    described = 'type = "multiple_choice"\ntrain = "train.csv"\ndev = "dev.csv"\ntext = "context"\n'
    (tmp_path / "own.toml").write_text(described + 'choices = ["a", "b"]\nlabel = "right"\n', "utf-8")

    def read_rows(command, title):
        found = CliRunner().invoke(cli, ["data", command, str(tmp_path / "own.toml"), "--json"]).stdout
        table = next(table for table in json.loads(found)["tables"] if table["title"] == title)
        return {row[0]: row[1:] for row in table["rows"]}

    checked = read_rows("check", "what to look at")
    assert checked["repeated inputs"] == [1, 0], "other candidates are another input"
    assert checked["same input, different gold"] == [1, 0]
    assert checked["inputs that are also in train"] == [None, 1]
    stats = read_rows("stats", "Duplicates")
    assert stats["input"][1::2] == [1, 0, 1]
    assert stats["input, another gold"][1::2] == [1, 0, 0]


def test_the_same_content_twice_and_klue_names_are_refused(tmp_path):
    for name in ("t.csv", "d.csv"):
        (tmp_path / name).write_text(CSV, "utf-8")
    (tmp_path / "own.toml").write_text(TASK, "utf-8")
    found = CliRunner().invoke(cli, ["data", "check", str(tmp_path / "own.toml")])
    assert "train and dev are equal" in str(found.exception)
    (tmp_path / "ner.toml").write_text(TASK, "utf-8")
    with pytest.raises(DanseoError, match="is the name of a KLUE task"):
        get_task(str(tmp_path / "ner.toml"))


def test_describing_detects_encodings(folder, tmp_path):
    text = describe_files([folder / "review_train.csv"], tmp_path / "a.toml")
    assert 'encoding = "cp949"' in text
    assert "dev = 0.2" in text
    (tmp_path / "mixed.csv").write_bytes("text,label\n가,A\n".encode() + b"\xff\xfe,B\n")
    with pytest.raises(DanseoError, match="line 3: not UTF-8"):
        describe_files([tmp_path / "mixed.csv"], tmp_path / "b.toml")
    (tmp_path / "dev.csv").write_text("리뷰,분류\n좋은 영화,부정\n", "utf-8")
    text = describe_files([folder / "review_train.csv", tmp_path / "dev.csv"], tmp_path / "c.toml")
    assert "encoding" not in text, "files with different encodings"


@pytest.mark.parametrize("column", ["", "번호"])
def test_answers_have_the_guids_that_scoring_expects(danseo, folder, column):
    name = f"rows{len(column)}"
    header, *rows = (folder / "review_train.csv").read_text("cp949").split('\n"')
    numbered = [f'{k + 7},"{row}' if column else f'"{row}' for k, row in enumerate(rows)]
    content = "\n".join([f"{column},{header}" if column else header, *numbered])
    (folder / f"{name}.csv").write_text(content, "utf-8")
    danseo("data", "describe", f"{name}.csv", "--out", f"{name}.toml")
    assert ("\nid = " in (folder / f"{name}.toml").read_text("utf-8")) == bool(column)
    run = train(f"{name}.toml", "-m", "linear")
    danseo("predict", run, f"{name}.csv", "-o", f"{name}.jsonl")
    result = run_json("score", f"{name}.toml", f"{name}.csv", f"{name}.jsonl")
    assert result["n"] == len(rows)
    assert result["scores"][0]["value"] == 100


def test_id_column_with_repeated_values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("id,text,label\n1,가,A\n2,나,B\n3,다,A\n4,라,B\n", "utf-8")
    (tmp_path / "d.csv").write_text("id,text,label\n1,마,A\n1,바,B\n", "utf-8")
    assert 'id = "id"' in describe_files([Path("t.csv")], Path("a.toml"))
    text = describe_files([Path("t.csv"), Path("d.csv")], Path("a.toml"))
    assert "\nid =" not in text
    Path("a.toml").write_text(f'{text}\nid = "id"\n', "utf-8")
    with pytest.raises(DanseoError, match=r"d\.csv: guid '1' occurs more than once; remove the key id from a\.toml"):
        load(get_task("a.toml"), "dev", tmp_path)


def test_answers_to_a_held_out_share_are_scored_on_it(danseo, folder):
    danseo("data", "describe", "review_train.csv", "--out", "part.toml")
    run = train("part.toml", "-m", "linear")
    answers, expected = f"{run}/predictions/dev.jsonl", len(python.load("part.toml"))
    assert 0 < expected < 40
    assert run_json("score", "part.toml", "dev", answers)["n"] == expected
    assert python.score("part.toml", "dev", answers).n == expected
    (folder / "others.jsonl").write_bytes((folder / answers).read_bytes())
    assert f"n = {expected};" in danseo("compare", "part.toml", "dev", answers, "others.jsonl", "--resamples", "100")
    assert "KLUE" not in danseo("tasks", "part.toml")
    assert describe(get_task("part.toml"), load_splits(get_task("part.toml"), folder)).title.startswith("part, ")


@pytest.mark.parametrize("value", ["[" * 99_999 + "]" * 99_999, "[" + "9" * 5000 + "]"], ids=["deep", "long"])
@pytest.mark.parametrize(
    ("type_", "columns"),
    [("multilabel", "label = 'cell'"), ("tagging", "spans = 'cell'"), ("tagging", "label = 'cell'")],
    ids=["labels", "spans", "tags"],
)
def test_unreadable_json_in_a_cell(tmp_path, value, type_, columns):
    rows = [{"text": "철수가", "cell": value}] * 4
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "own.toml").write_text(
        f"type = '{type_}'\ntrain = 'data.jsonl'\ndev = 0.5\ntext = 'text'\n{columns}\n", "utf-8"
    )
    with pytest.raises(DanseoError, match=r"row|line"):
        load_splits(get_task(str(tmp_path / "own.toml")), None)
