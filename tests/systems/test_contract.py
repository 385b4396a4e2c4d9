"""What every family keeps: one run on the sample, and all that people do with runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
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
from danseo.models.llm.backend import CallLimits
from danseo.models.llm.family import with_prompt
from danseo.models.llm.formats import make_format
from danseo.models.llm.prompt_template import load_template
from danseo.models.llm.settings import PromptSettings
from danseo.models.registry import FAMILIES, check_family, get_family
from danseo.runs.store import Run
from danseo.tasks import TASKS
from tests.models.llm.stub import make_completion, serving
from tests.systems.tiny import tiny_gliner
from tests.tiny import quick_config, tiny_decoder, tiny_encoder


@dataclass(frozen=True)
class Case:
    """How a family makes a quick run of ner."""

    model: Callable[[Path, Path], str]
    settings: dict[str, object] = field(default_factory=dict)
    resumes: bool = True
    """Whether a killed training goes on; otherwise it begins anew."""


_REPLIES = {
    "max_train_samples": 16,
    "epochs": 2,
    "llm.lora_rank": 4,
    "max_length": 4000,
    "prompt.max_new_tokens": 4,
    "prompt.unconstrained": True,
}


def _roomy(folder: Path, sample: Path) -> Path:
    """A language model with room for prompts."""
    made = tiny_decoder(folder, sample, "llama")
    settings = json.loads((made / "config.json").read_text()) | {"max_position_embeddings": 4096}
    (made / "config.json").write_text(json.dumps(settings))
    return made


CASES = {
    "baseline": Case(lambda folder, sample: "majority", resumes=False),
    "encoder": Case(lambda folder, sample: str(tiny_encoder(folder, sample)), {"epochs": 2}),
    "encoder of a decoder": Case(
        lambda folder, sample: str(tiny_decoder(folder, sample)), {"epochs": 2, "encoder.lora_rank": 4}
    ),
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
    prompt_format = make_format(TASKS["ner"], PromptSettings(), load_template(TASKS["ner"]))
    golds = {prompt_format.user_message(example): prompt_format.gold_reply(example) for example in dev}
    with serving(
        lambda body, before: make_completion(golds.get(body["messages"][-1]["content"], '{"entities":[]}'))
    ) as (found, _):
        yield found


def ask_twice(url: str, sample: Path, runs: Path) -> Run:
    """A run of replies that stops after some calls and goes on."""
    config = quick_config("ner", "server:stub", **{"prompt.url": url, "run_type": "prompt"})
    limited = with_prompt(get_family("server:stub"), load_template(TASKS["ner"]), CallLimits(calls=5))
    with pytest.raises(PartlyDone, match="the same command resumes"):
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
            config = quick_config("ner", model, **{"max_train_samples": 64, "evals_per_epoch": 1, **case.settings})

            evaluated: list[int] = []

            def kill(step: int, score: float | None) -> None:
                evaluated.append(step)
                if len(evaluated) == 2:
                    raise Killed

            if name == "baseline":  # it has nothing to evaluate on the way
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
    trained = {family.name for family in FAMILIES} - {"ensemble"}  # tests/ensembling/test_ensemble_model.py
    assert {name.split()[0] for name in CASES} >= trained


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_ends_as_a_whole_one_with_intervals(made, name: str):
    run = made(name)
    assert get_family(run.config.model).name == name.split()[0]
    assert run.read_json("environment.json")["family"] == name.split()[0]
    text = json.dumps(run.read_json("scores.json"))
    assert '"interval"' in text
    assert TASKS["ner"].headline in text


ANSWER = """
import json, sys
from pathlib import Path
from danseo.models.registry import load_model
from danseo.runs.store import Run
from danseo.tasks import TASKS
task, data = TASKS["ner"], Path(sys.argv[1])
dev = task.read(data / task.folder / task.file("dev"))
for path in sys.argv[2:]:
    print(json.dumps([p.answer for p in load_model(Run(Path(path)), "cpu").predict(dev)]))
"""


def test_saved_models_answer_the_same_in_a_new_process(made, sample: Path):
    runs = [made(name) for name in CASES]
    script = [sys.executable, "-c", ANSWER, str(sample), *(str(run.path) for run in runs)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[-len(runs) :]
    assert [json.loads(line) for line in lines] == [answers(run) for run in runs]


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


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("baseline", "encoder")])
def test_it_joins_an_ensemble_with_an_encoder(made, sample: Path, tmp_path: Path, name: str):
    command("ensemble", made("encoder").path, made(name).path, "--data", sample, "--runs", tmp_path / "kept")
    (joined,) = [path for path in (tmp_path / "kept").iterdir() if (path / "scores.json").is_file()]
    assert len(answers(Run(joined))) == len(answers(made(name)))


@pytest.mark.parametrize("name", CASES)
def test_a_missing_package_is_one_line_with_the_command(made, monkeypatch: pytest.MonkeyPatch, name: str):
    config = made(name).config
    needed = get_family(config.model).required_packages(config.model, "ner")
    if not needed:
        return  # nothing can be missing
    monkeypatch.setattr(extras, "is_installed", lambda package: False)
    with pytest.raises(MissingExtra, match=r"pip install 'danseo\[") as caught:
        check_family(config, TASKS["ner"])
    assert len(str(caught.value).splitlines()) == 1
