"""danseo predict on what users really pipe into it; a majority model answers, since reading is what is tested."""

import gzip
import json
import select
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from danseo.config.run import RunConfig
from danseo.data.input_reader import BadLine, group_lines, make_example, open_lines, read_line
from danseo.experiment import run_experiment
from danseo.inference.predict import predict_lines
from danseo.records import ParseExample
from danseo.tasks import TASKS
from danseo.tasktypes.parsing import MAX_WORDS
from tests.conftest import Result
from tests.tiny import quick_config, tiny_encoder

JSON = '{"premise": "비가 온다.", "hypothesis": "날이 흐리다.", "guid": "x"}'
TREE = '{"words": ["나는", "간다."], "pos": ["NP+JX", "VV+EF+SF"]}'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("runs")
    return lambda task: run_experiment(RunConfig(task=task, model="majority"), sample, folder).path


@pytest.fixture
def asked(invoke, tmp_path_factory, monkeypatch) -> Callable[..., Result]:
    """What predict says to bytes on its standard input."""
    path = tmp_path_factory.mktemp("input") / "stdin"

    def run(folder: Path, content: bytes, *more: str) -> Result:
        path.write_bytes(content)
        with path.open() as source:
            monkeypatch.setattr(sys, "stdin", source)
            return invoke("predict", folder, *more)

    return run


def guids(result: Result) -> list[str]:
    return [json.loads(line)["guid"] for line in result.out.splitlines()]


def test_a_byte_order_mark_and_gzip_change_nothing(runs, tmp_path: Path, asked) -> None:
    plain = asked(runs("nli"), JSON.encode())
    assert (plain.code, guids(plain)) == (0, ["x"])
    for content in (
        b"\xef\xbb\xbf" + JSON.encode(),
        gzip.compress(JSON.encode(), mtime=0),
        b"\xef\xbb\xbf" + JSON.encode() + b"\r\n",
    ):
        assert asked(runs("nli"), content).out == plain.out
    packed = tmp_path / "lines"  # told by its content, not its name
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + JSON.encode()))
    assert asked(runs("nli"), b"", str(packed)).out == plain.out


def test_bytes_that_are_no_text_are_bad_lines(runs, asked) -> None:
    lines = ["가\t나".encode(), "서울\t부산".encode("cp949"), b"a\tb\xff", "다\t라".encode()]
    result = asked(runs("nli"), b"\n".join(lines))
    assert (result.code, guids(result)) == (3, ["1", "4"])
    assert [line.split(";")[0] for line in result.err.splitlines()] == [
        "danseo: line 2: not UTF-8 (byte 0)",
        "danseo: line 3: not UTF-8 (byte 3)",
        "danseo: 2 of 4 lines could not be read",
    ]


def test_at_most_five_bad_lines_are_named(runs, asked) -> None:
    result = asked(runs("nli"), b"\n".join([b"one text only"] * 601))
    assert (result.code, len(result.err.splitlines())) == (2, 6)
    assert "601 of 601" in result.err.splitlines()[-1]


@pytest.mark.parametrize("encoding", ["cp949", "utf-16", "utf-16-le", "euc-kr"])
def test_other_encodings_are_read(encoding: str, runs, asked) -> None:
    text = "새 공장 착공\n금리 인상\n"
    plain = asked(runs("ynat"), text.encode(), "--text")
    named = () if encoding in ("cp949", "utf-16") else ("--encoding", encoding)
    assert asked(runs("ynat"), text.encode(encoding), "--text", *named).out == plain.out
    assert asked(runs("ynat"), gzip.compress(text.encode(encoding)), "--text", *named).out == plain.out
    assert "금리 인상" in plain.out


def test_a_wrong_encoding_is_one_line(runs, asked) -> None:
    assert "--encoding utf-9" in asked(runs("ynat"), b"a", "--encoding", "utf-9").complaint
    assert "UTF-16" in asked(runs("ynat"), b"abc", "--encoding", "utf-16").complaint


def test_missing_files_are_reported_before_the_model_is_loaded(runs, tmp_path: Path, asked) -> None:
    for arguments, reason in (
        (("missing.csv",), "missing.csv cannot be read"),
        (("-", "-o", str(tmp_path / "none" / "a.csv")), "is no folder"),
    ):
        result = asked(tmp_path / "no-run", b"a", *arguments)
        assert (result.code, reason in result.complaint) == (2, True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (gzip.compress(JSON.encode(), mtime=0)[:-9], "gzipped input is corrupted"),
        (f"[\n{JSON}\n]".encode(), "JSON list"),
        (f"\ufeff[{JSON}]".encode(), "JSON list"),
        (gzip.compress(f"[{JSON}]".encode(), mtime=0), "JSON list"),
    ],
    ids=["cut off", "list", "list behind a mark", "packed list"],
)
def test_other_formats_are_refused_in_one_line(content: bytes, complaint: str, runs, asked) -> None:
    result = asked(runs("ner"), content)
    assert (result.code, result.out) == (2, "")
    assert complaint in result.complaint


def test_the_input_is_never_overwritten(runs, tmp_path: Path, asked) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("가\t나\n")
    result = asked(runs("nli"), b"", str(lines), "-o", str(lines))
    assert "same file" in result.complaint
    assert lines.read_text() == "가\t나\n"


def test_lines_are_answered_as_they_come(runs) -> None:
    command = [sys.executable, "-m", "danseo", "predict", str(runs("ynat"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        for number in range(1, 4):
            process.stdin.write(f"새 공장 착공 {number}\n".encode())
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 60)[0], "no answer before the next line"
            assert json.loads(process.stdout.readline())["line"] == number
        process.stdin.write("마지막 줄".encode())  # without a line end
        process.stdin.close()
        assert json.loads(process.stdout.read())["line"] == 4
    assert process.returncode == 0


def test_what_is_waiting_is_answered_together(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"".join(b"%d\n" % number for number in range(10)) + b"\n" * 3 + b"x" * 100_000)
    with path.open("rb") as source:
        groups = list(group_lines(open_lines(source, "lines"), 4))
    assert [len(group) for group in groups] == [4, 4, 4, 2]
    assert [number for group in groups for number, _ in group] == list(range(1, 15))
    assert groups[-1][-1][1] == b"x" * 100_000
    path.write_bytes((b"x" * 400_000 + b"\n") * 8)
    with path.open("rb") as source:
        assert [len(group) for group in group_lines(source, 512)] == [3, 3, 2], "long lines are held few at a time"


def reason(task: str, line: str, **options: bool) -> str:
    found = read_line(line.encode(), 7, TASKS[task], **options)
    assert isinstance(found, BadLine), found
    return found.reason


@pytest.mark.parametrize(
    ("task", "line", "word"),
    [
        ("nli", "\t흐리다.", "first text is empty"),
        ("sts", "비가 온다.\t ", "second text is empty"),
        ("nli", '{"premise": " ", "hypothesis": "가"}', "'premise' is empty"),
        ("dp", '{"words": ["나는", " "]}', "word 2 is empty"),
        ("nli", '{"premise": "가"}', "'hypothesis' is missing"),
        ("mrc", '{"context": ', "not valid JSON"),
    ],
)
def test_a_bad_line_has_its_number_and_a_reason(task: str, line: str, word: str) -> None:
    assert reason(task, line).startswith("line 7: ")
    assert word in reason(task, line)


def test_a_line_of_too_many_words_states_the_limit() -> None:
    assert reason("dp", "가 " * 25_000) == (
        f"line 7: 25,000 words, but at most {MAX_WORDS} are parsed; split it into sentences"
    )
    assert not isinstance(read_line(b"a " * MAX_WORDS, 1, TASKS["dp"]), BadLine)


def test_tags_of_words_are_checked() -> None:
    found = read_line(TREE.encode(), 1, TASKS["dp"], with_pos=True)
    assert isinstance(found, tuple)
    assert found[1].pos == ("NP+JX", "VV+EF+SF")
    assert "1 entries in pos for 2 words" in reason("dp", TREE.replace('"NP+JX", ', ""))
    assert "pos 2: unknown label 'QQ'; known: NNG" in reason("dp", TREE.replace("SF", "QQ"))


def test_missing_tags_come_from_kiwi(monkeypatch) -> None:
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
    for line in ("나는 간다.", '{"words": ["나는", "간다."]}', '{"text": "나는 간다."}'):
        found = read_line(line.encode(), 1, TASKS["dp"], with_pos=True)
        assert isinstance(found, tuple)
        assert found[1].pos == ("NP+JX", "VV+EF+SF")
        assert found[1].pos_tagger.startswith("kiwipiepy ")
    assert make_example(ParseExample("a", ("나는", "간다."), ()), TASKS["dp"], 1, with_pos=True).pos == found[1].pos
    assert not make_example("나는 간다.", TASKS["dp"], 1).pos
    monkeypatch.setattr("danseo.data.input_reader.is_installed", lambda package: False)
    assert "this run reads POS tags" in reason("dp", '{"words": ["나는"]}', with_pos=True)
    assert "danseo[ko]" in reason("dp", "나는 간다.", with_pos=True)


def test_an_official_parser_reports_who_tagged(sample: Path, tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
    monkeypatch.setattr("danseo.models.encoder.heads.biaffine.LSTM_SIZE", 16)
    encoder = tiny_encoder(tmp_path / "encoder", sample, layers=1)
    config = quick_config("dp", encoder, max_train_samples=8, architecture="official", max_length=64)
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True).path
    lines = tmp_path / "lines"
    lines.write_text(f"나는 간다.\n{TREE}\n", "utf-8")
    predict_lines(run, str(lines), tmp_path / "answers.jsonl", device="cpu")
    first, second = map(json.loads, (tmp_path / "answers.jsonl").read_text("utf-8").splitlines())
    assert first["pos_tagger"].startswith("kiwipiepy ")
    assert [word["pos"] for word in first["words"]] == ["NP+JX", "VV+EF+SF"]
    assert "pos_tagger" not in second
    assert first["answer"] == second["answer"]
    predict_lines(run, str(lines), tmp_path / "answers.conll", device="cpu")
    conll = (tmp_path / "answers.conll").read_text("utf-8")
    assert conll.count("# pos_tagger = kiwipiepy") == conll.count("NP+JX") == 1


def test_windows_of_a_long_passage_take_memory_by_its_length() -> None:
    from danseo.models.encoder.heads.question_answering import assign_owners

    begins = np.arange(0, 100_000, 128)
    sizes = np.minimum(100_000 - begins, 384)
    tracemalloc.start()
    owned = assign_owners(begins, sizes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6, "not pieces x windows, which would be 600 MB"
    counts = np.zeros(100_000, dtype=int)
    for begin, mine in zip(begins, owned, strict=True):
        counts[begin : begin + len(mine)] += mine
    assert (counts == 1).all(), "every piece belongs to one window"
