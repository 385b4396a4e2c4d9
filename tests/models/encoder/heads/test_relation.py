from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from danseo.data.prediction_file import read_predictions, write_predictions
from danseo.models.encoder.heads.base import log_softmax
from danseo.models.encoder.heads.entity_markers import between_markers, marker_order
from danseo.models.encoder.heads.entity_windows import MarkedSentence, truncate_sentence
from danseo.models.encoder.heads.relation import RelationHead
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import EncoderSize, train_tokenizer
from danseo.records import Entity, RelationExample
from danseo.scoring.score import measure
from danseo.tasks import TASKS
from tests.tiny import kind_settings

MARKERS = ("<subj>", "</subj>", "<obj>", "</obj>")
WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] 조지 해리 ##슨 이 ##이 쓰 ##고 비틀즈 가 ##가 낸 앨범 . ( 밴드 는 을 ##을 런던 "
    "출신 ##의 , 1969 ##년 … 한국 은행 ##은행 한국은행 ##장"
).split()

# The official processor's tokens with such a vocabulary; ends are inclusive.
OFFICIAL = [
    ("조지 해리슨이 쓰고 비틀즈가 낸 앨범.", (11, 13), (0, 5),
     "[CLS] <obj> 조지 해리 ##슨 </obj> ##이 쓰 ##고 <subj> 비틀즈 </subj> ##가 낸 앨범 . [SEP]"),
    ("비틀즈(밴드)는 앨범을 낸 밴드.", (0, 2), (9, 10),
     "[CLS] <subj> 비틀즈 </subj> ( 밴드 [UNK] 는 <obj> 앨범 </obj> ##을 낸 밴드 . [SEP]"),
    ("런던 출신의 비틀즈 는 밴드.", (7, 9), (0, 1),
     "[CLS] <obj> 런던 </obj> 출신 ##의 <subj> 비틀즈 </subj> 는 밴드 . [SEP]"),
    ("비틀즈, 1969년 앨범을 낸 밴드.", (0, 2), (5, 9),
     "[CLS] <subj> 비틀즈 </subj> , <obj> 1969 ##년 </obj> 앨범 ##을 낸 밴드 . [SEP]"),
    ("조지 해리슨이 낸 앨범.", (0, 5), (10, 11),
     "[CLS] <subj> 조지 해리 ##슨 </subj> ##이 낸 <obj> 앨범 </obj> . [SEP]"),
]  # fmt: skip


def with_markers(tokenizer, longest=128):
    tokenizer.add_special_tokens({"additional_special_tokens": list(MARKERS)})
    return EncoderTokenizer(tokenizer, longest)


@pytest.fixture(scope="module")
def toy():
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return with_markers(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
        )
    )


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def trained(request, sample: Path):
    texts = [e.text for e in read(sample)]
    size = EncoderSize(layers=2, hidden=64, heads=2, vocabulary=2000, positions=128)
    return with_markers(train_tokenizer(texts, request.param, size))


def read(sample: Path, split: str = "train"):
    return TASKS["re"].read(sample / "klue-re-v1.1" / f"klue-re-v1.1_{split}.json")


def example(text, subject, object, gold="no_relation"):
    (a, b), (c, d) = subject, object
    return RelationExample("x", text, Entity(text[a:b], a, b, "PER"), Entity(text[c:d], c, d, "ORG"), gold)


def encode(tokenizer, *examples, **settings):
    return RelationHead(TASKS["re"], tokenizer, *kind_settings(**settings)).encode(examples, with_gold=False)


def tokens_of(tokenizer, record):
    return " ".join(tokenizer.hf_tokenizer.convert_ids_to_tokens(record.ids))


def check_markers(tokenizer, features):
    expected = [tokenizer.token_id(marker) for marker in MARKERS]
    for record in features:
        assert [record.ids[position] for position in record.fields["markers"]] == expected
        assert sum(record.ids.count(marker) for marker in expected) == 4


@pytest.mark.parametrize(("text", "subject", "object", "tokens"), OFFICIAL)
@pytest.mark.parametrize("architecture", ["official", "default"])
def test_official_tokens(toy, text, subject, object, tokens, architecture):
    case = example(text, (subject[0], subject[1] + 1), (object[0], object[1] + 1))
    record = encode(toy, case, architecture=architecture)[0]
    assert tokens_of(toy, record) == tokens
    check_markers(toy, [record])
    assert not record.fields["truncated"]


def test_pieces_over_a_border_are_cut_anew(toy):
    inside = example("한국은행장이 낸 앨범.", (0, 2), (7, 8))
    assert tokens_of(toy, encode(toy, inside)[0]) == (
        "[CLS] <subj> 한국 </subj> ##은행 ##장 ##이 <obj> 낸 </obj> 앨범 . [SEP]"
    )
    middle = example("한국은행장이 낸 앨범.", (2, 4), (4, 5))
    assert tokens_of(toy, encode(toy, middle)[0]) == (
        "[CLS] 한국 <subj> ##은행 </subj> <obj> ##장 </obj> ##이 낸 앨범 . [SEP]"
    )


def test_sentencepiece_continuations_have_no_word_mark():
    tokenizer = Tokenizer(models.Unigram([("[PAD]", 0), ("[UNK]", 0), ("[CLS]", 0), ("[SEP]", 0), *(
        (token, -1.0) for token in ("▁비틀즈가", "▁비틀즈", "▁가", "가", "▁", "▁런던", "런던", "에", "▁갔다")
    )], unk_id=1))  # fmt: skip
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = with_markers(
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
        )
    )
    case = example("비틀즈가 런던에 갔다", (0, 3), (5, 7))
    expected = "[CLS] <subj> ▁비틀즈 </subj> 가 <obj> ▁런던 </obj> 에 ▁갔다 [SEP]"
    assert tokens_of(tokenizer, encode(tokenizer, case)[0]) == expected
    official = tokens_of(tokenizer, encode(tokenizer, case, architecture="official")[0])
    assert official == expected.replace("<obj>", "▁ <obj>")  # the lone space before the marker


@pytest.mark.parametrize("architecture", ["default", "official"])
@pytest.mark.parametrize(
    ("subject", "object", "marked"),
    [
        ((0, 3), (10, 12), "<subj>비틀즈</subj>가 낸 런던 <obj>앨범</obj>"),
        ((10, 12), (10, 12), "비틀즈가 낸 런던 <subj><obj>앨범</obj></subj>"),
        ((7, 9), (7, 12), "비틀즈가 낸 <obj><subj>런던</subj> 앨범</obj>"),
        ((7, 12), (10, 12), "비틀즈가 낸 <subj>런던 <obj>앨범</obj></subj>"),
        ((0, 9), (7, 12), "<subj>비틀즈가 낸 <obj>런던</subj> 앨범</obj>"),
        ((0, 3), (3, 4), "<subj>비틀즈</subj><obj>가</obj> 낸 런던 앨범"),
    ],
)
def test_spans_at_the_end_equal_nested_overlapping_and_adjacent(toy, subject, object, marked, architecture):
    case = example("비틀즈가 낸 런던 앨범", subject, object)
    markers = [MARKERS[marker] for _, marker in marker_order(case)]
    assert "".join(chain.from_iterable(zip_longest(between_markers(case), markers, fillvalue=""))) == marked
    record = encode(toy, case, architecture=architecture)[0]
    check_markers(toy, [record])
    words = tokens_of(toy, record).replace(" ##", "").replace("##", "").replace(" ", "")
    assert words == f"[CLS]{marked}[SEP]".replace(" ", "")


def test_no_window_loses_a_marker_or_a_piece_that_fits():
    rng = np.random.default_rng(7)
    for _ in range(2000):
        length = int(rng.integers(4, 80))
        a, b, c, d = map(int, np.sort(rng.choice(length, 4, replace=False)))
        positions = [[a, b, c, d], [c, d, a, b], [a, d, b, c], [a, c, b, d]][rng.integers(4)]
        budget = int(rng.integers(4, length + 1))
        if budget == length:
            continue
        ids = list(range(100, 100 + length))
        fitted = truncate_sentence(MarkedSentence(ids, positions, [1] * 4), budget, gap=1)
        mode, kept, new = fitted.mode, fitted.ids, fitted.positions
        assert [kept[position] for position in new] == [ids[position] for position in positions], mode
        assert len(kept) <= budget
        own = [token for token in kept if token != 1]
        assert own == sorted(set(own))  # in order, nothing twice
        for start, end in ((new[0], new[1]), (new[2], new[3])):
            assert mode == "squeezed" or 1 not in kept[start:end]


@pytest.mark.parametrize("longest", [128, 24, 12, 6])
def test_sample_encodes_with_every_marker(trained, sample: Path, longest):
    examples = read(sample)
    features = RelationHead(TASKS["re"], trained, *kind_settings(max_length=longest)).encode(examples, with_gold=True)
    check_markers(trained, features)
    assert all(len(record) <= longest for record in features)
    assert [TASKS["re"].labels[f.fields["label"]] for f in features] == [e.gold for e in examples]
    if longest == 128:
        codes = {(e.text, e.subject, e.object): tuple(f.ids) for e, f in zip(examples, features, strict=True)}
        assert len(set(codes.values())) == len(codes)
    else:
        assert any(f.fields["truncated"] for f in features)


def test_official_cuts_on_the_right(toy):
    case = example("비틀즈가 낸 앨범 앨범 앨범 앨범 런던", (0, 3), (19, 21))
    record = encode(toy, case, architecture="official", max_length=10)[0]
    assert len(record) == 10
    assert record.fields["truncated"]
    assert record.fields["markers"] == (1, 3, -1, -1)


def test_real_vocabulary(real_data: Path, tmp_path: Path):
    from transformers import AutoTokenizer

    (tmp_path / "vocab.txt").write_bytes((real_data.parent / "tokenizers" / "klue-vocab.txt").read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "do_lower_case": false}')
    tokenizer = with_markers(AutoTokenizer.from_pretrained(tmp_path), 512)
    assert len(tokenizer.hf_tokenizer) == 32004
    examples = TASKS["re"].read(real_data / "klue-re-v1.1" / "klue-re-v1.1_train.json.gz")[:2000]
    features = encode(tokenizer, *examples)
    check_markers(tokenizer, features)
    assert tokens_of(tokenizer, features[0]).startswith(
        "[CLS] 〈 So ##me ##th ##ing 〉 는 <obj> 조지 해리 ##슨 </obj> ##이 쓰 ##고 <subj> 비틀즈 </subj> ##가 1969"
    )
    assert {f.fields["window"] for f in features} == {"whole", "window"}


def test_the_area_of_a_confident_model_survives_its_file(toy, sample: Path, tmp_path: Path):
    """Six decimals make the surest answers equal, and the area under the curve ranks them."""
    task, examples = TASKS["re"], read(sample, "dev")
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(len(examples), len(task.labels)))
    logits[np.arange(len(examples)), [task.labels.index(e.gold) for e in examples]] += 2.5
    logits = (12 * logits).astype(np.float32)
    task_head = RelationHead(task, toy, *kind_settings())
    predictions = task_head.decode(examples, [], [{"logits": row} for row in logits])
    write_predictions(tmp_path / "p.jsonl", predictions)
    found = [one.value() for one in areas_of(task, examples, read_predictions(tmp_path / "p.jsonl", task, examples))]
    exact = np.exp(log_softmax(logits.astype(np.float64)))
    rows = [dict(zip(task.labels, row, strict=True)) for row in exact]
    whole = [replace(p, probabilities=row) for p, row in zip(predictions, rows, strict=True)]
    assert found == pytest.approx([one.value() for one in areas_of(task, examples, whole)], abs=1e-9)
    assert all(sum(p.probabilities.values()) == pytest.approx(1) for p in predictions)
    rounded = [replace(p, probabilities={k: round(v, 6) for k, v in p.probabilities.items()}) for p in predictions]
    assert found[-1] - areas_of(task, examples, rounded)[-1].value() > 0.5, "the example shows what rounding costs"


def areas_of(task, examples, predictions):
    scores = measure(task, examples, predictions)
    return [scores["re/auprc@official-1"], scores["re/auprc@ap-1"]]
