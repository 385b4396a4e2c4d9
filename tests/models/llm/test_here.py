"""Models that run here: batches, the common beginning and the padding change nothing, and guides hold."""

import json
import math

import pytest
import torch

from danseo.config import RunConfig
from danseo.models.llm.attention import grouped
from danseo.models.llm.calls import Request
from danseo.models.llm.here import batches, common_beginning, load_here
from danseo.models.llm.prompted import Prompted
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.stream import Tree, log_sums
from danseo.tasks import TASKS
from tests.tiny import read_split, tiny_decoder

FAMILIES = ("gemma3_text", "llama", "qwen2")


@pytest.fixture(scope="module")
def folders(tmp_path_factory, sample):
    made = {}
    for family in FAMILIES:
        made[family] = tiny_decoder(tmp_path_factory.mktemp(family), sample, family)
        config = json.loads((made[family] / "config.json").read_text())
        config["max_position_embeddings"] = 4096
        if family == "gemma3_text":
            config["sliding_window"] = 24  # far less than a prompt
        (made[family] / "config.json").write_text(json.dumps(config))
    return made


def prompted(folder, task, **settings) -> Prompted:
    config = RunConfig(task=task, model=f"llm:{folder}", prompt=PromptConfig(**settings))
    return Prompted(config, TASKS[task], load_here(config, str(folder), "cpu"))


def plain_generate(here, prompt, count):
    ids = torch.tensor([prompt])
    found = here.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return found[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_write_what_the_library_writes_one_by_one(family, folders, sample):
    model = prompted(folders[family], "nli", mode="generate", free=True, reply_tokens=10)
    here = model.source
    requests = [q.parts[0][1] for q in model.questions(read_split(sample, "nli", "dev", 6))]
    found = {}
    here.answer(requests, [r.guid for r in requests], lambda call: found.__setitem__(call.guid, call))
    for request in requests:
        prompt = here.writing.prompt(request.messages)
        due = plain_generate(here, prompt, 10)
        ends = [position for position, token in enumerate(due) if token in here.writing.ends]
        assert found[request.guid].text == here.writing.text(due[: ends[0]] if ends else due)
    assert {call.cached_tokens for call in found.values()} == {
        len(common_beginning([here.writing.prompt(r.messages) for r in requests]))
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_weighed_labels_are_those_of_prompt_and_label_one_by_one(family, folders, sample):
    model = prompted(folders[family], "re", shots=1)
    model.prepare(read_split(sample, "re", "train"), read_split(sample, "re", "dev"))
    examples = read_split(sample, "re", "dev", 3)
    found = model.ask(examples)
    here = model.source
    for question, prediction in zip(model.questions(examples), found, strict=True):
        request = question.parts[0][1]
        prompt = here.writing.prompt(request.messages)
        call = model.calls.known[request.key(here.identity())]
        weights = call.weights
        assert call.seconds > 0
        for label in list(request.choices)[::7]:
            reply = [*here.writing.reply(request.choices[label]), here.writing.end]
            with torch.no_grad():
                logits = here.model(torch.tensor([[*prompt, *reply]])).logits[0].log_softmax(-1)
            due = sum(float(logits[len(prompt) - 1 + k, token]) for k, token in enumerate(reply))
            assert weights[label] == pytest.approx(due, abs=1e-4)
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert prediction.answer == max(prediction.probabilities, key=prediction.probabilities.get)


@pytest.mark.parametrize("task", TASKS)
def test_guided_replies_of_a_random_model_have_their_shape(task, folders, sample):
    model = prompted(folders["llama"], task, mode="generate", reply_tokens=600)
    examples = read_split(sample, task, "dev", 3)
    found = model.ask(examples)
    assert [p.guid for p in found] == [e.guid for e in examples]
    classes = set(model.tally.classes)
    assert classes <= {"truncated", "malformed", "overlap", "occ_out_of_range", "duplicate", "type_conflict"}
    for call in model.calls.known.values():
        if call.finish == "stop":
            json.loads(call.text)
    if task not in ("ner", "wos"):  # whose lists a random model may never end
        assert model.tally.failed == 0


def test_texts_with_quotes_can_be_copied(folders):
    from danseo.records import TextExample

    model = prompted(folders["llama"], "ner")
    example = TextExample("g", '그는 "왜\\?"라고 했다', ("O",) * 14)
    (question,) = model.questions([example])
    guide = model.source.guides.of(question.parts[0][1])
    right = model.asking.gold(TextExample("g", example.text, ("O", "O", "O", "B-PS", "I-PS", "I-PS", *["O"] * 8)))
    assert '\\"' in right
    guide.take(*model.source.writing.reply(right))
    assert guide.is_over


def test_a_guide_refuses_what_is_not_in_the_sentence(folders, sample):
    model = prompted(folders["llama"], "ner")
    (question,) = model.questions(read_split(sample, "ner", "dev", 1))
    guide = model.source.guides.of(question.parts[0][1])
    tokens = model.source.writing.reply('{"entities":[{"text":"쀍')
    assert guide.matcher.try_consume_tokens(tokens) < len(tokens)


def test_thinking_ends_with_its_budget(folders, sample):
    model = prompted(folders["llama"], "ynat", mode="generate", think="on", think_tokens=5)
    found = model.ask(read_split(sample, "ynat", "dev", 3))
    calls = list(model.calls.known.values())
    assert all(call.text.startswith("<think>") and "</think>{" in call.text for call in calls)
    assert all(p.answer in TASKS["ynat"].labels for p in found)
    assert model.tally.failed == 0


def test_chat_templates_frame_prompts_and_end_replies(folders, sample):
    from transformers import AutoTokenizer

    from danseo.models.llm.writing import Writing

    tokenizer = AutoTokenizer.from_pretrained(folders["llama"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>", "<|done|>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "<|turn|>{{ m.role }}\n{{ m.content }}<|done|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
    )
    writing = Writing(tokenizer)
    asked = [{"role": "system", "content": "하세요"}, {"role": "user", "content": "무엇?"}]
    assert tokenizer.decode(writing.prompt(asked)) == "<|turn|>user\n하세요\n\n무엇?<|done|>\n<|turn|>assistant\n"
    assert writing.end == tokenizer.convert_tokens_to_ids("<|done|>")
    assert tokenizer.eos_token_id in writing.ends


@pytest.mark.parametrize("shared", [1, 2])
def test_heads_that_share_keys_read_them_where_they_lie(shared, monkeypatch):
    """The answers of attention with a copy of the keys for every head, and no copy is made."""
    attend, seen = torch.nn.functional.scaled_dot_product_attention, []
    draw = torch.Generator().manual_seed(0)
    query = torch.randn(3, 4, 5, 8, generator=draw)
    key, value = (torch.randn(3, shared, 9, 8, generator=draw) for _ in range(2))
    mask = torch.rand(3, 1, 5, 9, generator=draw) < 0.6
    mask[..., 0] = True
    copies = [states.repeat_interleave(4 // shared, 1) for states in (key, value)]
    due = attend(query, *copies, attn_mask=mask, scale=0.3).transpose(1, 2)
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda q, k, v, **more: seen.append(k.shape[1]) or attend(q, k, v, **more),
    )
    found, _ = grouped(None, query, key, value, mask, scaling=0.3)
    assert torch.allclose(found, due, atol=1e-6)
    assert seen == [shared]


def test_a_model_attends_as_before_when_it_has_answered(folders, sample, monkeypatch):
    model, used = prompted(folders["gemma3_text"], "ynat"), []
    monkeypatch.setattr("danseo.models.llm.attention.grouped", lambda *a, **k: used.append(1) or grouped(*a, **k))
    model.ask(read_split(sample, "ynat", "dev", 2))
    assert used
    assert model.source.model.config._attn_implementation == "sdpa"


def test_states_lie_together_where_the_vocabulary_is_computed(folders, sample):
    """Else a table that does not learn, as below adapters, is copied for every row."""
    model, seen = prompted(folders["gemma3_text"], "ynat"), []
    output = model.source.model.requires_grad_(False).get_output_embeddings()
    output.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].is_contiguous()))
    model.ask(read_split(sample, "ynat", "dev", 3))
    assert seen
    assert all(seen)


def test_trees_share_beginnings():
    tree = Tree([[1, 2, 3], [1, 2, 4], [5]])
    assert tree.tokens == [1, 2, 3, 4, 5]
    assert tree.paths == [[0, 1, 2], [0, 1, 3], [4]]
    assert tree.seen()[3].tolist() == [True, True, False, True, False]


def test_unlikely_tokens_of_a_large_vocabulary_count():
    """Each of them is less than what float32 can add to 1."""
    logits = torch.full((1, 262144), -17.0)
    logits[0, 0] = 0.0
    assert float(log_sums(logits)) == pytest.approx(math.log1p(262143 * math.exp(-17)), abs=1e-9)


def test_batches_hold_the_longest_first():
    assert batches([5, 9, 7]) == [[1, 2, 0]]
    assert batches([9000, 9000]) == [[0], [1]]
    assert common_beginning([[1, 2, 3], [1, 2], [1, 2, 4]]) == [1]
    assert common_beginning([[1, 2, 3]]) == []


def test_masked_models_are_refused(tmp_path, sample):
    from danseo.errors import DanseoError
    from danseo.models.llm.loading import check_kind
    from tests.tiny import tiny_encoder

    with pytest.raises(DanseoError, match="no language model that writes"):
        check_kind(str(tiny_encoder(tmp_path / "bert", sample)))
    with pytest.raises(DanseoError, match="cannot be read"):
        check_kind(str(tmp_path))


def test_the_same_request_has_the_same_key():
    one = Request("a", [{"role": "user", "content": "가"}], 5)
    assert one.key({"here": "x"}) == Request("b", one.messages, 5).key({"here": "x"})
    assert one.key({"here": "x"}) != one.key({"here": "y"}) != Request("a", one.messages, 6).key({"here": "y"})
