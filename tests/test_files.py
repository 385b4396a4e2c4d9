"""Reading and writing files."""

import gzip

import pytest

from danseo.errors import DataError
from danseo.files import content_sha256, open_text, quote, read_bytes, write_atomically


def test_paths_that_cannot_be_read(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "deeper.json", tmp_path / "nul\0byte"):
        with pytest.raises(DataError, match="cannot be read"):
            read_bytes(path)


def test_gzipped_file_has_the_hash_of_its_content(tmp_path):
    (tmp_path / "plain").write_bytes(b"content")
    (tmp_path / "packed").write_bytes(gzip.compress(b"content"))
    assert content_sha256(tmp_path / "plain") == content_sha256(tmp_path / "packed")
    assert read_bytes(tmp_path / "packed") == b"content"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        (gzip.compress(b"content" * 99, mtime=0)[:-12], "corrupted gzip"),
        ("한글\n".encode() * 9 + b"\xff\n" + "한글\n".encode() * 9, "line 10: not UTF-8"),
    ],
)
def test_open_text_reports_bad_files(tmp_path, content, message):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message), open_text(path) as file:
        file.read()


def test_open_text_reports_bytes_beyond_those_that_decide_the_encoding(tmp_path):
    (tmp_path / "file").write_bytes(b"a\n" * 99_999 + b"\xff")
    with pytest.raises(DataError, match="not all of it is UTF-8"), open_text(tmp_path / "file", max_bytes=9) as file:
        file.read()


def test_quote():
    assert [quote(value) for value in ("가\n나", "\ud800", "가" * 99)] == [r"'가\n나'", r"'\ud800'", f"'{'가' * 58}…"]
    assert quote(10**5000) == "a number too large to show"
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert quote(nested) == "a list too large to show"
    while nested:
        nested = nested.pop()  # deleting it as a whole would recurse as deep


def test_files_are_written_atomically(tmp_path):
    write_atomically(tmp_path / "new" / "file.txt", "단서")
    assert (tmp_path / "new" / "file.txt").read_text() == "단서"
    with pytest.raises(DataError, match="cannot be written"):
        write_atomically(tmp_path / "new" / "file.txt" / "deeper", "단서")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.txt"]
