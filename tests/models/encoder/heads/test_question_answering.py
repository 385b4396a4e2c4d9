"""Answers by encoders: windows as BERT cut them, spans by characters, and a fitted no-answer threshold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from danseo.models.encoder.heads.question_answering import QuestionAnsweringHead, assign_owners, expand_to_words
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.records import QuestionExample
from danseo.scoring.score import measure
from danseo.tasks import TASKS
from danseo.tasktypes.decoding import choose_threshold
from tests.tiny import kind_settings

TASK = TASKS["mrc"]
SIZE = EncoderSize(layers=2, hidden=64, heads=2, vocabulary=2000, positions=128)
WORDS = [f"낱말{k}" for k in range(45)]
TOY = QuestionExample("toy", text=" ".join(WORDS), question="무엇 인가", gold=("낱말20 낱말21",), starts=(90,))


def toy_pieces(known=(*WORDS, "무엇", "인가", "1"), longest: int = 512) -> EncoderTokenizer:
    """One piece per word."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: k for k, word in enumerate([*specials, *known])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return EncoderTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names), longest)


def toy_kind(**settings) -> QuestionAnsweringHead:
    return QuestionAnsweringHead(TASK, toy_pieces(), *kind_settings(**{"max_length": 21, "doc_stride": 5, **settings}))


def flat_outputs(features, none: float = 0.0):
    """Outputs that prefer nothing; `none` is the score of no answer."""
    outputs = [{"start": np.full(len(f), -5.0, np.float32), "end": np.full(len(f), -5.0, np.float32)} for f in features]
    for output in outputs:
        output["start"][0] = output["end"][0] = none / 2
    return outputs


def set_span(record, output, first: int, last: int, score: float) -> None:
    """Give a span of passage pieces that score in one window."""
    base = record.fields["position"] - record.fields["begin"]
    output["start"][base + first] = output["end"][base + last] = score / 2


@pytest.fixture(scope="module")
def examples(sample: Path) -> list[QuestionExample]:
    return TASK.read(sample / TASK.folder / TASK.file("dev"))[:16]


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def checkpoint(request, examples, tmp_path_factory) -> Path:
    texts = [text for e in examples for text in (e.text, e.question)]
    return make_encoder(tmp_path_factory.mktemp(request.param), texts, request.param, SIZE)


@pytest.fixture
def task_head(checkpoint: Path) -> QuestionAnsweringHead:
    settings = kind_settings(max_length=48, doc_stride=16, max_query_length=16)
    return QuestionAnsweringHead(
        TASK, EncoderTokenizer(AutoTokenizer.from_pretrained(checkpoint), SIZE.positions), *settings
    )


def test_windows_start_where_the_official_ones_do():
    features = toy_kind().encode([TOY], with_gold=True)
    assert [f.fields["begin"] for f in features] == [0, 5, 10, 15, 20, 25, 30]
    assert [len(f.fields["owned"]) for f in features] == [16, 16, 16, 16, 16, 16, 15]
    assert {len(f) for f in features} == {20, 21}
    first = features[0]
    tokens = [toy_kind().tokenizer.hf_tokenizer.convert_ids_to_tokens(i) for i in first.ids]
    assert tokens == ["[CLS]", "무엇", "인가", "[SEP]", *WORDS[:16], "[SEP]"]
    assert first.segments == [0] * 4 + [1] * 17
    assert not first.fields["truncated"]


def test_gold_is_the_whole_answer_or_the_first_piece():
    features = toy_kind().encode([TOY], with_gold=True)
    positions = [
        (f.fields["start"], f.fields["end"]) for f in features
    ]  # pieces 20 and 21, four in front of the window
    assert positions == [(0, 0), (0, 0), (14, 15), (9, 10), (4, 5), (0, 0), (0, 0)]
    (none,) = toy_kind(max_length=64).encode([replace(TOY, gold=(), starts=())], with_gold=True)
    assert (none.fields["start"], none.fields["end"]) == (0, 0)


def test_every_piece_belongs_to_the_window_with_most_context():
    begins, sizes = np.array([0, 5, 10]), np.array([16, 16, 15])
    owned = assign_owners(begins, sizes)
    tokenizer = [(begin + np.flatnonzero(mine)).tolist() for begin, mine in zip(begins, owned, strict=True)]
    assert sorted(token for mine in tokenizer for token in mine) == list(range(25))
    for window, mine in enumerate(tokenizer):
        for token in mine:
            best = max(
                min(token - b, b + n - 1 - token) + 0.01 * n
                for b, n in zip(begins, sizes, strict=True)
                if b <= token < b + n
            )
            b, n = begins[window], sizes[window]
            assert min(token - b, b + n - 1 - token) + 0.01 * n == best


def test_a_long_question_is_cut_and_leaves_room():
    long = replace(TOY, question=" ".join(["무엇"] * 100))
    (features, *_) = toy_kind(max_query_length=7).encode([long], with_gold=False)
    assert features.ids.count(toy_kind().tokenizer.token_id("무엇")) == 7
    assert features.fields["truncated"]
    (features, *_) = toy_kind().encode([long], with_gold=False)  # 64 would leave nothing of 21
    assert (len(features), len(features.fields["owned"])) == (21, 9)


@pytest.mark.parametrize(("none", "answer"), [(4.0, "낱말20 낱말21"), (4.002, ""), (3.0, "낱말20 낱말21")])
def test_a_tie_answers_and_a_higher_null_score_does_not(none, answer):
    task_head = toy_kind(max_length=64)
    features = task_head.encode([TOY], with_gold=False)
    outputs = flat_outputs(features, none)
    set_span(features[0], outputs[0], 20, 21, 4.0)
    (prediction,) = task_head.decode([TOY], features, outputs)
    assert prediction.answer == answer
    candidates = task_head.candidates([TOY], features, outputs)
    assert candidates[0][0] == ("낱말20 낱말21", 4.0, (90, 99))
    assert candidates[0][-1] == ("", pytest.approx(none), None)
    assert prediction.probabilities[""] == pytest.approx(1 / (1 + np.exp(4.0 - none)), abs=1e-6)


def test_the_null_score_is_the_lowest_of_all_windows():
    task_head = toy_kind()
    features = task_head.encode([TOY], with_gold=False)
    outputs = flat_outputs(features, 18.0)
    owner = next(k for k, f in enumerate(features) if f.fields["owned"][20 - f.fields["begin"] :][:1].any())
    set_span(features[owner], outputs[owner], 20, 21, 4.0)
    outputs[owner]["start"][0] = outputs[owner]["end"][0] = 0.0
    (prediction,) = task_head.decode([TOY], features, outputs)
    assert prediction.answer == "낱말20 낱말21"


def test_spans_stay_in_the_passage_and_short_and_start_with_most_context():
    task_head = toy_kind(max_answer_length=3)
    features = task_head.encode([TOY], with_gold=False)
    outputs = flat_outputs(features, -30.0)
    outputs[0]["start"][1] = outputs[0]["end"][2] = 50.0  # in the question
    set_span(features[0], outputs[0], 0, 3, 20.0)  # four pieces
    set_span(features[0], outputs[0], 15, 15, 20.0)  # at the edge of the window; others know more of it
    (prediction,) = task_head.decode([TOY], features, outputs)
    texts = [one.text for one in task_head.candidates([TOY], features, outputs)[0][:-1]]
    assert prediction.answer == texts[0] == "낱말0"
    assert len(texts) == len(set(texts)) == task_head.config.n_best_size
    assert all(text in TOY.text and len(text.split()) <= 3 and not text.startswith("낱말15") for text in texts[:2])


def test_no_passage_is_no_answer():
    task_head = toy_kind()
    features = task_head.encode([replace(TOY, text="", gold=(), starts=())], with_gold=True)
    (prediction,) = task_head.decode([replace(TOY, text="")], features, flat_outputs(features))
    assert (prediction.answer, prediction.probabilities) == ("", {"": 1.0})


def test_the_official_answer_grows_to_words_only_at_unknown_pieces():
    text = "그는 서울(京)에서 살았다"
    task_head = QuestionAnsweringHead(
        TASK, toy_pieces(["그는", "살았다", "1"]), *kind_settings(architecture="official")
    )
    features = task_head.encode([QuestionExample("a", text, "1", ())], with_gold=False)
    assert task_head._find_characters(text, features[0], 1, 1) == (3, 10)
    assert task_head._find_characters(text, features[0], 0, 0) == (0, 2)
    assert expand_to_words(text, 3, 5) == (3, 10)
    task_head.fit_thresholds([], [], [])
    assert task_head.get_thresholds() == {"threshold": 0.0}


@pytest.mark.parametrize(("token", "span"), [(1, (3, 5)), (3, (9, 11)), (5, (16, 18))])
def test_the_answer_is_where_it_was_chosen_and_not_where_its_text_first_occurs(token, span):
    example = QuestionExample("a", "나는 서울 에서 서울 까지  서울 ", "무엇", ())
    task_head = QuestionAnsweringHead(TASK, toy_pieces(["나는", "서울", "에서", "까지", "무엇", "1"]), *kind_settings())
    features = task_head.encode([example], with_gold=False)
    outputs = flat_outputs(features, -30.0)
    set_span(features[0], outputs[0], token, token, 4.0)
    (prediction,) = task_head.decode([example], features, outputs)
    assert (prediction.answer, prediction.span) == ("서울", span)
    told = TASK.type.to_row(TASK, example, prediction, None)
    assert (told["answer"], told["start"], told["end"]) == ("서울", *span)
    (nothing,) = task_head.decode([example], features, flat_outputs(features, 30.0))
    assert (nothing.answer, nothing.span) == ("", None)
    assert "start" not in TASK.type.to_row(TASK, example, nothing, None)


def test_the_threshold_is_the_best_of_all():
    rng = np.random.default_rng(0)
    for _ in range(50):
        margins = rng.normal(size=8).round(1) * 5
        given, kept_back = rng.random(8), rng.integers(0, 2, 8).astype(float)

        def total(t, margins=margins, given=given, kept_back=kept_back):
            return np.where(margins > t, kept_back, given).sum()

        grid = np.concatenate([margins - 1e-6, margins, margins + 1e-6])
        found = choose_threshold(margins, given, kept_back)
        assert total(found) == pytest.approx(max(map(total, grid)))
        if total(0.0) == pytest.approx(total(found)):
            assert found == 0


def test_the_threshold_is_fitted_saved_and_restored():
    task_head = toy_kind(max_length=64)
    examples = [replace(TOY, guid=str(k), **({} if k % 2 else {"gold": (), "starts": ()})) for k in range(6)]
    features = task_head.encode(examples, with_gold=False)
    outputs = flat_outputs(features, 0.0)
    for k, (record, output) in enumerate(zip(features, outputs, strict=True)):
        set_span(record, output, 20, 21, (-1.0 if k % 2 else -3.0))  # no answer always scores higher
    assert {p.answer for p in task_head.decode(examples, features, outputs)} == {""}
    task_head.fit_thresholds(examples, features, outputs)
    assert 1.0 <= task_head.threshold < 3.0
    answers = [p.answer for p in task_head.decode(examples, features, outputs)]
    assert answers == ["", "낱말20 낱말21"] * 3
    other = toy_kind(max_length=64)
    other.restore_thresholds(task_head.get_thresholds())
    assert [p.answer for p in other.decode(examples, features, outputs)] == answers


def test_ceiling_of_the_sample(task_head, examples):
    features = task_head.encode(examples, with_gold=True)
    assert len(features) > len(examples)
    assert max(map(len, features)) <= 48
    predictions = task_head.decode(examples, features, task_head.make_perfect_outputs(examples, features))
    assert measure(TASK, examples, predictions)[TASK.headline].value() > 85
    for example, prediction in zip(examples, predictions, strict=True):
        assert (prediction.answer == "") == (not example.gold)
        assert prediction.answer == (example.text[slice(*prediction.span)] if prediction.span else "")
