"""Tables for papers: by seed, by settings, and models × tasks."""

import json
from pathlib import Path
from typing import Any

import pytest

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.display.table import Best, Second, Strong, Table, format_table, to_latex, to_markdown
from danseo.errors import DanseoError
from danseo.runs.index import find_runs, read_record
from danseo.runs.provenance import answered_whole_dev
from danseo.runs.store import Run
from danseo.tables.klue import PUBLISHED, make_klue_tables
from danseo.tables.seeds import make_seed_tables, make_sweep_table
from danseo.tasks import TASKS

from ..conftest import ROOT

GOLDEN = ROOT / "tests" / "fixtures" / "ner_golden.json"


def finished(
    root: Path,
    name: str,
    task: str,
    values: dict[str, float | None],
    *,
    model: str = "klue/roberta-base",
    parameters: float = 0,
    members: tuple[int, ...] = (),
    facts: dict[str, Any] | None = None,
    **settings: Any,
) -> Run:
    run = Run(root / name)
    run.start(update_config(RunConfig(task=task, model=model), settings))
    listed = [{"id": id_, "value": value, "interval": None, "n": 100} for id_, value in values.items()]
    scores: dict[str, Any] = {"headline": TASKS[task].headline, "selected_on": "select", "reported_on": "report"}
    scores |= {"scores": {"report": listed}, **(facts or {})}
    if members:
        scores["ensemble"] = {"members": [{"run": f"m{seed}", "seed": seed} for seed in members]}
    run.write_json("environment.json", {"seconds": 1.0, "parameters": parameters})
    run.write_json("scores.json", scores)
    return run


def rows_of(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def ner(entity: float, char: float) -> dict[str, float | None]:
    return {"ner/entity_f1@official-1": entity, "ner/char_f1@official-1": char}


@pytest.fixture
def study(tmp_path: Path) -> dict[str, Any]:
    """The published table of the seed study, as runs."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))["seed000_table"]
    for position, seed in enumerate(golden["seeds"]):
        for model, size in (("roberta-large", 3e8), ("roberta-base", 1e8), ("ENSEMBLE", 0)):
            values = ner(golden["rows"][model]["entity"][position], golden["rows"][model]["char"][position])
            if model == "ENSEMBLE":
                options: dict[str, Any] = {
                    "model": "ensemble-prob of a + b",
                    "run_type": "ensemble",
                    "members": (seed,),
                }
            else:
                options = {"model": f"klue/{model}", "parameters": size}
            finished(tmp_path, f"{model}-{seed}", "ner", values, seed=seed, **options)
    return {"root": tmp_path, "golden": golden}


def test_the_seed_study_comes_out_as_printed(study):
    table, summary = make_seed_tables(find_runs(study["root"]))
    rows, golden = rows_of(table), study["golden"]
    assert [row["seed"] for row in rows] == [seed for seed in golden["seeds"] for _ in range(3)]
    names = ["roberta-base", "roberta-large", "ENSEMBLE-prob of a + b"]
    assert [row["model"] for row in rows[:3]] == names, "small ones first, the ensemble last"
    assert (rows[0]["entity F1 (official)"], rows[0]["char F1 (official)"], rows[0]["status"]) == (89.33, 93.81, "OK")
    found = {(row["model"], row["metric"]): row for row in rows_of(summary)}
    for name, model in zip(names, ("roberta-base", "roberta-large", "ENSEMBLE"), strict=True):
        for metric, key in (("entity F1 (official)", "entity"), ("char F1 (official)", "char")):
            expected, row = golden["summary"][model][key], found[name, metric]
            assert row["mean"] == pytest.approx(expected["mean"], abs=1e-4)
            assert row["std"] == pytest.approx(expected["sample_std"], abs=1e-4)
            assert row["population std"] == pytest.approx(expected["population_std"], abs=1e-4)
            assert row["n"] == 8
    ensemble = found[names[2], "entity F1 (official)"]
    assert f"{ensemble['mean']:.2f} ± {ensemble['population std']:.2f}" == golden["printed"]["entity"]


def test_seeds_are_sorted_as_numbers_and_failures_are_shown(tmp_path):
    for seed in (10, 2):
        for model in ("small", "big"):
            finished(tmp_path, f"{model}-{seed}", "ner", ner(80, 90), model=model, seed=seed)
    broken = Run(tmp_path / "broken")
    broken.start(update_config(RunConfig(task="ner", model="third"), {"seed": 10}))
    broken.fail("out of memory")
    rows = rows_of(make_seed_tables(find_runs(tmp_path))[0])
    assert [row["seed"] for row in rows] == [2, 2, 2, 10, 10, 10, 10]
    assert [row["status"] for row in rows if row["model"] == "third"] == ["FAILED: out of memory"]
    assert [row["status"] for row in rows if row["model"] == "ENSEMBLE"] == [
        "not made (danseo ensemble)",
        "INCOMPLETE: third failed",
    ]
    with pytest.raises(DanseoError, match="no runs of sts"):
        make_seed_tables(find_runs(tmp_path), "sts")


def test_variants_have_own_names_and_are_never_averaged(tmp_path):
    for seed in (1, 2):
        for ema, score in ((0.0, 80.0), (0.9, 82.0)):
            finished(tmp_path, f"{ema}-{seed}", "ner", ner(score + seed, 90), seed=seed, **{"train.ema_decay": ema})
    summary = rows_of(make_seed_tables(find_runs(tmp_path))[1])
    means = {row["model"]: row["mean"] for row in summary if row["metric"] == "entity F1 (official)"}
    assert means == {"roberta-base ema_decay=0": 81.5, "roberta-base ema_decay=0.9": 83.5}


def test_the_sweep_table_is_sorted_and_marks_the_best(tmp_path):
    ids = ("re/micro_f1@official-1", "re/auprc@official-1", "re/accuracy@plain-1")
    for k, (rate, f1, auprc, loss) in enumerate(
        [(3e-5, 60.2, 47.9, 1.4), (2e-5, 60.6, 46.0, 1.3), (5e-5, 59.7, 48.4, None)]
    ):
        values = dict(zip(ids, (f1, auprc, 61.0 + k), strict=True))
        facts = {"select_loss": loss, "best_step": 4000 + k}
        finished(tmp_path, f"r{k}", "re", values, learning_rate=rate, facts=facts)
    Run(tmp_path / "z").start(update_config(RunConfig(task="re", model="x"), {"learning_rate": 1e-5}))
    table = make_sweep_table(find_runs(tmp_path))
    rows = rows_of(table)
    assert [row["learning rate"] for row in rows] == [2e-5, 3e-5, 5e-5, 1e-5]
    assert [row["status"] for row in rows] == ["done", "done", "done", "unfinished"]
    assert [type(row["micro F1 (official)"]) for row in rows[:2]] == [Best, float]
    assert [(type(row["AUPRC (official)"]), row["best step"]) for row in rows[:3]] == [
        (float, 4001),
        (float, 4000),
        (Best, 4002),
    ]
    assert type(rows[0]["validation loss"]) is Best, "the lowest"
    assert type(rows[0]["model"]) is Strong
    text = to_markdown(table)
    assert "| **roberta-base** | 42 | 3 | 32 | 2e-05 |" in text
    assert "**60.60**" in text
    best = json.loads(format_table(table, "json"))[0]["best"]
    assert best == ["micro F1 (official)", "validation loss"]
    finished(tmp_path, "other", "ner", ner(1, 2))
    with pytest.raises(DanseoError, match="choose one with --task"):
        make_sweep_table(find_runs(tmp_path))


def test_the_klue_table_has_all_columns_and_the_published_rows(tmp_path):
    for seed, score in ((1, 84.0), (2, 86.0)):
        finished(tmp_path, f"a{seed}", "ner", ner(score, 91.0), parameters=1.1e8, seed=seed)
    finished(tmp_path, "b", "ner", ner(83.0, 90.0), model="other", parameters=1.2e8)
    finished(tmp_path, "c", "ner", ner(80.0, 92.0), model="tiny", parameters=1e7)
    Run(tmp_path / "d").start(RunConfig(task="dp", model="klue/roberta-base"))
    rows = rows_of(make_klue_tables(find_runs(tmp_path), in_one=True)[0])
    assert [row["model"] for row in rows[:3]] == ["tiny", "roberta-base", "other"]
    base = rows[1]
    assert (base["NER ent"], base["size"], base["seeds"], base["DP UAS"]) == (85.0, "base", "2", "unfinished")
    assert type(base["NER ent"]) is Best
    assert (type(rows[0]["NER char"]), type(base["NER char"])) == (Best, Second)
    splits = [row["scored on"] for row in rows]
    assert splits == ["report split"] * 3 + [PUBLISHED["dev"]] * 11 + [PUBLISHED["test"]] * 9
    dev, test = (row for row in rows if row["model"] == "KLUE-RoBERTa-large")
    assert (dev["TC F1"], dev["DST slot F1"]) == (85.88, 92.19)
    assert (test["TC F1"], test["DST slot F1"]) == (85.69, 92.23)
    assert type(test["RE F1"]) is Best
    (reruns,) = (row for row in rows if "mean of 8" in row["model"])
    assert reruns["NER ent"] == pytest.approx(84.41, abs=0.01)
    assert [row["model"] for row in rows if row["model"] == "KoBigBird-BERT-base"] == [], "no NER score"


def test_runs_on_all_of_dev_are_shown_on_dev_too(tmp_path):
    run = finished(tmp_path, "a", "ner", ner(84.0, 91.0))
    scores = run.read_json("scores.json")
    scores["scores"]["dev"] = [{**score, "value": 83.0, "n": 5000} for score in scores["scores"]["report"]]
    run.write_json("scores.json", scores)
    table, paths = make_klue_tables(find_runs(tmp_path), with_paths=True)
    found = [(row["NER ent"], row["scored on"]) for row in rows_of(table)][:2]
    assert found == [(84.0, "report split"), (83.0, "dev (selected on half of it)")]
    assert len(paths.rows) == 1, "each run once"


@pytest.mark.parametrize(("dialogues", "is_whole"), [(1000, True), (999, False)])
def test_the_whole_dev_set_of_dialogues_is_counted_in_dialogues(tmp_path, dialogues, is_whole):
    run = finished(tmp_path, "a", "wos", {"wos/jga@official-1": 50.0})
    scores = run.read_json("scores.json")
    scores["scores"]["dev"] = [{**score, "n": 2 * dialogues} for score in scores["scores"]["report"]]
    run.write_json("scores.json", scores)
    (run.path / "predictions").mkdir()
    guids = (json.dumps({"guid": f"wos-v1_dev_{k:05d}-{turn}"}) for k in range(dialogues) for turn in range(2))
    (run.path / "predictions" / "dev.jsonl").write_text("\n".join(guids))
    assert answered_whole_dev(read_record(run)) == is_whole


def test_the_variant_is_picked_on_the_select_half(tmp_path):
    finished(tmp_path, "a", "ner", ner(90, 90), learning_rate=1e-5, facts={"select_score": 70.0})
    finished(tmp_path, "b", "ner", ner(80, 90), learning_rate=2e-5, facts={"select_score": 75.0})
    assert rows_of(make_klue_tables(find_runs(tmp_path), in_one=True)[0])[0]["NER ent"] == 80.0


def test_latex_is_escaped():
    table = Table(
        "50 % of $x_1$", ("a&b", "n"), [("가_나\\{~^}", Best(1.5)), (Strong("x#"), Second(2.0)), ("<±×>", None)]
    )
    text = to_latex(table)
    assert r"50 \% of \$x\_1\$" in text
    assert r"a\&b & n \\" in text
    assert r"가\_나\textbackslash{}\{\textasciitilde{}\textasciicircum{}\} & \textbf{1.50} \\" in text
    assert r"\textbf{x\#} & \underline{2.00} \\" in text
    assert r"\textless{}$\pm$$\times$\textgreater{} & -- \\" in text
    assert text.count("{") == text.count("}")
