"""A model card: README.md with metadata that the Hub reads, what was measured and how, and code that runs."""

import re
from typing import Any

from danseo.config import RunConfig
from danseo.display.table import Table, as_typed, shown_interval, to_markdown
from danseo.errors import DanseoError
from danseo.exports.format import Format, Request
from danseo.files import write_atomically
from danseo.runs.index import Record
from danseo.runs.origin import dataset_of, is_of_sample, part_of_dev
from danseo.settings.declaring import flat
from danseo.tasks.task import Task

DATASET = "klue/klue"
RESULTS = ".eval_results"
_PIPELINES = {
    "classify": "text-classification",
    "labels": "text-classification",
    "score": "sentence-similarity",
    "tag": "token-classification",
    "parse": "token-classification",
    "answer": "question-answering",
}
_ASKED = {
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
"""Task -> a line to ask, which the card shows."""
_PARTS = {"report": "report half of dev (the half that picked nothing)", "dev": "all of dev"}


_LICENCE = "KLUE is licensed CC BY-SA 4.0; what is derived from it has to say so and be shared alike. "


def card_files(record: Record, repository: str | None = None) -> dict[str, str]:
    """Name -> text of what belongs to the card; without a repository the model is called as its run."""
    repository = repository or f"OWNER/{_plain(record.run.path.name).replace(' ', '-')}"
    readme = {"README.md": f"---\n{_yaml(metadata(record, repository))}---\n\n{_body(record, repository)}"}
    if dataset_of(record) != DATASET:
        return readme  # the Hub's results are for datasets of the Hub
    return {**readme, f"{RESULTS}/{record.task}.yaml": _yaml(eval_results(record))}


def _named(record: Record) -> str:
    """KLUE NER; a user's own task by its name, and the built-in sample as what it is."""
    task = record.run.task
    if is_of_sample(record):
        return f"{task.short} on the built-in sample of danseo"
    return task.name if task.own else f"KLUE {task.short}"


def metadata(record: Record, repository: str) -> dict[str, Any]:
    """What the Hub reads at the head of the card, model-index included."""
    task = record.run.task
    base = record.model_path if re.fullmatch(r"[\w.-]+/[\w.-]+", record.model_path) else None
    pipeline, dataset = _PIPELINES.get(task.kind), dataset_of(record)
    is_klue = dataset == DATASET
    results = [
        {
            "task": {"type": pipeline or task.kind, "name": task.title},
            "dataset": {"type": dataset, "name": _named(record), "config": task.name, "split": "validation"},
            "metrics": [
                {"type": s["id"], "name": f"{s['id']} on {_PARTS[split]}", "value": s["value"], **_interval(s)}
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


def _interval(score: dict[str, Any]) -> dict[str, Any]:
    if not score["interval"]:
        return {}
    low, high = score["interval"]
    return {"args": {"interval_95": [round(low, 4), round(high, 4)], "n": score["n"]}}


def eval_results(record: Record) -> list[dict[str, Any]]:
    """The scores in the form of the Hub's .eval_results folder."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries = [
        EvalResultEntry(
            dataset_id=DATASET,
            task_id=s["id"],
            value=round(s["value"], 4),
            notes=f"{_PARTS[split]}, n = {s['n']}, 95 % interval {shown_interval(*s['interval'])}"
            if s["interval"]
            else f"{_PARTS[split]}, n = {s['n']}",
        )
        for split, listed in record.scores["scores"].items()
        for s in listed
        if s["value"] is not None and s["id"] == record.scores["headline"]
    ]
    return list(eval_result_entries_to_yaml(entries))


def _yaml(document: Any) -> str:
    import yaml

    return str(yaml.safe_dump(document, allow_unicode=True, sort_keys=False, width=1000))


def _body(record: Record, repository: str) -> str:
    task, scores = record.run.task, record.scores
    tables = [_scores(listed, _PARTS[split]) for split, listed in scores["scores"].items()]
    picked = (
        "all of dev, the same examples that are reported"
        if scores["selected_on"] == "dev"
        else "the select half of dev"
    )
    hashes = "\n".join(f"- `{name}`: sha256 `{sha}`" for name, sha in record.surroundings.get("data", {}).items())
    return "\n".join(
        [
            f"# {_plain(repository.split('/')[-1])}\n",
            f"A model for {_plain(_named(record))} ({_plain(task.title)}), made and scored with danseo "
            f"{_plain(record.surroundings.get('danseo', ''))}; it started from `{_plain(record.model)}`.\n",
            "## Use\n",
            _usage(task, repository),
            "## Scores\n",
            "From 0 to 100, with 95 % bootstrap intervals over examples. "
            f"{_measured_on(record)}, and the checkpoint was picked on {picked}. Ids name definitions of metrics.\n",
            *tables,
            "## Settings that differ from danseo's defaults\n",
            _settings(record),
            "## Data\n",
            (_LICENCE if dataset_of(record) == DATASET else "") + "The files:\n",
            hashes + "\n",
        ]
    )


def _measured_on(record: Record) -> str:
    """Which examples the scores are from, as a sentence begins."""
    if is_of_sample(record):
        return (
            "**Nothing here is a score on KLUE**: the model learned from and answered the built-in sample of danseo, "
            "made-up text in KLUE's formats. These are scores on its dev set"
        )
    part = f" ({part})" if (part := part_of_dev(record)) else ""
    whose = "These" if record.run.task.own else "KLUE has no public test labels: these"
    return f"{whose} are scores on its dev set{part}"


def _usage(task: Task, repository: str) -> str:
    asked = _ASKED.get(task.name)
    told = f"echo '{asked}' | danseo predict run" if asked else "danseo predict run lines.txt"
    return (
        "```sh\n"
        "pip install 'danseo[train]'\n"
        f"hf download {repository} --local-dir run\n"
        f"{told}\n"
        "```\n\n"
        "A line each, or an object of JSON each; CSV too. A JSON object per answer comes out.\n"
    )


def _scores(listed: list[dict[str, Any]], title: str) -> str:
    rows: list[tuple[object, ...]] = [
        (s["id"], s["value"], shown_interval(*s["interval"]) if s["interval"] else None, s["n"]) for s in listed
    ]
    return to_markdown(Table(title, ("metric", "score", "95 % interval", "n"), rows))


def _settings(record: Record) -> str:
    defaults = flat(RunConfig(task="", model=""))
    known = {name: value for name, value in record.settings.items() if name not in ("task", "model")}
    rows: list[tuple[object, ...]] = [
        (name, as_typed(value)) for name, value in known.items() if defaults.get(name) != value
    ]
    return to_markdown(Table("settings", ("setting", "value"), rows)) if rows else "none\n"


def _plain(text: object) -> str:
    """A text that Markdown takes as it is."""
    return re.sub(r"[^\w.\-/ ]", "", str(text))


def write(request: Request) -> dict[str, Any]:
    """Write the card into a folder."""
    folder = request.path("-card")
    if folder.exists() and not folder.is_dir():
        raise DanseoError(f"{folder} is a file; name a folder with --out")
    files = card_files(request.record)
    for name, text in files.items():
        write_atomically(folder / name, text)
    return {"out": str(folder), "files": ", ".join(files)}


FORMAT = Format("card", "README.md and .eval_results of a model repository", write)
