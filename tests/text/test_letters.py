"""Texts in other normal forms, and texts that look like special pieces: the same answers, about the user's own text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from danseo.models.encoder.model import Encoder
from danseo.models.encoder.pieces import Pieces
from danseo.models.scratch import SPECIALS
from danseo.records import DialogueExample, ParseExample, QuestionExample, RelationExample
from danseo.tasks import TASKS
from danseo.text.letters import letters_of
from danseo.training.workers import Workers
from tests.forms import apart, decomposed
from tests.tiny import quick_config, read_split, tiny_encoder

MARKERS = ("<subj>", "</subj>", "<obj>", "</obj>")

KOREAN = "한국은행 총재는 café에서 ㅋㅋ 웃었다. 걷다, 값, 뷁! 2024년 李 대통령 \uf98e225만원 ㅠㅠ"
NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True))


# Letters


@pytest.mark.parametrize(
    ("text", "read", "starts"),
    [
        ("한글", "한글", None),
        (decomposed("한글"), "한글", [0, 3, 6]),
        (decomposed("가 나ᄏ"), "가 나ㅋ", [0, 2, 3, 5, 6]),
        ("\u110f\u110f \u1172\u1172", "ㅋㅋ ㅠㅠ", None),  # what NFKC makes of such letters
        ("한", "한", [0, 2]),  # half composed
        ("ᄀ갛ᇂ", "ㄱ갛ㅎ", [0, 1, 3, 4]),
        ("cafe\u0301!", "café!", [0, 1, 2, 3, 5, 6]),
        ("\uf98e5", "年5", [0, 1, 2]),  # a hanja with a code of its own for its second reading
        ("ᄒᆞᆫ글", "ㅎᆞㄴ글", None),  # old Hangul composes to nothing
        ("ㄱㅏ ﾡￂ", "ㄱㅏ ﾡￂ", None),  # letters of their own and half-width ones do not compose by themselves
        ("👨\u200d👩\u200d👧 ❤\ufe0f", "👨\u200d👩\u200d👧 ❤\ufe0f", None),
        ("", "", None),
    ],
)
def test_what_composes_is_composed_and_what_does_not_is_a_plain_letter(text, read, starts):
    letters = letters_of(text)
    assert letters.text == read
    assert letters.starts == starts


@pytest.mark.parametrize("text", [KOREAN, "ᄒᆞᆫ글 〮가", "ộ ṩ क़ം가\u0301각\u0323\u0301"])
def test_all_normal_forms_read_the_same_and_cover_the_text(text):
    composed = normalize("NFC", text)
    for form in ("NFC", "NFD"):
        given = normalize(form, text)
        letters = letters_of(given, plain=False)
        assert letters.text == composed
        spans = letters.given([(k, k + 1) for k in range(len(composed))])
        assert "".join(given[start:end] for start, end in spans) == given, "every character belongs to one"


def test_parts_cover_what_they_did():
    letters = letters_of(decomposed("가[SEP]나")).parted([2])
    assert letters.text == "가[ SEP]나"
    assert letters.given([(0, 1), (1, 2), (2, 3), (3, 6), (7, 8)]) == [(0, 2), (2, 3), (3, 3), (3, 6), (7, 9)]


# Tokenizers


def bert(texts: list[str], lowercase: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(special_tokens=[*SPECIALS], show_progress=False))
    return tokenizer


def unigram(texts: list[str], normalizer: object) -> Tokenizer:
    """As SentencePiece does, its special pieces are words of the vocabulary like any other."""
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
def pieces(request) -> Pieces:
    texts = [KOREAN, "서울에서 [ SEP ] MASK < subj > 대괄호 안 글자 PAD CLS", "ㅋㅋ ㅠㅠ 하하"] * 3
    tokenizer = TOKENIZERS[request.param](texts)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **NAMES)
    fast.add_special_tokens({"additional_special_tokens": list(MARKERS)})
    return Pieces(fast, 128)


def covered(text: str, offsets: list[tuple[int, int]]) -> list[str]:
    return [normalize("NFC", text[start:end]) for start, end in offsets]


@pytest.mark.parametrize("text", [KOREAN, "ㄱㅏㄴ ﾡￂ ᄒᆞᆫ글 👨\u200d👩\u200d👧", "값 x̣́ 각\u0301"])
def test_composed_and_decomposed_text_are_the_same_pieces_of_each_own_text(pieces, text):
    texts = [normalize("NFC", text), normalize("NFD", text)]
    composed, apart, given = pieces.cut([*texts, text])
    assert given.ids == composed.ids
    assert apart.ids == composed.ids
    assert apart.tokens == composed.tokens
    spans = [cut.trimmed_offsets() for cut in (composed, apart)]
    assert covered(texts[0], spans[0]) == covered(texts[1], spans[1])
    if "가" <= normalize("NFC", text)[0] <= "힣":
        assert texts[1][: spans[1][0][1]] == decomposed(texts[0][: spans[0][0][1]]), "the first piece is whole"


LITERALS = [token for token in (*SPECIALS, *MARKERS) if token != "[UNK]"]


@pytest.mark.parametrize(
    "text", ["서울 {} 안", "{}", "안{}녕", "{}{}", "[{}] 글자", "{} 안 {}", decomposed("글자{}안")]
)
def test_what_looks_special_is_ordinary_text(pieces, text):
    forbidden = {pieces.id(literal) for literal in LITERALS}
    for literal in LITERALS:
        (cut,) = pieces.cut([text.replace("{}", literal)])
        assert not forbidden & set(cut.ids), cut.tokens
        spans = [span for span in cut.trimmed_offsets() if span[0] < span[1]]
        assert spans == sorted(spans)
        seen = {position for start, end in spans for position in range(start, end)}
        assert seen == {position for position, character in enumerate(cut.text) if character != " "}, "nothing is lost"
        joined = pieces.join(cut)
        assert [joined.ids[0], joined.ids[-1]] == [pieces.id("[CLS]"), pieces.id("[SEP]")]
        assert not forbidden & set(joined.ids[1:-1])


def test_wide_letters_that_a_tokenizer_narrows_are_no_special_piece_either(pieces):
    (cut,) = pieces.cut(["서울 ［ＳＥＰ］ 안"])
    assert pieces.id("[SEP]") not in cut.ids


# Every kind

KINDS = [*((task, "default") for task in ("ynat", "nli", "sts", "ner", "re", "dp", "mrc", "wos")),
         *((task, "official") for task in ("ner", "re", "dp", "mrc", "wos"))]  # fmt: skip


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def encoder(request, sample: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("encoder") / request.param
    return tiny_encoder(folder, sample, request.param, layers=1, positions=512)


@pytest.mark.parametrize(("task", "architecture"), KINDS)
def test_every_kind_answers_decomposed_text_as_the_composed(encoder, sample, task, architecture):
    config = quick_config(task, encoder, architecture=architecture, max_length=96)
    model = Encoder(config, TASKS[task], Workers("cpu"))
    examples = read_split(sample, task, "dev", 12)
    pairs = zip(examples, model.predict(examples), model.predict([*map(apart, examples)]), strict=True)
    for example, one, other in pairs:
        assert other.guid == one.guid
        assert other.probabilities == pytest.approx(one.probabilities)
        check_answer(task, example, one, other)


def check_answer(task, example, one, other):
    if task == "ner":
        assert len(other.answer) == len(decomposed(example.text))
        position = 0
        for character, tag in zip(example.text, one.answer, strict=True):
            size = len(decomposed(character))
            assert other.answer[position : position + size] == (tag, *[tag.replace("B-", "I-")] * (size - 1))
            position += size
    elif task == "mrc":
        assert normalize("NFC", other.answer) == one.answer
        assert (other.span is None) == (one.span is None)
        if one.span:
            assert decomposed(example.text)[slice(*other.span)] == other.answer
            assert other.span == tuple(len(decomposed(example.text[:position])) for position in one.span)
    else:
        assert other.answer == (pytest.approx(one.answer) if task == "sts" else one.answer)


def shouting(example):
    """The same example with words that look like special pieces."""
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


@pytest.mark.parametrize(("task", "architecture"), KINDS)
def test_no_kind_takes_a_text_for_special_pieces(encoder, sample, task, architecture):
    config = quick_config(task, encoder, architecture=architecture, max_length=512)
    kind = Encoder(config, TASKS[task], Workers("cpu")).kind
    special = {*kind.pieces.tokenizer.all_special_ids, *map(kind.pieces.id, MARKERS)} - {kind.pieces.unknown}
    assert len(special) >= 4
    examples = read_split(sample, task, "dev", 3)  # of wos the first turns, which are short
    counts = []
    for some in (examples, [*map(shouting, examples)]):
        features = kind.encode(some, with_gold=False)
        assert not any(record.fields["truncated"] for record in features)
        counts.append({(record.example, sum(id in special for id in record.ids)) for record in features})
    assert counts[0] == counts[1]
