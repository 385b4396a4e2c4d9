"""What every family keeps: one run on the sample, and all that people do with runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("spacy")
pytest.importorskip("gliner2")

from danseo import extras
from danseo.cli import cli
from danseo.errors import MissingExtra, PartlyDone
from danseo.experiment import run_experiment
from danseo.models.families import FAMILIES, checked_family, family_of
from danseo.models.llm.family import prompting
from danseo.models.llm.kinds import make_asking
from danseo.models.llm.settings import PromptConfig
from danseo.models.llm.source import Limits
from danseo.models.llm.template import load_template
from danseo.runs.directory import Run
from danseo.tasks import TASKS
from tests.models.llm.stub import said, serving
from tests.systems.tiny import tiny_gliner
from tests.tiny import quick_config, tiny_decoder, tiny_encoder


@dataclass(frozen=True)
class Case:
    """How a family makes a quick run of ner."""

    model: Callable[[Path, Path], str]
    settings: dict[str, object] = field(default_factory=dict)
    resumes: bool = True
    """Whether a killed training goes on; otherwise it begins anew."""


_REPLIES = {"limit": 16, "epochs": 2, "lora": 4, "max_length": 4000, "prompt.reply_tokens": 4, "prompt.free": True}


def _roomy(folder: Path, sample: Path) -> Path:
    """A language model with room for prompts."""
    made = tiny_decoder(folder, sample, "llama")
    settings = json.loads((made / "config.json").read_text()) | {"max_position_embeddings": 4096}
    (made / "config.json").write_text(json.dumps(settings))
    return made


CASES = {
    "floor": Case(lambda folder, sample: "majority", resumes=False),
    "encoder": Case(lambda folder, sample: str(tiny_encoder(folder, sample)), {"epochs": 2}),
    "encoder of a decoder": Case(lambda folder, sample: str(tiny_decoder(folder, sample)), {"epochs": 2, "lora": 4}),
    "spacy": Case(lambda folder, sample: "spacy", {"max_steps": 30}, resumes=False),
    "llm": Case(lambda folder, sample: f"llm:{_roomy(folder, sample)}", _REPLIES),
    "server": Case(lambda folder, sample: "server:stub", resumes=False),
    "gliner": Case(lambda folder, sample: f"gliner:{tiny_gliner(folder, sample)}", {"epochs": 2, "max_length": 64}),
}


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def url(sample: Path):
    """A server that knows the sample, and finds nothing in other sentences."""
    dev = TASKS["ner"].read(sample / TASKS["ner"].folder / TASKS["ner"].file("dev"))
    asking = make_asking(TASKS["ner"], PromptConfig(), load_template(TASKS["ner"]))
    golds = {asking.user(example): asking.gold(example) for example in dev}
    with serving(lambda body, before: said(golds.get(body["messages"][-1]["content"], '{"entities":[]}'))) as (
        found,
        _,
    ):
        yield found


def ask_twice(url: str, sample: Path, runs: Path) -> Run:
    """A run of replies that stops after some calls and goes on."""
    config = replace(quick_config("ner", "server:stub", **{"prompt.url": url}), kind="prompt")
    limited = prompting(family_of("server:stub"), load_template(TASKS["ner"]), Limits(calls=5))
    with pytest.raises(PartlyDone, match="the same command goes on"):
        run_experiment(config, sample, runs, quiet=True, family=limited)
    (calls,) = runs.glob("ner--server*/calls.jsonl")
    assert len(calls.read_text("utf-8").splitlines()) == 5
    return run_experiment(config, sample, runs, quiet=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, sample: Path, url: str):
    """The run of a family, made once, after a kill at its second evaluation."""
    runs, known = tmp_path_factory.mktemp("runs"), {}

    def make(name: str) -> Run:
        if name == "server" and name not in known:
            known[name] = ask_twice(url, sample, runs)
            assert known[name].read_json("scores.json")["replies"]["failed"] == 0
        if name not in known:
            case = CASES[name]
            model = case.model(tmp_path_factory.mktemp("model"), sample)
            config = quick_config("ner", model, **{"limit": 64, "evaluations": 1, **case.settings})

            evaluated: list[int] = []

            def kill(step: int, score: float | None) -> None:
                evaluated.append(step)
                if len(evaluated) == 2:
                    raise Killed

            if name == "floor":  # it has nothing to evaluate on the way
                run_experiment(config, sample, runs, quiet=True, on_score=kill)
            else:
                with pytest.raises(Killed):
                    run_experiment(config, sample, runs, quiet=True, on_score=kill)
                started = [Run(file.parent) for file in runs.glob("*/config.toml")]
                (left,) = [run for run in started if not run.is_finished]
                assert left.has_checkpoint == case.resumes
            known[name] = run_experiment(config, sample, runs, quiet=True)
            whole = run_experiment(config, sample, tmp_path_factory.mktemp("whole"), quiet=True)
            assert answers(whole) == answers(known[name])
        return known[name]

    return make


def answers(run: Run) -> list[object]:
    return [json.loads(line)["answer"] for line in run.predictions_path("dev").read_text("utf-8").splitlines()]


def command(*arguments: object) -> str:
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_every_family_is_under_contract():
    assert {name.split()[0] for name in CASES} >= {family.name for family in FAMILIES}


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_ends_as_a_whole_one_with_intervals(made, name: str):
    run = made(name)
    assert family_of(run.config.model).name == name.split()[0]
    assert run.read_json("environment.json")["family"] == name.split()[0]
    text = json.dumps(run.read_json("scores.json"))
    assert '"interval"' in text
    assert TASKS["ner"].headline in text


@pytest.mark.parametrize("name", CASES)
def test_the_saved_model_answers_the_same_in_a_new_process(made, sample: Path, name: str):
    run = made(name)
    code = f"""
import json
from pathlib import Path
from danseo.models.families import load_model
from danseo.runs.directory import Run
from danseo.tasks import TASKS
task = TASKS["ner"]
dev = task.read(Path({str(sample)!r}) / task.folder / task.file("dev"))
print(json.dumps([p.answer for p in load_model(Run(Path({str(run.path)!r})), "cpu").predict(dev)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(done.stdout.splitlines()[-1]) == answers(run)


@pytest.mark.parametrize("name", CASES)
def test_commands_take_the_run(made, sample: Path, tmp_path: Path, name: str):
    run, other = made(name), made("encoder")
    lines = tmp_path / "lines.txt"
    lines.write_text("홍길동은 서울에 갔다.\n", encoding="utf-8")
    assert TASKS["ner"].headline in command("eval", run.path, "--data", sample, "--json")
    assert run.path.name in command("runs", run.path.parent, "--json")
    found = json.loads(command("predict", run.path, lines).splitlines()[-1])
    assert "answer" in found or "entities" in found
    if run.path != other.path:
        assert command("compare", run.path, other.path, "--data", sample, "--resamples", 100, "--json")


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("floor", "encoder")])
def test_it_joins_an_ensemble_with_an_encoder(made, sample: Path, tmp_path: Path, name: str):
    command("ensemble", made("encoder").path, made(name).path, "--data", sample, "--runs", tmp_path / "kept")
    (joined,) = [path for path in (tmp_path / "kept").iterdir() if (path / "scores.json").is_file()]
    assert len(answers(Run(joined))) == len(answers(made(name)))


@pytest.mark.parametrize("name", CASES)
def test_a_missing_package_is_one_line_with_the_command(made, monkeypatch: pytest.MonkeyPatch, name: str):
    config = made(name).config
    needed = family_of(config.model).packages(config.model, "ner")
    if not needed:
        return  # nothing can be missing
    monkeypatch.setattr(extras, "is_installed", lambda package: False)
    with pytest.raises(MissingExtra, match=r"pip install 'danseo\[") as caught:
        checked_family(config, TASKS["ner"])
    assert len(str(caught.value).splitlines()) == 1
