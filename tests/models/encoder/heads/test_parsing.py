"""Dependency parsing by encoders: words find their pieces, trees are trees, and both networks learn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from danseo.config.train import TrainSettings
from danseo.errors import DanseoError
from danseo.models.encoder.heads.biaffine import OfficialParser
from danseo.models.encoder.heads.parsing import (
    TAGS,
    ParsingHead,
    encode_last_tags,
    extend_arcs,
    find_best_tree,
    find_word_tokens,
)
from danseo.models.encoder.network import Network
from danseo.models.encoder.settings import EncoderSettings
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.records import ParseExample
from danseo.scoring.score import measure
from danseo.tasks import TASKS
from danseo.training.features import IGNORED
from tests.tasktypes.decoding.test_trees import is_tree

TASK = TASKS["dp"]
SIZE = EncoderSize(layers=2, hidden=64, heads=2, vocabulary=1000, positions=128)
SMALL = EncoderSettings(arc_hidden_size=32, relation_hidden_size=16)


@pytest.fixture(scope="module")
def examples(sample: Path) -> list[ParseExample]:
    return TASK.read(sample / TASK.folder / TASK.file("dev"))[:24]


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def checkpoint(request, examples, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return make_encoder(folder, [e.text for e in examples], request.param, SIZE)


@pytest.fixture
def tokenizer(checkpoint: Path) -> EncoderTokenizer:
    return EncoderTokenizer(AutoTokenizer.from_pretrained(checkpoint), SIZE.positions)


@pytest.fixture(autouse=True)
def _narrow_lstm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("danseo.models.encoder.heads.biaffine.LSTM_SIZE", 64)  # 768 takes seconds


def make_network(task_head: ParsingHead, checkpoint: Path) -> Network:
    torch.manual_seed(0)
    body = AutoModel.from_pretrained(checkpoint)
    return Network(body, task_head.build_network_head(body))


def predict(network: Network, task_head: ParsingHead, examples, batch_size: int = 8):
    features, outputs = task_head.encode(examples, with_gold=False), []
    network.eval()
    for start in range(0, len(features), batch_size):
        part = features[start : start + batch_size]
        batch = network.collate(part, task_head, with_gold=False)
        with torch.no_grad():
            outputs += task_head.unpack(network(batch), batch, part)
    return task_head.decode(examples, features, outputs), outputs


def test_words_find_the_pieces_of_the_official_run():
    # 조지 | 해리 ##슨 ##이 | 앨범 ##을 | 낸 . and 밴드 ##는 | 앨범 . as the official processor masked them
    offsets = [(0, 2), (3, 5), (5, 6), (6, 7), (8, 10), (10, 11), (12, 13), (13, 14)]
    first, last = find_word_tokens(["조지", "해리슨이", "앨범을", "낸."], offsets)
    assert (first + 1).tolist() == [1, 2, 5, 7]
    assert (last + 1).tolist() == [1, 4, 6, 8]
    first, last = find_word_tokens(["밴드는", "앨범."], [(0, 2), (2, 3), (4, 6), (6, 7)])
    assert ((first + 1).tolist(), (last + 1).tolist()) == ([1, 3], [2, 4])


def test_a_word_without_pieces_takes_the_piece_before_it():
    first, last = find_word_tokens(["\u200b", "가", "\u200b", "나"], [(2, 3), (6, 7)])
    assert first.tolist() == last.tolist() == [-1, 0, 0, 1]
    first, last = find_word_tokens(
        ["가", "나다"], [(0, 0), (0, 1), (0, 0), (2, 3), (3, 4)]
    )  # empty pieces count for nothing
    assert (first.tolist(), last.tolist()) == ([1, 3], [1, 4])


def test_every_word_gets_its_own_characters(tokenizer, examples):
    features = ParsingHead(TASK, tokenizer, SMALL, TrainSettings()).encode(examples, with_gold=False)
    for example, record in zip(examples, features, strict=True):
        text = " ".join(example.words)
        offsets = tokenizer.tokenize([text])[0].trimmed_offsets()
        spans = [
            text[offsets[first - 1][0] : offsets[last - 1][1]]
            for first, last in zip(record.fields["first"], record.fields["last"], strict=True)
        ]
        assert spans == list(example.words)


def test_ceiling_is_100_unless_words_are_cut_off(tokenizer, examples):
    for length, exact in ((128, True), (9, False)):
        task_head = ParsingHead(TASK, tokenizer, SMALL, TrainSettings(max_length=length))
        features = task_head.encode(examples, with_gold=True)
        predictions = task_head.decode(examples, features, task_head.make_perfect_outputs(examples, features))
        score = measure(TASK, examples, predictions)["dp/uas@micro-1"].value()
        assert (score == 100) is exact
        assert any(record.fields["truncated"] for record in features) is not exact
        tables = TASK.type.unpack_arrays(TASK, predictions.evidence)
        for example, prediction, (arcs, _) in zip(examples, predictions, tables, strict=True):
            assert is_tree([head for head, _ in prediction.answer])
            assert TASK.check_answer(example, prediction.answer)
            assert arcs.shape == (len(example.words), len(example.words) + 1)
            assert (arcs.dtype, np.isfinite(arcs).all()) == (np.float16, True)


def test_words_past_the_limit_hang_on_the_next(tokenizer, examples):
    task_head = ParsingHead(TASK, tokenizer, SMALL, TrainSettings(max_length=8))
    example = max(examples, key=lambda e: len(e.words))
    (record,) = task_head.encode([example], with_gold=True)
    kept, words = len(record.fields["first"]), len(example.words)
    assert 0 < kept < words
    assert max(record.fields["last"]) < len(record) - 1 == 7
    assert all(
        (head == IGNORED) == (gold > kept)
        for head, (gold, _) in zip(record.fields["heads"], example.gold[:kept], strict=True)
    )
    assert [h == IGNORED for h in record.fields["heads"]] == [r == IGNORED for r in record.fields["relations"]]
    arcs = extend_arcs(np.log(np.full((kept, kept + 1), 1 / (kept + 1))), words)
    assert find_best_tree(arcs).tolist()[kept:] == [*range(kept + 2, words + 1), 0]
    assert (arcs[:kept, 0] < arcs[:kept, kept + 1]).all()


@pytest.mark.parametrize("architecture", ["default", "official"])
def test_a_few_steps_lower_the_loss(architecture, tokenizer, checkpoint, examples):
    task_head = ParsingHead(
        TASK,
        tokenizer,
        SMALL.model_copy(update={"architecture": architecture, "label_smoothing": 0.1}),
        TrainSettings(),
    )
    network = make_network(task_head, checkpoint)
    features = task_head.encode(examples[:4], with_gold=True)
    batch = network.collate(features, task_head, with_gold=True)
    words = max(len(e.words) for e in examples[:4])
    outputs = network(batch)
    assert outputs["arcs"].shape == (4, words, words + 1)
    assert outputs["relations"].shape == (4, words, len(TASK.labels))
    optimizer, losses = torch.optim.AdamW(network.parameters(), lr=1e-3), []
    for _ in range(16):
        loss, weight = task_head.loss(network(batch), batch)
        assert weight == sum(len(e.words) for e in examples[:4])
        optimizer.zero_grad()
        (loss / weight).backward()
        optimizer.step()
        losses.append(float(loss.detach() / weight))
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("architecture", ["default", "official"])
def test_the_loss_is_the_same_with_all_heads_scored_or_only_the_gold_ones(
    architecture, tokenizer, checkpoint, examples
):
    task_head = ParsingHead(
        TASK, tokenizer, SMALL.model_copy(update={"architecture": architecture, "parser_dropout": 0.0}), TrainSettings()
    )
    network = make_network(task_head, checkpoint).eval()
    batch = network.collate(task_head.encode(examples[:4], with_gold=True), task_head, with_gold=True)
    outputs = network(batch)
    network.head.train()
    gold_only = network(batch)
    assert (outputs["relations"].dim(), gold_only["relations"].dim()) == (4, 3)
    torch.testing.assert_close(task_head.loss(outputs, batch), task_head.loss(gold_only, batch))


@pytest.mark.parametrize("architecture", ["default", "official"])
def test_predictions_do_not_hang_on_the_batch(architecture, tokenizer, checkpoint, examples):
    task_head = ParsingHead(TASK, tokenizer, SMALL.model_copy(update={"architecture": architecture}), TrainSettings())
    network = make_network(task_head, checkpoint)
    together, outputs = predict(network, task_head, examples, batch_size=24)
    alone, alone_outputs = predict(network, task_head, examples, batch_size=1)
    assert together == alone
    for a, b in zip(outputs, alone_outputs, strict=True):
        np.testing.assert_allclose(a["arcs"], b["arcs"], atol=1e-4)


def test_a_sentence_without_words_is_an_empty_tree(tokenizer, checkpoint, examples):
    task_head = ParsingHead(TASK, tokenizer, SMALL, TrainSettings())
    network = make_network(task_head, checkpoint)
    empty = ParseExample("empty", (), ())
    assert [p.answer for p in predict(network, task_head, [empty])[0]] == [()]
    assert predict(network, task_head, [examples[0], empty])[0][1].answer == ()


def test_the_default_reads_neither_pos_nor_gold(tokenizer, checkpoint, examples):
    task_head = ParsingHead(TASK, tokenizer, SMALL, TrainSettings())
    network = make_network(task_head, checkpoint)
    bare = [ParseExample(e.guid, e.words, gold=()) for e in examples]
    assert predict(network, task_head, bare)[0] == predict(network, task_head, examples)[0]
    assert "pos" not in task_head.encode(examples, with_gold=True)[0].fields


def test_the_official_architecture_needs_pos(tokenizer, examples):
    task_head = ParsingHead(TASK, tokenizer, SMALL.model_copy(update={"architecture": "official"}), TrainSettings())
    with pytest.raises(DanseoError, match="the official dp architecture reads gold POS tags"):
        task_head.encode([replace(examples[0], pos=())], with_gold=False)
    assert task_head.encode(examples[:1], with_gold=False)[0].fields["pos"][0] == 45


def test_the_official_architecture_has_the_official_sizes(monkeypatch):
    monkeypatch.undo()  # LSTMs as wide as they are
    network = OfficialParser(768, len(TASK.labels), EncoderSettings())
    shapes = {name: tuple(weights.shape) for name, weights in network.named_parameters()}
    assert shapes["tags.weight"] == (46, 256)
    assert shapes["encoder.weight_ih_l0_reverse"] == (4 * 768, 2 * 768 + 256)
    assert shapes["decoder.weight_ih_l0"] == (4 * 768, 768)
    assert shapes["bridge.weight"] == shapes["start.weight"] == (768, 1536)
    assert shapes["scorer.arc_dependent.0.weight"] == (512, 768)
    assert shapes["scorer.arc_head.0.weight"] == (512, 1536)
    assert shapes["scorer.arcs.weight"] == (1, 512, 512)
    assert shapes["scorer.relation_dependent.0.weight"] == (256, 768)
    assert shapes["scorer.relation_head.0.weight"] == (256, 1536)
    assert shapes["scorer.relations.weight"] == (38, 256, 256)


def test_the_last_tag_of_a_word_counts():
    # the official run: 조지/NNP 해리슨+이/NNP+JKS 앨범+을/NNG+JKO 낸+./VV+ETM+SF
    example = ParseExample(
        "a", ("조지", "해리슨이", "앨범을", "낸."), (), pos=("NNP", "NNP+JKS", "NNG+JKO", "VV+ETM+SF")
    )
    assert len(TAGS) == 45
    assert encode_last_tags(example) == [1, 17, 20, 35]
    with pytest.raises(DanseoError, match="unknown POS tag 'XX'"):
        encode_last_tags(replace(example, pos=("NNP", "XX", "NNG", "SF")))
