"""--fix-particles: the same rule in eval, predict and serve, named in their output; errors at particles are counted."""

import json
from pathlib import Path
from unicodedata import normalize

import jsonschema
import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.config.run import RunConfig
from danseo.data.input_reader import InputLine
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.inference.evaluation import evaluate_run
from danseo.inference.output import RecordOptions, predict_records, read_record_schema
from danseo.inference.predict import LoadedModel, open_model
from danseo.models.base import Answers, LoadOptions
from danseo.records import Prediction, TextExample
from danseo.scoring.score import measure
from danseo.tasks import TASKS
from danseo.tasktypes.tagging import count_errors
from danseo.text import particles
from tests.tiny import read_split

NER = TASKS["ner"]
TEXT = "김철수는 서울에서 3시까지 왔다."


def tag(text: str, **entities: str) -> tuple[str, ...]:
    tags = ["O"] * len(text)
    for type_, word in entities.items():
        start = text.index(word)
        tags[start : start + len(word)] = [f"B-{type_}", *[f"I-{type_}"] * (len(word) - 1)]
    return tuple(tags)


ANSWER = tag(TEXT, PS="김철수는", LC="서울에서", TI="3시까지 왔다")


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(particles, "is_installed", lambda package: False)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_particle_is_an_error_of_its_own_and_can_be_forgiven(form: str) -> None:
    text = normalize(form, TEXT)
    gold, answer = (
        tag(text, **{type_: normalize(form, word) for type_, word in words.items()})
        for words in (
            {"PS": "김철수는", "LC": "서울", "TI": "3시"},
            {"PS": "김철수", "LC": "서울에서", "TI": "3시까지 왔다"},
        )
    )
    examples, predictions = [TextExample("1", text, gold)], [Prediction("1", answer)]
    errors = count_errors(examples, predictions)
    assert errors == {"particle left out": 1, "particle included": 1, "wrong border": 1, "missed": 0}
    scores = {id_: each.value() for id_, each in measure(NER, examples, predictions).items()}
    assert scores["ner/entity_f1@official-1"] == 0
    assert scores["ner/entity_f1@particle-lenient-1"] == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("text", "gold", "answer"),
    [
        ("최수아는 왔다", {"PS": "최수아"}, {"PS": "최수"}),  # 아 follows consonants
        ("서울에서 왔다", {"LC": "서울"}, {"OG": "서울에서"}),  # another type
        ("새 서울에서 왔다", {"LC": "서울"}, {"LC": "새 서울에서"}),  # another start
        ("서울 은 왔다", {"LC": "서울"}, {"LC": "서울 은"}),  # another word
    ],
)
def test_other_boundaries_are_not_forgiven(text: str, gold: dict[str, str], answer: dict[str, str]) -> None:
    examples, predictions = [TextExample("1", text, tag(text, **gold))], [Prediction("1", tag(text, **answer))]
    assert measure(NER, examples, predictions)["ner/entity_f1@particle-lenient-1"].value() == 0
    assert not {"particle included", "particle left out"} & set(count_errors(examples, predictions))


@pytest.fixture
def run(sample: Path, tmp_path: Path) -> Path:
    """A run whose answers are the gold entities with their particles."""
    path = run_experiment(RunConfig(task="ner", model="majority"), sample, tmp_path, quiet=True).path
    rows = []
    for example in read_split(sample, "ner", "dev"):
        tags = list(example.gold)
        for position, (before, now) in enumerate(zip(example.gold, example.gold[1:], strict=False), 1):
            if before != "O" and now == "O" and example.text[position] in "는를을":
                tags[position] = f"I-{before[2:]}"
        rows.append(json.dumps({"guid": example.guid, "answer": tags}) + "\n")
    (path / "predictions" / "dev.jsonl").write_text("".join(rows), encoding="utf-8")
    return path


def test_eval_scores_it_under_its_own_name_with_a_paired_test(run: Path, sample: Path) -> None:
    plain = {score.id: score.value for score in evaluate_run(run, "dev", None, str(sample)).scores}
    result = evaluate_run(run, "dev", None, str(sample), fix_particles=True)
    scores = {score.id: score.value for score in result.scores}
    assert {id_: scores[id_] for id_ in plain} == plain
    assert plain["ner/entity_f1@official-1"] < scores["ner/entity_f1@official-1+fix-particles-rules"]
    table = result.details[0]
    assert [row[0] for row in table.rows] == ["select", "report", "dev"]
    row = dict(zip(table.columns, table.rows[-1], strict=True))
    assert row["changed"] > 0
    assert row["difference"] == pytest.approx(row["fix-particles-rules"] - row["run"])


class Fixed:
    reads_pos = False

    def predict(self, examples: list[TextExample]) -> Answers:
        return Answers([Prediction(example.guid, ANSWER) for example in examples])


def test_records_name_what_corrected_them() -> None:
    lines = [InputLine(1, TextExample("1", TEXT, None), {})]
    plain, fixed = (
        predict_records(Fixed(), NER, lines, RecordOptions(fixer=fixer))[0]
        for fixer in (None, NER.type.make_particle_fixer(NER))
    )
    assert "fixed_by" not in plain
    assert fixed["fixed_by"] == "fix-particles-rules"
    assert [span["text"] for span in fixed["spans"]] == ["김철수", "서울", "3시까지 왔다"]
    jsonschema.validate(json.loads(json.dumps(fixed)), read_record_schema())


def test_the_service_corrects_and_reports_it() -> None:
    pytest.importorskip("starlette", reason="the extra board or serve is not installed")
    from starlette.testclient import TestClient

    from danseo.serve.app import Limits, make_app

    loaded = LoadedModel(Fixed(), NER, "a run", NER.type.make_particle_fixer(NER))
    with TestClient(make_app(loaded, Limits(), ["*"])) as client:
        assert client.get("/health").json()["fixed_by"] == "fix-particles-rules"
        record = client.post("/predict", json=TEXT).json()
    assert (record["fixed_by"], record["answer"][3]) == ("fix-particles-rules", "O")


def test_the_commands_take_it(run: Path, sample: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("서울에 비가 왔다.\n", encoding="utf-8")
    for command in (["predict", tmp_path / "lines.txt"], ["eval", "--data", sample, "--json"]):
        arguments = [command[0], run, *command[1:], "--fix-particles"]
        result = CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)
        assert result.exit_code == 0
        assert "fix-particles-rules" in result.stdout


def test_other_tasks_refuse_it(sample: Path, tmp_path: Path) -> None:
    other = run_experiment(RunConfig(task="ynat", model="majority"), sample, tmp_path, quiet=True).path
    with pytest.raises(DanseoError, match="not tags"):
        evaluate_run(other, "dev", None, str(sample), fix_particles=True)
    with pytest.raises(DanseoError, match="not tags"):
        open_model(other, LoadOptions(), fix_particles=True)
