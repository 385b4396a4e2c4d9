"""Replies that could not be read are read once more, for the pages about a run."""

import json

from danseo.config import RunConfig
from danseo.models.llm.failures import failed_replies
from danseo.models.llm.prompted import Prompted
from danseo.models.llm.server import Server
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.source import Limits
from danseo.report.forms import show_reply
from danseo.runs.directory import Run
from danseo.tasks import TASKS
from tests.tiny import read_split


def kept(run: Run, task: str, replies: dict[str, list[str]]) -> Prompted:
    """A run that kept these replies by guid, in their order."""
    config = RunConfig(task=task, model="server:stub", kind="prompt", prompt=PromptConfig(url="http://127.0.0.1:1/v1"))
    model = Prompted(config, TASKS[task], Server("stub", config.prompt, Limits()))
    run.start(config)
    model.save(run.path / "model")
    calls = [{"guid": guid, "text": text, "finish": "stop"} for guid, texts in replies.items() for text in texts]
    (run.path / "calls.jsonl").write_text("".join(json.dumps(call) + "\n" for call in calls) + '{"guid": "cut')
    return model


def test_the_last_word_on_each_example_counts(sample, tmp_path):
    for task in ("ynat", "ner", "dp", "mrc", "wos"):
        examples, run = read_split(sample, task, "dev", 3), Run(tmp_path / task)
        gold = kept(Run(tmp_path / f"{task}-first"), task, {}).asking.gold
        first, second, third = (example.guid for example in examples)
        replies = {first: ["죄송합니다 <b>"], second: ["{", gold(examples[1])], third: [gold(examples[2]), ""]}
        kept(run, task, replies)
        found = failed_replies(run, TASKS[task], examples)
        assert [each.example.guid for each in found] == [first, third], task
        assert set(found[0].problems) == {"malformed", "refused"}
        shown = show_reply(TASKS[task], found[0].example, found[0].text, found[0].problems)
        assert shown.lines[-2].pieces[0].text == "죄송합니다 <b>"
        assert shown.tags == ("malformed", "refused")
        nothing = show_reply(TASKS[task], found[1].example, found[1].text, found[1].problems)
        assert nothing.lines[-2].pieces[0].text == "(nothing)"


def test_a_run_that_kept_nothing_has_none(sample, tmp_path):
    examples = read_split(sample, "ynat", "dev", 2)
    run = Run(tmp_path / "run")
    kept(run, "ynat", {examples[0].guid: ["?"]})
    assert len(failed_replies(run, TASKS["ynat"], examples)) == 1
    (run.path / "model" / "prompt.json").write_text("[]")
    assert failed_replies(run, TASKS["ynat"], examples) == []
    (run.path / "calls.jsonl").unlink()
    assert failed_replies(run, TASKS["ynat"], examples) == []
