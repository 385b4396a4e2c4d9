"""Replies that could not be read are read once more, for the pages about a run."""

import json

from danseo.config.run import RunConfig
from danseo.models.llm.backend import CallLimits
from danseo.models.llm.family import list_failed_replies
from danseo.models.llm.prompted_model import PromptedModel
from danseo.models.llm.server_backend import ServerBackend
from danseo.models.llm.settings import PromptSettings
from danseo.report.error_examples import render_reply
from danseo.runs.store import Run
from danseo.tasks import TASKS
from tests.tiny import read_split


def make_run(run: Run, task: str, replies: dict[str, list[str]]) -> PromptedModel:
    """A run that make_run these replies by guid, in their order."""
    config = RunConfig(
        task=task, model="server:stub", run_type="prompt", prompt=PromptSettings(url="http://127.0.0.1:1/v1")
    )
    model = PromptedModel(config, TASKS[task], ServerBackend("stub", config.prompt, CallLimits()))
    run.start(config)
    model.save(run.path / "model")
    calls = [{"guid": guid, "text": text, "finish": "stop"} for guid, texts in replies.items() for text in texts]
    (run.path / "calls.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls) + '{"guid": "cut')
    return model


def test_the_last_word_on_each_example_counts(sample, tmp_path):
    for task in ("ynat", "ner", "dp", "mrc", "wos"):
        examples, run = read_split(sample, task, "dev", 3), Run(tmp_path / task)
        gold = make_run(Run(tmp_path / f"{task}-first"), task, {}).prompt_format.gold_reply
        first, second, third = (example.guid for example in examples)
        replies = {first: ["죄송합니다 <b>"], second: ["{", gold(examples[1])], third: [gold(examples[2]), ""]}
        make_run(run, task, replies)
        found = list_failed_replies(run, TASKS[task], examples)
        assert [each.example.guid for each in found] == [first, third], task
        assert set(found[0].problems) == {"malformed", "refused"}
        shown = render_reply(TASKS[task], found[0].example, found[0].text, found[0].problems)
        assert shown.lines[-2].spans[0].text == "죄송합니다 <b>"
        assert shown.tags == ("malformed", "refused")
        nothing = render_reply(TASKS[task], found[1].example, found[1].text, found[1].problems)
        assert nothing.lines[-2].spans[0].text == "(nothing)"


def test_a_run_that_kept_nothing_has_none(sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 2)
    run = Run(tmp_path / "run")
    make_run(run, "ynat", {examples[0].guid: ["?"]})
    assert len(list_failed_replies(run, TASKS["ynat"], examples)) == 1
    (run.path / "model" / "prompt.json").write_text("[]")
    assert list_failed_replies(run, TASKS["ynat"], examples) == []
    (run.path / "calls.jsonl").unlink()
    assert list_failed_replies(run, TASKS["ynat"], examples) == []
