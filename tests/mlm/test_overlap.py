"""Texts of probe items are never trained on, and nothing else is left out."""

import json
import random
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from danseo.config.base import parse_assignment, update_config
from danseo.config.mlm import CorefConfig, PretrainConfig
from danseo.errors import DanseoError
from danseo.mlm.coref import CorefJob, prepare_dataset
from danseo.mlm.mentions import require_left_out
from danseo.mlm.overlap import NgramHashes, OverlapFilter, hash_texts
from danseo.mlm.packing import (
    PackedRows,
    is_held_out,
    pack_texts,
    read_left_out,
)
from danseo.mlm.pretraining import PretrainJob, pretrain
from danseo.mlm.probing.items import ProbeItem, read_bundled_items, write_items
from danseo.mlm.run_folder import prepare_packed_rows
from danseo.mlm.tables import pretrain_tables
from danseo.models.new_encoder import EncoderSize, train_tokenizer
from danseo.text.documents import Document
from danseo.training.distributed import Workers
from tests.mlm.conftest import PLAIN, TINY, masked_model
from tests.mlm.test_coref import NAMES, Known

SECRET = (
    "등대지기는 비밀 상자를 열었다. 상자 안에는 낡은 편지가 있었고 편지에는 바다 건너 섬의 이름이 적혀 있었다. "
    "등대지기는 편지를 접고 배를 띄웠다."
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))


def item_of(text: str, document: str = "text:1") -> ProbeItem:
    target = text.split()[0][:2]
    return ProbeItem(document, "s", document, "repeated", text, (0, 2), target, None, None, "", "")


def documents_of(*texts: str) -> list[Document]:
    return [Document(f"text:{number}", "s", text) for number, text in enumerate(texts, 1)]


def test_documents_are_compared_by_text():
    other = "시장은 아침마다 붐볐다. 상인은 과일을 쌓았고 손님은 값을 물었다. 저녁이 되자 모두 집으로 돌아갔다."
    guard = OverlapFilter([item_of(SECRET)])
    spread = SECRET.replace(" ", "  \n")
    kept = guard.filter_documents(
        documents_of(other, SECRET, unicodedata.normalize("NFD", spread), f"{other}\n{SECRET}")
    )
    assert [document.text for document in kept] == [other], "documents are compared by text, not by name"
    counts = guard.as_dict()
    assert (counts["documents_read"], counts["documents"], counts["same_text"], counts["shared_run"]) == (4, 3, 2, 1)
    assert (counts["items"], counts["items_met"], counts["overlap_rate"], counts["words"]) == (1, 1, 1.0, 13)


def test_thirteen_shared_words_exclude_a_document():
    words = SECRET.split()
    for count, kept in ((12, 1), (13, 0)):
        inside = " ".join(["어제는", *words[3 : 3 + count], "말했다."])
        assert len(list(OverlapFilter([item_of(SECRET)]).filter_documents(documents_of(inside)))) == kept
    short = "등대는 등대지기의 집이다."  # a probe of fewer words counts with all of them
    assert not list(OverlapFilter([item_of(short)]).filter_documents(documents_of(f"그때 {short} 그랬다")))
    assert list(OverlapFilter([item_of(short)]).filter_documents(documents_of("등대는 등대지기의 방이다.")))


def test_ngram_hashes_agree_with_a_naive_search():
    rng = random.Random(3)
    texts = [" ".join(rng.choices(("가", "나다", "라", "12", "😀"), k=rng.randrange(40))) for _ in range(200)]
    for length in (1, 3, 13):
        naive = [{tuple(t.split()[k : k + length]) for k in range(len(t.split()) - length + 1)} for t in texts]
        ours = [set(NgramHashes(text).compute(length).tolist()) for text in texts]
        assert [len(a) for a in naive] == [len(b) for b in ours]
        pairs = [(a, b) for a in range(200) for b in range(0, 200, 7)]
        assert all(bool(naive[a] & naive[b]) == bool(ours[a] & ours[b]) for a, b in pairs)


def test_copies_of_a_text_are_in_one_split(passages):
    for text in passages[:60]:
        one, other = documents_of(text, unicodedata.normalize("NFD", text).replace(" ", "\n"))
        assert is_held_out(one, 0.5, "pretrain") == is_held_out(other, 0.5, "pretrain")


def config_of(*settings: str) -> PretrainConfig:
    chosen = (*TINY, *PLAIN, "steps=1", "max_held_out_sequences=8", *settings)
    return update_config(PretrainConfig(), dict(parse_assignment(each, PretrainConfig) for each in chosen))


@pytest.fixture
def leaky(passages, tmp_path) -> Path:
    """A text whose second document is a probe's, under a name that no item knows."""
    path = tmp_path / "renamed.txt"
    path.write_text("\n\n".join([passages[0], SECRET, *passages[1:]]), "utf-8")
    return path


def decode_rows(folder: Path, tokenizer) -> str:
    rows = [row for split in ("train", "held_out") for row in PackedRows(folder / split)]
    return " ".join(tokenizer.decode(row.ids) for row in rows)


def test_packed_rows_hold_no_probe_text(leaky, tokenizers, tmp_path):
    tokenizer = tokenizers["bert"]
    inside = tokenizer.decode(tokenizer(SECRET[:30], add_special_tokens=False)["input_ids"])
    for name, exclude, leaks in (("open", (), True), ("closed", (item_of(SECRET, "original:7"),), False)):
        pack_texts(tmp_path / name, [leaky], tokenizer, config_of(), exclude)
        assert (inside in decode_rows(tmp_path / name, tokenizer)) is leaks
    assert read_left_out(tmp_path / "closed")["same_text"] == 1
    assert read_left_out(tmp_path / "open")["documents"] == 0


def test_cache_depends_on_the_excluded_texts(leaky, tokenizers):
    folders = [
        prepare_packed_rows(config_of(), (leaky,), exclude, tokenizers["bert"], Workers("cpu"))[0]
        for exclude in ((), (item_of(SECRET),), (item_of(SECRET, "other:2"),), (item_of(f"{SECRET} 끝."),))
    ]
    assert folders[1] == folders[2], "the name of an item does not matter"
    assert len(set(folders)) == 3


def test_pretraining_reports_excluded_documents(leaky, tmp_path, monkeypatch):
    monkeypatch.setattr("danseo.mlm.run_folder.probe_headline", lambda *given: {"strict@1": 0.0})
    job = PretrainJob(config_of(), (leaky,), (item_of(SECRET), *read_bundled_items()[:3]), "cpu", quiet=True)
    run = pretrain(job, tmp_path / "run")
    left_out = run.read_json("result.json")["left_out"]
    assert (left_out["documents"], left_out["same_text"], left_out["items"], left_out["items_met"]) == (1, 1, 4, 1)
    assert left_out["overlap_rate"] == 0.25
    (table,) = pretrain_tables(run)
    assert "1 of 201 documents" in table.note
    assert "1 of 4 items (25.0 %)" in table.note
    vocabulary = json.loads((run.path / "start" / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    assert not any("띄" in token for token in vocabulary)


def test_test_split_of_a_probe_folder_is_excluded_too(leaky, tmp_path, monkeypatch):
    from danseo.cli.pretrain import pretrain_command

    seen = []
    monkeypatch.setenv("RANK", "1")  # one that shows nothing
    monkeypatch.setattr("danseo.mlm.pretraining.pretrain", lambda job, out, force, wait: seen.append(job))
    write_items(tmp_path / "probes" / "dev.jsonl", read_bundled_items()[:3])
    write_items(tmp_path / "probes" / "test.jsonl", [item_of(SECRET)])
    for probes in (tmp_path / "probes", tmp_path / "probes" / "dev.jsonl", "sample"):
        pretrain_command.main(["--text", str(leaky), "--probe-items", str(probes)], standalone_mode=False)
    assert [(len(job.probes), len(job.kept_out)) for job in seen[:2]] == [(3, 1), (3, 0)]
    assert (*seen[2].probes, *seen[2].kept_out) == (*read_bundled_items("dev"), *read_bundled_items("test"))


def test_mentions_of_probe_texts_are_excluded(tmp_path):
    secret = (
        "이순신에 대한 글이다. 거북선을 만든 장군은 많은 이야기를 남겼고 그때 이순신의 소식이 바다 건너까지 들렸다."
    )
    texts = [f"{n}번 글. {NAMES[n % 8]}에 오래 살았다. 그때 {NAMES[n % 8]}의 소식이 들렸다." for n in range(40)]
    path, checkpoint = tmp_path / "renamed.txt", tmp_path / "tiny"
    path.write_text("\n\n".join([secret, *texts]), "utf-8")
    tokenizer = train_tokenizer([secret, *texts], "bert", EncoderSize(vocabulary=300))
    for each in (masked_model("bert", tokenizer), tokenizer):
        each.save_pretrained(checkpoint)
    config = update_config(
        CorefConfig(checkpoint=str(checkpoint)), {"mention.min_distance": 3, "mention.held_out_ratio": 0.3}
    )
    job = CorefJob(config, (path,), device="cpu", quiet=True, analyser=Known())
    guarded = replace(job, probes=(item_of(secret, "original:9"),))
    (leaky, _), (tight, _) = prepare_dataset(job), prepare_dataset(guarded)
    assert leaky != tight
    assert read_left_out(tight)["same_text"] == 1
    found = ["거북선을" in decode_rows(folder, tokenizer) for folder in (leaky, tight)]
    assert found == [True, False]
    require_left_out(tight, guarded.probes)
    with pytest.raises(DanseoError, match="1 texts of the probe items"):
        prepare_dataset(replace(guarded, texts=(), dataset=leaky))


def test_tuning_excludes_dev_and_test(tmp_path, monkeypatch):
    from danseo.sweeps.tuning_targets import MaskedTarget

    items = {"dev": read_bundled_items("dev")[:4], "test": read_bundled_items("test")[:4]}
    seen = []
    for module, name in (("pretraining", "pretrain"), ("coref", "coref")):
        monkeypatch.setattr(f"danseo.mlm.{module}.{name}", lambda job, folder: seen.append(job.exclude))
        config = PretrainConfig() if name == "pretrain" else CorefConfig(checkpoint="none")
        target = MaskedTarget(config, (tmp_path,), items, tmp_path, command=name)
        target._train(config, tmp_path / name, lambda step, value: None)
    everything = hash_texts([*items["dev"], *items["test"]])
    assert [hash_texts(exclude) for exclude in seen] == [everything, everything]
