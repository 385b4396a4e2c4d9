"""Users' own tasks with language models: from a task file to a run."""

import json
from pathlib import Path

import pytest

from danseo.tasks import TASKS
from danseo.tasktypes import CUSTOM_TYPES
from tests.models.llm.stub import make_completion, serving
from tests.models.llm.test_prompt_command import run
from tests.tiny import tiny_decoder

TASK_FILES = {
    "classify": ('type = "classification"\ntext = "a"\nlabel = "y"\ndev = 0.2', '{"label":"좋음"}'),
    "pair": ('type = "classification"\ntext = "a"\npair = "b"\nlabel = "y"\ndev = 0.2', '{"label":"좋음"}'),
    "choose": (
        'type = "multiple_choice"\ntext = "a"\nchoices = ["b", "c"]\nlabel = "pick"\ndev = 0.2',
        '{"label":"2"}',
    ),
    "score": ('type = "regression"\ntext = "a"\nlabel = "n"\ndev = 0.2', '{"score":20}'),
    "score-pair": ('type = "regression"\ntext = "a"\npair = "b"\nlabel = "n"\ndev = 0.2', '{"score":20}'),
    "several": ('type = "multilabel"\ntext = "a"\nlabel = "all"\ndev = 0.2', '{"labels":["좋음"]}'),
    "several-pair": ('type = "multilabel"\ntext = "a"\npair = "b"\nlabel = "all"\ndev = 0.2', '{"labels":[]}'),
    "tag": ('type = "tagging"\ntext = "text"\nspans = "entities"\ndev = 0.2', '{"entities":[]}'),
    "relate": (
        'type = "relation"\ntext = "text"\nsubject = "who"\nobject = "what"\nlabel = "y"\ndev = 0.2',
        '{"label":"좋음"}',
    ),
    "parse": ('type = "parsing"\ndev = 0.2', '{"words":[[2,"nsubj"],[0,"root"]]}'),
    "answer": (
        'type = "question_answering"\ntext = "text"\nquestion = "a"\nanswer = "name"\ndev = 0.2',
        '{"answer":"홍길동"}',
    ),
}
ENGLISH = "JSON object"
"""Words of all English prompts."""


def write_task(folder: Path, name: str) -> Path:
    """Write a task file and its 40 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "a": f"글 {k}번",
            "b": f"가 {k}",
            "c": f"나 {k}",
            "y": ("좋음", "나쁨")[k % 2],
            "pick": str(1 + k % 2),
            "n": k,
            "text": f"홍길동 {k}",
            "entities": [{"start": 0, "end": 3, "label": "인물"}],
            "who": {"start": 0, "end": 3},
            "what": {"start": 4, "end": 5},
            "name": "홍길동",
            "all": [["좋음"], ["좋음", "나쁨"], [], ["나쁨"]][k % 4],
        }
        for k in range(40)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    trees = (f"1\t글{k}\t_\tX\t_\t_\t2\tnsubj\t_\t_\n2\t있다\t_\tX\t_\t_\t0\troot\t_\t_\n\n" for k in range(40))
    (folder / "rows.conllu").write_text("".join(trees), "utf-8")
    path = folder / f"own-{name}.toml"
    rows_file = "rows.conllu" if name == "parse" else "rows.jsonl"
    path.write_text(f'train = "{rows_file}"\n{TASK_FILES[name][0]}\n', "utf-8")
    return path


def test_every_type_of_own_task_is_here():
    assert {text.split('"')[1] for text, _ in TASK_FILES.values()} == set(CUSTOM_TYPES)


@pytest.mark.parametrize(("name", "language"), [*zip(TASK_FILES, ["ko", "en"] * 6, strict=False)])
def test_a_server_answers_every_type_of_own_task(name, language, tmp_path, capsys):
    path = write_task(tmp_path, name)
    with serving(lambda body, before: make_completion(TASK_FILES[name][1])) as (url, bodies):
        command = ("prompt", path, "-m", "server:stub", "--url", url, "--runs", tmp_path / "runs")
        command += ("--language", language, "--shots", 2)
        code, out, err = run(capsys, *command, "--dry-run", "--json")
        assert code == 0, err
        assert json.loads(out)["examples"] == 8  # the share that is held out
        code, out, err = run(capsys, *command, "--json")
        assert code == 0, err
        document = json.loads(out)
        assert (document["replies"]["asked"], document["replies"]["failed"]) == (8, 0)
        assert run(capsys, "eval", document["run"])[0] == 0
    system, *shots, question = (message["content"] for message in bodies[0]["messages"])
    assert (ENGLISH in system) == (language == "en")
    assert len(shots) == 4
    assert {"pair": "가 ", "choose": "- 2: 나 "}.get(name, "") in question


@pytest.mark.parametrize("language", ["ko", "en"])
@pytest.mark.parametrize("task", TASKS)
def test_every_klue_task_has_a_prompt_in_both_languages(task, language, sample, capsys):
    command = ("prompt", task, "-m", "server:stub", "--url", "http://127.0.0.1:9/v1", "--data", sample)
    code, out, err = run(capsys, *command, "--language", language, "--dry-run", "--json")
    assert code == 0, err
    system = json.loads(out)["prompts"][0]["messages"][0]["content"]
    assert (ENGLISH in system) == (language == "en")


@pytest.mark.parametrize("shape", ["inline", "tsv"])
@pytest.mark.parametrize("language", ["ko", "en"])
def test_other_output_formats_name_only_own_types(shape, language, tmp_path, capsys):
    path = write_task(tmp_path, "tag")
    command = ("prompt", path, "-m", "server:stub", "--url", "http://127.0.0.1:9/v1", "--language", language)
    code, out, err = run(capsys, *command, "--output-format", shape, "--dry-run", "--json")
    assert code == 0, err
    system = json.loads(out)["prompts"][0]["messages"][0]["content"]
    assert "인물" in system
    assert "PS" not in system


def test_failed_replies_about_several_labels_are_never_right(tmp_path, capsys):
    path = write_task(tmp_path, "several")
    with serving(lambda body, before: make_completion("모름")) as (url, bodies):
        command = ("prompt", path, "-m", "server:stub", "--url", url, "--runs", tmp_path / "runs", "--json")
        code, out, err = run(capsys, *command, "--repair-attempts", 1, "--language", "en")
    assert code == 0, err
    document = json.loads(out)
    assert (document["replies"]["failed"], document["failed_percent"]) == (8, 100)
    assert {score["value"] for score in document["scores"]["dev"]} == {0}
    assert "cannot be read" in bodies[-1]["messages"][-1]["content"]


@pytest.fixture(scope="module")
def model(tmp_path_factory, sample):
    """A tiny model with a long context."""
    folder = tiny_decoder(tmp_path_factory.mktemp("own") / "tiny", sample, "llama")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    return folder


@pytest.mark.parametrize("name", ["choose", "several", "tag", "parse"])
def test_local_model_learns_own_tasks(name, model, tmp_path, capsys):
    path = write_task(tmp_path, name)
    command = ("train", path, "-m", f"llm:{model}", "--runs", tmp_path / "runs", "--device", "cpu", "--json")
    command += ("--set", f"prompt.language={'en' if name == 'several' else 'ko'}", "--epochs", 1)
    code, out, err = run(capsys, *command, "--set", "prompt.max_new_tokens=8", "--max-length", 1024)
    assert code == 0, err
    assert json.loads(out)["replies"]["asked"] == 8


def test_a_model_that_was_read_from_gguf_is_trained_whole(model, tmp_path, capsys):
    folder = tmp_path / "from-gguf"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gguf"}
    (folder / "config.json").write_text(json.dumps(config))
    path = write_task(tmp_path, "classify")
    command = ("train", path, "-m", f"llm:{folder}", "--runs", tmp_path / "runs", "--device", "cpu", "--json")
    code, out, err = run(capsys, *command, "--recipe", "default", "--epochs", 1, "--max-length", 512)
    assert code == 0, err
    saved = json.loads((Path(json.loads(out)["run"]) / "model" / "config.json").read_text())
    assert "quantization_config" not in saved
