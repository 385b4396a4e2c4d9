"""Bad input of the masked-LM commands: one line, exit code 2, and nothing left behind."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("kiwipiepy")
pytest.importorskip("optuna")

from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from danseo.errors import DanseoError
from danseo.files import check_writable
from danseo.models.scratch import SPECIALS, Size, train_tokenizer
from danseo.pretraining.mentions import open_dataset, write_dataset
from danseo.pretraining.packing import PackedRows, read_facts, write_packed
from tests.pretraining.conftest import PLAIN, TINY, masked_model
from tests.pretraining.test_coref import Known, config_of, documents
from tests.pretraining.test_packing import parts

NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))


def saved(folder: Path, model, tokenizer) -> None:
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, checkpoints, a dataset and settings, most of them wrong."""
    folder = tmp_path_factory.mktemp("bad")
    text = documents()
    contents = {
        "good.txt": text.encode(),
        "empty.txt": b"",
        "rubbish.txt": os.urandom(5000),
        "zeros.txt": b"\0" * 5000,
        "wide.txt": "plain words".encode("utf-16-le"),
        "cut.txt.gz": gzip.compress(text.encode() + os.urandom(3000).hex().encode())[:2000],
        "unknown.toml": b"learning_rat = 1\n",
        "space.toml": b"learning_rate = [1e-3, 2e-3]\n",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    tokenizer = train_tokenizer([documents(200)] * 2, "bert", Size(vocabulary=300))
    other = train_tokenizer([documents(30)], "bert", Size(vocabulary=200))
    plain = masked_model("bert", tokenizer)

    def without(name: str):
        left = {key: value for key, value in NAMES.items() if key != name}
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **left)

    saved(folder / "good", plain, tokenizer)
    saved(folder / "other", masked_model("bert", other), other)
    saved(folder / "maskless", plain, without("mask_token"))
    saved(folder / "padless", plain, without("pad_token"))
    saved(folder / "bare", plain, None)
    saved(folder / "narrow", masked_model("bert", tokenizer, vocab_size=len(tokenizer) - 10), tokenizer)
    measures = {"vocab_size": len(tokenizer), "n_embd": 16, "n_layer": 1, "n_head": 1}
    saved(folder / "gpt", GPT2LMHeadModel(GPT2Config(**measures)), tokenizer)
    write_dataset(folder / "dataset", [folder / "good.txt"], tokenizer, config_of(folder / "good"), 96, Known())
    return folder


TRAINED = ["--device", "cpu", "--steps", "2", *(f"--set={each}" for each in PLAIN)]
SCRATCH = [*TRAINED, *(f"--set={each}" for each in TINY)]
TUNED = ["--space", "space.toml", "--trials", "2", "--probe-items", "sample", *TRAINED]
CHECKPOINTS = {
    "maskless": "has no mask token",
    "gpt": "is a causal language model",
    "bare": "are vocab.txt or tokenizer.json there?",
    "narrow": "they are not of one checkpoint",
}
TEXTS = {
    "empty.txt": "holds no text",
    "rubbish.txt": "not UTF-8",
    "zeros.txt": "line 1: holds NUL bytes",
    "wide.txt": "line 1: holds NUL bytes",
    "cut.txt.gz": "is a damaged gzip file",
}
CASES = [
    *((["pretrain", "--text", name, *SCRATCH, "--out", "out"], words) for name, words in TEXTS.items()),
    *((["tune", "pretrain", "--text", name, *SCRATCH, *TUNED], words) for name, words in TEXTS.items()),
    *((["data", "probes", "--text", name, "--out", "out"], words) for name, words in TEXTS.items()),
    *((["coref", "good", "--text", name, *TRAINED, "--out", "out"], words) for name, words in TEXTS.items()),
    *((["probe", name, "--output-dir", "out", "--precision", "fp32"], words) for name, words in CHECKPOINTS.items()),
    *((["coref", name, "--text", "good.txt", "--out", "out"], words) for name, words in CHECKPOINTS.items()),
    *((["tune", "coref", name, "--text", "good.txt", *TUNED], words) for name, words in CHECKPOINTS.items()),
    *(
        (["pretrain", "--from", name, "--text", "good.txt", *TRAINED, "--out", "out"], words)
        for name, words in {**CHECKPOINTS, "padless": "has no padding piece"}.items()
    ),
    (["coref", "padless", "--text", "good.txt", "--out", "out"], "has no padding piece"),
    (["coref", "other", "--dataset", "dataset", "--out", "out"], "prepared with another tokenizer"),
    (["tune", "coref", "other", "--dataset", "dataset", *TUNED], "prepared with another tokenizer"),
    (["tune", "coref", "good", *TUNED], "nothing to train on"),
    (["coref", "good", "--text", "good.txt", "--seq-len", "0"], "0 is not in the range x>=8"),
    (["coref", "good", "--text", "good.txt", "--seq-len", "-4"], "-4 is not in the range x>=8"),
    (["coref", "good", "--text", "good.txt", "--seq-len", "97"], "more than the 96 pieces that this bert reads"),
    (["coref", "good", "--text", "good.txt", "--seq-len", "8", "--out", "out"], "no repeated entity is left"),
    (["tune", "coref", "good", "--text", "good.txt", "--seq-len", "97", *TUNED], "more than the 96 pieces"),
    (["probe", "good", "--seq-len", "0"], "0 is not in the range x>=8"),
    (
        ["probe", "good", "--seq-len", "97", "--output-dir", "out", "--precision", "fp32"],
        "more than the 96 pieces that this bert reads",
    ),
    (["pretrain", "--text", "good.txt", "--seq-len", "0"], "text.seq_len = 0: should be above 0"),
    (["pretrain", "--text", "good.txt", "--config", "unknown.toml"], "unknown.toml: unknown setting 'learning_rat'"),
    (["coref", "good", "--text", "good.txt", "--config", "unknown.toml"], "unknown setting 'learning_rat'"),
    (["tune", "pretrain", "--text", "good.txt", "--config", "unknown.toml", *TUNED], "unknown setting"),
    (["pretrain", "--text", "good.txt", *SCRATCH, "--out", "good.txt/out"], "is no folder; choose another place"),
    (["coref", "good", "--text", "good.txt", "--out", "good.txt/out"], "is no folder; choose another place"),
    (["coref", "good", "--text", "good.txt", "--save-dataset", "good.txt"], "is no folder; choose another place"),
    (["coref", "good", "--text", "good.txt", "--save-dataset", "other"], "is not empty and no prepared dataset"),
    (["probe", "good", "--output-dir", "good.txt"], "is no folder; choose another place"),
    (["data", "probes", "--text", "good.txt", "--out", "good.txt/out"], "is no folder; choose another place"),
    (["tune", "coref", "good", "--text", "good.txt", *TUNED, "--results", "good.txt/x"], "is no folder; choose"),
]


@pytest.fixture(autouse=True)
def light(monkeypatch, tmp_path):
    """No Kiwi: it takes seconds to load, and no complaint here is about it."""
    monkeypatch.setattr("danseo.text.morphology.KiwiAnalyser.words", lambda analyser, texts: Known().words(texts))
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("arguments", "words"), CASES, ids=lambda value: " ".join(value[:5]) if isinstance(value, list) else ""
)
def test_one_line_and_nothing_left_behind(workdir, arguments, words, capsys, monkeypatch):
    from danseo.cli import main

    monkeypatch.chdir(workdir)
    before = sorted(workdir.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr()
    assert ended.value.code == 2, printed
    assert printed.out == ""
    complaints = [line for line in printed.err.splitlines() if line.startswith("danseo: ")]
    assert len(complaints) == 1, printed.err
    assert words in complaints[0]
    assert "Traceback" not in printed.err
    assert sorted(workdir.rglob("*")) == before


def test_the_same_folder_serves_once_the_text_is_mended(workdir, tmp_path, capsys):
    from danseo.cli import main

    codes = []
    for name in ("cut.txt.gz", "good.txt"):
        with pytest.raises(SystemExit) as ended:
            main(["pretrain", "--text", str(workdir / name), *SCRATCH, "--out", str(tmp_path / "out"), "--json"])
        codes.append(ended.value.code)
    assert codes == [2, 0]
    assert json.loads(capsys.readouterr().out)["steps"] == 2


def test_a_broken_checkpoint_among_others_is_a_row(workdir, tmp_path, capsys):
    from danseo.cli import main

    options = ["--quick", "--precision", "fp32", "--device", "cpu", "--output-dir", str(tmp_path / "out"), "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["probe", str(workdir / "maskless"), str(workdir / "good"), *options])
    assert ended.value.code == 3
    assert [record["status"] for record in json.loads(capsys.readouterr().out)["records"]] == ["failed", "ok"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("train/ids.bin", b"abc", "is damaged"),
        ("train/rows.bin", b"abc", "is damaged"),
        ("held_out/marks.bin", None, "is damaged"),
        ("facts.json", b"{}", "field 'dtype' is missing"),
        ("dataset.json", b"[]", "should be an object"),
        ("dataset.json", b'{"tokenizer": "x"}', "field 'seq_len' is missing"),
    ],
)
def test_a_damaged_dataset_is_one_line(workdir, name, content, words, tmp_path):
    from transformers import AutoTokenizer

    shutil.copytree(workdir / "dataset", tmp_path / "dataset")
    if content is None:
        (tmp_path / "dataset" / name).unlink()
    else:
        (tmp_path / "dataset" / name).write_bytes(content)
    with pytest.raises(DanseoError, match=words):
        open_dataset(tmp_path / "dataset", AutoTokenizer.from_pretrained(workdir / "good"))


def test_damaged_rows_of_the_cache_are_one_line(tmp_path):
    write_packed(tmp_path / "p", parts([5, 6]), 1000, 64, True)
    (tmp_path / "p" / "train" / "parts.bin").write_bytes(b"")
    with pytest.raises(DanseoError, match="is damaged; remove it"):
        PackedRows(tmp_path / "p" / "train")
    (tmp_path / "p" / "facts.json").write_text('{"dtype": "uint16", "train": {"rows": 1}}')
    with pytest.raises(DanseoError, match="field 'documents' is missing"):
        read_facts(tmp_path / "p")


def test_places_that_can_and_cannot_be_written(tmp_path):
    check_writable(tmp_path / "new" / "deep")
    check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(DanseoError, match="is no folder"):
        check_writable(tmp_path / "file" / "new")
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(DanseoError, match="may not be written"):
            check_writable(tmp_path / "new")
        tmp_path.chmod(0o700)
