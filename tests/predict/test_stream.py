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

from danseo.config import RunConfig
from danseo.data.lines import BadLine, lines_in, read_line, unpacked
from danseo.experiment import run_experiment
from danseo.tasks import TASKS
from danseo.tasks.inputs import MOST_WORDS
from tests.conftest import Result
from tests.tiny import quick_config, tiny_encoder

JSON = '{"premise": "비가 온다.", "hypothesis": "날이 흐리다.", "guid": "x"}'
TREE = '{"words": ["나는", "간다."], "pos": ["NP+JX", "VV+EF+SF"]}'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("runs")
    return lambda task: run_experiment(RunConfig(task=task, model="majority"), sample, folder).path


def asked(run: Path, content: bytes, *more: str) -> Result:
    """What predict says to bytes on its standard input."""
    command = [sys.executable, "-m", "danseo", "predict", str(run), *more]
    ended = subprocess.run(command, input=content, capture_output=True, timeout=120)
    return Result(subprocess.CompletedProcess([], ended.returncode, ended.stdout.decode(), ended.stderr.decode()))


def guids(result: Result) -> list[str]:
    return [json.loads(line)["guid"] for line in result.out.splitlines()]


def test_a_byte_order_mark_and_gzip_change_nothing(runs, tmp_path: Path) -> None:
    plain = asked(runs("nli"), JSON.encode())
    assert (plain.code, guids(plain)) == (0, ["x"])
    for content in (
        b"\xef\xbb\xbf" + JSON.encode(),
        gzip.compress(JSON.encode()),
        b"\xef\xbb\xbf" + JSON.encode() + b"\r\n",
    ):
        assert asked(runs("nli"), content).out == plain.out
    packed = tmp_path / "lines"  # told by its content, not its name
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + JSON.encode()))
    assert asked(runs("nli"), b"", str(packed)).out == plain.out


def test_bytes_that_are_no_text_are_bad_lines(runs) -> None:
    lines = ["가\t나".encode(), "서울\t부산".encode("cp949"), b"a\tb\xff", "다\t라".encode()]
    result = asked(runs("nli"), b"\n".join(lines))
    assert (result.code, guids(result)) == (3, ["1", "4"])
    assert result.err.splitlines() == [
        "danseo: line 2: not UTF-8 (byte 0); convert the text: iconv -f CP949 -t UTF-8",
        "danseo: line 3: not UTF-8 (byte 3); mend the line",
        "danseo: 2 of 4 lines could not be read; the other 2 are answered",
    ]
    nothing = asked(runs("ner"), "서울에 비가 왔다.".encode("cp949"))
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err.endswith("1 of 1 lines could not be read; nothing is answered\n")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (gzip.compress(JSON.encode())[:-9], "the gzipped input is damaged or cut off"),
        ("비\t눈".encode("utf-16"), "standard input is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
        (f"[\n{JSON}\n]".encode(), "standard input is a JSON list, but one object per line is due"),
        (f"\ufeff[{JSON}]".encode(), "standard input is a JSON list, but one object per line is due"),
        (gzip.compress(f"[{JSON}]".encode()), "standard input is a JSON list, but one object per line is due"),
    ],
    ids=["cut off", "UTF-16", "list", "list behind a mark", "packed list"],
)
def test_other_formats_are_refused_in_one_line(content: bytes, complaint: str, runs) -> None:
    result = asked(runs("ner"), content)
    assert (result.code, result.out) == (2, "")
    assert complaint in result.complaint


def test_the_input_is_never_overwritten(runs, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("가\t나\n")
    result = asked(runs("nli"), b"", str(lines), "-o", str(lines))
    assert "is what is read; write the answers to another file" in result.complaint
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
        groups = list(lines_in(unpacked(source, "lines"), 4))
    assert [len(group) for group in groups] == [4, 4, 4, 2]
    assert [number for group in groups for number, _ in group] == list(range(1, 15))
    assert groups[-1][-1][1] == b"x" * 100_000
    path.write_bytes((b"x" * 400_000 + b"\n") * 8)
    with path.open("rb") as source:
        assert [len(group) for group in lines_in(source, 512)] == [3, 3, 2], "long lines are held few at a time"


def reason(task: str, line: str, **options: bool) -> str:
    found = read_line(line.encode(), 7, TASKS[task], **options)
    assert isinstance(found, BadLine), found
    return found.reason


def test_empty_texts_and_words_are_bad_lines() -> None:
    needed = "two texts with a tab between are due"
    assert reason("nli", "\t흐리다.") == f"line 7: the first text is empty; {needed}"
    assert reason("sts", "비가 온다.\t ").startswith("line 7: the second text is empty; two texts")
    assert reason("nli", '{"premise": " ", "hypothesis": "가"}') == "line 7: field 'premise' is empty"
    assert reason("dp", '{"words": ["나는", " "]}') == "line 7: word 2 is empty"


def test_hints_are_about_the_line_and_the_task() -> None:
    assert reason("nli", '{"premise": "가"}').endswith(
        "field 'hypothesis' is missing; nli needs two texts with a tab between, or premise and hypothesis"
    )
    assert reason("mrc", '{"context": ').startswith("line 7: not valid JSON (")
    assert reason("mrc", '{"context": ').endswith("; mend the line")


def test_a_mark_inside_files_put_together_is_passed_over() -> None:
    found = read_line("\ufeff{}".replace("{}", JSON).encode(), 7, TASKS["nli"])
    assert isinstance(found, tuple)
    assert found[1].guid == "x"


def test_a_line_of_too_many_words_states_the_limit() -> None:
    assert reason("dp", "가 " * 25_000) == (
        f"line 7: 25,000 words, but at most {MOST_WORDS} are parsed; split it into sentences"
    )
    assert not isinstance(read_line(b"a " * MOST_WORDS, 1, TASKS["dp"]), BadLine)


def test_tags_of_words_are_checked() -> None:
    found = read_line(TREE.encode(), 1, TASKS["dp"], with_pos=True)
    assert isinstance(found, tuple)
    assert found[1].pos == ("NP+JX", "VV+EF+SF")
    assert '{"words": ["나는", "간다."], "pos": ["NP+JX", "VV+EF+SF"]}' in reason("dp", "나는 간다.", with_pos=True)
    assert "this run reads POS tags" in reason("dp", '{"words": ["나는"]}', with_pos=True)
    assert "1 entries in pos for 2 words" in reason("dp", TREE.replace('"NP+JX", ', ""))
    assert "pos 2: unknown label 'QQ'; known: NNG" in reason("dp", TREE.replace("SF", "QQ"))


def test_an_official_parser_takes_tags_and_says_so_where_there_are_none(sample: Path, tmp_path: Path) -> None:
    encoder = tiny_encoder(tmp_path / "encoder", sample, layers=1)
    config = quick_config("dp", encoder, limit=8, architecture="official", max_length=64)
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True).path
    result = asked(run, f"나는 간다.\n{TREE}\n".encode())
    assert (result.code, guids(result)) == (3, ["2"])
    assert "danseo: line 1: this run reads POS tags (architecture official)" in result.err


def test_windows_of_a_long_passage_take_memory_by_its_length() -> None:
    from danseo.models.encoder.answer import owners

    begins = np.arange(0, 100_000, 128)
    sizes = np.minimum(100_000 - begins, 384)
    tracemalloc.start()
    owned = owners(begins, sizes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6, "not pieces x windows, which would be 600 MB"
    counts = np.zeros(100_000, dtype=int)
    for begin, mine in zip(begins, owned, strict=True):
        counts[begin : begin + len(mine)] += mine
    assert (counts == 1).all(), "every piece belongs to one window"
