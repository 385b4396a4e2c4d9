"""Bad input of the masked-LM commands: one line, exit code 2, and nothing left behind."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
pytest.importorskip("optuna")

from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from danseo.errors import DanseoError
from danseo.mlm.mentions import open_dataset, write_dataset
from danseo.models.new_encoder import SPECIALS, EncoderSize, train_tokenizer
from tests.mlm.conftest import PLAIN, TINY, masked_model
from tests.mlm.test_coref import Known, config_of, documents

NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))


def save(folder: Path, model, tokenizer) -> None:
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
    tokenizer = train_tokenizer([documents(200)] * 2, "bert", EncoderSize(vocabulary=300))
    other = train_tokenizer([documents(30)], "bert", EncoderSize(vocabulary=200))
    plain = masked_model("bert", tokenizer)

    def without(name: str):
        left = {key: value for key, value in NAMES.items() if key != name}
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, **left)

    save(folder / "good", plain, tokenizer)
    save(folder / "other", masked_model("bert", other), other)
    save(folder / "maskless", plain, without("mask_token"))
    save(folder / "padless", plain, without("pad_token"))
    save(folder / "bare", plain, None)
    save(folder / "narrow", masked_model("bert", tokenizer, vocab_size=len(tokenizer) - 10), tokenizer)
    measures = {"vocab_size": len(tokenizer), "n_embd": 16, "n_layer": 1, "n_head": 1}
    save(folder / "gpt", GPT2LMHeadModel(GPT2Config(**measures)), tokenizer)
    write_dataset(folder / "dataset", [folder / "good.txt"], tokenizer, config_of(folder / "good"), 96, Known())
    return folder


GOOD = ["--text", "good.txt"]
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
    "empty.txt": "no text",
    "rubbish.txt": "not UTF-8",
    "zeros.txt": "line 1: contains NUL bytes",
    "wide.txt": "line 1: contains NUL bytes",
    "cut.txt.gz": "gzip",
}
CASES = [
    *((["pretrain", "--text", name, *SCRATCH, "--out", "out"], words) for name, words in TEXTS.items()),
    (["tune", "pretrain", "--text", "cut.txt.gz", *SCRATCH, *TUNED], "gzip"),
    *((["data", "probes", "--text", name, "--out", "out"], TEXTS[name]) for name in ("empty.txt", "cut.txt.gz")),
    *((["coref", "good", "--text", name, *TRAINED, "--out", "out"], TEXTS[name]) for name in ("empty.txt", "wide.txt")),
    *((["probe", name, "--output-dir", "out", "--precision", "fp32"], words) for name, words in CHECKPOINTS.items()),
    *((["coref", name, *GOOD, "--out", "out"], CHECKPOINTS[name]) for name in ("maskless", "narrow")),
    (["tune", "coref", "gpt", *GOOD, *TUNED], CHECKPOINTS["gpt"]),
    *((["pretrain", "--from", name, *GOOD, *TRAINED, "--out", "out"], CHECKPOINTS[name]) for name in ("bare", "gpt")),
    (["pretrain", "--from", "padless", *GOOD, *TRAINED, "--out", "out"], "has no padding token"),
    (["coref", "good"], "nothing to train on"),
    (["pretrain", "--text", "nowhere.txt"], "cannot be read"),
    (["pretrain"], "--text"),
    (["pretrain", *GOOD, "--set", "learning_rat=1"], "did you mean train.learning_rat"),
    (["pretrain", *GOOD, "--set", "select_on=dev"], "unknown setting 'select_on'"),
    (["pretrain", *GOOD, "--steps", "2", "--minutes", "1"], "choose one"),
    (["pretrain", *GOOD, "--set", "max_probability=0.1"], "is below mask.mlm_probability"),
    (["pretrain", *GOOD, "--from", "/no/where"], "no such folder"),
    (["pretrain", *GOOD, "--set", "hidden_size=33"], "model.num_attention_heads"),
    (["pretrain", *GOOD, "--set", "architecture=xlm-roberta", "--set", "vocab_size=20"], "vocab_size"),
    (["pretrain", *GOOD, "--set", "architecture=xlm-roberta", "--set", "tokenizer=morpheme"], "unigrams"),
    (["pretrain", *GOOD, "--config", "nowhere.toml"], "no such file"),
    (["coref", "padless", *GOOD, "--out", "out"], "has no padding token"),
    (["coref", "other", "--dataset", "dataset", "--out", "out"], "prepared with another tokenizer"),
    (["tune", "coref", "other", "--dataset", "dataset", *TUNED], "prepared with another tokenizer"),
    (["tune", "coref", "good", *TUNED], "nothing to train on"),
    (["coref", "good", *GOOD, "--seq-len", "0"], "0 is not in the range x>=8"),
    (["coref", "good", *GOOD, "--seq-len", "-4"], "-4 is not in the range x>=8"),
    (["coref", "good", *GOOD, "--seq-len", "97"], "more than the 96 tokens that this bert reads"),
    (["coref", "good", *GOOD, "--seq-len", "8", "--out", "out"], "no repeated entity is left"),
    (["tune", "coref", "good", *GOOD, "--seq-len", "97", *TUNED], "more than the 96 tokens"),
    (["probe", "good", "--seq-len", "0"], "0 is not in the range x>=8"),
    (
        ["probe", "good", "--seq-len", "97", "--output-dir", "out", "--precision", "fp32"],
        "more than the 96 tokens that this bert reads",
    ),
    (["pretrain", *GOOD, "--seq-len", "0"], "text.seq_len = 0: should be above 0"),
    (["pretrain", *GOOD, "--config", "unknown.toml"], "unknown.toml: unknown setting 'learning_rat'"),
    (["coref", "good", *GOOD, "--config", "unknown.toml"], "unknown setting 'learning_rat'"),
    (["tune", "pretrain", *GOOD, "--config", "unknown.toml", *TUNED], "unknown setting"),
    (["pretrain", *GOOD, *SCRATCH, "--out", "good.txt/out"], "is no folder"),
    (["coref", "good", *GOOD, "--out", "good.txt/out"], "is no folder"),
    (["coref", "good", *GOOD, "--save-dataset", "good.txt"], "is no folder"),
    (["coref", "good", *GOOD, "--save-dataset", "other"], "not a prepared dataset"),
    (["probe", "good", "--output-dir", "good.txt"], "is no folder"),
    (["data", "probes", *GOOD, "--out", "good.txt/out"], "is no folder"),
    (["tune", "coref", "good", *GOOD, *TUNED, "--results", "good.txt/x"], "is no folder"),
]


@pytest.fixture(autouse=True)
def use_light_analyser(monkeypatch, tmp_path):
    """Replace Kiwi, which takes seconds to load."""
    monkeypatch.setattr(
        "danseo.text.morphology.KiwiAnalyser.find_nouns", lambda analyser, texts: Known().find_nouns(texts)
    )
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
    errors = [line for line in printed.err.splitlines() if line.startswith("danseo: ")]
    assert len(errors) == 1, printed.err
    assert words in errors[0]
    assert "Traceback" not in printed.err
    assert sorted(workdir.rglob("*")) == before


def test_folder_can_be_used_after_the_text_is_corrected(workdir, tmp_path, capsys):
    from danseo.cli import main

    codes = []
    for name in ("cut.txt.gz", "good.txt"):
        with pytest.raises(SystemExit) as ended:
            main(["pretrain", "--text", str(workdir / name), *SCRATCH, "--out", str(tmp_path / "out"), "--json"])
        codes.append(ended.value.code)
    assert codes == [2, 0]
    assert json.loads(capsys.readouterr().out)["steps"] == 2


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_folder_of_others_is_never_removed(workdir, tmp_path, options, capsys):
    from danseo.cli import main

    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(SystemExit) as ended:
        main(["pretrain", "--text", str(workdir / "good.txt"), *SCRATCH, "--out", str(tmp_path), *options])
    assert ended.value.code == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").is_file()


def test_broken_checkpoint_among_others_is_a_row(workdir, tmp_path, capsys):
    from danseo.cli import main

    options = ["--quick", "--precision", "fp32", "--device", "cpu", "--output-dir", str(tmp_path / "out"), "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["probe", str(workdir / "maskless"), str(workdir / "good"), *options])
    assert ended.value.code == 3
    assert [record["status"] for record in json.loads(capsys.readouterr().out)["records"]] == ["failed", "ok"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("train/ids.bin", b"abc", "corrupted"),
        ("train/rows.bin", b"abc", "corrupted"),
        ("held_out/marks.bin", None, "corrupted"),
        ("facts.json", b"{}", "field 'dtype' is missing"),
        ("dataset.json", b"[]", "should be an object"),
        ("dataset.json", b'{"tokenizer": "x"}', "field 'seq_len' is missing"),
    ],
)
def test_corrupted_dataset_gives_one_line(workdir, name, content, words, tmp_path):
    from transformers import AutoTokenizer

    shutil.copytree(workdir / "dataset", tmp_path / "dataset")
    if content is None:
        (tmp_path / "dataset" / name).unlink()
    else:
        (tmp_path / "dataset" / name).write_bytes(content)
    with pytest.raises(DanseoError, match=words):
        open_dataset(tmp_path / "dataset", AutoTokenizer.from_pretrained(workdir / "good"))
