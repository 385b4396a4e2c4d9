"""Reasoning models: a thought that the prompt opens, here and behind a server, is never an answer."""

import json

import pytest

from danseo.config.run import RunConfig
from danseo.models.llm.local_backend import load_local_backend
from danseo.models.llm.prompted_model import PromptedModel
from danseo.models.llm.settings import PromptSettings
from danseo.records import TextExample
from danseo.tasks import TASKS
from tests.models.llm import test_server_backend
from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_prompt_command import run, small  # noqa: F401
from tests.models.llm.test_replies import prompt_format
from tests.tiny import read_split, tiny_decoder

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><TAG>\n{% endif %}"
)


@pytest.fixture(scope="module", params=["think", "thought"])
def folder(request, tmp_path_factory, sample):
    """A tiny model whose chat template ends with an open thought, as DeepSeek-R1's and EXAONE Deep's do."""
    made = tiny_decoder(tmp_path_factory.mktemp("reasoning") / "tiny", sample, "llama")
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    (made / "chat_template.jinja").write_text(TEMPLATE.replace("TAG", request.param))
    return made, request.param


def prompted(folder, task="ynat", **settings) -> PromptedModel:
    config = RunConfig(task=task, model=f"llm:{folder}", prompt=PromptSettings(**settings))
    return PromptedModel(config, TASKS[task], load_local_backend(config, str(folder), "cpu"))


def last_of_prompt(model: PromptedModel) -> str:
    ids = model.backend.chat.prompt([{"role": "user", "content": "무엇?"}])
    return model.backend.chat.tokenizer.decode(ids)


def test_open_thought_is_completed(folder, sample):
    path, tag = folder
    model = prompted(path, max_thinking_tokens=4)
    found = model.prompt(read_split(sample, "ynat", "dev", 2))
    assert last_of_prompt(model).endswith(f"<{tag}>\n")
    assert not model.uses_likelihood  # labels would be scored inside the thought
    assert all(f"</{tag}>" + "{" in call.text for call in model.calls.known.values())
    assert all(p.answer in TASKS["ynat"].labels for p in found)
    assert "4" in model.backend.prepare()["thought"]


@pytest.mark.parametrize("settings", [{"thinking": "off"}, {"mode": "likelihood"}])
def test_open_thought_is_closed_without_thinking(settings, folder, sample):
    path, tag = folder
    model = prompted(path, **settings)
    model.prompt(read_split(sample, "ynat", "dev", 1))
    assert last_of_prompt(model).endswith(f"<{tag}>\n\n</{tag}>\n\n")
    assert model.uses_likelihood
    assert "closed" in model.backend.prepare()["thought"]


def test_fine_tuning_learns_replies_behind_a_closed_thought(folder, small, tmp_path, capsys):  # noqa: F811
    path, _ = folder
    command = ("train", "ynat", "-m", f"llm:{path}", "--data", small / "data", "--runs", tmp_path, "--device", "cpu")
    code, out, err = run(capsys, *command, "--epochs", 1, "--limit", 10, "--json")
    assert code == 0, err
    assert json.loads(out)["replies"]["failed"] == 0
    code, _, err = run(capsys, *command, "--epochs", 1, "--limit", 10, "--set", "prompt.thinking=on")
    assert code == 2
    assert "think" in err


@pytest.mark.parametrize(
    ("text", "finish", "has_failed"),
    [
        ('음, {"label":"정치"}일까? 아니면', "length", True),
        ('```json\n{"label":"정치"}\n```\n그리고', "length", False),
        ('{"label":"정치"} {"label":"정치"} {"lab', "length", False),
        ('답: {"label":"정치"}', "stop", False),
    ],
)
def test_truncated_reply_before_its_answer_has_failed(text, finish, has_failed):
    reply = prompt_format("ynat").parse_reply(TextExample("g", "제목", "정치"), text, finish)
    assert reply.has_failed == has_failed


def test_entities_are_not_salvaged_from_a_thought():
    example = TextExample("g", "수원에 갔다", ("B-LC", "I-LC", "O", "O", "O", "O"))
    cut = '{"entities":[{"text":"수원","type":"LC","occ":0},{"te'
    ner_format = prompt_format("ner", keep_truncated=True)
    assert ner_format.parse_reply(example, f"음, {cut}", "length").has_failed
    assert not ner_format.parse_reply(example, cut, "length").has_failed


def test_a_server_whose_replies_close_a_thought_that_they_did_not_open(sample):
    examples = read_split(sample, "ynat", "dev", 4)
    gold = test_server_backend.knowing(examples)

    def reply(body: dict, before: int) -> dict:
        is_first = examples[0].text in body["messages"][-1]["content"]
        return make_completion(f"{gold(body)}? 맞다." if is_first else f"생각한다.\n</think>\n{gold(body)}")

    with serving(reply) as (url, _):
        model = test_server_backend.prompted(url)
        found = model.prompt(examples)
    assert [p.answer == e.gold for p, e in zip(found, examples, strict=True)] == [False, True, True, True]
    assert model.reply_stats.classes["unclosed_think"] == 1


def test_one_stray_closing_tag_makes_no_thoughts_of_other_replies(sample):
    examples = read_split(sample, "ynat", "dev", 4)
    gold = test_server_backend.knowing(examples)

    def reply(body: dict, before: int) -> dict:
        return make_completion("</think>" * (examples[0].text in body["messages"][-1]["content"]) + gold(body))

    with serving(reply) as (url, _):
        assert [p.answer for p in test_server_backend.prompted(url).prompt(examples)] == [e.gold for e in examples]
