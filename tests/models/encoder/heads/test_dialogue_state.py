import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedTokenizerFast

from danseo.models.encoder.heads.base import make_batch
from danseo.models.encoder.heads.dialogue_state import GATES, DialogueStateHead
from danseo.models.encoder.heads.slot_decoder import CopySource, SlotDecoder
from danseo.models.encoder.model import Encoder
from danseo.models.encoder.network import Network
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import EncoderSize, make_encoder_config, train_tokenizer
from danseo.records import DialogueExample
from danseo.scoring.score import measure
from danseo.tasks import TASKS
from danseo.tasktypes.dialogue_state import slot_of
from danseo.training.distributed import Workers
from danseo.training.features import IGNORED
from danseo.training.network import to_tensors
from tests.tiny import kind_settings, quick_config, tiny_encoder

WOS = TASKS["wos"]
TOY_SLOTS = ("관광-종류", "관광-지역", "식당-예약 시간")
WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] 안녕 ##하세요 박물관 . 네 서울 중앙 08 : 43 none 강남 ##역 dontcare yes no ptr "
    "관광 종류 지역 식당 예약 시간 , 카페 & 몰 좋 ##아요"
).split()
SMALL = EncoderSize(layers=2, hidden=64, heads=2, vocabulary=2000, positions=192)


@pytest.fixture(scope="module")
def toy():
    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return EncoderTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **names), 64)


def toy_kind(toy, **settings):
    return DialogueStateHead(replace(WOS, labels=TOY_SLOTS), toy, *kind_settings(**settings))


def words_of(tokenizer, ids):
    return " ".join(tokenizer.hf_tokenizer.convert_ids_to_tokens(ids))


DIALOGUE = [
    DialogueExample("toy-0", "toy", ("안녕하세요 박물관.",), ("관광-종류-박물관",)),
    DialogueExample(
        "toy-1",
        "toy",
        ("안녕하세요 박물관.", "네.", "서울 중앙."),
        ("관광-종류-박물관", "관광-지역-서울 중앙", "식당-예약 시간-08:43"),
    ),
]


def test_official_features(toy):
    first, second = toy_kind(toy, architecture="official").encode(DIALOGUE, with_gold=True)
    assert words_of(toy, first.ids) == "[CLS] [SEP] [SEP] 안녕 ##하세요 박물관 . [SEP]"
    assert words_of(toy, second.ids) == "[CLS] [SEP] 안녕 ##하세요 박물관 . [SEP] 네 . [SEP] 서울 중앙 . [SEP]"
    assert [first.fields["gates"].tolist(), second.fields["gates"].tolist()] == [[2, 0, 0], [2, 2, 2]]
    targets = [[words_of(toy, ids) for ids in record.fields["targets"].values()] for record in (first, second)]
    assert targets == [
        ["박물관 [SEP]", "none [SEP]", "none [SEP]"],
        ["박물관 [SEP]", "서울 중앙 [SEP]", "08 : 43 [SEP]"],
    ]
    assert not any(first.segments)


@pytest.mark.parametrize(
    ("gates", "values", "state"),
    [
        (
            (2, 0, 2),
            ("박물관 [SEP] [PAD]", "none [SEP]", "08 : 43 [SEP]"),
            ("관광-종류-박물관", "식당-예약 시간-08:43"),
        ),
        ((1, 3, 4), ("박물관",) * 3, ("관광-종류-dontcare", "관광-지역-yes", "식당-예약 시간-no")),
        ((2, 2, 2), ("none", "[SEP] 박물관", "강남 ##역 [SEP] 박물관"), ("관광-지역-", "식당-예약 시간-강남역")),
        ((2, 0, 0), ("박물관 [UNK] 박물관",), ("관광-종류-박물관",)),
    ],
)
def test_official_recovery(toy, gates, values, state):
    task_head = toy_kind(toy, architecture="official")
    assert decoded(task_head, gates, values, ("네.",)) == state


def decoded(task_head, gates, values, turns):
    ids = [[task_head.tokenizer.token_id(token) for token in value.split()] for value in values]
    table = np.full((len(gates), 10), task_head.tokenizer.hf_tokenizer.sep_token_id)
    for slot, row in enumerate(ids):
        table[slot, : len(row)] = row
    example = DialogueExample("x", "x", turns, ())
    output = {"gates": np.eye(len(GATES))[list(gates)], "values": table}
    return task_head.decode([example], task_head.encode([example], with_gold=False), [output])[0].answer


def test_values_are_spelled_as_in_training_or_as_said(toy):
    task_head = toy_kind(toy)
    none_seen = decoded(task_head, (2, 0, 0), ("카페 & 몰",), ("안녕하세요", "네."))
    assert none_seen == ("관광-종류-카페 & 몰",)
    assert decoded(task_head, (2, 0, 0), ("카페 & 몰",), ("네. 카페 &몰 좋아요", "네.")) == ("관광-종류-카페 &몰",)
    gold = DialogueExample("x", "x", ("네.",), ("식당-예약 시간-카페&몰", "관광-지역-카페& 몰"))
    task_head.prepare_loss(task_head.encode([gold], with_gold=True))
    assert decoded(task_head, (0, 0, 2), ("", "", "카페 & 몰"), ("카페 &몰",)) == ("식당-예약 시간-카페&몰",)
    assert decoded(task_head, (0, 2, 0), ("", "카페 & 몰"), ("카페 &몰",)) == ("관광-지역-카페& 몰",)
    assert decoded(task_head, (2, 2, 0), ("", "강남 ##역"), ("카페",)) == (
        "관광-지역-강남역",
    )  # an empty value is none
    again = toy_kind(toy)
    again.restore_state(json.loads(json.dumps(task_head.get_state())))
    assert again.values.texts == task_head.values.texts
    assert again.values.find(2, tuple(toy.tokenize(["카페 & 몰"])[0].ids)) == "카페&몰"


def test_the_end_of_a_long_dialogue_is_kept(toy):
    record = toy_kind(toy, max_length=9).encode(DIALOGUE, with_gold=True)[1]
    assert words_of(toy, record.ids) == "[CLS] [SEP] 네 . [SEP] 서울 중앙 . [SEP]"
    assert record.fields["truncated"]


class Trained:
    """A kind with a tiny random encoder, as the network has it."""

    def __init__(self, sample: Path, family: str, architecture: str = "default", **changes):
        torch.manual_seed(0)
        self.train = read(sample, "train")
        known = [*self.train, *read(sample, "dev")]
        tokenizer = train_tokenizer([t for e in known for t in (*e.turns, *e.gold)], family, SMALL)
        self.task_head = DialogueStateHead(
            WOS, EncoderTokenizer(tokenizer, 192), *kind_settings(max_length=192, architecture=architecture)
        )
        config = make_encoder_config(family, SMALL, tokenizer)
        for name, value in changes.items():
            setattr(config, name, value)
        self.encoder = AutoModel.from_config(config)
        self.head = self.task_head.build_network_head(self.encoder)
        self.features = self.task_head.encode(self.train, with_gold=True)
        self.task_head.prepare_loss(self.features)

    def batch(self, features, with_gold=True):
        return to_tensors(make_batch(features, self.task_head, with_gold, with_segments=False))

    def __call__(self, batch):
        return Network(self.encoder, self.head)({**batch, "segments": torch.zeros_like(batch["input_ids"])})

    def modules(self, training):
        for module in (self.encoder, self.head):
            module.train(training)

    def predict(self, features, examples):
        self.modules(False)
        with torch.no_grad():
            batch = self.batch(features, with_gold=False)
            outputs = self.task_head.unpack(self(batch), batch, features)
        return self.task_head.decode(examples, features, outputs)


def read(sample: Path, split: str):
    return WOS.read(sample / "wos-v1.1" / f"wos-v1.1_{split}.json")


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_perfect_outputs_score_100_on_the_sample(sample: Path, family):
    trained = Trained(sample, family)
    dev = read(sample, "dev")
    features = trained.task_head.encode(dev, with_gold=True)
    perfect = trained.task_head.decode(dev, features, trained.task_head.make_perfect_outputs(dev, features))
    assert measure(WOS, dev, perfect)[WOS.headline].value() == 100
    positions = [[WOS.labels.index(slot_of(item)) for item in prediction.answer] for prediction in perfect]
    assert positions == [sorted(row) for row in positions]


@pytest.mark.parametrize(
    ("family", "has_pooler"),
    [("bert", True), ("roberta", True), ("xlm-roberta", True), ("electra", False), ("deberta-v2", False),
     ("modernbert", False)],
)  # fmt: skip
def test_the_official_decoder_starts_from_the_checkpoints_own_pooler(sample: Path, tmp_path, family, has_pooler):
    folder = tiny_encoder(tmp_path / "encoder", sample, family, layers=1)
    stock = AutoModel.from_pretrained(folder)
    model = Encoder(quick_config("wos", folder, architecture="official"), WOS, Workers("cpu"))
    network = model.network.eval()
    assert (network.head.pool is None) == has_pooler
    batch = network.collate(
        model.task_head.encode(read(sample, "dev")[:3], with_gold=False), model.task_head, with_gold=False
    )
    if has_pooler:
        assert torch.equal(network.model.pooler.dense.weight, stock.pooler.dense.weight)
        seen = []
        step = network.head.writer.step
        network.head.writer.step = lambda inputs, states: seen.append(states) or step(inputs, states)
        with torch.no_grad():
            network(batch)
            texts = batch["input_ids"].split(batch["texts"].lengths)
            given = torch.cat([stock(input_ids=ids[None]).pooler_output for ids in texts])
        torch.testing.assert_close(seen[0][:, 0], given)
    plain = Encoder(quick_config("wos", folder), WOS, Workers("cpu")).network
    assert getattr(plain.model, "pooler", None) is None, "the default does not need one"


@pytest.mark.parametrize("architecture", ["default", "official"])
def test_a_few_turns_are_learned(sample: Path, architecture):
    trained = Trained(sample, "bert", architecture)
    features = trained.features[:6]
    parameters = [*trained.encoder.parameters(), *trained.head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    trained.modules(True)
    losses = []
    for _ in range(40 if architecture == "default" else 8):
        batch = trained.batch(features)
        loss, weight = trained.task_head.loss(trained(batch), batch)
        assert float(weight) == 6
        optimizer.zero_grad()
        (loss / weight).backward()
        optimizer.step()
        losses.append(loss.item() / 6)
    assert losses[-1] < losses[0] * (0.5 if architecture == "default" else 0.8)
    predictions = trained.predict(features, trained.train[:6])
    assert all(WOS.check_answer(None, p.answer) == p.answer for p in predictions)
    if architecture == "default":
        assert measure(WOS, trained.train[:6], predictions)["wos/slot_f1@pooled-1"].value() > 50
    assert not any("shared" in name for name in trained.head.state_dict())  # the encoder owns the embeddings


@pytest.mark.parametrize("architecture", ["default", "official"])
def test_no_gold_bf16_and_other_embedding_width(sample: Path, architecture):
    trained = Trained(sample, "electra", architecture, embedding_size=32)
    trained.modules(True)
    batch = trained.batch(trained.features[:3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = trained(batch)
    loss, weight = trained.task_head.loss(outputs, batch)
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss / weight)
    loss.backward()
    nameless = [replace(e, gold=()) for e in trained.train[:3]]
    features = trained.task_head.encode(nameless, with_gold=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert len(trained.predict(features, nameless)) == 3


@pytest.mark.parametrize("plain", [False, True])
def test_gold_pieces_are_as_likely_as_the_whole_distribution_says(plain):
    torch.manual_seed(1)
    writer, source, start, states = small_writer(plain)
    targets = torch.tensor([[[7, 3, IGNORED], [9, 9, 3]], [[5, 6, 3], [IGNORED] * 3]])
    with torch.no_grad():
        written = writer.decode_forced(start, states, targets)
        surprise = writer.surprise(written, targets, source, (targets.flatten() >= 0).nonzero()[:, 0])
        table = distributions(writer, written, source)
        assert torch.allclose(table.sum(-1), torch.ones(2, 2, 3), atol=1e-5)
        chosen = -table.gather(3, targets.clamp(min=0)[..., None])[..., 0].log()
    assert torch.allclose(surprise, (chosen * (targets >= 0)).sum((1, 2)), atol=1e-4)


def small_writer(plain):
    measures = SimpleNamespace(size=8, dropout=0.0, end=3, max_length=5)
    writer = SlotDecoder(measures, torch.nn.Embedding(20, 8), plain).eval()
    ids = torch.tensor([[2, 7, 5, 6, 3], [2, 5, 9, 3, 0]])
    marks = None if plain else torch.randn(2, 2, 5)
    source = CopySource(torch.randn(2, 5, 8), (ids > 0).long(), ids, marks)
    return writer, source, torch.randn(2, 2, 8), torch.randn(2, 2, 8)


def distributions(writer, written, source):
    """The mixture over the whole vocabulary, all steps."""
    attention, odds = writer._attend_and_mix(written, source)
    share = odds.sigmoid()[..., None]
    spell_tokens = torch.log_softmax(writer.spells(written.states) @ writer.shared[0].weight.T, -1).exp()
    copied = torch.zeros_like(spell_tokens).scatter_add_(3, source.ids[:, None, None].expand_as(attention), attention)
    return share * spell_tokens + (1 - share) * copied


@pytest.mark.parametrize("plain", [False, True])
def test_free_writing_takes_the_likeliest_piece_at_every_step(plain, monkeypatch):
    torch.manual_seed(2)
    writer, source, start, states = small_writer(plain)
    wanted = torch.tensor([[True, True], [True, False]])
    with torch.no_grad():
        written, tokenizer = writer.free(start, states, wanted, source, 5)
        best = distributions(writer, written, source).argmax(-1)
        monkeypatch.setattr("danseo.models.encoder.heads.slot_decoder._CELLS", 20)  # one row at a time
        _, by_row = writer.free(start, states, wanted, source, 5)
    before_end = (tokenizer != 3).cumprod(-1).bool()
    assert torch.equal(best[before_end], tokenizer[before_end])
    assert (tokenizer[1, 1] == 3).all()
    assert torch.equal(tokenizer, by_row)
