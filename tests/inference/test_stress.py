"""danseo stress: gold of perturbed examples, paired scores, and what is stored in the run."""

import json
from pathlib import Path
from unicodedata import normalize

import pytest
from click.testing import CliRunner

from danseo.board.run_cache import read_signature
from danseo.cli import cli
from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.data.augmentation import augment_examples, count_augmented, perturb_example
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.inference.stress import parse_perturbations, stress_runs
from danseo.metrics.tagging import list_entities
from danseo.records import Prediction
from danseo.report.collection import collect_runs
from danseo.report.run_page import make_run_page
from danseo.runs.index import read_record
from danseo.runs.store import Run
from danseo.runs.stress_file import STRESS, read_stress
from danseo.scoring.score import measure
from danseo.tables.stress import draw_stress, draw_stress_grid, make_side_by_side_table, make_stress_table
from danseo.tables.variants import drop_copies
from danseo.tasks import TASKS
from danseo.text.perturbations import PERTURBATIONS
from tests.tiny import read_split


@pytest.fixture(scope="module")
def runs(sample: Path, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    names = {"linear": "linear", "majority": "majority"}
    return {
        name: run_experiment(RunConfig(task="ynat", model=model), sample, folder, quiet=True).path
        for name, model in names.items()
    }


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_gold_is_exact(sample, name):
    for example in read_split(sample, "ner", "dev"):
        new = perturb_example(TASKS["ner"], example, name)
        pairs = list(zip(list_entities(example.gold), list_entities(new.gold), strict=True))
        assert len(new.gold) == len(new.text)
        for (start, end, type_), (new_start, new_end, new_type) in pairs:
            words = example.text[start:end], new.text[new_start:new_end]
            assert new_type == type_
            if name in ("nfd", "no_spaces", "emoji", "slang"):
                kept = [normalize("NFC", word).replace(" ", "") for word in words]
                assert kept[0] == kept[1] or name == "slang"
    for example in read_split(sample, "mrc", "dev"):
        new = perturb_example(TASKS["mrc"], example, name)
        assert len(new.gold) == len(example.gold)
        for start, gold in zip(new.starts, new.gold, strict=True):
            assert new.text[start : start + len(gold)] == gold
    for example in read_split(sample, "re", "dev"):
        new = perturb_example(TASKS["re"], example, name)
        assert new.gold == example.gold
        assert all(new.text[each.start : each.end] == each.word for each in (new.subject, new.object))
    if name in TASKS["dp"].type.perturbations:
        for example in read_split(sample, "dp", "dev"):
            new = perturb_example(TASKS["dp"], example, name)
            assert new.text.split() == [*new.words]
            assert len(new.words) == len(example.words)


@pytest.mark.parametrize(
    "task", [task for task in TASKS.values() if task.type.perturbations], ids=lambda task: task.name
)
def test_gold_answers_are_right_on_every_copy(sample, task):
    examples = read_split(sample, task.name, "dev")
    for name in task.type.perturbations:
        copies = [perturb_example(task, each, name) for each in examples]
        answers = [Prediction(each.guid, task.check_answer(each, task.type.gold_answer(each))) for each in copies]
        found = measure(task, copies, answers, task.needs_probabilities)[task.headline].value()
        assert found == pytest.approx(100), name


def test_scores_are_paired_and_stored(runs, sample):
    before = {path: path.read_bytes() for path in runs["linear"].rglob("*") if path.is_file()}
    seen = read_signature(str(runs["linear"]))
    results = stress_runs(list(runs.values()), ["no_spaces", "nfd", "typos"], str(sample))
    linear, majority = results.values()
    assert read_stress(Run(runs["linear"])) == linear
    assert {path: path.read_bytes() for path in before} == before
    assert read_signature(str(runs["linear"])) != seen  # the board notices the new file
    for each in linear.perturbations.values():
        assert each.low <= each.difference <= each.high
        assert each.score == pytest.approx(linear.clean + each.difference)
        assert each.broken + each.repaired <= each.changed <= linear.n
    assert linear.perturbations["nfd"].difference == 0  # danseo composes its inputs
    assert linear.perturbations["nfd"].changed == linear.n
    assert all(each.difference == 0 for each in majority.perturbations.values())
    table = make_side_by_side_table(results)
    assert len(table.rows) == 4
    assert len(draw_stress(results).names) == 6
    assert draw_stress_grid(results).texts[1] == ["+0.0"] * 3


def test_a_later_command_keeps_earlier_perturbations_of_the_same_examples(runs, sample):
    path = [runs["linear"]]
    stress_runs(path, ["emoji"], str(sample), limit=30)
    both = stress_runs(path, ["slang"], str(sample), limit=30)[path[0].name]
    assert set(both.perturbations) == {"emoji", "slang"}
    assert both.n == 30
    assert next(row[0] for row in make_stress_table(both).rows) == "none"
    assert set(stress_runs(path, ["slang"], str(sample), limit=20)[path[0].name].perturbations) == {"slang"}


def test_pages_show_the_result_and_survive_a_corrupted_one(runs, sample):
    result = stress_runs([runs["linear"]], list(PERTURBATIONS), str(sample))[runs["linear"].name]
    broken = [each for score in result.perturbations.values() for each in score.examples]
    collection = collect_runs([runs["linear"]], str(sample))

    def list_sections():
        return {each.title: each for each in make_run_page(collection, collection.records[0], 5).sections}

    blocks = list_sections()["Perturbed inputs"].blocks
    assert [block.kind for block in blocks] == ["figure", "examples"]
    assert len(blocks[1].examples) == len(broken) > 0
    for text in ("{", '{"n": 1}', '{"perturbations": []}'):
        (runs["linear"] / STRESS).write_text(text)
        assert read_stress(Run(runs["linear"])) is None
        assert "Perturbed inputs" not in list_sections()


def test_errors_name_what_to_do(runs, sample, tmp_path):
    with pytest.raises(DanseoError, match="typo; choose from"):
        parse_perturbations("nfd,typo")
    assert parse_perturbations(None) == list(PERTURBATIONS)
    with pytest.raises(DanseoError, match="twice"):
        stress_runs([runs["linear"]] * 2, ["nfd"], str(sample))
    other = run_experiment(RunConfig(task="wos", model="majority"), sample, tmp_path, quiet=True).path
    with pytest.raises(DanseoError, match="different tasks"):
        stress_runs([runs["linear"], other], ["nfd"], str(sample))
    with pytest.raises(DanseoError, match="wos: gold"):
        stress_runs([other], ["nfd"], str(sample))


def test_a_plot_of_another_format_is_refused_before_the_runs_are_read(invoke):
    refused = invoke("stress", "nowhere", "--plot", "plot.gif")
    assert (refused.code, "plot.gif" in refused.complaint) == (2, True)


def test_the_command(runs, sample, tmp_path):
    arguments = ["stress", str(runs["linear"]), "--data", str(sample), "--perturb", "nfd,typos", "--limit", "40"]
    plot = tmp_path / "plot.svg"
    done = CliRunner().invoke(cli, [*arguments, "--json", "--plot", str(plot)])
    assert done.exit_code == 0
    (found,) = json.loads(done.stdout)["runs"].values()
    assert set(found["perturbations"]) == {"nfd", "typos"}
    assert plot.read_text().startswith("<?xml")
    shown = CliRunner().invoke(cli, arguments)
    assert shown.exit_code == 0
    assert "typos" in shown.stdout


def test_an_augmented_baseline_is_no_copy_of_the_plain_one(runs, sample, tmp_path):
    config = update_config(RunConfig(task="ynat", model="linear"), {"train.augment": "noise"})
    other = run_experiment(config, sample, tmp_path, quiet=True)
    assert len(drop_copies([read_record(Run(runs["linear"])), read_record(other)]).records) == 2


def test_training_with_perturbations(sample):
    ner, train = TASKS["ner"], read_split(sample, "ner", "train", 60)
    examples = augment_examples(ner, train, "noise,nfd", seed=1)
    counts = count_augmented(examples)
    assert examples[:60] == train
    assert counts["nfd"] == 60
    assert 30 < counts["noise"] <= 60
    assert all(len(each.text) == len(each.gold) for each in examples)
    assert augment_examples(ner, train, "noise,nfd", seed=1) == examples
    assert augment_examples(ner, train, "noise,nfd", seed=2) != examples
    for task, method in (("wos", "noise"), ("dp", "no_spaces"), ("ner", "swap")):
        with pytest.raises(DanseoError, match=f"augment = {method}"):
            augment_examples(TASKS[task], [], method, seed=1)
