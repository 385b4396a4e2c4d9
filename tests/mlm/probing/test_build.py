"""Probe sets: rules, quotas, splits, LAMBADA gaps, overlap, and the bundled set."""

import gzip
import json
import unicodedata
from importlib.metadata import version
from pathlib import Path

import pytest

from danseo.errors import DataError
from danseo.mlm.overlap import OverlapCounter
from danseo.mlm.probing import items as items_module
from danseo.mlm.probing.build import build_sets, find_gap
from danseo.mlm.probing.items import hash_items, read_bundled_items, read_items, write_items
from danseo.mlm.probing.repeated_nouns import BuildOptions, choose_split, collect_repeated_nouns, find_repeated_nouns
from danseo.text.documents import Document, hash_text, read_documents, split_passages
from danseo.text.morphology import KiwiAnalyser, Noun
from tests.tiny import read_split

from .tiny import FakeAnalyser

SAMPLE = Path(items_module.__file__).parent / "sample"
SENTENCES = "정부는 새 정책을 내놓았다. 시민은 정책에 놀랐다. 학교는 정부의 결정을 따랐다. 시민은 학교에 모였다. "
QUICK = BuildOptions(min_chars=30)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "news.txt"
    path.write_text("\n\n".join(f"= 글 {k} =\n{SENTENCES}{k}번째 기사다." for k in range(40)), encoding="utf-8")
    return path


def test_golden_builder(golden):
    case = golden["builder"]
    words = [Noun(*token) for token in case["tokens"]]
    pairs = find_repeated_nouns(words, case["text_length"], BuildOptions(min_chars=case["min_chars"]))
    expected = [(item["target"], tuple(item["masked_span"])) for item in case["expected_items"]]
    assert [(second.form, (second.start, second.end)) for _, second in pairs] == expected
    assert find_repeated_nouns(words, 99, BuildOptions()) == []
    assert find_repeated_nouns([*words, Noun("그", "NP", 100, 101)], 120, BuildOptions()) == []
    assert find_repeated_nouns(words[:5], 120, BuildOptions()) == []


def test_quotas_are_those_of_earlier_results(golden):
    for case in golden["limits"]:
        if case["scale"] == 1:
            assert BuildOptions(limit=case["limit"]).quota("kowiki", 2) == case["per_source"]


def test_dev_and_test_share_no_document(text):
    built = collect_repeated_nouns([text], QUICK, FakeAnalyser())
    dev, test = ({item.document for item in built.items[split]} for split in ("dev", "test"))
    assert dev and test and not dev & test  # noqa: PT018
    for item in built.items["dev"]:
        assert item.text[slice(*item.span)] == item.target == item.text[slice(*item.antecedent)]
        assert item.distance == item.span[0] - item.antecedent[1]
        assert item.target in item.candidates
        assert choose_split(item.document, 999) == "dev"


def test_dev_and_test_share_no_text_under_other_names(tmp_path):
    """Every text is there three times, once with other white space and in decomposed Hangul."""
    texts = [f"{SENTENCES}{k}번째 기사다." for k in range(30)]
    copies = [unicodedata.normalize("NFD", text).replace(" ", "  ") for text in texts]
    for name, part in (("news", texts), ("again", texts), ("spread", copies)):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(part), encoding="utf-8")
    options = BuildOptions(min_chars=30, quotas={})
    built = collect_repeated_nouns(
        [tmp_path / "news.txt", tmp_path / "again.txt", tmp_path / "spread.txt"], options, Composing()
    )
    hashes = {split: {hash_text(item.text) for item in built.items[split]} for split in ("dev", "test")}
    assert not hashes["dev"] & hashes["test"]
    assert len(hashes["dev"] | hashes["test"]) == 30
    assert built.counts["repeated passages"] == 60
    ids = [item.id for items in built.items.values() for item in items]
    assert len(set(ids)) == len(ids)


class Composing(FakeAnalyser):
    """Finds the nouns of decomposed text too, where they are."""

    def find_nouns(self, texts):
        for text in texts:
            composed = unicodedata.normalize("NFC", text)
            (words,) = super().find_nouns([composed])
            yield words if composed == text else [_decomposed(word, composed) for word in words]


def _decomposed(word: Noun, text: str) -> Noun:
    start, end = (len(unicodedata.normalize("NFD", text[:position])) for position in (word.start, word.end))
    return Noun(unicodedata.normalize("NFD", word.form), word.tag, start, end)


def test_document_of_both_splits_stays_in_one(tmp_path):
    rows = [
        {
            "text": f"{SENTENCES}{k} 시민은 _에 갔다.",
            "answer": "학교",
            "split": ("dev", "test")[k % 2],
            "source": f"책{k // 3}",
        }
        for k in range(30)
    ]
    rows += [{**row, "split": ("dev", "test")[k % 2], "source": f"남{k}"} for k, row in enumerate(rows[1:])]
    path = tmp_path / "cloze.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    made = build_sets([], tmp_path / "out", QUICK, FakeAnalyser(), str(path))
    for key in (lambda item: item.document, lambda item: hash_text(item.text)):
        dev, test = ({key(item) for item in made.items[split]} for split in ("dev", "test"))
        assert dev and test and not dev & test  # noqa: PT018
    kept = sum(len(items) for items in made.items.values())
    assert kept + made.manifest["counts"]["lambada rows of the other split"] == len(rows)


def test_source_below_its_quota_gives_one_line(text):
    with pytest.raises(DataError, match=r"news yields \d+ of 500 items for dev"):
        collect_repeated_nouns([text], BuildOptions(min_chars=30, limit=500), FakeAnalyser())
    with pytest.raises(DataError, match="no source 'wiki'"):
        collect_repeated_nouns([text], BuildOptions(quotas={"wiki": 5}), FakeAnalyser())
    built = collect_repeated_nouns([text], BuildOptions(min_chars=30, limit=10), FakeAnalyser())
    assert [len(built.items[split]) for split in ("dev", "test")] == [10, 10]


def test_items_per_document_are_limited(tmp_path):
    path = tmp_path / "book.jsonl"
    rows = [{"id": f"b{k}", "text": "\n".join(f"{SENTENCES}{k} {n}장이다." for n in range(60))} for k in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    built = collect_repeated_nouns([path], BuildOptions(min_chars=30, passage=100), FakeAnalyser())
    counts = [len([i for i in built.items[s] if i.document == f"b{k}"]) for k in range(6) for s in ("dev", "test")]
    assert max(counts) == 12


def test_lambada_masks_the_last_mention(golden):
    for case in golden["lambada_mask"]["cases"]:
        whole, (start, end) = find_gap(case["text"], case["answer"])
        good = case["seed_rule"] if case["good"] == "same" else case["good"]
        assert f"{whole[:start]}[MASK]{whole[end:]}" == good
        assert whole[start:end] == case["answer"]
    assert find_gap("사람은 아버지", "어머니") is None
    assert find_gap("어머니는 _에게 갔다.", "어머니") == ("어머니는 어머니에게 갔다.", (5, 8))


def test_rows_without_a_gap_are_dropped_and_counted(tmp_path, text):
    path = tmp_path / "cloze.jsonl"
    rows = [{"text": f"{SENTENCES}{k} 시민은 _에 갔다.", "answer": "학교", "candidate": "정부"} for k in range(20)]
    rows.append({"text": SENTENCES, "answer": "은행"})
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    made = build_sets([text], tmp_path / "out", QUICK, FakeAnalyser(), str(path), [text])
    assert made.manifest["counts"]["lambada rows without a gap"] == 1
    assert made.manifest["overlap"]["dev"]["overlapping"] >= len([i for i in made.items["dev"] if i.kind == "repeated"])
    back = read_items(tmp_path / "out", "test")
    assert back == made.items["test"]
    assert hash_items(back) == made.manifest["sets"]["test"]["hash"]
    lambada = [item for item in back if item.kind == "lambada"]
    assert lambada
    assert all(item.given == ("정부",) for item in lambada)
    assert all(item.baselines["unigram"] for item in back)


def test_documents_of_all_file_formats(tmp_path):
    (tmp_path / "a.txt").write_text("= 하나 =\n첫 줄\n둘째 줄\n\n다른 글", encoding="utf-8")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"title": "셋", "content": "본문"}) + "\n")
    found = list(read_documents("src", tmp_path))
    assert [(each.id, each.text) for each in found] == [("하나", "첫 줄\n둘째 줄"), ("a:2", "다른 글"), ("셋", "본문")]
    for encoding in ("cp949", "utf-16"):
        (tmp_path / "c.txt").write_bytes("첫 줄\n둘째 줄".encode(encoding))
        assert [each.text for each in read_documents("src", tmp_path / "c.txt")] == ["첫 줄\n둘째 줄"]
    assert list(split_passages(Document("d", "s", "가나\n다라\n마바"), 5)) == ["가나\n다라", "마바"]


def test_bad_items_are_refused(tmp_path):
    item = read_bundled_items()[0]
    line = json.loads(item.to_json_line()) | {"span": [0, 3]}
    (tmp_path / "items.jsonl").write_text(json.dumps(line), encoding="utf-8")
    with pytest.raises(DataError, match="does not hold the target"):
        read_items(tmp_path / "items.jsonl")
    write_items(tmp_path / "twice.jsonl", [item, item])
    with pytest.raises(DataError, match="more than once"):
        read_items(tmp_path / "twice.jsonl")
    with pytest.raises(DataError, match="danseo data probes"):
        read_items(tmp_path, "dev")


def test_bundled_set_is_large_enough_and_split():
    dev, test = read_bundled_items("dev"), read_bundled_items("test")
    for found in (dev, test):
        kinds = [item.kind for item in found]
        assert kinds.count("repeated") >= 100
        assert kinds.count("lambada") >= 30
    assert not {item.document for item in dev} & {item.document for item in test}


def test_bundled_set_is_built_from_its_text(tmp_path):
    pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")
    if read_bundled_items()[0].analyser != f"kiwipiepy {version('kiwipiepy')}":
        pytest.skip("another Kiwi finds other nouns")
    source = SAMPLE / "danseo.jsonl"
    made = build_sets([source], tmp_path, BuildOptions(), KiwiAnalyser(1), str(source))
    assert {split: hash_items(found) for split, found in made.items.items()} == {
        split: hash_items(read_bundled_items(split)) for split in ("dev", "test")
    }


def test_klue_texts_are_sources_of_their_own(sample, tmp_path):
    options = BuildOptions(min_chars=30)
    made = build_sets([Path("klue:ner,mrc")], tmp_path / "out", options, FakeAnalyser(), data_dir=str(sample))
    items = [item for part in made.items.values() for item in part]
    assert {item.source for item in items} == set(made.manifest["sources"]) == {"klue:ner", "klue:mrc"}
    texts = {example.text for task in ("ner", "mrc") for example in read_split(sample, task, "train")}
    dev = {example.text for task in ("ner", "mrc") for example in read_split(sample, task, "dev")}
    assert {item.text for item in items} <= texts - dev
    assert sum(row[2] for row in made.tables()[1].rows) == len(items)


def test_an_article_and_its_passage_in_klue_are_in_one_split(sample, tmp_path):
    """A longer text that contains a passage of KLUE, in every split: no item of one split is in the other."""
    passages = {example.text for example in read_split(sample, "mrc", "train")}
    (tmp_path / "wiki.txt").write_text("\n\n".join(f"{text} 끝." for text in sorted(passages)), encoding="utf-8")
    paths = [tmp_path / "wiki.txt", Path("klue:mrc")]
    options = BuildOptions(min_chars=30)
    made = build_sets(
        paths, tmp_path / "out", options, FakeAnalyser(), against=[tmp_path / "wiki.txt"], data_dir=str(sample)
    )
    assert made.manifest["counts"]["items with text of the other split"] > 0
    counter = OverlapCounter(made.items["dev"])
    assert not any(counter.match(item.text) for item in made.items["test"])
    for split, part in made.items.items():
        assert made.manifest["overlap"][split]["by_source"]["wiki"] == sum(item.source == "wiki" for item in part)


def test_dialogues_have_no_passages(sample, tmp_path):
    with pytest.raises(DataError, match="dialogues"):
        build_sets([Path("klue:wos")], tmp_path / "out", QUICK, FakeAnalyser(), data_dir=str(sample))
