"""Distillation: a run teaches an encoder, on train and on unlabelled text, for every task type."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from danseo import distillation  # noqa: E402
from danseo.config.base import update_config  # noqa: E402
from danseo.data.find import load  # noqa: E402
from danseo.distillation import open_teacher, prepare_distillation  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.base import LoadOptions  # noqa: E402
from danseo.models.encoder.distillation import Distillation  # noqa: E402
from danseo.models.encoder.heads.losses import soft_cross_entropy  # noqa: E402
from danseo.models.encoder.heads.tagging import TaggingHead  # noqa: E402
from danseo.models.encoder.model import Encoder  # noqa: E402
from danseo.records import Prediction, QuestionExample, TextExample  # noqa: E402
from danseo.runs.soft_targets import SoftTargets, TeacherAnswer  # noqa: E402
from danseo.runs.store import Run  # noqa: E402
from danseo.tasks import TASKS, get_task  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402

from .contracts.test_task_types import CUSTOM, make_custom  # noqa: E402
from .tiny import quick_config, read_split, tiny_encoder  # noqa: E402

TRAIN, TEXT = 12, 5
KINDS = ["ynat", "sts", "re", "ner", "dp", "mrc", "wos", *CUSTOM]


@pytest.fixture(scope="module")
def encoder(sample, tmp_path_factory) -> Path:
    return tiny_encoder(tmp_path_factory.mktemp("encoder") / "bert", sample, layers=1)


def get_config(name: str, encoder: Path, folder: Path, **settings):
    name = make_custom(name, folder).settings_name if name in CUSTOM else name
    return quick_config(name, encoder, max_train_samples=TRAIN, evals_per_epoch=1, select_on="dev", **settings)


def make_row(name: str, example) -> dict:
    if name == "sts":
        return {"sentence1": example.text, "sentence2": example.pair}
    if name == "mrc":
        return {"context": example.text, "question": example.question}
    if name == "wos":
        roles = ["user" if (len(example.turns) - k) % 2 else "sys" for k in range(len(example.turns))]
        return {"dialogue": [{"role": r, "text": t} for r, t in zip(roles, example.turns, strict=True)]}
    if name == "re":
        marked = {
            f"{role}_entity": {"word": one.word, "start_idx": one.start, "end_idx": one.end - 1, "type": one.type}
            for role, one in (("subject", example.subject), ("object", example.object))
        }
        return {"sentence": example.text, **marked}
    return {"words": example.words} if name == "dp" else {"text": example.text}


def write_text(path: Path, name: str, sample: Path) -> Path:
    """Write unlabelled lines as `danseo predict` reads them."""
    if name in CUSTOM:
        rows = [{**CUSTOM[name][1](k), "text": f"새 글 {k}"} for k in range(TEXT)]
    else:
        rows = [make_row(name, example) for example in read_split(sample, name, "dev", TEXT)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def distill(teacher: Run, config, sample: Path, runs: Path, text: Path | None = None) -> Run:
    opened = open_teacher(teacher.path, get_task(config.task), text)
    config = prepare_distillation(opened, config, sample, runs, LoadOptions("cpu"), wait=False, quiet=True)
    return run_experiment(config, sample, runs, device="cpu", quiet=True)


@pytest.mark.parametrize("name", KINDS)
def test_a_student_of_every_task_type_learns_from_train_and_text(name, sample, encoder, tmp_path):
    config = get_config(name, encoder, tmp_path)
    teacher = run_experiment(config, sample, tmp_path / "runs", device="cpu", quiet=True)
    text = write_text(tmp_path / "text.jsonl", name, sample)
    student = distill(teacher, config, sample, tmp_path / "runs", text)
    facts = student.read_json("environment.json")["distillation"]
    assert student.is_finished
    assert student.path != teacher.path
    assert facts["teacher"] == teacher.path.name
    assert (facts["train"], facts["text"]) == (TRAIN, TEXT)
    assert facts["soft_targets"] == (0 if name == "wos" else TRAIN + TEXT)
    written = (student.path / "scores.json").stat().st_mtime_ns
    again = distill(teacher, config, sample, tmp_path / "runs", text)
    assert again == student
    assert (student.path / "scores.json").stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["ynat", "sts", "re", "ner", "dp", "mrc"])
def test_the_teacher_itself_is_nearest_to_its_soft_targets(name, sample, encoder, tmp_path):
    torch.manual_seed(0)
    model = Encoder(get_config(name, encoder, tmp_path), TASKS[name], Workers("cpu"))
    for weight in model.network.parameters():  # else random weights have no preference
        weight.data *= 2
    examples, head = read_split(sample, name, "dev", 6), model.task_head
    answers = model.predict(examples)
    rows = TASKS[name].type.unpack_arrays(TASKS[name], answers.evidence) if answers.evidence else [None] * 6
    features = head.encode(examples, with_gold=True)
    for record in features:
        answer = TeacherAnswer(answers[record.example], rows[record.example])
        record.fields["soft_target"] = head.encode_soft_target(examples[record.example], record, answer)
    engine = model._engine()
    with torch.inference_mode():
        engine.objective = Distillation(head, update_config(model.config, {"distill_weight": 0.25}).train)
        outputs, batch = engine.forward(features, with_gold=True)
        near, (hard, weight) = float(head.soft_loss(outputs, batch)), head.loss(outputs, batch)
        mixed = engine.objective.loss(outputs, batch)
        others = {k: v + 1 if name == "sts" else v.flip(-1) for k, v in outputs.items() if k != "relations"}
        far = float(head.soft_loss(outputs | others, batch))
    assert float(mixed[0]) == pytest.approx(0.75 * float(hard) + 0.25 * near)
    assert mixed[1] == weight
    assert near < far
    if name not in ("dp", "mrc"):  # these have also the loss of relations, or keep only the best spans
        assert near == pytest.approx(0.0, abs=0.02)


def test_soft_cross_entropy_is_zero_for_equal_distributions_and_ignores_unknown_rows():
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    targets = logits.softmax(-1)
    for temperature in (1.0, 3.0):
        assert float(soft_cross_entropy(logits, targets, temperature)) == pytest.approx(0.0, abs=1e-5)
        assert float(soft_cross_entropy(logits.flip(-1), targets, temperature)) > 0.1
    targets[0] = np.nan
    one = soft_cross_entropy(logits.flip(-1), targets, 1.0)
    assert float(one) == pytest.approx(float(soft_cross_entropy(logits[1:].flip(-1), targets[1:], 1.0)))


def test_only_missing_parts_are_answered_again(sample, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(distillation, "PART_SIZE", 5)
    config = get_config("ynat", encoder, tmp_path)
    teacher = run_experiment(config, sample, tmp_path / "runs", device="cpu", quiet=True)
    student = distill(teacher, config, sample, tmp_path / "runs")
    targets = SoftTargets(Path(student.config.train.distill_targets))
    before = [targets.part_path(number).stat().st_mtime_ns for number in range(3)]
    summary = (targets.folder / "targets.json").read_bytes()
    for path in (targets.folder / "targets.json", targets.part_path(2)):
        path.unlink()
    assert distill(teacher, config, sample, tmp_path / "runs") == student
    after = [targets.part_path(number).stat().st_mtime_ns for number in range(3)]
    assert after[:2] == before[:2]
    assert after[2] != before[2]
    assert (targets.folder / "targets.json").read_bytes() == summary
    targets.part_path(0).write_text("{}\n", "utf-8")
    with pytest.raises(DanseoError, match="changed"):
        targets.read_answers(TASKS["ynat"], load(TASKS["ynat"], "train", sample))


def test_bad_teachers_and_texts_are_refused(invoke, sample, encoder, tmp_path):
    runs = tmp_path / "runs"
    teacher = run_experiment(quick_config("ynat", "linear"), sample, runs, quiet=True).path
    options = ("-m", encoder, "--data", sample, "--runs", runs, "--limit", 8, "--epochs", 1)
    (tmp_path / "bad.jsonl").write_text('{"title": 3}\n', "utf-8")
    (tmp_path / "empty.txt").write_text("", "utf-8")
    cases = {
        ("distill", tmp_path): "finished",
        ("distill", teacher, "--task", "nli"): "nli",
        ("distill", teacher, "--text", tmp_path / "bad.jsonl"): "line 1",
        ("distill", teacher, "--text", tmp_path / "empty.txt"): "empty",
        ("distill", teacher, "--text", tmp_path / "missing.txt"): "missing.txt",
    }
    for command, word in cases.items():
        result = invoke(*command, *options)
        assert (result.code, word in result.complaint) == (2, True), command
    linear = invoke("distill", teacher, "-m", "linear", "--data", sample, "--runs", runs)
    assert linear.code == 2
    assert "encoder" in linear.complaint
    other = invoke("train", "nli", *options, "--set", f"train.distill_targets={tmp_path}")
    assert other.code == 2
    assert "targets.json" in other.complaint
    assert [path.name for path in runs.glob("*/config.toml")] == ["config.toml"]
    assert not list(runs.glob("targets/*/part*"))


def test_a_teacher_without_probabilities_needs_text(sample, encoder, tmp_path):
    config = get_config("wos", encoder, tmp_path)
    teacher = run_experiment(config, sample, tmp_path / "runs", device="cpu", quiet=True)
    with pytest.raises(DanseoError, match="--text"):
        distill(teacher, config, sample, tmp_path / "runs")


def test_another_text_makes_another_run_and_the_command_prints_scores(invoke, sample, encoder, tmp_path):
    runs = tmp_path / "runs"
    teacher = run_experiment(quick_config("ynat", "linear"), sample, runs, quiet=True).path
    paths = set()
    for name in ("하나", "둘"):
        (tmp_path / "text.txt").write_text(f"새 제목 {name}\n\n또 다른 제목\n", "utf-8")
        result = invoke(
            *("distill", teacher, "-m", encoder, "--text", "text.txt", "--data", sample, "--runs", runs),
            *("--limit", 8, "--epochs", 1, "--weight", 0.7, "--temperature", 2, "--json"),
        )
        assert result.code == 0, result.err
        paths.add(result.json["run"])
    assert len(paths) == 2
    config = Run(Path(next(iter(paths)))).config
    assert (config.train.distill_weight, config.train.distill_temperature) == (0.7, 2.0)


def test_tags_without_a_probability_between_0_and_1_are_only_answers():
    certain = np.eye(3, dtype=np.float16)
    prediction = Prediction("1", ("O", "O", "O"))
    assert not TaggingHead.has_soft_target(TeacherAnswer(prediction, certain))
    assert not TaggingHead.has_soft_target(TeacherAnswer(prediction, None))
    assert TaggingHead.has_soft_target(TeacherAnswer(prediction, certain * 0.9 + 0.03))


def test_answers_that_cannot_be_gold_are_left_out():
    ynat, mrc = TASKS["ynat"], TASKS["mrc"]
    title = TextExample("1", "제목", None)
    assert ynat.type.with_answer(ynat, title, "") is None
    assert ynat.type.with_answer(ynat, title, "정치") == replace(title, gold="정치")
    question = QuestionExample("1", "서울은 수도이다.", "수도는?", ())
    assert mrc.type.with_answer(mrc, question, "부산") is None
    assert mrc.type.with_answer(mrc, question, "수도") == replace(question, gold=("수도",), starts=(4,))
    assert mrc.type.with_answer(mrc, question, "") == question
