from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from danseo.config import HeadConfig, TrainConfig  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.models.encoder import pieces as pieces_module  # noqa: E402
from danseo.models.encoder.pieces import Pieces  # noqa: E402
from danseo.models.encoder.tag import Tag  # noqa: E402
from danseo.models.encoder.tag_official import fill_spaces  # noqa: E402
from danseo.models.scratch import Size, make_encoder, train_tokenizer  # noqa: E402
from danseo.predictions.viterbi import decode_characters  # noqa: E402
from danseo.records import TextExample  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.text.letters import Letters  # noqa: E402
from danseo.training.features import IGNORED, padded  # noqa: E402
from danseo.training.network import tensors  # noqa: E402
from tests.conftest import REAL_DATA  # noqa: E402

TASK = TASKS["ner"]
SIZE = Size(layers=2, hidden=64, heads=2, vocabulary=2000, positions=128)
NAMES = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep", "mask")}


def word_pieces(*words: str) -> Pieces:
    """A WordPiece tokenizer that knows these pieces, or those of a vocabulary file."""
    if len(words) == 1 and Path(words[0]).is_file():
        words = tuple(Path(words[0]).read_text(encoding="utf-8").splitlines())
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*NAMES.values(), *words]))}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=False, strip_accents=False)
    return Pieces(transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, **NAMES), 512)


def tag_kind(pieces: Pieces, train: TrainConfig | None = None, **head) -> Tag:
    return Tag(TASK, pieces, HeadConfig(**head), train)


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
def trained(request, examples) -> Pieces:
    return Pieces(train_tokenizer([example.text for example in examples], request.param, SIZE), 128)


def ceiling(kind: Tag, examples) -> dict[str, float]:
    features = kind.encode(examples, with_gold=False)
    predictions = kind.decode(examples, features, kind.perfect_outputs(examples, features))
    return {id_: statistic.value() for id_, statistic in TASK.measure(examples, predictions).items()}


def test_a_piece_has_the_tag_of_its_first_character():
    """A piece that mixes a name and a particle cannot give the name back."""
    example = TextExample("g", "삼성전자가", ("B-OG", "I-OG", "I-OG", "I-OG", "O"))
    kind = tag_kind(word_pieces("삼성", "##전자가"))
    features = kind.encode([example], with_gold=True)
    assert labels_of(features[0]) == [None, "B-OG", "I-OG", None]
    (prediction,) = kind.decode([example], features, kind.perfect_outputs([example], features))
    assert prediction.answer == ("B-OG", "I-OG", "I-OG", "I-OG", "I-OG")
    assert prediction.probabilities is None


def test_conjoining_jamo_are_known_by_their_letters():
    example = TextExample("g", "ᄏᄏ 서울", ("O", "O", "O", "B-LC", "I-LC"))
    kind = tag_kind(word_pieces("ㅋ", "##ㅋ", "서울"))
    (record,) = kind.encode([example], with_gold=True)
    assert kind.pieces.unknown not in record.ids
    assert record.fields["offsets"].tolist() == [[0, 0], [0, 1], [1, 2], [3, 5], [0, 0]]


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
    pieces = Pieces(transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **NAMES), 512)
    assert ceiling(tag_kind(pieces, max_length=100), examples)["ner/entity_f1@official-1"] == 100


def test_characters_of_one_letter_each_reach_100(examples):
    letters = {letter for example in examples for letter in example.text if letter != " "}
    kind = tag_kind(word_pieces(*letters, *(f"##{letter}" for letter in letters)))
    assert ceiling(kind, examples)["ner/entity_f1@official-1"] == 100
    features = kind.encode(examples, with_gold=False)
    answers = [p.answer for p in kind.decode(examples, features, kind.perfect_outputs(examples, features))]
    assert answers == [example.gold for example in examples]  # spaces too


def test_windows_lose_nothing(trained, examples):
    whole, windows = tag_kind(trained), tag_kind(trained, max_length=9)
    one, many = (kind.encode(examples, with_gold=True) for kind in (whole, windows))
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
    kind = tag_kind(word_pieces("가", *(f"##{letter}" for letter in letters)), max_length=8)
    features = kind.encode([TextExample("g", letters, ())], with_gold=False)
    assert [[p for p in record.fields["positions"].tolist() if p >= 0] for record in features] == [
        [0, 1, 2, 3],  # of 0-5; 3-5 are shared with 3-8
        [4, 5, 6],
        [7, 8, 9],
    ]


def test_saved_probabilities_decode_to_the_same_answers(trained, examples):
    kind = tag_kind(trained, max_length=16)
    features = kind.encode(examples, with_gold=False)
    rng = np.random.default_rng(0)
    outputs = [{"logits": rng.normal(size=(len(record), 13)).astype(np.float32)} for record in features]
    predictions = kind.decode(examples, features, outputs)
    saved = predictions.tables
    assert [rows.shape for rows in saved] == [(len(example.text), 13) for example in examples]
    assert saved[0].dtype == np.float16
    covered = [rows.any(axis=1) for rows in saved]
    assert decode_characters(saved, covered) == [prediction.answer for prediction in predictions]
    for example, prediction in zip(examples, predictions, strict=True):
        TASK.check_answer(example, prediction.answer)
    assert all(not known[example.text.index(" ")] for known, example in zip(covered, examples, strict=True))


def test_nothing_in_nothing_out(trained):
    kind = tag_kind(trained)
    assert kind.decode([], kind.encode([], with_gold=False), []).predictions == []


def test_weights_of_the_loss(trained, examples):
    plain, light = tag_kind(trained), tag_kind(trained, TrainConfig(outside_weight=0.25))
    both = tag_kind(trained, TrainConfig(outside_weight=0.5, class_weights="balanced"))
    balanced = tag_kind(trained, TrainConfig(class_weights="balanced"))
    features = plain.encode(examples, with_gold=True)
    for kind in (plain, light, both, balanced):
        kind.prepare_loss(features)
    assert plain.class_weights is None
    assert light.class_weights.tolist() == [1.0] * 12 + [0.25]
    assert (both.class_weights / balanced.class_weights).tolist() == [1.0] * 12 + [0.5]
    batch = tensors(light.collate(features[:4], with_gold=True))
    labels = batch["labels"]
    outputs = {"logits": torch.zeros(*labels.shape, 13)}
    loss, weight = light.loss(outputs, batch)
    outside = int((labels == 12).sum())
    assert float(weight) == 0.25 * outside + int((labels >= 0).sum()) - outside
    assert float(loss / weight) == pytest.approx(np.log(13))


@pytest.mark.parametrize("architecture", ["default", "official"])
@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_a_network_learns_and_answers(tmp_path, examples, family, architecture):
    folder = make_encoder(tmp_path, [example.text for example in examples], family, SIZE)
    kind = tag_kind(Pieces(transformers.AutoTokenizer.from_pretrained(folder), 128), architecture=architecture)
    network = getattr(transformers, kind.head).from_pretrained(folder, **kind.head_options())
    features = kind.encode(examples[:8], with_gold=True)
    ids = torch.from_numpy(padded([record.ids for record in features], kind.pieces.pad))
    inputs = {"input_ids": ids, "attention_mask": (ids != kind.pieces.pad).long()}
    outputs = dict(network(**inputs))
    batch = inputs | tensors(kind.collate(features, with_gold=True))
    loss, weight = kind.loss(outputs, batch)
    (loss / weight).backward()
    assert network.classifier.weight.grad.abs().sum() > 0
    with torch.no_grad():
        predictions = kind.decode(examples[:8], features, kind.unpack(outputs, batch, features))
    for example, prediction in zip(examples[:8], predictions, strict=True):
        TASK.check_answer(example, prediction.answer)
        assert len(prediction.answer) == len(example.text)
    assert network.config.id2label[12] == "O"


# What KLUE's own processing makes of a perfect tagger, from a run of its code over a toy vocabulary.
TOY = ["홍길동", "##이", "김철", "##수", "##는", "서울", "##에", "##서", "간다", "미나", "##가", ".", ",", "~"]
OFFICIAL = {
    "plain": (
        "김철수는 서울에서 간다.",
        "O B-PS I-PS O B-LC O O O O O",
        "B-PS I-PS I-PS O B-LC I-LC O O O O O",
    ),
    "unknown word: later tags come from one piece too early": (
        "홍길동이 뷁뷁뷁 서울에서 간다.",
        "O B-PS O O B-LC O O O O O",
        "B-PS I-PS I-PS O O O O O O B-LC O O O O",
    ),
    "unknown word and punctuation": (
        "뷁뷁, 김철수는",
        "O O O B-PS I-PS O O",
        "O O O O O B-PS I-PS",
    ),
    "unknown name": ("미나뷁가 서울", "O B-PS B-LC O", "B-PS I-PS I-PS I-PS B-PS I-PS"),
    "long piece in a word with an unknown one": (
        "미나~뷁 서울",
        "O B-PS B-PS B-PS B-LC O",
        "B-PS B-PS B-PS B-PS I-PS O",  # KLUE leaves the last character out; here it is O
    ),
    "two unknown words": (
        "미나가 뷁 뷁뷁 서울에서",
        "O B-PS O O O B-LC O O O",
        "B-PS I-PS O O O O O O O B-LC",
    ),
    "second sentence": ("서울에서 간다", "O B-LC O O O O", "B-LC I-LC O O O O"),
}


@pytest.mark.parametrize("case", OFFICIAL)
def test_official_alignment(case):
    text, labels, expected = OFFICIAL[case]
    kind = tag_kind(word_pieces(*TOY), architecture="official")
    example = TextExample("g", text, gold_of(text))
    features = kind.encode([example], with_gold=True)
    assert labels_of(features[0]) == labels.split()
    (prediction,) = kind.decode([example], features, outputs_of(features, [labels.split()]))
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
    kind = tag_kind(word_pieces(*TOY), architecture="official")
    example = TextExample("g", text, gold_of(text))
    features = kind.encode([example], with_gold=True)
    assert labels_of(features[0]) == ["O", "B-PS", "B-PS", "B-PS", "B-LC", "O", "O", "O"]
    fed = ["O", "B-PS", "B-PS", "I-DT", "B-LC", "O", "O", "O"]
    (prediction,) = kind.decode([example], features, outputs_of(features, [fed]))
    solid = [tag for tag, letter in zip(prediction.answer, text, strict=True) if letter != " "]
    assert solid == ["B-PS", "I-PS", "I-PS", "B-PS", "B-PS", "B-PS", "I-PS", "I-DT", "B-LC"]


def test_official_truncation_leaves_the_rest_outside():
    text = "김철수는 서울에서 간다."
    kind = tag_kind(word_pieces(*TOY), architecture="official", max_length=6)
    example = TextExample("g", text, gold_of(text))
    features = kind.encode([example], with_gold=True)
    assert features[0].fields["truncated"]
    assert labels_of(features[0]) == ["O", "B-PS", "I-PS", "O", "B-LC", "O"]
    (prediction,) = kind.decode([example], features, kind.perfect_outputs([example], features))
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
    pieces = Pieces(transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **NAMES), 128)
    with pytest.raises(DanseoError, match="architecture=default"):
        tag_kind(pieces, architecture="official").encode(examples, with_gold=False)


@pytest.fixture(scope="module")
def real():
    vocabulary, data = REAL_DATA.parent / "tokenizers" / "klue-vocab.txt", REAL_DATA / "klue-ner-v1.1"
    if not vocabulary.is_file() or not data.is_dir():
        pytest.skip("the KLUE vocabulary and NER files are not in ../shared/data")
    pieces = word_pieces(str(vocabulary))
    assert len(pieces.tokenizer) == 32000
    return pieces, TASK.read(data / "klue-ner-v1.1_dev.tsv")


@pytest.mark.parametrize(
    ("architecture", "with_jamo", "unknown", "reached"),
    [
        ("default", False, 0.42, 98.43),
        ("default", True, 0.18, 98.50),
        ("official", False, 0.42, 94.04),
    ],
)
def test_the_ceiling_of_the_klue_vocabulary(real, monkeypatch, architecture, with_jamo, unknown, reached):
    pieces, examples = real
    if not with_jamo:
        monkeypatch.setattr(pieces_module, "letters_of", lambda text, plain: Letters(text))
    kind = tag_kind(pieces, architecture=architecture)
    ids = np.concatenate([record.ids[1:-1] for record in kind.encode(examples, with_gold=False)])
    assert round(100 * float((ids == pieces.unknown).mean()), 2) == unknown
    assert round(ceiling(kind, examples)["ner/entity_f1@official-1"], 2) == reached
