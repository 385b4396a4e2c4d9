"""Users' own tasks: described, checked, trained, scored and used like KLUE's; odd ones are refused in one line."""

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
from danseo.data.guessing import describe_files
from danseo.eda import describe
from danseo.errors import DanseoError
from danseo.models.scratch import Size, make_encoder
from danseo.tasks import get_task
from danseo.tasks.own.encodings import encoding_of, odd_line
from danseo.tasks.own.examples import spread
from danseo.tasks.own.hub_data import hub_data
from tests.conftest import ROOT

pytest.importorskip("torch")
pytest.importorskip("sklearn")

QUICK = ("precision=fp32", "attention=eager", "threads=1", "batch_size=16", "epochs=1", "learning_rate=1e-3")
GOOD, BAD = "좋은 멋진 훌륭한 재미있는".split(), "나쁜 지루한 싫은 형편없는".split()


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        words, label = ((GOOD, "아주 긍정"), (BAD, "부정"))[number % 2]
        found.append((" ".join([*rng.choices(words, k=2), "영화", str(rng.randint(0, 99))]), label))
    return found


def write_csv(path: Path, count: int, seed: int) -> None:
    rows = ["리뷰,분류", *(f'"{text},\n그렇다 ""정말""",{label}' for text, label in sentences(count, seed))]
    path.write_bytes(("\n".join(rows) + "\n").encode("cp949"))


def write_pairs(path: Path, count: int, seed: int) -> None:
    rows = ["sentence1\tsentence2\tgold_label"]
    rows += [f'{text}\t"{text.split()[0]} 영화다\t{label}' for text, label in sentences(count, seed)]
    path.write_bytes(gzip.compress("\n".join(rows).encode()))


def write_scores(path: Path, count: int, seed: int) -> None:
    rows = [
        {"text": text, "score": round(10 + 2.5 * (label == "부정") + seed / 10, 2)}
        for text, label in sentences(count, seed)
    ]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")


def write_tags(path: Path, count: int, seed: int) -> None:
    lines = []
    for text, label in sentences(count, seed):
        kind = "POS" if label != "부정" else "NEG"
        lines += [
            f"{word}\t{tag}" for word, tag in zip(text.split(), (f"B-{kind}", f"I-{kind}", "O", "O"), strict=True)
        ]
        lines.append("")
    path.write_text("\n".join(lines), "utf-8")


def write_spans(path: Path, count: int, seed: int) -> None:
    rows = []
    for text, label in sentences(count, seed):
        kind = "POS" if label != "부정" else "NEG"
        rows.append({"text": text, "entities": [{"start": 0, "end": len(text.split()[0]), "label": kind}]})
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")


def write_relations(path: Path, count: int, seed: int) -> None:
    rows = []
    for number, (text, label) in enumerate(sentences(count, seed)):
        first, second = text.split()[0], "영화"
        entity = {"start": 0, "end": len(first), "type": "MOOD"}
        relation = "none" if number % 3 == 0 else label
        position = {"start": text.index(second), "end": text.index(second) + 2}
        rows.append({"sentence": text, "subj": entity, "obj": position, "label": relation})
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")


def write_trees(path: Path, count: int, seed: int) -> None:
    lines = []
    for number, (text, label) in enumerate(sentences(count, seed), 1):
        lines.append(f"# sent_id = s{number}")
        words = text.split()
        for position, word in enumerate(words, 1):
            head, relation = (
                (position + 1, "amod" if label == "부정" else "nmod") if position < len(words) else (0, "root")
            )
            lines.append(f"{position}\t{word}\t_\tX\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    path.write_text("\n".join(lines), "utf-8")


def write_questions(path: Path, count: int, seed: int) -> None:
    paragraphs = []
    for number, (text, _) in enumerate(sentences(count, seed)):
        answer = {"text": text.split()[0], "answer_start": 0}
        qa = {"id": f"q{number}", "question": "어떤 영화인가?", "answers": [answer]}
        paragraphs.append({"context": text, "qas": [qa]})
    path.write_text(json.dumps({"data": [{"title": "영화", "paragraphs": paragraphs}]}, ensure_ascii=False), "utf-8")


CASES = {
    "review": (write_csv, "csv", "classify", "linear"),
    "claim": (write_pairs, "tsv.gz", "classify", "linear"),
    "rating": (write_scores, "jsonl", "score", "linear"),
    "mood": (write_tags, "conll", "tag", "majority"),
    "span": (write_spans, "jsonl", "tag", "majority"),
    "link": (write_relations, "jsonl", "relation", "linear"),
    "tree": (write_trees, "conllu", "parse", "majority"),
    "asked": (write_questions, "json", "answer", "majority"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    for name, (write, suffix, _, _) in CASES.items():
        write(folder / f"{name}_train.{suffix}", 40, 1)
        write(folder / f"{name}_dev.{suffix}", 24, 2)
    texts = [" ".join([*GOOD, *BAD, "영화", "그렇다", "정말", *map(str, range(100))])] * 3
    make_encoder(folder / "tiny", texts, "bert", Size(layers=1, hidden=16, heads=1, vocabulary=200, positions=80))
    return folder


@pytest.fixture
def danseo(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DANSEO_CACHE", str(folder / "cache"))

    def run(*arguments: object):
        found = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.output

    return run


def trained(danseo, task: str, *words: str) -> str:
    return json.loads(danseo("train", task, *words, "--json"))["run"]


def encoder(seed: int) -> list[str]:
    return ["-m", "tiny", "--seed", str(seed), *(word for setting in QUICK for word in ("--set", setting))]


@pytest.mark.parametrize("name", CASES)
def test_every_kind_from_describing_to_a_comparison(danseo, folder, name):
    _, suffix, kind, floor = CASES[name]
    task = f"{name}.toml"
    danseo("data", "describe", f"{name}_train.{suffix}", f"{name}_dev.{suffix}", "--out", task)
    assert get_task(task).own.kind == kind
    assert "40 examples" in danseo("data", "check", task)
    assert "question type" not in danseo("data", "stats", task)
    runs = [trained(danseo, task, "-m", floor), trained(danseo, task, *encoder(1))]
    assert trained(danseo, task, "-m", floor) == runs[0], "the same command returns the run"
    (folder / task).rename(folder / f"{name}.away")  # from here on nothing needs the file
    scores = json.loads(danseo("eval", runs[1], "--json"))
    assert scores["scores"][0]["id"].startswith(f"{kind}/")
    assert danseo("eval", runs[0], "--details", "--errors", "2")
    assert name in danseo("runs", "--task", name)
    assert danseo("compare", *runs)
    assert danseo("runs", "--table", "sweep", "--task", name)
    (folder / f"{name}.away").rename(folder / task)


def test_own_runs_answer_and_are_combined(danseo, folder):
    danseo("data", "describe", "review_train.csv", "review_dev.csv", "--out", "again.toml")
    runs = [trained(danseo, "again.toml", *encoder(seed)) for seed in (1, 2)]
    linear = trained(danseo, "again.toml", "-m", "linear")
    (folder / "lines.jsonl").write_text('{"리뷰": "훌륭한 멋진 영화", "guid": "a"}\n나쁜 영화\n', "utf-8")
    answers = [json.loads(line) for line in danseo("predict", linear, "lines.jsonl").splitlines()]
    assert [answer["answer"] for answer in answers] == ["아주 긍정", "부정"]
    for command in ("ensemble", "soup"):
        made = json.loads(danseo(command, *runs, "--json"))["run"]
        assert json.loads(danseo("eval", made, "--json"))["scores"]
    gold = Path(runs[0]) / "predictions" / "dev.jsonl"
    assert "classify/accuracy@1" in danseo("score", "again.toml", "review_dev.csv", gold)


def test_candidates_are_chosen_from(danseo, folder):
    for split, count in (("train", 40), ("dev", 24)):
        rows = []
        for number, (text, label) in enumerate(sentences(count, len(split))):
            choices = {"a": GOOD[number % 4], "b": BAD[number % 4]}
            rows.append({"context": text, **choices, "right": "b" if label == "부정" else "a"})
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"choice_{split}.jsonl").write_text(text, "utf-8")
    described = 'kind = "choose"\ntrain = "choice_train.jsonl"\ndev = "choice_dev.jsonl"\ntext = "context"\n'
    (folder / "choice.toml").write_text(described + 'choices = ["a", "b"]\nlabel = "right"\n', "utf-8")
    assert "40 examples" in danseo("data", "check", "choice.toml")
    assert danseo("data", "stats", "choice.toml")
    runs = [trained(danseo, "choice.toml", "-m", "majority"), trained(danseo, "choice.toml", *encoder(1))]
    assert "choose/accuracy@1" in danseo("eval", runs[1], "--details", "--errors", "2")
    assert danseo("compare", *runs)
    (folder / "chosen.jsonl").write_text('{"context": "좋은 영화", "a": "멋진", "b": "싫은"}\n', "utf-8")
    answer = json.loads(danseo("predict", runs[1], "chosen.jsonl"))
    assert answer["answer"] == max(answer["probabilities"], key=answer["probabilities"].get)
    danseo("export", runs[1], "--to", "onnx", "--out", "choosing")
    again = json.loads(danseo("predict", "choosing", "chosen.jsonl"))
    assert again["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-4)
    scores = [
        json.loads(danseo("eval", position, "--json"))["scores"][0]["value"] for position in (runs[1], "choosing")
    ]
    assert scores[0] == scores[1]


def test_sweeps_searches_and_python_take_a_task_file(danseo, folder):
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


def test_every_ready_task_is_one():
    assert {path.stem for path in ROOT.glob("configs/tasks/*.toml")} == READY.keys()
    for name in READY:
        task = get_task(f"{name}.toml")
        assert task.own.source
        assert task.own.licence
        assert task.headline.startswith(f"{task.own.kind}/")
        assert_comments(name)


def assert_comments(name):
    """The official metric, and a command that can be understood for the copy on the Hub."""
    told = (ROOT / "configs" / "tasks" / f"{name}.toml").read_text("utf-8").splitlines()[1:3]
    assert told[0].startswith("# Official metric: ")
    found = re.search(r"danseo data describe (\S+) --out", told[1])
    assert name.startswith("ud-") or (found and hub_data(found[1]))


@pytest.mark.parametrize("name", READY)
def test_ready_tasks_read_the_real_files(name):
    if not OTHER.is_dir():
        pytest.skip("the real files are not in ../shared/data")
    examples = load(get_task(f"{name}.toml"), "dev", OTHER / READY[name])
    assert len(examples) >= 400


def test_a_share_is_held_out_by_label_and_group(folder):
    rows = [f"글 {k} {text},{label},{k // 4}" for k, (text, label) in enumerate(sentences(200, 3))]
    (folder / "grouped.csv").write_text("\n".join(["text,label,author", *rows]), "utf-8")
    described = 'kind = "classify"\ntrain = "grouped.csv"\ndev = 0.2\ntext = "text"\nlabel = "label"\n'
    (folder / "plain.toml").write_text(described, "utf-8")
    (folder / "grouped.toml").write_text(described + 'group = "author"\n', "utf-8")
    train, dev = (load(get_task(str(folder / "plain.toml")), split, folder) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (160, 40)
    assert sum(example.gold == "부정" for example in dev) == 20
    train, dev = (load(get_task(str(folder / "grouped.toml")), split, folder) for split in ("train", "dev"))
    assert len(dev) == 40
    assert {example.source for example in train}.isdisjoint(example.source for example in dev)


def test_tokens_become_characters():
    text, tags = spread(["New", "York", "is", "Big"], ["B-LOC", "I-LOC", "O", "I-X"])
    assert text == "New York is Big"
    assert tags == (*["B-LOC"], *["I-LOC"] * 7, *["O"] * 4, "B-X", "I-X", "I-X")


TASK = 'kind = "classify"\ntrain = "t.csv"\ndev = "d.csv"\ntext = "text"\nlabel = "label"\n'
CSV = "text,label\n가,A\n나,B\n"
SPANS = '{"text": "가나", "spans": [{"start": 1, "end": 5, "label": "X"}]}\n'


@pytest.mark.parametrize(
    ("task", "train", "complaint"),
    [
        (TASK.replace('"label"', '"lable"'), CSV, "t.csv, line 2: column 'lable' is missing; it has text, label"),
        (TASK.replace("text =", "txt ="), CSV, "unknown key 'txt'; did you mean text?"),
        (TASK.replace("classify", "sort"), CSV, "kind = 'sort': should be one of classify"),
        (TASK.replace("d.csv", "t.csv"), CSV, "train and dev are the same file"),
        (TASK.replace('"d.csv"', "1.5"), CSV, "a share should be between 0 and 1"),
        (TASK, "text,label\n가,A\n나,A\n", "all 2 examples are A; two labels are due"),
        (TASK, "text,label\n가,A,B\n", "line 2: 3 fields instead of 2"),
        (TASK, 'text,label\n다,A\n"가,A\n나,B\n', "t.csv, line 3: a quote opens in this row and never ends"),
        (TASK, 'text,label\n"가\n나",A\n"다\n라"\n', "t.csv, line 4: 1 fields instead of 2"),
        (TASK, "text,label\n가,\n나,B\n", "column 'label' is empty"),
        (TASK, f"{CSV}다,A\n".encode().replace("나".encode(), "나".encode("cp949")), "t.csv, line 3: not utf-8 like"),
        (TASK, f"{CSV}다,A\n".encode("cp949"), "t.csv, line 2: not utf-8, but the whole file is cp949; say encoding ="),
        (TASK + 'encoding = "cp949"\n', "text,label\n각,A\n간,B\n", "t.csv, line 2: not cp949, but the whole file is"),
        (TASK.replace("classify", "score"), CSV, "should be a number, not 'A'"),
        (TASK.replace("classify", "tag") + 'spans = "spans"\n', SPANS, "1..5 does not lie in the text of 2 characters"),
        (TASK.replace("t.csv", "x.csv"), CSV, "x.csv is not in"),
    ],
)
def test_bad_input_is_one_line(tmp_path, task, train, complaint):
    if "spans" in task:
        task = task.replace("t.csv", "t.jsonl")
    (tmp_path / "own.toml").write_text(task, "utf-8")
    name = "t.jsonl" if "spans" in task else "t.csv"
    (tmp_path / name).write_bytes(train if isinstance(train, bytes) else train.encode())
    (tmp_path / "d.csv").write_text("text,label\n라,A\n마,B\n", "utf-8")
    with pytest.raises(DanseoError) as caught:
        get_task(str(tmp_path / "own.toml"))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_same_content_twice_and_klue_names_are_refused(tmp_path):
    for name in ("t.csv", "d.csv"):
        (tmp_path / name).write_text(CSV, "utf-8")
    (tmp_path / "own.toml").write_text(TASK, "utf-8")
    found = CliRunner().invoke(cli, ["data", "check", str(tmp_path / "own.toml")])
    assert "train and dev hold the same" in str(found.exception)
    (tmp_path / "ner.toml").write_text(TASK, "utf-8")
    with pytest.raises(DanseoError, match="is the name of a KLUE task"):
        get_task(str(tmp_path / "ner.toml"))


def test_describing_tells_encodings_apart(folder, tmp_path):
    text = describe_files([folder / "review_train.csv"], tmp_path / "a.toml")
    assert 'encoding = "cp949"' in text
    assert "dev = 0.2" in text, "a tenth of so few rows would say too little"
    (tmp_path / "mixed.csv").write_bytes("text,label\n가,A\n".encode() + b"\xff\xfe,B\n")
    with pytest.raises(DanseoError, match="line 3: not utf-8 like other lines"):
        describe_files([tmp_path / "mixed.csv"], tmp_path / "b.toml")
    (tmp_path / "dev.csv").write_text("리뷰,분류\n좋은 영화,부정\n", "utf-8")
    with pytest.raises(DanseoError, match=r"dev\.csv is utf-8, but .*review_train\.csv is cp949"):
        describe_files([folder / "review_train.csv", tmp_path / "dev.csv"], tmp_path / "c.toml")


@pytest.mark.parametrize("column", ["", "번호"])
def test_answers_to_a_file_have_the_numbers_that_scoring_it_expects(danseo, folder, column):
    name = f"rows{len(column)}"
    header, *rows = (folder / "review_train.csv").read_text("cp949").split('\n"')
    numbered = [f'{k + 7},"{row}' if column else f'"{row}' for k, row in enumerate(rows)]
    content = "\n".join([f"{column},{header}" if column else header, *numbered])
    (folder / f"{name}.csv").write_text(content, "utf-8")
    danseo("data", "describe", f"{name}.csv", "--out", f"{name}.toml")
    assert ("\nid = " in (folder / f"{name}.toml").read_text("utf-8")) == bool(column)
    run = trained(danseo, f"{name}.toml", "-m", "linear")
    danseo("predict", run, f"{name}.csv", "-o", f"{name}.jsonl")
    found = json.loads(danseo("score", f"{name}.toml", f"{name}.csv", f"{name}.jsonl", "--json"))
    assert found["n"] == len(rows)
    assert found["scores"][0]["value"] == 100


def test_an_id_that_dev_repeats_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("id,text,label\n1,가,A\n2,나,B\n3,다,A\n4,라,B\n", "utf-8")
    (tmp_path / "d.csv").write_text("id,text,label\n1,마,A\n1,바,B\n", "utf-8")
    assert 'id = "id"' in describe_files([Path("t.csv")], Path("a.toml"))
    text = describe_files([Path("t.csv"), Path("d.csv")], Path("a.toml"))
    assert "\nid =" not in text
    Path("a.toml").write_text(f'{text}\nid = "id"\n', "utf-8")
    with pytest.raises(DanseoError, match=r"d\.csv: guid '1' occurs more than once; leave id out of a\.toml"):
        load(get_task("a.toml"), "dev", tmp_path)


def test_odd_lines_are_found_beyond_the_first_block(tmp_path):
    lines = [f"문장 {number},A\n".encode() for number in range(20_000)]
    lines[15_000] = "문장,A\n".encode("cp949")
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress(b"".join(lines)))
    assert (odd_line(path, "utf-8"), encoding_of(path)) == (15_001, None)
    path.write_bytes(gzip.compress(b"".join(lines)[:-5]))  # in the midst of a character
    assert odd_line(path, "utf-8") == 15_001


def test_answers_to_a_held_out_share_are_scored_on_it(danseo, folder):
    danseo("data", "describe", "review_train.csv", "--out", "part.toml")
    run = trained(danseo, "part.toml", "-m", "linear")
    answers, expected = f"{run}/predictions/dev.jsonl", len(python.load("part.toml"))
    assert 0 < expected < 40
    assert json.loads(danseo("score", "part.toml", "dev", answers, "--json"))["n"] == expected
    assert python.score("part.toml", "dev", answers).n == expected
    (folder / "others.jsonl").write_bytes((folder / answers).read_bytes())
    found = danseo("compare", "part.toml", "dev", answers, "others.jsonl", "--resamples", "100")
    assert f"n = {expected};" in found
    assert "KLUE" not in danseo("tasks", "part.toml")
    assert describe(get_task("part.toml"), load_splits(get_task("part.toml"), folder)).title.startswith(
        "part, own task"
    )
