import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from danseo.errors import DanseoError
from danseo.models.encoder.heads.entity_markers import ENGLISH, KOREAN, MarkerStyle
from danseo.models.encoder.heads.input_check import check_marked_inputs
from danseo.models.encoder.heads.pooling import PooledHead, pool_states
from danseo.models.encoder.heads.relation import RelationHead
from danseo.models.encoder.model import Encoder
from danseo.models.encoder.packed_texts import PackedTexts
from danseo.models.encoder.tokenizer import EncoderTokenizer
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.records import Entity, RelationExample
from danseo.tasks import TASKS
from danseo.training.distributed import Workers
from tests.tiny import kind_settings, quick_config, read_split, tiny_encoder

GOLDEN = json.loads((Path(__file__).parents[3] / "fixtures" / "relations.json").read_text("utf-8"))["markers"]
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
    assert MarkerStyle(name).mark_sentence(BEATLES) == GOLDEN["expected"][name]


def test_questions_and_concatenation_go_before():
    asked = GOLDEN["expected"]["typed_punct_korean_query"]
    variant = MarkerStyle("typed_punct_korean", question=True)
    assert variant.list_prefix_texts(BEATLES) == [asked["first_segment"]]
    assert variant.mark_sentence(BEATLES) == asked["second_segment"]
    assert MarkerStyle("concat").text(BEATLES) == f"비틀즈 [SEP] 조지 해리슨 [SEP] {BEATLES.text}"
    assert "&^사람^조지 해리슨&이" in MarkerStyle("typed_punct_korean", object_char="&").mark_sentence(BEATLES)


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])  # the two tokenizers that families have
def encoder(request, sample: Path, tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("markers") / request.param, sample, request.param)


def made(folder: Path, sample: Path, family: str = "bert") -> Path:
    """A tiny encoder whose tokenizer knows the signs of markers."""
    words = [word for word in (*KOREAN.values(), *ENGLISH.values()) for _ in range(30)]
    signs = [f"@ * {word} * # ^ & {word} @* #^ @ 와 의 관계" for word in words]
    texts = [*(e.text for e in read_split(sample, "re", "train", 300)), *signs]
    return make_encoder(
        folder, texts, family, EncoderSize(layers=1, hidden=16, heads=2, vocabulary=1500, positions=160)
    )


@pytest.fixture(scope="module")
def bert(sample: Path, tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("markers") / "bert", sample)


def get_head_class(encoder: Path, **settings) -> RelationHead:
    from transformers import AutoTokenizer

    config, train = kind_settings(**settings)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(RelationHead.added_tokens(config))})
    return RelationHead(TASKS["re"], EncoderTokenizer(tokenizer, 160), config, train)


def surface(task_head: RelationHead, ids: list[int]) -> str:
    text = "".join(task_head.tokenizer.hf_tokenizer.convert_ids_to_tokens(ids))
    return text.replace("##", "").replace("▁", "").replace("[CLS]", "").replace("[PAD]", "")


@pytest.mark.parametrize("query", [False, True], ids=["alone", "asked"])
@pytest.mark.parametrize("markers", VARIANTS)
def test_every_variant_shows_what_its_string_says(encoder, sample, markers, query):
    """Family by family: the pieces put together are the golden strings, particles and all."""
    task_head = get_head_class(encoder, markers=markers, add_query=query, max_length=160, object_marker="&")
    examples = read_split(sample, "re", "train", 40)
    features = task_head.encode(examples, with_gold=True)
    check_marked_inputs(task_head, examples, features)
    for example, record in zip(examples, features, strict=True):
        if task_head.tokenizer.unk_id not in record.ids and record.fields["window"] == "whole":
            due = (
                "[SEP]".join([*task_head.style.list_prefix_texts(example), task_head.style.mark_sentence(example)])
                + "[SEP]"
            )
            assert surface(task_head, record.ids) == due.replace(" ", "")
    assert sum(task_head.tokenizer.unk_id not in record.ids for record in features) > 20


@pytest.mark.parametrize("markers", VARIANTS)
def test_short_inputs_keep_markers_and_entities(encoder, sample, markers):
    examples = read_split(sample, "re", "train", 40)
    whole = get_head_class(encoder, markers=markers, add_query=True, max_length=160).encode(examples, with_gold=True)
    longest = max(map(len, whole)) - 3
    task_head = get_head_class(encoder, markers=markers, add_query=True, max_length=longest)
    features = task_head.encode(examples, with_gold=True)
    check_marked_inputs(task_head, examples, features)
    assert max(map(len, features)) <= longest
    assert task_head.describe_inputs(examples, features)["windows"].keys() - {"whole"}


def test_particles_keep_their_form_after_signs(bert):
    task_head = get_head_class(bert, markers="typed_punct_korean", max_length=160)
    text = "김민수는 서울에서 산다."
    case = RelationExample("x", text, Entity("김민수", 0, 3, "PER"), Entity("서울", 5, 7, "LOC"), "no_relation")
    (record,) = task_head.encode([case], with_gold=False)
    tokens = task_head.tokenizer.hf_tokenizer.convert_ids_to_tokens(record.ids)
    assert all(tokens[record.fields["markers"][closing] + 1].startswith("##") for closing in (1, 3))
    assert [tokens[position] for position in record.fields["markers"]] == ["@", "@", "#", "#"]


# What is refused


def broken(features, change):
    copies = [replace(record, fields=dict(record.fields), ids=list(record.ids)) for record in features]
    change(copies)
    return copies


@pytest.fixture(scope="module")
def shown(sample, bert):
    task_head = get_head_class(bert, max_length=160)
    examples = [
        e
        for e in read_split(sample, "re", "train")
        if task_head.tokenizer.unk_id not in task_head.tokenizer.tokenize([e.text])[0].ids
    ]
    return task_head, examples[:10], task_head.encode(examples[:10], with_gold=True)


def test_an_entity_that_is_not_there_is_refused(shown):
    """What a loader that loses the entities makes: the right places, other words."""
    task_head, examples, features = shown

    def blank(records):
        (start, end), _ = records[2].fields["spans"]
        records[2].ids[start:end] = [task_head.tokenizer.token_id("다")] * (end - start)

    with pytest.raises(DanseoError, match=f"{examples[2].guid} does not show {examples[2].subject.word}"):
        check_marked_inputs(task_head, examples, broken(features, blank))


def test_different_examples_that_come_out_the_same_are_refused(shown):
    task_head, examples, features = shown
    other = next(k for k, e in enumerate(examples) if (e.text, e.subject) != (examples[0].text, examples[0].subject))

    def same(records):
        records[other] = records[0]

    pretended = [replace(examples[0], guid=e.guid) if k == other else e for k, e in enumerate(examples)]
    check_marked_inputs(task_head, pretended, broken(features, same))  # the same example twice is no fault
    moved = replace(examples[0], guid="moved", text="그리고 " + examples[0].text)
    pretended[other] = moved
    with pytest.raises(DanseoError, match="differ, but come out as the same input"):
        check_marked_inputs(task_head, pretended, broken(features, same))


def test_training_refuses_such_inputs(sample, tmp_path, monkeypatch):
    encoder = tiny_encoder(tmp_path / "bert", sample)
    model = Encoder(quick_config("re", encoder), TASKS["re"], Workers("cpu"))
    whole = RelationHead._make_input

    def blind(self, number, example, sentence):
        record = whole(self, number, example, sentence)
        start, end = record.fields["spans"][0]
        record.ids[start:end] = [self.tokenizer.token_id("다")] * (end - start)
        return record

    monkeypatch.setattr(RelationHead, "_make_input", blind)
    with pytest.raises(DanseoError, match="does not show"):
        model.prepare(read_split(sample, "re", "train", 10), read_split(sample, "re", "dev", 8))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"object_marker": "@"}, "object_marker = @"),
        ({"object_marker": "##"}, "object_marker = ##"),
        ({"architecture": "official", "markers": "concat"}, "official architecture"),
        ({"architecture": "official", "pooling": "e_start"}, "official architecture"),
        ({"markers": "typed_punct_korean", "add_query": True, "max_length": 16}, "max_length 16 has no room"),
    ],
)
def test_what_does_not_fit_is_one_line(sample, bert, settings, words):
    with pytest.raises(DanseoError, match=words):
        get_head_class(bert, **settings).encode(read_split(sample, "re", "train", 20), with_gold=False)


def test_a_tokenizer_without_the_signs_is_refused(sample, tmp_path):
    task_head = get_head_class(tiny_encoder(tmp_path / "bert", sample), markers="typed_punct_korean")
    with pytest.raises(DanseoError, match="does not know @"):
        task_head.encode(read_split(sample, "re", "train", 2), with_gold=False)


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
    tokenizer, rows = model.task_head.tokenizer, model.network.model.get_input_embeddings().weight.detach()
    known = [id for id in tokenizer.tokenize([word])[0].ids if id != tokenizer.unk_id]
    assert known, "else nothing is shown here"
    due = rows[known].mean(dim=0)
    for token in tokens:
        found = rows[tokenizer.token_id(token)]
        assert torch.nn.functional.cosine_similarity(found, due, dim=0) > 0.95
        assert not torch.equal(found, due)
    assert len(tokenizer.hf_tokenizer) <= len(rows)


def test_poolings_read_what_they_say():
    hidden = torch.arange(2 * 6 * 4, dtype=torch.float).view(12, 4)
    batch = {
        "texts": PackedTexts.of([6, 6]),
        "starts": torch.tensor([[1, 3], [4, 2]]),
        "spans": torch.tensor([[[1, 3], [3, 4]], [[4, 6], [2, 3]]]),
    }
    first, second = hidden.split(6)
    assert torch.equal(pool_states(hidden, batch, "cls")[0], hidden[[0, 6]])
    starts = pool_states(hidden, batch, "e_start")
    assert torch.equal(starts[0], torch.stack([first[1], second[4]]))
    assert torch.equal(starts[1], torch.stack([first[3], second[2]]))
    assert len(pool_states(hidden, batch, "cls+e_start")) == 3
    assert torch.equal(pool_states(hidden, batch, "e_mean")[1], torch.stack([first[1:3].mean(0), second[4:6].mean(0)]))
    assert torch.equal(pool_states(hidden, batch, "e_max")[1], torch.stack([first[2], second[5]]))


@pytest.mark.parametrize("pooling", ["cls+e_start", "e_max"])
def test_a_pooling_learns_saves_and_loads(sample, bert, tmp_path, pooling):
    from danseo.experiment import run_experiment
    from danseo.models.registry import load_model

    config = quick_config(
        "re", bert, pooling=pooling, markers="typed_entity_marker_punct", max_train_samples=24, epochs=1
    )
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
    hidden, batch = torch.randn(10, 8), {"texts": PackedTexts.of([5, 5])}
    found = head(hidden, batch)
    assert found["samples"].shape == (4, 2, 3)
    assert not torch.equal(found["samples"][0], found["samples"][1])
    torch.testing.assert_close(found["logits"], found["samples"].mean(dim=0))
    head.eval()
    assert "samples" not in head(hidden, batch)
