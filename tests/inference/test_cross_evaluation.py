"""danseo eval --on: runs on several data sets."""

from pathlib import Path

import pytest

from danseo.config.run import RunConfig
from danseo.display.table import format_tables
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.inference.cross_evaluation import evaluate_on, map_labels
from danseo.tasks import TASKS
from danseo.tasktypes import TASK_TYPES

HEAD = 'type = "classification"\ntrain = "d.tsv"\ndev = "e.tsv"\ntext = "a"\npair = "b"\nlabel = "c"\n'


@pytest.fixture(scope="module")
def run(sample: Path, tmp_path_factory) -> Path:
    return run_experiment(
        RunConfig(task="nli", model="majority"), sample, tmp_path_factory.mktemp("runs"), quiet=True
    ).path


def write_set(folder: Path, labels: tuple[str, ...], more: str = "") -> Path:
    rows = [f"문장 {k}\t다른 문장 {k}\t{labels[k % len(labels)]}" for k in range(30)]
    for name in ("d.tsv", "e.tsv"):
        (folder / name).write_text("\n".join(["a\tb\tc", *rows, f"{name}\t끝\t{labels[0]}"]) + "\n")
    (folder / "own.toml").write_text(HEAD + more)
    return folder / "own.toml"


def test_runs_by_data_sets(run, sample, tmp_path):
    own = write_set(tmp_path, ("entailment", "neutral", "contradiction"))
    result = evaluate_on([run], f"nli,{own}", str(sample))
    klue, other = result.as_dict()["results"]
    assert (klue["split"], klue["trained_on"]) == ("report split of dev", "this data set")
    assert (other["split"], other["trained_on"], other["headline"]) == ("dev", "other data", "classify/macro_f1@1")
    low, high = other["scores"][1]["interval"]
    assert low < other["scores"][1]["value"] < high
    table = result.tables()[0]
    assert "nli, report split of dev: nli/accuracy@official-1" in table.columns[1]
    assert str(table.rows[0][1]).endswith("†")
    assert "†" in table.note
    assert len(format_tables([result.list_table()], "csv").splitlines()) == 3


def test_train_and_a_limit(run, sample):
    cell = evaluate_on([run], "nli", str(sample), split="train", limit=20).as_dict()["results"][0]
    assert (cell["trained_on"], cell["scores"][0]["n"]) == ("these examples", 20)


def test_unmapped_labels_are_one_line_with_both_label_sets(run, sample, tmp_path):
    own = write_set(tmp_path, ("entailment", "not_entailment"))
    with pytest.raises(DanseoError, match=r"not_entailment.*labels of the run: entailment, contradiction, neutral"):
        evaluate_on([run], str(own), str(sample))
    pairs = ("not_entailment=neutral", "not_entailment=contradiction")
    mapped = evaluate_on([run], str(own), str(sample), label_pairs=pairs)
    assert "not_entailment=neutral" in mapped.tables()[0].note
    own = write_set(
        tmp_path, ("entailment", "not_entailment"), '[label_map]\nnot_entailment = ["neutral", "contradiction"]\n'
    )
    again = evaluate_on([run], str(own), str(sample))
    assert again.cells[0].scores == mapped.cells[0].scores
    with pytest.raises(DanseoError, match="--map x=neutral"):
        evaluate_on([run], str(own), str(sample), label_pairs=("x=neutral",))


def test_labels_that_a_coarser_run_cannot_distinguish_are_one_label(run, sample, tmp_path):
    own = write_set(tmp_path, ("entailment", "neutral", "contradiction", "unrelated"))
    data = evaluate_on([run], str(own), None, label_pairs=("unrelated=neutral", "neutral=neutral")).sets[0]
    label_map = map_labels(TASKS["nli"], data, [("unrelated", "neutral"), ("neutral", "neutral")])
    assert label_map.gold["neutral"] == label_map.gold["unrelated"] == label_map.predicted["neutral"]
    assert label_map.gold["entailment"] == "entailment"


@pytest.mark.parametrize(
    ("type_", "answer", "renamed"),
    [
        ("classification", "a", "b"),
        ("multilabel", ("a", "x"), ("b",)),
        ("tagging", ("B-a", "I-a", "O", "B-x"), ("B-b", "I-b", "O", "O")),
        ("parsing", ((2, "a"), (0, "x")), ((2, "b"), (0, ""))),
        ("regression", 3.5, 3.5),
    ],
)
def test_every_type_renames_its_labels(type_, answer, renamed):
    assert TASK_TYPES[type_].rename_labels(answer, {"a": "b"}) == renamed


def test_other_task_types_and_single_texts_are_refused(run, sample):
    with pytest.raises(DanseoError, match="sts is of type regression"):
        evaluate_on([run], "nli,sts", str(sample))
    with pytest.raises(DanseoError, match="pairs of texts"):
        evaluate_on([run], "ynat", str(sample))


def test_the_command(run, sample, invoke):
    result = invoke("eval", run, "--on", "nli", "--data", sample, "--format", "csv")
    assert result.code == 0
    assert result.out.splitlines()[0] == "run,data set,split,metric,score,low,high,n,trained on"
    assert invoke("eval", run, "--on", "nli", "--data", sample, "--json").json["results"][0]["run"] == run.name
    for wrong in (["--map", "a=b"], ["--on", "nli", "--details"], [run]):
        assert invoke("eval", run, *wrong, "--data", sample).code == 2
