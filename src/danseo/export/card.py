"""A model card: README.md with metadata for the Hub, scores with their protocol, and usage."""

import re
from typing import Any

from danseo.config.base import flatten_config
from danseo.config.run import RunConfig
from danseo.display.table import Table, as_typed, format_interval, to_markdown
from danseo.errors import DanseoError
from danseo.export.base import ExportFormat, ExportRequest
from danseo.files import write_atomically
from danseo.runs.index import Record
from danseo.runs.provenance import describe_part_of_dev, get_dataset, is_of_sample
from danseo.tasktypes.base import Task

DATASET = "klue/klue"
RESULTS = ".eval_results"
EXAMPLE_INPUTS = {
    "ynat": "부산 앞바다에 올해 첫 태풍 주의보",
    "ner": "김서연은 지난 3월 부산에서 새 일을 시작했다.",
    "dp": "동생이 어제 새 책을 샀다.",
    "nli": '{"premise": "가게는 아홉 시에 연다.", "hypothesis": "가게는 아침에 닫혀 있다."}',
    "sts": '{"sentence1": "내일 비가 올까요?", "sentence2": "내일 비가 오나요?"}',
    "re": '{"sentence": "김서연은 한빛전자에서 일한다.", '
    '"subject_entity": {"word": "김서연", "start_idx": 0, "end_idx": 2, "type": "PER"}, '
    '"object_entity": {"word": "한빛전자", "start_idx": 5, "end_idx": 8, "type": "ORG"}}',
    "mrc": '{"context": "도서관은 1998년에 문을 열었다.", "question": "도서관은 언제 문을 열었나?"}',
    "wos": '{"dialogue": [{"role": "user", "text": "서울 북쪽에 있는 싼 식당을 찾아 주세요."}]}',
}
"""Example inputs by task, for the usage section of the card."""
_SPLITS = {"report": "report split of the dev set (not used for selection)", "dev": "the whole dev set"}


_LICENCE = "KLUE is licensed CC BY-SA 4.0; derived works must name it and use the same licence. "


def make_card_files(record: Record, repository: str | None = None) -> dict[str, str]:
    """Return the files of a card by name; without a repository the model has the name of its run."""
    repository = repository or f"OWNER/{_clean(record.run.path.name).replace(' ', '-')}"
    readme = {
        "README.md": f"---\n{_to_yaml(make_metadata(record, repository))}---\n\n{_write_body(record, repository)}"
    }
    if get_dataset(record) != DATASET:
        return readme  # the Hub's results are for datasets of the Hub
    return {**readme, f"{RESULTS}/{record.task}.yaml": _to_yaml(make_eval_results(record))}


def _name_dataset(record: Record) -> str:
    """Return the name of the dataset: KLUE NER, a custom task's name, or the bundled sample."""
    task = record.run.task
    if is_of_sample(record):
        return f"{task.short} on the bundled sample of danseo"
    return task.name if task.custom else f"KLUE {task.short}"


def make_metadata(record: Record, repository: str) -> dict[str, Any]:
    """Return the metadata at the head of the card, with model-index."""
    task = record.run.task
    base = record.model_path if re.fullmatch(r"[\w.-]+/[\w.-]+", record.model_path) else None
    pipeline, dataset = task.type.hub_pipeline, get_dataset(record)
    is_klue = dataset == DATASET
    results = [
        {
            "task": {"type": pipeline or task.type.name, "name": task.title},
            "dataset": {"type": dataset, "name": _name_dataset(record), "config": task.name, "split": "validation"},
            "metrics": [
                {"type": s["id"], "name": f"{s['id']} on {_SPLITS[split]}", "value": s["value"], **_make_interval(s)}
                for s in listed
                if s["value"] is not None
            ],
        }
        for split, listed in record.scores["scores"].items()
    ]
    return {
        "language": ["ko"],
        "library_name": "transformers" if (record.run.path / "model" / "config.json").is_file() else "danseo",
        "tags": ["danseo", *(("klue", f"klue-{task.name}") if is_klue else ())],
        **({"datasets": [DATASET]} if is_klue else {}),
        **({"base_model": base} if base else {}),
        **({"pipeline_tag": pipeline} if pipeline else {}),
        "model-index": [{"name": repository.split("/")[-1], "results": results}],
    }


def _make_interval(score: dict[str, Any]) -> dict[str, Any]:
    if not score["interval"]:
        return {}
    low, high = score["interval"]
    return {"args": {"interval_95": [round(low, 4), round(high, 4)], "n": score["n"]}}


def make_eval_results(record: Record) -> list[dict[str, Any]]:
    """Return the scores in the layout of the Hub's .eval_results folder."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries = [
        EvalResultEntry(
            dataset_id=DATASET,
            task_id=s["id"],
            value=round(s["value"], 4),
            notes=f"{_SPLITS[split]}, n = {s['n']}, 95 % interval {format_interval(s['interval'])}"
            if s["interval"]
            else f"{_SPLITS[split]}, n = {s['n']}",
        )
        for split, listed in record.scores["scores"].items()
        for s in listed
        if s["value"] is not None and s["id"] == record.scores["headline"]
    ]
    return list(eval_result_entries_to_yaml(entries))


def _to_yaml(document: Any) -> str:
    import yaml

    return str(yaml.safe_dump(document, allow_unicode=True, sort_keys=False, width=1000))


def _write_body(record: Record, repository: str) -> str:
    task, scores = record.run.task, record.scores
    tables = [_write_scores(listed, _SPLITS[split]) for split, listed in scores["scores"].items()]
    picked = (
        "the whole dev set, the same examples as the scores"
        if scores["selected_on"] == "dev"
        else "the select split of the dev set"
    )
    hashes = "\n".join(f"- `{name}`: sha256 `{sha}`" for name, sha in record.surroundings.get("data", {}).items())
    return "\n".join(
        [
            f"# {_clean(repository.split('/')[-1])}\n",
            f"A model for {_clean(_name_dataset(record))} ({_clean(task.title)}), made and scored with danseo "
            f"{_clean(record.surroundings.get('danseo', ''))}; it started from `{_clean(record.model)}`.\n",
            "## Use\n",
            _write_usage(task, repository),
            "## Scores\n",
            "From 0 to 100, with 95 % bootstrap intervals over examples. "
            f"{_describe_split(record)}, and the checkpoint was selected on {picked}. Metric ids name definitions.\n",
            *tables,
            "## Settings that differ from danseo's defaults\n",
            _write_settings(record),
            "## Data\n",
            (_LICENCE if get_dataset(record) == DATASET else "") + "The files:\n",
            hashes + "\n",
        ]
    )


def _describe_split(record: Record) -> str:
    """Return the start of a sentence about the examples of the scores."""
    if is_of_sample(record):
        return (
            "**Nothing here is a score on KLUE**: the model was trained and evaluated on the bundled sample of danseo, "
            "synthetic text in KLUE's formats. These are scores on its dev set"
        )
    part = f" ({part})" if (part := describe_part_of_dev(record)) else ""
    whose = "These" if record.run.task.custom else "KLUE has no public test labels: these"
    return f"{whose} are scores on its dev set{part}"


def _write_usage(task: Task, repository: str) -> str:
    line = EXAMPLE_INPUTS.get(task.name)
    command = f"echo '{line}' | danseo predict run" if line else "danseo predict run lines.txt"
    return (
        "```sh\n"
        "pip install 'danseo[train]'\n"
        f"hf download {repository} --local-dir run\n"
        f"{command}\n"
        "```\n\n"
        "Input: one text or JSON object per line, or CSV. Output: one JSON object per line.\n"
    )


def _write_scores(listed: list[dict[str, Any]], title: str) -> str:
    rows = [(s["id"], s["value"], format_interval(s["interval"]), s["n"]) for s in listed]
    return to_markdown(Table(title, ("metric", "score", "95 % interval", "n"), rows))


def _write_settings(record: Record) -> str:
    defaults = flatten_config(RunConfig(task="", model=""))
    known = {name: value for name, value in record.settings.items() if name not in ("task", "model")}
    rows = [(name, as_typed(value)) for name, value in known.items() if defaults.get(name) != value]
    return to_markdown(Table("settings", ("setting", "value"), rows)) if rows else "none\n"


def _clean(text: object) -> str:
    """Remove characters with a meaning in Markdown."""
    return re.sub(r"[^\w.\-/ ]", "", str(text))


def write_card(request: ExportRequest) -> dict[str, Any]:
    """Write the card into a folder."""
    folder = request.path("-card")
    if folder.exists() and not folder.is_dir():
        raise DanseoError(f"not a folder: {folder} is a file; name a folder with --out")
    files = make_card_files(request.record)
    for name, text in files.items():
        write_atomically(folder / name, text)
    return {"out": str(folder), "files": ", ".join(files)}


FORMAT = ExportFormat("card", "README.md and .eval_results of a model repository", write_card)
