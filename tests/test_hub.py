"""The Hub: its parquet files read like the raw ones, and fetching them goes well or fails in one clear line.

A stub on 127.0.0.1 stands for the Hub; nothing else is ever contacted.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from danseo.data.fetch import get
from danseo.data.find import check, find_file, load
from danseo.errors import DanseoError, DataError, NetworkError
from danseo.tasks import TASKS

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


def parquet_bytes(config: Config, with_note: bool = True) -> bytes:
    """The file as the Hub has it, with or without the note on class names."""
    table = pa.Table.from_pylist(config.rows, schema=pa.schema(list(config.schema.items())))
    if with_note:
        note = json.dumps({"info": {"features": config.features}})
        table = table.replace_schema_metadata({"huggingface": note})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def write_hub_file(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# Reading


@pytest.mark.parametrize("with_note", [True, False], ids=["names in the file", "numbers only"])
@pytest.mark.parametrize("name", HUB)
def test_hub_and_raw_files_give_the_same_examples(name: str, with_note: bool, tmp_path: Path) -> None:
    task = TASKS[name]
    raw = RAW[name] if isinstance(RAW[name], str) else json.dumps(RAW[name], ensure_ascii=False)
    raw_path = write_hub_file(tmp_path, task.file("dev"), raw.encode())
    hub_path = write_hub_file(tmp_path, "validation-00000-of-00001.parquet", parquet_bytes(HUB[name], with_note))
    expected, examples = task.read(raw_path), task.read(hub_path)
    assert [replace(example, guid="") for example in examples] == [replace(example, guid="") for example in expected]
    if name in ("ner", "dp"):  # the Hub has no guid for them, and not the source that the raw guid ends with
        assert examples[0].guid == f"klue-{name}-v1_dev_00000"
        assert expected[0].guid.startswith(examples[0].guid)
    else:
        assert [example.guid for example in examples] == [example.guid for example in expected]


def test_hub_mrc_ignores_plausible_answers_and_moves_the_offsets(tmp_path: Path) -> None:
    path = write_hub_file(tmp_path, "validation-00000-of-00001.parquet", parquet_bytes(HUB["mrc"]))
    answered, unanswerable = TASKS["mrc"].read(path)
    assert (answered.gold, answered.starts) == (("1998년", "1998"), (4, 4))
    assert answered.text[4:9] == "1998년"
    assert (unanswerable.gold, unanswerable.starts) == ((), ())


def test_hub_mrc_finds_an_answer_that_lost_its_leading_space(tmp_path: Path) -> None:
    row = {
        **HUB["mrc"].rows[0],
        "context": "회사는 1998년 설립됐다.",
        "answers": {"answer_start": [3], "text": ["1998년"]},
    }
    path = write_hub_file(tmp_path, "validation-0.parquet", parquet_bytes(replace(HUB["mrc"], rows=[row])))
    assert TASKS["mrc"].read(path)[0].starts == (4,)


def test_class_names_of_the_file_come_before_the_usual_order(tmp_path: Path) -> None:
    names = ["entailment", "contradiction", "neutral"]  # the order of the Hub's first version
    config = replace(HUB["nli"], features={"label": {"names": names, **CLASSES}})
    path = write_hub_file(tmp_path, "validation-0.parquet", parquet_bytes(config))
    assert [example.gold for example in TASKS["nli"].read(path)] == ["entailment", "neutral", "contradiction"]


@pytest.mark.parametrize(
    ("label", "with_note"),
    [(-1, True), (-1, False), (7, True), (7, False), (None, True), (None, False)],
)
def test_a_label_number_out_of_range_is_refused(label: int | None, with_note: bool, tmp_path: Path) -> None:
    config = replace(HUB["ynat"], rows=[{**HUB["ynat"].rows[0], "label": label}])
    path = write_hub_file(tmp_path, "validation-0.parquet", parquet_bytes(config, with_note))
    with pytest.raises(DataError):
        TASKS["ynat"].read(path)


@pytest.mark.parametrize("note", ["{", "[]", '{"info": {"features": []}}', '{"info": 1}'])
def test_an_odd_note_in_the_file_is_a_data_error(note: str, tmp_path: Path) -> None:
    table = pq.read_table(pa.BufferReader(parquet_bytes(HUB["ynat"]))).replace_schema_metadata({"huggingface": note})
    path = tmp_path / "validation-0.parquet"
    pq.write_table(table, path)
    with pytest.raises(DataError, match="not a readable parquet file"):
        TASKS["ynat"].read(path)


def test_several_shards_are_refused_with_what_to_do(tmp_path: Path) -> None:
    for shard in range(2):
        write_hub_file(tmp_path, f"nli/train-0000{shard}-of-00002.parquet", parquet_bytes(HUB["nli"]))
    with pytest.raises(DataError, match="2 parquet files for train; join them"):
        find_file(TASKS["nli"], "train", tmp_path)
    assert [report.verdict for report in check(tmp_path, [TASKS["nli"]])] == ["damaged", "missing"]


# Fetching


@dataclass
class Stub:
    """What the stub Hub serves, how it misbehaves, and what it was asked for."""

    files: dict[str, bytes]
    url: str = ""
    status: int = 200
    cut: int = 0
    redirect: bool = False
    linked: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)


def handler_of(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.asked.append(self.path)
            stub.tokens.append(self.headers.get("Authorization"))
            content = stub.files.get(self.path.split("/main/")[-1].removeprefix("/storage/"))
            status = stub.status if content is not None else 404
            if status != 200 or content is None:
                self.answer(status, b"no", {"X-Error-Message": "no"})
            elif stub.redirect and not self.path.startswith("/storage/"):
                name = self.path.split("/main/")[-1]
                sha256 = hashlib.sha256(content).hexdigest()
                linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{sha256}"', **stub.linked}
                self.answer(302, b"", {"Location": f"{stub.url}/storage/{name}", **linked})
            else:
                self.answer(200, content, {"ETag": '"abc"', "X-Repo-Commit": "0" * 40, **stub.linked}, stub.cut)

        def answer(self, status: int, content: bytes, headers: dict[str, str], cut: int = 0) -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(content[: len(content) - cut])

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A stub Hub that serves every config, with HF_ENDPOINT set to it."""
    contents = {name: parquet_bytes(config) for name, config in HUB.items()}
    splits = ("train", "validation")
    stub = Stub({f"{name}/{split}-00000-of-00001.parquet": contents[name] for name in HUB for split in splits})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(stub))
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    set_endpoint(monkeypatch, stub.url)
    yield stub
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail on any attempt to leave this machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        assert address[0] == "127.0.0.1", f"a test tried to reach {address}"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def set_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def files_in(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def refused(root: Path, error: type[DanseoError], task: str = "nli") -> str:
    """The one line of a fetch that fails and leaves nothing behind."""
    with pytest.raises(error) as caught:
        get([TASKS[task]], "hub", root, lambda line: None)
    assert "\n" not in str(caught.value)
    assert files_in(root) == []
    return str(caught.value)


def test_all_configs_are_fetched_checked_and_read(hub: Stub, tmp_path: Path) -> None:
    lines: list[str] = []
    paths = get(list(TASKS.values()), "hub", tmp_path, lines.append)
    assert len(paths) == 16
    assert lines[0] == "1/16 ynat/train-00000-of-00001.parquet: fetched"
    assert files_in(tmp_path) == sorted(["hashes.json", *hub.files])
    assert all("/resolve/main/" in path and path.startswith("/datasets/klue/klue/") for path in hub.asked)
    for task in TASKS.values():
        assert task.rows(load(task, "dev", tmp_path)) == len(HUB[task.name].rows)
        report = check(tmp_path, [task])[0]
        assert (report.verdict, report.note.split("; ")[-1]) == ("subset", "Hub layout (v1 data)")
    whole = replace(TASKS["nli"], official_rows={"dev": 3})
    assert [(report.verdict, report.note) for report in check(tmp_path, [whole])] == [
        ("official", "Hub layout (v1 data)")
    ]


def test_fetching_again_asks_only_for_what_is_lost_or_changed(hub: Stub, tmp_path: Path) -> None:
    first, second = get([TASKS["nli"]], "hub", tmp_path, lambda line: None)
    assert get([TASKS["nli"]], "hub", tmp_path, lambda line: None) == []
    first.unlink()
    second.write_bytes(b"cut")
    assert len(hub.asked) == 2
    assert get([TASKS["nli"]], "hub", tmp_path, lambda line: None) == [first, second]
    assert len(hub.asked) == 4


def test_the_token_is_sent_to_the_hub_and_never_shown(
    hub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.status = 403
    assert "hf_secret" not in refused(tmp_path, NetworkError)
    assert hub.tokens == ["Bearer hf_secret"]


def test_a_redirection_to_the_storage_is_followed_and_its_hash_checked(hub: Stub, tmp_path: Path) -> None:
    hub.redirect = True
    hub.linked = {"X-Linked-Etag": '"' + "0" * 64 + '"'}
    assert "arrived damaged" in refused(tmp_path, NetworkError)
    hub.linked = {}
    assert len(get([TASKS["nli"]], "hub", tmp_path, lambda line: None)) == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [(401, "set HF_TOKEN"), (403, "set HF_TOKEN"), (404, "no such file; check HF_ENDPOINT"), (503, "in trouble")],
)
def test_a_refusal_says_what_to_do(status: int, expected: str, hub: Stub, tmp_path: Path) -> None:
    hub.status = status
    message = refused(tmp_path, NetworkError)
    assert f"status {status}" in message
    assert expected in message


def test_a_file_that_the_hub_lacks(hub: Stub, tmp_path: Path) -> None:
    del hub.files["nli/train-00000-of-00001.parquet"]
    assert "nli/train-00000-of-00001.parquet: status 404" in refused(tmp_path, NetworkError)


def test_a_body_that_breaks_off(hub: Stub, tmp_path: Path) -> None:
    hub.cut = 20
    assert "run the same command again" in refused(tmp_path, NetworkError)


def test_a_body_shorter_than_the_hub_says(hub: Stub, tmp_path: Path) -> None:
    hub.linked = {"X-Linked-Size": "999999"}
    assert "of 999999 bytes" in refused(tmp_path, NetworkError)


def test_finished_files_stay_when_a_later_one_fails(hub: Stub, tmp_path: Path) -> None:
    del hub.files["nli/validation-00000-of-00001.parquet"]
    with pytest.raises(NetworkError):
        get([TASKS["nli"]], "hub", tmp_path, lambda line: None)
    assert files_in(tmp_path) == ["hashes.json", "nli/train-00000-of-00001.parquet"]


@pytest.mark.parametrize("content", [b"<html>please log in</html>", b"", parquet_bytes(HUB["ynat"])])
def test_an_answer_that_is_not_the_data(content: bytes, hub: Stub, tmp_path: Path) -> None:
    hub.files["nli/train-00000-of-00001.parquet"] = content
    message = refused(tmp_path, DataError)
    assert "klue/klue/nli/train-00000-of-00001.parquet on the Hub" in message


def test_raw_files_are_not_shadowed_or_shadowing(hub: Stub, tmp_path: Path) -> None:
    own = write_hub_file(tmp_path, "klue-nli-v1.1_train.json", json.dumps(RAW["nli"]).encode())
    with pytest.raises(DataError, match="already there with other content"):
        get([TASKS["nli"]], "hub", tmp_path, lambda line: None)
    assert files_in(tmp_path) == [own.name]
    assert hub.asked == []


@pytest.mark.parametrize("switch", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_the_offline_switch(switch: str, hub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switch, "1")
    assert f"{switch} is set" in refused(tmp_path, NetworkError)
    assert hub.asked == []


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_endpoint(monkeypatch, f"http://127.0.0.1:{closed_port()}")
    start = time.monotonic()
    assert "cannot be reached" in refused(tmp_path, NetworkError)
    assert time.monotonic() - start < 15


@pytest.mark.parametrize("endpoint", ["localhost", "http://", "ftp://127.0.0.1:1"])
def test_an_endpoint_that_is_no_address(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_endpoint(monkeypatch, endpoint)
    assert "cannot be reached" in refused(tmp_path, NetworkError)


def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("danseo.hub._SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        set_endpoint(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "cannot be reached" in refused(tmp_path, NetworkError)


PROGRAM = """
import sys; from pathlib import Path
from danseo.errors import DanseoError; from danseo.data.fetch import get; from danseo.tasks import TASKS
assert "huggingface_hub" not in sys.modules
try:
    print(len(get([TASKS["sts"]], "hub", Path(sys.argv[1]), lambda line: None)))
except DanseoError as error:
    sys.exit(f"{type(error).__name__} {error}")
"""


@pytest.mark.parametrize("offline", ["0", "1"])
def test_the_environment_of_a_fresh_process_is_honoured(offline: str, hub: Stub, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": offline, "HF_HOME": str(tmp_path / "hf")}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")], env=environment, capture_output=True, text=True
    )
    if offline == "1":
        assert result.stderr.startswith("NetworkError HF_HUB_OFFLINE is set")
        assert hub.asked == []
    else:
        assert (result.stdout, result.stderr) == ("2\n", "")
        assert not (tmp_path / "hf").exists()
