import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from danseo.config import HeadConfig
from danseo.errors import DanseoError
from danseo.models.encoder.marking import ENGLISH, KOREAN, Variant
from danseo.models.encoder.model import Encoder
from danseo.models.encoder.pieces import Pieces
from danseo.models.encoder.pooling import PooledHead, pooled
from danseo.models.encoder.relate import Relate
from danseo.models.encoder.shown import check_shown
from danseo.models.scratch import Size, make_encoder
from danseo.records import Entity, RelationExample
from danseo.tasks import TASKS
from danseo.training.workers import Workers
from tests.tiny import FAMILIES, quick_config, read_split, tiny_encoder

GOLDEN = json.loads((Path(__file__).parents[1] / "fixtures" / "relations.json").read_text("utf-8"))["markers"]
VARIANTS = (
    "klue", "entity_marker", "entity_marker_punct", "typed_entity_marker", "typed_entity_marker_punct",
    "typed_punct_korean", "entity_mask", "concat",
)  # fmt: skip


def entity(record: dict) -> Entity:
    return Entity(record["word"], record["start_idx"], record["end_idx"] + 1, record["type"])


BEATLES = RelationExample(
    "x", GOLDEN["sentence"], entity(GOLDEN["subject"]), entity(GOLDEN["object"]), "org:top_members/employees"
)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "concat"])
def test_marked_sentences_read_as_in_the_golden_file(name):
    assert Variant(name).marked(BEATLES) == GOLDEN["expected"][name]


def test_questions_and_concatenation_go_before():
    asked = GOLDEN["expected"]["typed_punct_korean_query"]
    variant = Variant("typed_punct_korean", question=True)
    assert variant.fronts(BEATLES) == [asked["first_segment"]]
    assert variant.marked(BEATLES) == asked["second_segment"]
    assert Variant("concat").text(BEATLES) == f"비틀즈 [SEP] 조지 해리슨 [SEP] {BEATLES.text}"
    assert "&^사람^조지 해리슨&이" in Variant("typed_punct_korean", object_char="&").marked(BEATLES)


@pytest.fixture(scope="module", params=FAMILIES)
def encoder(request, sample: Path, tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("markers") / request.param, sample, request.param)


def made(folder: Path, sample: Path, family: str = "bert") -> Path:
    """A tiny encoder whose tokenizer knows the signs of markers."""
    words = [word for word in (*KOREAN.values(), *ENGLISH.values()) for _ in range(30)]
    signs = [f"@ * {word} * # ^ & {word} @* #^ @ 와 의 관계" for word in words]
    texts = [*(e.text for e in read_split(sample, "re", "train", 300)), *signs]
    return make_encoder(folder, texts, family, Size(layers=1, hidden=16, heads=2, vocabulary=1500, positions=160))


def kind_of(encoder: Path, **settings) -> Relate:
    from transformers import AutoTokenizer

    config = HeadConfig(**settings)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(Relate.added_pieces(config))})
    return Relate(TASKS["re"], Pieces(tokenizer, 160), config)


def surface(kind: Relate, ids: list[int]) -> str:
    text = "".join(kind.pieces.tokenizer.convert_ids_to_tokens(ids))
    return text.replace("##", "").replace("▁", "").replace("[CLS]", "").replace("[PAD]", "")


@pytest.mark.parametrize("query", [False, True], ids=["alone", "asked"])
@pytest.mark.parametrize("markers", VARIANTS)
def test_every_variant_shows_what_its_string_says(encoder, sample, markers, query):
    """Family by family: the pieces put together are the golden strings, particles and all."""
    kind = kind_of(encoder, markers=markers, query=query, max_length=160, object_char="&")
    examples = read_split(sample, "re", "train", 40)
    features = kind.encode(examples, with_gold=True)
    check_shown(kind, examples, features)
    for example, record in zip(examples, features, strict=True):
        if kind.pieces.unknown not in record.ids and record.fields["window"] == "whole":
            due = "[SEP]".join([*kind.variant.fronts(example), kind.variant.marked(example)]) + "[SEP]"
            assert surface(kind, record.ids) == due.replace(" ", "")
    assert sum(kind.pieces.unknown not in record.ids for record in features) > 20


@pytest.mark.parametrize("markers", VARIANTS)
def test_short_inputs_keep_markers_and_entities(encoder, sample, markers):
    examples = read_split(sample, "re", "train", 40)
    whole = kind_of(encoder, markers=markers, query=True, max_length=160).encode(examples, with_gold=True)
    longest = max(map(len, whole)) - 3
    kind = kind_of(encoder, markers=markers, query=True, max_length=longest)
    features = kind.encode(examples, with_gold=True)
    check_shown(kind, examples, features)
    assert max(map(len, features)) <= longest
    assert kind.input_facts(examples, features)["windows"].keys() - {"whole"}


def test_particles_keep_their_form_after_signs(sample, tmp_path):
    kind = kind_of(made(tmp_path / "bert", sample), markers="typed_punct_korean", max_length=160)
    text = "김민수는 서울에서 산다."
    case = RelationExample("x", text, Entity("김민수", 0, 3, "PER"), Entity("서울", 5, 7, "LOC"), "no_relation")
    (record,) = kind.encode([case], with_gold=False)
    tokens = kind.pieces.tokenizer.convert_ids_to_tokens(record.ids)
    assert all(tokens[record.fields["markers"][closing] + 1].startswith("##") for closing in (1, 3))
    assert [tokens[position] for position in record.fields["markers"]] == ["@", "@", "#", "#"]


# What is refused


def broken(features, change):
    copies = [replace(record, fields=dict(record.fields), ids=list(record.ids)) for record in features]
    change(copies)
    return copies


@pytest.fixture(scope="module")
def shown(sample, tmp_path_factory):
    encoder = tiny_encoder(tmp_path_factory.mktemp("shown") / "bert", sample)
    kind = kind_of(encoder, max_length=160)
    examples = [
        e for e in read_split(sample, "re", "train") if kind.pieces.unknown not in kind.pieces.cut([e.text])[0].ids
    ]
    return kind, examples[:10], kind.encode(examples[:10], with_gold=True)


def test_a_marker_elsewhere_is_refused(shown):
    kind, examples, features = shown

    def shift(records):
        records[3].fields["markers"] = tuple(position + 1 for position in records[3].fields["markers"])

    with pytest.raises(DanseoError, match=f"{examples[3].guid} lacks an entity marker"):
        check_shown(kind, examples, broken(features, shift))


def test_an_entity_that_is_not_there_is_refused(shown):
    """What a loader that loses the entities makes: the right places, other words."""
    kind, examples, features = shown

    def blank(records):
        (start, end), _ = records[2].fields["spans"]
        records[2].ids[start:end] = [kind.pieces.id("다")] * (end - start)

    with pytest.raises(DanseoError, match=f"{examples[2].guid} does not show {examples[2].subject.word}"):
        check_shown(kind, examples, broken(features, blank))


def test_different_examples_that_come_out_the_same_are_refused(shown):
    kind, examples, features = shown
    other = next(k for k, e in enumerate(examples) if (e.text, e.subject) != (examples[0].text, examples[0].subject))

    def same(records):
        records[other] = records[0]

    pretended = [replace(examples[0], guid=e.guid) if k == other else e for k, e in enumerate(examples)]
    check_shown(kind, pretended, broken(features, same))  # the same example twice is no fault
    moved = replace(examples[0], guid="moved", text="그리고 " + examples[0].text)
    pretended[other] = moved
    with pytest.raises(DanseoError, match="differ, but come out as the same input"):
        check_shown(kind, pretended, broken(features, same))


def test_training_refuses_such_inputs(sample, tmp_path, monkeypatch):
    encoder = tiny_encoder(tmp_path / "bert", sample)
    model = Encoder(quick_config("re", encoder), TASKS["re"], Workers("cpu"))
    whole = Relate._whole

    def blind(self, number, example, sentence):
        record = whole(self, number, example, sentence)
        start, end = record.fields["spans"][0]
        record.ids[start:end] = [self.pieces.id("다")] * (end - start)
        return record

    monkeypatch.setattr(Relate, "_whole", blind)
    with pytest.raises(DanseoError, match="does not show"):
        model.prepare(read_split(sample, "re", "train", 10), read_split(sample, "re", "dev", 8))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"object_char": "@"}, "object_char = @"),
        ({"object_char": "##"}, "object_char = ##"),
        ({"architecture": "official", "markers": "concat"}, "official architecture"),
        ({"architecture": "official", "pooling": "e_start"}, "official architecture"),
        ({"markers": "typed_punct_korean", "query": True, "max_length": 16}, "max_length 16 has no room"),
    ],
)
def test_what_does_not_fit_is_one_line(sample, tmp_path, settings, words):
    encoder = made(tmp_path / "bert", sample)
    with pytest.raises(DanseoError, match=words):
        kind_of(encoder, **settings).encode(read_split(sample, "re", "train", 20), with_gold=False)


def test_a_tokenizer_without_the_signs_is_refused(sample, tmp_path):
    kind = kind_of(tiny_encoder(tmp_path / "bert", sample), markers="typed_punct_korean")
    with pytest.raises(DanseoError, match="does not know @"):
        kind.encode(read_split(sample, "re", "train", 2), with_gold=False)


# Rows and heads


@pytest.mark.parametrize(
    ("markers", "word", "tokens"),
    [
        ("typed_entity_marker", "단체", ("<S:ORG>", "</S:ORG>", "<O:ORG>")),
        ("klue", "주체", ("<subj>", "</subj>")),
        ("entity_marker", "대상", ("[E2]", "[/E2]")),
    ],
)
def test_markers_start_from_the_word_of_their_type_or_role(sample, tmp_path, markers, word, tokens):
    encoder = tiny_encoder(tmp_path / "bert", sample, hidden=64)
    model = Encoder(quick_config("re", encoder, markers=markers), TASKS["re"], Workers("cpu"))
    pieces, rows = model.kind.pieces, model.network.model.get_input_embeddings().weight.detach()
    known = [id for id in pieces.cut([word])[0].ids if id != pieces.unknown]
    assert known, "else nothing is shown here"
    due = rows[known].mean(dim=0)
    for token in tokens:
        found = rows[pieces.id(token)]
        assert torch.nn.functional.cosine_similarity(found, due, dim=0) > 0.95
        assert not torch.equal(found, due)
    assert len(pieces.tokenizer) <= len(rows)


def test_poolings_read_what_they_say():
    hidden = torch.arange(2 * 6 * 4, dtype=torch.float).view(2, 6, 4)
    batch = {"starts": torch.tensor([[1, 3], [4, 2]]), "spans": torch.tensor([[[1, 3], [3, 4]], [[4, 6], [2, 3]]])}
    first, second = hidden
    assert torch.equal(pooled(hidden, batch, "cls")[0], hidden[:, 0])
    starts = pooled(hidden, batch, "e_start")
    assert torch.equal(starts[0], torch.stack([first[1], second[4]]))
    assert torch.equal(starts[1], torch.stack([first[3], second[2]]))
    assert len(pooled(hidden, batch, "cls+e_start")) == 3
    assert torch.equal(pooled(hidden, batch, "e_mean")[1], torch.stack([first[1:3].mean(0), second[4:6].mean(0)]))
    assert torch.equal(pooled(hidden, batch, "e_max")[1], torch.stack([first[2], second[5]]))


@pytest.mark.parametrize("pooling", ["e_start", "cls+e_start", "e_mean", "e_max"])
def test_a_pooling_learns_saves_and_loads(sample, tmp_path, pooling):
    from danseo.experiment import run_experiment
    from danseo.models.families import load_model

    encoder = made(tmp_path / "bert", sample)
    config = quick_config("re", encoder, pooling=pooling, markers="typed_entity_marker_punct", limit=24, epochs=1)
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True)
    assert run.read_json("preflight.json")["shown"]["train"]["windows"]["whole"] > 0
    assert (run.path / "model" / "head.safetensors").is_file()
    dev = read_split(sample, "re", "dev", 6)
    again = load_model(run, "cpu").predict(dev)
    saved = [json.loads(line) for line in run.predictions_path("dev").read_text("utf-8").splitlines()]
    assert [p.answer for p in again] == [row["answer"] for row in saved[:6]]


def test_several_dropouts_are_averaged_only_while_learning():
    torch.manual_seed(0)
    head = PooledHead(8, "cls", 3, 0.5, samples=4)
    hidden = torch.randn(2, 5, 8)
    found = head(hidden, {})
    assert found["samples"].shape == (4, 2, 3)
    assert not torch.equal(found["samples"][0], found["samples"][1])
    torch.testing.assert_close(found["logits"], found["samples"].mean(dim=0))
    head.eval()
    assert "samples" not in head(hidden, {})
