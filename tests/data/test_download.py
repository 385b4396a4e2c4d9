"""KLUE from a stub Hub: its parquet files give the official examples; a failed download is one line."""

import json
import socket
import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from danseo.data.download import get_files
from danseo.data.find import check_files, load
from danseo.errors import DataError, NetworkError
from danseo.tasks import TASKS
from tests.hostile import closed_port
from tests.loopback import serve, set_endpoint

TEXT, NUMBER = pa.string(), pa.int32()
NER_NAMES = ["B-DT", "I-DT", "B-LC", "I-LC", "B-OG", "I-OG", "B-PS", "I-PS", "B-QT", "I-QT", "B-TI", "I-TI", "O"]
ENTITY = pa.struct({"word": TEXT, "start_idx": NUMBER, "end_idx": NUMBER, "type": TEXT})

STS_LABELS = {"label": 4.3, "real-label": 4.285714285714286, "binary-label": 1}
RE_ROW = {
    "guid": "klue-re-v1_dev_00000",
    "sentence": "가온전자는 1998년 서울에서 설립됐다.",
    "subject_entity": {"word": "가온전자", "start_idx": 0, "end_idx": 3, "type": "ORG"},
    "object_entity": {"word": "1998년", "start_idx": 6, "end_idx": 10, "type": "DAT"},
    "source": "wikipedia",
}
DP_LINES = [
    ("나는", "나 는", "NP+JX", 3, "NP_SBJ"),
    ("밥을", "밥 을", "NNG+JKO", 3, "NP_OBJ"),
    ("먹는다.", "먹 는다 .", "VV+EF+SF", 0, "VP"),
]
NER_TAGGED = [("김", "B-PS"), ("솔", "I-PS"), ("은", "O"), (" ", "O"), ("남", "B-LC"), ("해", "I-LC"), ("로", "O")]
WOS_TURNS = [
    {"role": "user", "text": "서울 남쪽 숙소를 찾아요.", "state": ["숙소-지역-서울 남쪽"]},
    {"role": "sys", "text": "이름을 아시나요?"},
    {"role": "user", "text": "가온 호텔-본관이요.", "state": ["숙소-지역-서울 남쪽", "숙소-이름-가온 호텔-본관"]},
]
MRC_CONTEXT = "\n 회사는 1998년 서울에서 설립됐다. "
MRC_ANSWERS = [{"text": "1998년", "answer_start": 6}, {"text": "1998", "answer_start": 6}]
MRC_PLAUSIBLE = {"text": "서울", "answer_start": 12}


def blocks(guid: str, text: str, lines: list[str]) -> str:
    notes = "## 토큰 구분자 : \\n\n## 칼럼명 : INDEX\tWORD_FORM\n"
    return notes + f"## {guid}\t{text}\n" + "\n".join(lines) + "\n\n"


def mrc_question(number: int, question: str, **more: Any) -> dict[str, Any]:
    return {"question": question, "guid": f"klue-mrc-v1_dev_0000{number}", **more}


RAW: dict[str, Any] = {
    "ynat": [
        {"guid": f"ynat-v1_dev_0000{n}", "title": f"제목 {n}", "label": label, "url": "", "date": ""}
        for n, label in enumerate(("정치", "경제", "사회", "생활문화", "세계", "IT과학", "스포츠"))
    ],
    "sts": [
        {"guid": "klue-sts-v1_dev_00000", "source": "airbnb-rtt", "sentence1": "깨끗해요.", "sentence2": "청결해요.",
         "labels": STS_LABELS, "annotations": {"agreement": "0:0:0:1:3:3"}},
        {"guid": "klue-sts-v1_dev_00001", "source": "policy-rtt", "sentence1": "비가 와요.", "sentence2": "집이에요.",
         "labels": {"label": 0.0, "real-label": 0.0, "binary-label": 0}, "annotations": {"agreement": "7:0:0:0:0:0"}},
    ],
    "nli": [
        {"guid": f"klue-nli-v1_dev_0000{n}", ("genre" if n else "source"): "NSMC", "premise": "비가 온다.",
         "hypothesis": f"날씨 {n}", "gold_label": label, "author": label, "label2": "neutral"}
        for n, label in enumerate(("entailment", "contradiction", "neutral"))
    ],
    "ner": blocks(
        "klue-ner-v1_dev_00000-nsmc", "<김솔:PS>은 <남해:LC>로", [f"{char}\t{tag}" for char, tag in NER_TAGGED]
    ),
    "re": [{**RE_ROW, "label": "org:founded"}, {**RE_ROW, "guid": "klue-re-v1_dev_00001", "label": "no_relation"}],
    "dp": blocks(
        "klue-dp-v1_dev_00000_wikitree", "나는 밥을 먹는다.",
        ["\t".join(map(str, (position, *line))) for position, line in enumerate(DP_LINES, 1)],
    ),
    "mrc": {"version": "klue-mrc-v1.1", "data": [{
        "title": "예시", "news_category": "경제", "source": "hankyung",
        "paragraphs": [{"context": MRC_CONTEXT, "qas": [
            mrc_question(0, "세워진 해는?", question_type=1, is_impossible=False, answers=MRC_ANSWERS),
            mrc_question(1, "직원 수는?", question_type=3, is_impossible=True, answers=[],
                         plausible_answers=[MRC_PLAUSIBLE]),
        ]}],
    }]},
    "wos": [{"guid": "wos-v1_dev_00000", "domains": ["숙소"], "dialogue": WOS_TURNS}],
}  # fmt: skip


def mrc_hub_row(qa: dict[str, Any]) -> dict[str, Any]:
    answers = [*qa["answers"], *qa.get("plausible_answers", [])]  # merged, as the Hub does
    return {
        "title": "예시", "context": MRC_CONTEXT.strip(), "news_category": "경제", "source": "hankyung",
        **{key: qa[key] for key in ("guid", "is_impossible", "question_type", "question")},
        "answers": {key: [answer[key] for answer in answers] for key in ("answer_start", "text")},  # offsets unshifted
    }  # fmt: skip


def hub_label(row: dict[str, Any], names: list[str], key: str = "label") -> dict[str, Any]:
    return {**row, "label": names.index(row[key])}


@dataclass(frozen=True)
class Config:
    """One config of the Hub: its columns, its class names, and the rows that correspond to RAW."""

    schema: dict[str, pa.DataType]
    rows: list[dict[str, Any]]
    features: dict[str, Any] = field(default_factory=dict)


YNAT_NAMES = ["IT과학", "경제", "사회", "생활문화", "세계", "스포츠", "정치"]
NLI_NAMES = ["entailment", "neutral", "contradiction"]
RE_NAMES = list(TASKS["re"].labels)
CLASSES = {"_type": "ClassLabel"}
ONE = {"dtype": "string", "_type": "Value"}
HUB = {
    "ynat": Config(
        {"guid": TEXT, "title": TEXT, "label": pa.int64(), "url": TEXT, "date": TEXT},
        [hub_label(row, YNAT_NAMES) for row in RAW["ynat"]],
        {"guid": ONE, "label": {"names": YNAT_NAMES, **CLASSES}},
    ),
    "sts": Config(
        {"guid": TEXT, "source": TEXT, "sentence1": TEXT, "sentence2": TEXT,
         "labels": pa.struct({"label": pa.float64(), "real-label": pa.float64(), "binary-label": pa.int64()})},
        RAW["sts"],
        {"labels": {"label": {"dtype": "float64", "_type": "Value"},
                    "binary-label": {"names": ["negative", "positive"], **CLASSES}}},
    ),
    "nli": Config(
        {"guid": TEXT, "source": TEXT, "premise": TEXT, "hypothesis": TEXT, "label": pa.int64()},
        [hub_label({**row, "source": "NSMC"}, NLI_NAMES, "gold_label") for row in RAW["nli"]],
        {"label": {"names": NLI_NAMES, **CLASSES}},
    ),
    "ner": Config(
        {"sentence": TEXT, "tokens": pa.list_(TEXT), "ner_tags": pa.list_(pa.int64())},
        [{"sentence": "<김솔:PS>은 <남해:LC>로", "tokens": [char for char, _ in NER_TAGGED],
          "ner_tags": [NER_NAMES.index(tag) for _, tag in NER_TAGGED]}],
        {"tokens": {"feature": ONE, "_type": "Sequence"},
         "ner_tags": {"feature": {"names": NER_NAMES, **CLASSES}, "_type": "Sequence"}},
    ),
    "re": Config(
        {"guid": TEXT, "sentence": TEXT, "subject_entity": ENTITY, "object_entity": ENTITY, "label": pa.int64(),
         "source": TEXT},
        [hub_label(row, RE_NAMES) for row in RAW["re"]],
        {"subject_entity": {"word": ONE, "type": ONE}, "label": {"names": RE_NAMES, **CLASSES}},
    ),
    "dp": Config(
        {"sentence": TEXT, "index": pa.list_(NUMBER), "word_form": pa.list_(TEXT), "lemma": pa.list_(TEXT),
         "pos": pa.list_(TEXT), "head": pa.list_(NUMBER), "deprel": pa.list_(TEXT)},
        [{"sentence": "나는 밥을 먹는다.", "index": [1, 2, 3],
          **dict(zip(("word_form", "lemma", "pos", "head", "deprel"), map(list, zip(*DP_LINES, strict=True)),
                     strict=True))}],
        {"index": [{"dtype": "int32", "_type": "Value"}], "word_form": {"feature": ONE, "_type": "List"}},
    ),
    "mrc": Config(
        {"title": TEXT, "context": TEXT, "news_category": TEXT, "source": TEXT, "guid": TEXT,
         "is_impossible": pa.bool_(), "question_type": NUMBER, "question": TEXT,
         "answers": pa.struct({"answer_start": pa.list_(NUMBER), "text": pa.list_(TEXT)})},
        [mrc_hub_row(qa) for qa in RAW["mrc"]["data"][0]["paragraphs"][0]["qas"]],
        {"answers": {"feature": {"answer_start": ONE, "text": ONE}, "_type": "Sequence"}},
    ),
    "wos": Config(
        {"guid": TEXT, "domains": pa.list_(TEXT),
         "dialogue": pa.list_(pa.struct({"role": TEXT, "text": TEXT, "state": pa.list_(TEXT)}))},
        [{**RAW["wos"][0], "dialogue": [{"state": [], **turn} for turn in WOS_TURNS]}],
        {"dialogue": [{"role": ONE, "text": ONE, "state": [ONE]}]},
    ),
}  # fmt: skip


def parquet_bytes(config, with_note=True):
    """Return the file of the Hub, with or without the note on class names."""
    table = pa.Table.from_pylist(config.rows, schema=pa.schema(list(config.schema.items())))
    if with_note:
        note = json.dumps({"info": {"features": config.features}})
        table = table.replace_schema_metadata({"huggingface": note})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def read_hub(tmp_path):
    """Read the parquet file of a task, with other rows or class names."""

    def read(name, with_note=True, **changes):
        content = parquet_bytes(replace(HUB[name], **changes), with_note)
        return TASKS[name].read(write(tmp_path, "validation-00000-of-00001.parquet", content))

    return read


# Reading


@pytest.mark.parametrize("with_note", [True, False], ids=["names in the file", "numbers only"])
@pytest.mark.parametrize("name", HUB)
def test_hub_and_official_files_give_the_same_examples(name, with_note, tmp_path, read_hub):
    task = TASKS[name]
    text = RAW[name] if isinstance(RAW[name], str) else json.dumps(RAW[name], ensure_ascii=False)
    expected, examples = task.read(write(tmp_path, task.file("dev"), text.encode())), read_hub(name, with_note)
    assert [replace(example, guid="") for example in examples] == [replace(example, guid="") for example in expected]
    if name in ("ner", "dp"):  # the Hub has no guid for them, and no source, with which official guids end
        assert examples[0].guid == f"klue-{name}-v1_dev_00000"
        assert expected[0].guid.startswith(examples[0].guid)
    else:
        assert [example.guid for example in examples] == [example.guid for example in expected]


def test_hub_mrc_ignores_plausible_answers_and_corrects_the_offsets(read_hub):
    answered, unanswerable = read_hub("mrc")
    assert (answered.gold, answered.starts, answered.text[4:9]) == (("1998년", "1998"), (4, 4), "1998년")
    assert (unanswerable.gold, unanswerable.starts) == ((), ())
    answers = {"answer_start": [3], "text": ["1998년"]}  # without its leading space
    (example,) = read_hub(
        "mrc", rows=[{**HUB["mrc"].rows[0], "context": "회사는 1998년 설립됐다.", "answers": answers}]
    )
    assert example.starts == (4,)


def test_class_names_of_the_file_come_before_the_usual_order(read_hub):
    names = ["entailment", "contradiction", "neutral"]  # the order of the Hub's first version
    examples = read_hub("nli", features={"label": {"names": names, **CLASSES}})
    assert [example.gold for example in examples] == ["entailment", "neutral", "contradiction"]


@pytest.mark.parametrize("with_note", [True, False])
@pytest.mark.parametrize("label", [-1, 7, None])
def test_label_number_out_of_range(label, with_note, read_hub):
    with pytest.raises(DataError):
        read_hub("ynat", with_note, rows=[{**HUB["ynat"].rows[0], "label": label}])


@pytest.mark.parametrize("note", ["{", "[]", '{"info": {"features": []}}', '{"info": 1}'])
def test_odd_note_in_the_file(note, tmp_path):
    table = pq.read_table(pa.BufferReader(parquet_bytes(HUB["ynat"]))).replace_schema_metadata({"huggingface": note})
    path = tmp_path / "validation-0.parquet"
    pq.write_table(table, path)
    with pytest.raises(DataError, match="not a readable parquet file"):
        TASKS["ynat"].read(path)


# Downloading

TRAIN, DEV = (f"nli/{split}-00000-of-00001.parquet" for split in ("train", "validation"))


@dataclass
class Stub:
    """The files of a stub Hub, its faults, and the requests that it received."""

    files: dict[str, bytes]
    url: str = ""
    status: int = 200
    cut: int = 0
    redirect: bool = False
    linked: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)

    def respond(self, path, headers):
        self.requests.append(path)
        self.tokens.append(headers.get("Authorization"))
        name = path.split("/main/")[-1].removeprefix("/storage/")
        content = self.files.get(name)
        if content is None or self.status != 200:
            return self.status if content is not None else 404, {"X-Error-Message": "no"}, b"no"
        if self.redirect and not path.startswith("/storage/"):
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{sha256(content).hexdigest()}"'}
            return 302, {"Location": f"{self.url}/storage/{name}", **linked, **self.linked}, b""
        return 200, {"ETag": '"abc"', "X-Repo-Commit": "0" * 40, **self.linked}, content, self.cut


@pytest.fixture
def hub(monkeypatch):
    """A stub Hub that serves every config, with HF_ENDPOINT set to it."""
    splits = ("train", "validation")
    contents = {name: parquet_bytes(config) for name, config in HUB.items()}
    stub = Stub({f"{name}/{split}-00000-of-00001.parquet": contents[name] for name in HUB for split in splits})
    with serve(lambda *request: stub.respond(*request)) as stub.url:
        set_endpoint(monkeypatch, stub.url)
        yield stub


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch):
    """Fail on any attempt to contact another machine."""
    connect = socket.socket.connect

    def connect_locally(self, address):
        assert address[0] == "127.0.0.1", f"a test tried to contact {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_locally)


def download(root, *tasks):
    return get_files(tasks or [TASKS["nli"]], "hub", root, lambda line: None)


def files_in(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def download_error(root, error=NetworkError):
    """Return the one line of a download that fails and leaves no file."""
    with pytest.raises(error) as caught:
        download(root)
    assert "\n" not in str(caught.value)
    assert files_in(root) == []
    return str(caught.value)


def test_all_configs_are_downloaded_checked_and_read(hub, tmp_path):
    lines = []
    assert len(get_files(list(TASKS.values()), "hub", tmp_path, lines.append)) == 16
    assert lines[0] == "1/16 ynat/train-00000-of-00001.parquet: fetched"
    assert files_in(tmp_path) == sorted(["hashes.json", *hub.files])
    assert all("/resolve/main/" in path and path.startswith("/datasets/klue/klue/") for path in hub.requests)
    for task in TASKS.values():
        assert task.rows(load(task, "dev", tmp_path)) == len(HUB[task.name].rows)
        assert check_files(tmp_path, [task])[0].verdict == "subset"
    complete = replace(TASKS["nli"], official_rows={"dev": 3})
    assert [report.verdict for report in check_files(tmp_path, [complete])] == ["official"]


def test_second_download_requests_only_lost_and_changed_files(hub, tmp_path):
    first, second = download(tmp_path)
    hub.requests.clear()
    assert download(tmp_path) == hub.requests == []
    first.unlink()
    second.write_bytes(b"cut")
    assert download(tmp_path) == [first, second]
    assert sum(path.endswith((TRAIN, DEV)) for path in hub.requests) == 3  # one of them a HEAD request


def test_token_is_sent_to_the_hub_and_never_shown(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.status = 403
    assert "hf_secret" not in download_error(tmp_path)
    assert set(hub.tokens) == {"Bearer hf_secret"}


def test_redirection_to_the_storage_is_followed_and_its_hash_checked(hub, tmp_path):
    hub.redirect, hub.linked = True, {"X-Linked-Etag": '"' + "0" * 64 + '"'}
    assert "arrived corrupted" in download_error(tmp_path)
    hub.linked = {}
    assert len(download(tmp_path)) == 2


@pytest.mark.parametrize(
    ("status", "remedy"),
    [(401, "set HF_TOKEN"), (403, "set HF_TOKEN"), (404, "check HF_ENDPOINT"), (503, "run the same command again")],
)
def test_refusals_name_a_remedy(status, remedy, hub, tmp_path):
    hub.status = status
    message = download_error(tmp_path)
    assert f"status {status}" in message
    assert remedy in message


def test_missing_and_truncated_files(hub, tmp_path):
    content = hub.files.pop(TRAIN)
    assert f"{TRAIN}: status 404" in download_error(tmp_path)
    hub.files[TRAIN], hub.cut = content, 20
    assert "run the same command again" in download_error(tmp_path)
    hub.cut, hub.linked = 0, {"X-Linked-Size": "999999"}
    assert "of 999999 bytes" in download_error(tmp_path)


def test_finished_files_are_kept_if_a_later_one_fails(hub, tmp_path):
    del hub.files[DEV]
    with pytest.raises(NetworkError):
        download(tmp_path)
    assert files_in(tmp_path) == ["hashes.json", TRAIN]


@pytest.mark.parametrize("content", [b"<html>please log in</html>", b"", parquet_bytes(HUB["ynat"])])
def test_content_that_is_not_the_data(content, hub, tmp_path):
    hub.files[TRAIN] = content
    assert f"klue/klue/{TRAIN} on the Hub" in download_error(tmp_path, DataError)


def test_official_files_of_the_user_are_never_replaced(hub, tmp_path):
    path = write(tmp_path, "klue-nli-v1.1_train.json", json.dumps(RAW["nli"]).encode())
    with pytest.raises(DataError, match="already there with other content"):
        download(tmp_path)
    assert files_in(tmp_path) == [path.name]
    assert hub.requests == []


@pytest.mark.parametrize("switch", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_switch(switch, hub, tmp_path, monkeypatch):
    monkeypatch.setenv(switch, "1")
    assert f"{switch} is set" in download_error(tmp_path)
    assert hub.requests == []


def test_no_network(tmp_path, monkeypatch):
    start = time.monotonic()
    for endpoint in (f"http://127.0.0.1:{closed_port()}", "localhost", "http://", "ftp://127.0.0.1:1"):
        set_endpoint(monkeypatch, endpoint)
        assert "cannot be reached" in download_error(tmp_path)
    assert time.monotonic() - start < 15


def test_server_that_never_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("DANSEO_TIMEOUT", "0.2")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        set_endpoint(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "cannot be reached" in download_error(tmp_path)
