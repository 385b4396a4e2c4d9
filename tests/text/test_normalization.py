"""Texts in other normal forms, and texts that look like special tokens: the same answers about the original text."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unicodedata import is_normalized, normalize

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from danseo.models.encoder.model import Encoder
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import SPECIALS
from danseo.records import DialogueExample, ParseExample, QuestionExample, RelationExample
from danseo.tasks import TASKS
from danseo.text.normalization import compose, normalize_text
from danseo.training.distributed import Workers
from tests.forms import decompose, decompose_example
from tests.tiny import quick_config, read_split, tiny_encoder

MARKERS = ("<subj>", "</subj>", "<obj>", "</obj>")

KOREAN = "한국은행 총재는 café에서 ㅋㅋ 웃었다. 걷다, 값, 뷁! 2024년 李 대통령 \uf98e225만원 ㅠㅠ"
NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))


# Normalization


@pytest.mark.parametrize(
    ("text", "normalized", "starts"),
    [
        ("한글", "한글", None),
        (decompose("한글"), "한글", [0, 3, 6]),
        (decompose("가 나ᄏ"), "가 나ㅋ", [0, 2, 3, 5, 6]),
        ("\u110f\u110f \u1172\u1172", "ㅋㅋ ㅠㅠ", None),  # what NFKC makes of such letters
        ("한", "한", [0, 2]),  # half composed
        ("ᄀ갛ᇂ", "ㄱ갛ㅎ", [0, 1, 3, 4]),
        ("cafe\u0301!", "café!", [0, 1, 2, 3, 5, 6]),
        ("\uf98e5", "年5", [0, 1, 2]),  # a hanja with another code for its second reading
        ("ᄒᆞᆫ글", "ㅎᆞㄴ글", None),  # old Hangul composes to nothing
        ("ㄱㅏ ﾡￂ", "ㄱㅏ ﾡￂ", None),  # letters of their own and half-width ones do not compose by themselves
        ("👨\u200d👩\u200d👧 ❤\ufe0f", "👨\u200d👩\u200d👧 ❤\ufe0f", None),
        ("", "", None),
    ],
)
def test_normalization(text, normalized, starts):
    assert normalize_text(text) == (normalized, starts)


@pytest.mark.parametrize("text", [KOREAN, "ᄒᆞᆫ글 〮가", "ộ ṩ क़ം가\u0301각\u0323\u0301"])
def test_normal_forms_give_the_same_text_and_cover_the_original(text):
    composed = normalize("NFC", text)
    for form in ("NFC", "NFD"):
        original = normalize(form, text)
        result = normalize_text(original)
        assert result.text == normalize_text(composed).text
        spans = result.to_original([(k, k + 1) for k in range(len(composed))])
        assert "".join(original[start:end] for start, end in spans) == original


# Tokenizers


def bert(texts: list[str], lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(special_tokens=[*SPECIALS], show_progress=False))
    return tokenizer


def unigram(texts: list[str], normalizer: object) -> Tokenizer:
    """As in SentencePiece, special tokens are in the vocabulary like any other."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(special_tokens=[*SPECIALS], unk_token="[UNK]", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def byte_level(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=[*SPECIALS], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def words(texts: list[str]) -> Tokenizer:
    known = dict.fromkeys([*SPECIALS, *(word for text in texts for word in text.split())])
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(known)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


TOKENIZERS: dict[str, Callable[[list[str]], Tokenizer]] = {
    "bert": lambda texts: bert(texts, lowercase=False),
    "uncased bert": lambda texts: bert(texts, lowercase=True),
    "unigram": lambda texts: unigram(texts, None),
    "unigram NFC": lambda texts: unigram(texts, normalizers.NFC()),
    "unigram NFKC": lambda texts: unigram(texts, normalizers.NFKC()),
    "bytes": byte_level,
    "words": words,
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def encoder_tokenizer(request) -> EncoderTokenizer:
    texts = [KOREAN, "서울에서 [ SEP ] MASK < subj > 대괄호 안 글자 PAD CLS", "ㅋㅋ ㅠㅠ 하하"] * 3
    tokenizer = TOKENIZERS[request.param](texts)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **NAMES)
    fast.add_special_tokens({"additional_special_tokens": list(MARKERS)})
    return EncoderTokenizer(fast, 128)


def covered(text: str, offsets: list[tuple[int, int]]) -> list[str]:
    return [normalize("NFC", text[start:end]) for start, end in offsets]


@pytest.mark.parametrize("text", [KOREAN, "ㄱㅏㄴ ﾡￂ ᄒᆞᆫ글 👨\u200d👩\u200d👧", "값 x̣́ 각\u0301"])
def test_composed_and_decomposed_text_have_the_same_tokens(encoder_tokenizer, text):
    texts = [normalize("NFC", text), normalize("NFD", text)]
    composed, decompose_example, given = encoder_tokenizer.tokenize([*texts, text])
    assert given.ids == composed.ids
    assert decompose_example.ids == composed.ids
    assert decompose_example.tokens == composed.tokens
    spans = [cut.trimmed_offsets() for cut in (composed, decompose_example)]
    assert covered(texts[0], spans[0]) == covered(texts[1], spans[1])
    if "가" <= normalize("NFC", text)[0] <= "힣":
        assert texts[1][: spans[1][0][1]] == decompose(texts[0][: spans[0][0][1]]), (
            "the first token covers whole syllables"
        )


LITERALS = [token for token in (*SPECIALS, *MARKERS) if token != "[UNK]"]


@pytest.mark.parametrize("text", ["서울 {} 안", "{}", "안{}녕", "{}{}", "[{}] 글자", "{} 안 {}", decompose("글자{}안")])
def test_text_that_looks_like_special_tokens_is_ordinary(encoder_tokenizer, text):
    forbidden = {encoder_tokenizer.token_id(literal) for literal in LITERALS}
    for literal in LITERALS:
        (cut,) = encoder_tokenizer.tokenize([text.replace("{}", literal)])
        assert not forbidden & set(cut.ids), cut.tokens
        spans = [span for span in cut.trimmed_offsets() if span[0] < span[1]]
        assert spans == sorted(spans)
        seen = {position for start, end in spans for position in range(start, end)}
        assert seen == {position for position, character in enumerate(cut.text) if character != " "}, "nothing is lost"
        joined = encoder_tokenizer.add_special_tokens(cut)
        assert [joined.ids[0], joined.ids[-1]] == [
            encoder_tokenizer.token_id("[CLS]"),
            encoder_tokenizer.token_id("[SEP]"),
        ]
        assert not forbidden & set(joined.ids[1:-1])


def test_full_width_letters_are_no_special_token(encoder_tokenizer):
    (cut,) = encoder_tokenizer.tokenize(["서울 ［ＳＥＰ］ 안"])
    assert encoder_tokenizer.token_id("[SEP]") not in cut.ids


# Every task head

HEADS = [*((task, "default") for task in ("ynat", "nli", "sts", "ner", "re", "dp", "mrc", "wos")),
         *((task, "official") for task in ("ner", "re", "dp", "mrc", "wos"))]  # fmt: skip


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def encoder(request, sample: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / request.param
    return tiny_encoder(folder, sample, request.param, layers=1, positions=512)


@pytest.mark.parametrize("task", [task for task, architecture in HEADS if architecture == "default"])
def test_every_head_answers_decomposed_text_like_composed(encoder, sample, task):
    config = quick_config(task, encoder, max_length=96)
    model = Encoder(config, TASKS[task], Workers("cpu"))
    examples = read_split(sample, task, "dev", 12)
    pairs = zip(examples, model.predict(examples), model.predict([*map(decompose_example, examples)]), strict=True)
    for example, one, other in pairs:
        assert other.guid == one.guid
        assert other.probabilities == pytest.approx(one.probabilities)
        check_answer(task, example, one, other)


def check_answer(task, example, one, other):
    if task == "ner":
        assert len(other.answer) == len(decompose(example.text))
        position = 0
        for character, tag in zip(example.text, one.answer, strict=True):
            size = len(decompose(character))
            assert other.answer[position : position + size] == (tag, *[tag.replace("B-", "I-")] * (size - 1))
            position += size
    elif task == "mrc":
        assert normalize("NFC", other.answer) == one.answer
        assert (other.span is None) == (one.span is None)
        if one.span:
            assert decompose(example.text)[slice(*other.span)] == other.answer
            assert other.span == tuple(len(decompose(example.text[:position])) for position in one.span)
    else:
        assert other.answer == (pytest.approx(one.answer) if task == "sts" else one.answer)


@pytest.mark.parametrize("task", ["ynat", "ner", "re"])
def test_official_architecture_normalizes_nothing(encoder, sample, task, monkeypatch):
    """KLUE's own code normalizes nothing: 76 of the 36,547 titles of TC hold hanja that composing would change."""
    model = Encoder(quick_config(task, encoder, architecture="official"), TASKS[task], Workers("cpu"))
    read: list[str] = []
    encode = model.task_head.tokenizer._encode
    monkeypatch.setattr(model.task_head.tokenizer, "_encode", lambda texts: [read.extend(texts), encode(texts)][1])
    (example,) = read_split(sample, task, "dev", 1)
    gold = {"gold": (*example.gold, "O", "O", "O")} if task == "ner" else {}
    model.predict([replace(example, text=f"{example.text} \uf98eᄏ", **gold)])
    assert any("\uf98e" in text for text in read)
    assert any("ᄏ" in text for text in read)


def test_number_of_titles_that_are_not_composed(real_data):
    titles = [example.text for example in read_split(real_data, "ynat", "train")]
    assert (sum(not is_normalized("NFC", title) for title in titles), len(titles)) == (76, 36547)


def add_noise(example):
    """Return the example with words that look like special tokens."""
    noise = "[SEP] <subj> [CLS][MASK] [PAD] </obj> "
    if isinstance(example, DialogueExample):
        return replace(example, turns=tuple(noise + turn for turn in example.turns))
    if isinstance(example, ParseExample):
        return replace(example, words=(*example.words[:-1], "[SEP]" + example.words[-1]))
    if isinstance(example, QuestionExample):
        return replace(example, text=noise + example.text, question=noise + example.question)
    if isinstance(example, RelationExample):
        moved = {
            role: replace(entity, start=entity.start + len(noise), end=entity.end + len(noise))
            for role, entity in (("subject", example.subject), ("object", example.object))
        }
        return replace(example, text=noise + example.text, **moved)
    return replace(example, text=noise + example.text, pair=example.pair and noise + example.pair)


@pytest.mark.parametrize(("task", "architecture"), HEADS)
def test_no_head_reads_text_as_special_tokens(encoder, sample, task, architecture):
    config = quick_config(task, encoder, architecture=architecture, max_length=512)
    task_head = Encoder(config, TASKS[task], Workers("cpu")).task_head
    special = {*task_head.tokenizer.hf_tokenizer.all_special_ids, *map(task_head.tokenizer.token_id, MARKERS)} - {
        task_head.tokenizer.unk_id
    }
    assert len(special) >= 4
    examples = read_split(sample, task, "dev", 3)  # of wos the first turns, which are short
    counts = []
    for some in (examples, [*map(add_noise, examples)]):
        features = task_head.encode(some, with_gold=False)
        assert not any(record.fields["truncated"] for record in features)
        counts.append({(record.example, sum(id in special for id in record.ids)) for record in features})
    assert counts[0] == counts[1]


MARKS = "\u0301\u0323\u0334\u0f71\u0f73\u0344"  # of several classes, two of them double


def test_long_runs_of_marks_compose_as_short_ones_do():
    rng = random.Random(7)
    for _ in range(200):
        text = "".join(rng.choice(f"가각e -{MARKS * 3}") for _ in range(rng.randint(1, 90)))
        assert compose(text) == normalize("NFC", text)
        assert normalize_text(text).text == normalize_text(compose(text)).text


@pytest.mark.parametrize("unit", ["\u0301\u0323", "\u0f73", "e\u0301"])
def test_time_grows_with_the_length_of_a_text(unit):
    """Sixteen times the text may take forty times as long on a busy machine, not the square of it."""
    texts = [f"가\u0301{unit * (size // len(unit))}" for size in (4_000, 64_000)]
    for read in (normalize_text, compose):
        short, long = (min(_seconds(read, text) for _ in range(3)) for text in texts)
        assert long < 40 * short + 0.5


def _seconds(read: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    read(text)
    return time.process_time() - began
