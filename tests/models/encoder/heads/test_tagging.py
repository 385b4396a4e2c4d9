from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

import tokenizers
import transformers

from danseo.errors import DanseoError
from danseo.models.encoder import tokenizer as pieces_module
from danseo.models.encoder.heads.official_tagging import fill_spaces
from danseo.models.encoder.heads.tagging import TaggingHead
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import EncoderSize, train_tokenizer
from danseo.records import TextExample
from danseo.tasks import TASKS
from danseo.tasktypes.decoding import decode_texts
from danseo.text.normalization import NormalizedText
from danseo.training.features import IGNORED
from tests.conftest import REAL_DATA
from tests.tiny import kind_settings

TASK = TASKS["ner"]
SIZE = EncoderSize(layers=2, hidden=64, heads=2, vocabulary=2000, positions=128)
NAMES = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}


def find_word_tokens(*words: str) -> EncoderTokenizer:
    """A WordPiece tokenizer that knows these pieces, or those of a vocabulary file."""
    if len(words) == 1 and Path(words[0]).is_file():
        words = tuple(Path(words[0]).read_text(encoding="utf-8").splitlines())
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*NAMES.values(), *words]))}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=False, strip_accents=False)
    return EncoderTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **NAMES), 512)


def tag_kind(tokenizer: EncoderTokenizer, **settings) -> TaggingHead:
    return TaggingHead(TASK, tokenizer, *kind_settings(**settings))


def outputs_of(features, tags):
    """Logits that give the pieces these tags."""
    numbers = np.array([[TASK.labels.index(tag) for tag in row] for row in tags])
    assert [len(record) for record in features] == [len(row) for row in numbers]
    return [{"logits": 9 * np.eye(13, dtype=np.float32)[row]} for row in numbers]


def labels_of(record):
    return [None if number == IGNORED else TASK.labels[number] for number in record.fields["labels"]]


@pytest.fixture(scope="module")
def examples(sample: Path):
    return TASK.read(sample / "klue-ner-v1.1" / "klue-ner-v1.1_dev.tsv")[:60]


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def trained(request, examples) -> EncoderTokenizer:
    return EncoderTokenizer(train_tokenizer([example.text for example in examples], request.param, SIZE), 128)


def ceiling(task_head: TaggingHead, examples, features=None) -> dict[str, float]:
    features = features or task_head.encode(examples, with_gold=False)
    predictions = task_head.decode(examples, features, task_head.make_perfect_outputs(examples, features))
    return {id_: statistic.value() for id_, statistic in TASK.measure(examples, predictions).items()}


def test_a_piece_has_the_tag_of_its_first_character():
    """A piece that mixes a name and a particle cannot give the name back."""
    example = TextExample("g", "삼성전자가", ("B-OG", "I-OG", "I-OG", "I-OG", "O"))
    task_head = tag_kind(find_word_tokens("삼성", "##전자가"))
    features = task_head.encode([example], with_gold=True)
    assert labels_of(features[0]) == [None, "B-OG", "I-OG", None]
    (prediction,) = task_head.decode([example], features, task_head.make_perfect_outputs([example], features))
    assert prediction.answer == ("B-OG", "I-OG", "I-OG", "I-OG", "I-OG")
    assert prediction.probabilities is None


@pytest.mark.parametrize("trim", [False, True])
def test_bytes_of_a_syllable(examples, trim):
    """A syllable may be three pieces; RoBERTa's processor trims offsets each time it is called."""
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len(alphabet) + 5, special_tokens=[*NAMES.values()], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([], trainer)
    specials = [(token, backend.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    backend.post_processor = tokenizers.processors.RobertaProcessing(
        *specials, trim_offsets=trim, add_prefix_space=False
    )
    tokenizer = EncoderTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **NAMES), 512)
    assert ceiling(tag_kind(tokenizer, max_length=100), examples)["ner/entity_f1@official-1"] == 100


def test_characters_of_one_letter_each_reach_100(examples):
    letters = {letter for example in examples for letter in example.text if letter != " "}
    task_head = tag_kind(find_word_tokens(*letters, *(f"##{letter}" for letter in letters)))
    assert ceiling(task_head, examples)["ner/entity_f1@official-1"] == 100
    features = task_head.encode(examples, with_gold=False)
    answers = [
        p.answer for p in task_head.decode(examples, features, task_head.make_perfect_outputs(examples, features))
    ]
    assert answers == [example.gold for example in examples]  # spaces too


def test_windows_lose_nothing(trained, examples):
    whole, windows = tag_kind(trained), tag_kind(trained, max_length=9)
    one, many = (task_head.encode(examples, with_gold=True) for task_head in (whole, windows))
    assert len(one) == len(examples) < len(many)
    assert max(map(len, many)) <= 9
    assert not any(record.fields["truncated"] for record in many)
    for number in range(len(examples)):
        rows = [[r for r in records if r.example == number] for records in (one, many)]
        decided = [sorted(p for r in row for p in r.fields["positions"] if p >= 0) for row in rows]
        assert decided[0] == decided[1]  # every piece is decided once
    assert ceiling(windows, examples) == ceiling(whole, examples)


def test_a_window_decides_where_it_sees_most():
    letters = "가나다라마바사아자차"
    task_head = tag_kind(find_word_tokens("가", *(f"##{letter}" for letter in letters)), max_length=8)
    features = task_head.encode([TextExample("g", letters, ())], with_gold=False)
    assert [[p for p in record.fields["positions"].tolist() if p >= 0] for record in features] == [
        [0, 1, 2, 3],  # of 0-5; 3-5 are shared with 3-8
        [4, 5, 6],
        [7, 8, 9],
    ]


def test_saved_probabilities_decode_to_the_same_answers(trained, examples):
    task_head = tag_kind(trained, max_length=16)
    features = task_head.encode(examples, with_gold=False)
    rng = np.random.default_rng(0)
    outputs = [{"logits": rng.normal(size=(len(record), 13)).astype(np.float32)} for record in features]
    predictions = task_head.decode(examples, features, outputs)
    saved = predictions.tables
    assert [rows.shape for rows in saved] == [(len(example.text), 13) for example in examples]
    assert saved[0].dtype == np.float16
    covered = [rows.any(axis=1) for rows in saved]
    texts, starts = [example.text for example in examples], TASK.type.unpack_token_starts(predictions.evidence)
    assert decode_texts(texts, saved, covered, TASK.labels, starts) == [p.answer for p in predictions]
    for example, prediction in zip(examples, predictions, strict=True):
        TASK.check_answer(example, prediction.answer)
    assert all(not known[example.text.index(" ")] for known, example in zip(covered, examples, strict=True))


# What KLUE's own processing makes of a perfect tagger, from a run of its code over a toy vocabulary.
TOY = ["홍길동", "##이", "김철", "##수", "##는", "서울", "##에", "##서", "간다", "미나", "##가", ".", ",", "~"]
OFFICIAL = {
    "plain": ("김철수는 서울에서 간다.", "O B-PS I-PS O B-LC O O O O O", "B-PS I-PS I-PS O B-LC I-LC O O O O O"),
    "unknown word: later tags come from one piece too early": (
        "홍길동이 뷁뷁뷁 서울에서 간다.",
        "O B-PS O O B-LC O O O O O",
        "B-PS I-PS I-PS O O O O O O B-LC O O O O",
    ),
    "unknown word and punctuation": ("뷁뷁, 김철수는", "O O O B-PS I-PS O O", "O O O O O B-PS I-PS"),
    "unknown name": ("미나뷁가 서울", "O B-PS B-LC O", "B-PS I-PS I-PS I-PS B-PS I-PS"),
    "long piece in a word with an unknown one": (
        "미나~뷁 서울",
        "O B-PS B-PS B-PS B-LC O",
        "B-PS B-PS B-PS B-PS I-PS O",  # KLUE leaves the last character out; here it is O
    ),
    "two unknown words": ("미나가 뷁 뷁뷁 서울에서", "O B-PS O O O B-LC O O O", "B-PS I-PS O O O O O O O B-LC"),
    "second sentence": ("서울에서 간다", "O B-LC O O O O", "B-LC I-LC O O O O"),
}


@pytest.mark.parametrize("case", OFFICIAL)
def test_official_alignment(case):
    text, labels, expected = OFFICIAL[case]
    task_head = tag_kind(find_word_tokens(*TOY), architecture="official")
    example = TextExample("g", text, gold_of(text))
    features = task_head.encode([example], with_gold=True)
    assert labels_of(features[0]) == labels.split()
    (prediction,) = task_head.decode([example], features, outputs_of(features, [labels.split()]))
    assert [tag for tag, letter in zip(prediction.answer, text, strict=True) if letter != " "] == expected.split()


def gold_of(text: str) -> tuple[str, ...]:
    """Tags of the names in the toy sentences."""
    tags = ["O"] * len(text)
    for name, type_ in (
        ("김철수", "PS"),
        ("홍길동", "PS"),
        ("서울", "LC"),
        ("미나뷁", "PS"),
        ("미나", "PS"),
        ("藤井", "PS"),
    ):
        position = text.find(name)
        if position >= 0 and tags[position] == "O":
            tags[position : position + len(name)] = [f"B-{type_}", *[f"I-{type_}"] * (len(name) - 1)]
    return tuple(tags)


def test_official_unknown_pieces_in_a_row_share_a_prediction():
    text = "홍길동 藤井 서울에서"
    task_head = tag_kind(find_word_tokens(*TOY), architecture="official")
    example = TextExample("g", text, gold_of(text))
    features = task_head.encode([example], with_gold=True)
    assert labels_of(features[0]) == ["O", "B-PS", "B-PS", "B-PS", "B-LC", "O", "O", "O"]
    fed = ["O", "B-PS", "B-PS", "I-DT", "B-LC", "O", "O", "O"]
    (prediction,) = task_head.decode([example], features, outputs_of(features, [fed]))
    solid = [tag for tag, letter in zip(prediction.answer, text, strict=True) if letter != " "]
    assert solid == ["B-PS", "I-PS", "I-PS", "B-PS", "B-PS", "B-PS", "I-PS", "I-DT", "B-LC"]


def test_official_truncation_leaves_the_rest_outside():
    text = "김철수는 서울에서 간다."
    task_head = tag_kind(find_word_tokens(*TOY), architecture="official", max_length=6)
    example = TextExample("g", text, gold_of(text))
    features = task_head.encode([example], with_gold=True)
    assert features[0].fields["truncated"]
    assert labels_of(features[0]) == ["O", "B-PS", "I-PS", "O", "B-LC", "O"]
    (prediction,) = task_head.decode([example], features, task_head.make_perfect_outputs([example], features))
    assert prediction.answer == ("B-PS", "I-PS", "I-PS", "O", "O", "B-LC", "I-LC", *["O"] * 6)


def test_official_spaces_join_the_entity_around_them():
    tags = ["B-PS", "O", "I-PS", "O", "B-LC", "O", "B-LC", "O", "O", "I-LC", "O"]
    assert fill_spaces(tags, "가 나 다 라  마 ") == [
        "B-PS",
        "I-PS",
        "I-PS",
        "O",
        "B-LC",
        "O",
        "B-LC",
        "I-LC",
        "I-LC",
        "I-LC",
        "O",
    ]


def test_official_alignment_refuses_other_tokenizers(examples):
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    backend.train_from_iterator(["서울에서 간다"], tokenizers.trainers.BpeTrainer(special_tokens=[*NAMES.values()]))
    tokenizer = EncoderTokenizer(transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **NAMES), 128)
    with pytest.raises(DanseoError, match="architecture=default"):
        tag_kind(tokenizer, architecture="official").encode(examples, with_gold=False)


@pytest.fixture(scope="module")
def real():
    vocabulary, data = REAL_DATA.parent / "tokenizers" / "klue-vocab.txt", REAL_DATA / "klue-ner-v1.1"
    if not vocabulary.is_file() or not data.is_dir():
        pytest.skip("the KLUE vocabulary and NER files are not in ../shared/data")
    tokenizer = find_word_tokens(str(vocabulary))
    assert len(tokenizer.hf_tokenizer) == 32000
    return tokenizer, TASK.read(data / "klue-ner-v1.1_dev.tsv")


@pytest.mark.parametrize(
    ("architecture", "with_jamo", "unknown", "reached"),
    [("default", False, 0.42, 98.43), ("default", True, 0.18, 98.50), ("official", False, 0.42, 94.04)],
)
def test_the_ceiling_of_the_klue_vocabulary(real, monkeypatch, architecture, with_jamo, unknown, reached):
    tokenizer, examples = real
    if not with_jamo:
        monkeypatch.setattr(pieces_module, "normalize_text", lambda text: NormalizedText(text))
    task_head = tag_kind(tokenizer, architecture=architecture)
    features = task_head.encode(examples, with_gold=False)
    ids = np.concatenate([record.ids[1:-1] for record in features])
    assert round(100 * float((ids == tokenizer.unk_id).mean()), 2) == unknown
    assert round(ceiling(task_head, examples, features)["ner/entity_f1@official-1"], 2) == reached
