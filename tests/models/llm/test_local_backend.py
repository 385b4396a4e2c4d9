"""Models that run here: batches, the common beginning and the padding change nothing, and guides hold."""

import json
import math
import shutil

import pytest
import torch

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.models.llm.batched_decoding import compute_log_sums, grouped_attention
from danseo.models.llm.loading import load_language_model
from danseo.models.llm.local_backend import find_common_prefix, load_local_backend
from danseo.models.llm.prompted_model import PromptedModel
from danseo.models.llm.settings import PromptSettings
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


def prompted(folder, task, **settings) -> PromptedModel:
    config = RunConfig(task=task, model=f"llm:{folder}", prompt=PromptSettings(**settings))
    return PromptedModel(config, TASKS[task], load_local_backend(config, str(folder), "cpu"))


def plain_generate(here, prompt, count):
    ids = torch.tensor([prompt])
    found = here.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return found[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_equal_generate_of_transformers(family, folders, sample):
    model = prompted(folders[family], "nli", mode="generate", unconstrained=True, max_new_tokens=10)
    here = model.backend
    requests = [q.parts[0][1] for q in model.make_questions(read_split(sample, "nli", "dev", 6))]
    found = {}
    here.complete(requests, [r.guid for r in requests], lambda call: found.__setitem__(call.guid, call))
    for request in requests:
        prompt = here.chat.prompt(request.messages)
        due = plain_generate(here, prompt, 10)
        ends = [position for position, token in enumerate(due) if token in here.chat.ends]
        assert found[request.guid].text == here.chat.text(due[: ends[0]] if ends else due)
    assert {call.cached_tokens for call in found.values()} == {
        len(find_common_prefix([here.chat.prompt(r.messages) for r in requests]))
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_label_probabilities_equal_single_forward_passes(family, folders, sample):
    model = prompted(folders[family], "re", shots=1)
    model.prepare(read_split(sample, "re", "train"), read_split(sample, "re", "dev"))
    examples = read_split(sample, "re", "dev", 3)
    found = model.prompt(examples)
    here = model.backend
    for question, prediction in zip(model.make_questions(examples), found, strict=True):
        request = question.parts[0][1]
        prompt = here.chat.prompt(request.messages)
        call = model.calls.known[request.key(here.identity())]
        weights = call.label_logprobs
        assert call.seconds > 0
        for label in list(request.choices)[::7]:
            reply = [*here.chat.reply(request.choices[label]), here.chat.end]
            with torch.no_grad():
                logits = here.model(torch.tensor([[*prompt, *reply]])).logits[0].log_softmax(-1)
            due = sum(float(logits[len(prompt) - 1 + k, token]) for k, token in enumerate(reply))
            assert weights[label] == pytest.approx(due, abs=1e-4)
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert prediction.answer == max(prediction.probabilities, key=prediction.probabilities.get)


@pytest.mark.parametrize("task", TASKS)
def test_constrained_replies_of_a_random_model_are_valid(task, folders, sample):
    model = prompted(folders["llama"], task, mode="generate", max_new_tokens=600)
    examples = read_split(sample, task, "dev", 3)
    found = model.prompt(examples)
    assert [p.guid for p in found] == [e.guid for e in examples]
    classes = set(model.reply_stats.classes)
    assert classes <= {"truncated", "malformed", "overlap", "occ_out_of_range", "duplicate", "type_conflict"}
    for call in model.calls.known.values():
        if call.finish == "stop":
            json.loads(call.text)
    if task not in ("ner", "wos"):  # whose lists a random model may never end
        assert model.reply_stats.failed == 0


def test_replies_are_constrained_if_the_tokenizer_has_more_tokens_than_the_model(folders, sample):
    model = prompted(folders["qwen2"], "nli", mode="generate")  # Qwen's class adds a padding token
    assert len(model.backend.chat.tokenizer) > model.backend.model.get_output_embeddings().weight.shape[0]
    model.prompt(read_split(sample, "nli", "dev", 2))
    assert model.reply_stats.failed == 0


def test_texts_with_quotes_can_be_copied(folders):
    from danseo.records import TextExample

    model = prompted(folders["llama"], "ner")
    example = TextExample("g", '그는 "왜\\?"라고 했다', ("O",) * 14)
    (question,) = model.make_questions([example])
    guide = model.backend.compiler.compile(question.parts[0][1])
    right = model.prompt_format.gold_reply(
        TextExample("g", example.text, ("O", "O", "O", "B-PS", "I-PS", "I-PS", *["O"] * 8))
    )
    assert '\\"' in right
    guide.consume(*model.backend.chat.reply(right))
    assert guide.is_over


def test_a_guide_refuses_what_is_not_in_the_sentence(folders, sample):
    model = prompted(folders["llama"], "ner")
    (question,) = model.make_questions(read_split(sample, "ner", "dev", 1))
    guide = model.backend.compiler.compile(question.parts[0][1])
    tokens = model.backend.chat.reply('{"entities":[{"text":"쀍')
    assert guide.matcher.try_consume_tokens(tokens) < len(tokens)


def test_chat_templates_frame_prompts_and_end_replies(folders, sample):
    from transformers import AutoTokenizer

    from danseo.models.llm.chat_template import ChatTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folders["llama"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>", "<|done|>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "<|turn|>{{ m.role }}\n{{ m.content }}<|done|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
    )
    chat = ChatTokenizer(tokenizer)
    asked = [{"role": "system", "content": "하세요"}, {"role": "user", "content": "무엇?"}]
    assert tokenizer.decode(chat.prompt(asked)) == "<|turn|>user\n하세요\n\n무엇?<|done|>\n<|turn|>assistant\n"
    assert chat.end == tokenizer.convert_tokens_to_ids("<|done|>")
    assert tokenizer.eos_token_id in chat.ends


@pytest.mark.parametrize("shared", [1, 2])
def test_grouped_attention_copies_no_keys(shared, monkeypatch):
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
    found, _ = grouped_attention(None, query, key, value, mask, scaling=0.3)
    assert torch.allclose(found, due, atol=1e-6)
    assert seen == [shared]


def test_unlikely_tokens_of_a_large_vocabulary_count():
    """Each of them is less than what float32 can add to 1."""
    logits = torch.full((1, 262144), -17.0)
    logits[0, 0] = 0.0
    assert float(compute_log_sums(logits)) == pytest.approx(math.log1p(262143 * math.exp(-17)), abs=1e-9)


def test_masked_models_are_refused(tmp_path, sample):
    from danseo.errors import DanseoError
    from danseo.models.llm.loading import check_causal_model
    from tests.tiny import tiny_encoder

    with pytest.raises(DanseoError, match="no language model that writes"):
        check_causal_model(str(tiny_encoder(tmp_path / "bert", sample)))
    with pytest.raises(DanseoError, match="is not a checkpoint folder"):
        check_causal_model(str(tmp_path))


def test_a_special_token_without_an_embedding_is_named(folders, tmp_path):
    copy = shutil.copytree(folders["gemma3_text"], tmp_path / "copy")
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"eos_token": "<not in the vocabulary>"}), "utf-8")
    with pytest.raises(DanseoError, match="tokenizer"):
        load_language_model(RunConfig(task="ynat", model=f"llm:{copy}"), str(copy), torch.device("cpu"))
