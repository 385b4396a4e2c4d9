"""Write the generated pages and schemas of docs/reference/ from the code: `python tools/reference_pages.py`."""

import ast
import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from danseo.api import functions, results
from danseo.api.listings import make_settings_page
from danseo.cli import cli
from danseo.config.run import RunConfig
from danseo.scoring.breakdown import METRICS as TOKEN_METRICS
from danseo.tasks import TASKS

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
FUNCTIONS = ("compare", "load", "open", "runs", "score", "train")
MADE = "`tools/reference_pages.py` writes this page"

NUMBER_OR_NULL = {"type": ["number", "null"]}
PREDICTION_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "danseo/prediction-1",
    "title": "One line of a prediction file",
    "type": "object",
    "required": ["guid", "answer"],
    "properties": {
        "guid": {"type": "string", "description": "The example, as in the gold file; wos: <guid>-<user turn>."},
        "answer": {
            "description": "A label, labels, a number, a tag per character, [head, relation] per word, text, slots.",
            "type": ["string", "number", "array"],
        },
        "probabilities": {
            "description": "Label to probability; ner: one object per character.",
            "type": ["object", "array", "null"],
        },
    },
}
SCORES_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "danseo/scores-1",
    "title": "scores.json of a run directory",
    "type": "object",
    "required": ["task", "headline", "selected_on", "reported_on", "scores"],
    "properties": {
        "task": {"type": "string"},
        "headline": {"type": "string", "description": "Id of the main metric."},
        "selected_on": {"type": "string", "description": "Split that selected the checkpoint."},
        "reported_on": {"type": "string", "description": "Split whose score is quoted."},
        "scores": {
            "type": "object",
            "description": "Split to scores.",
            "additionalProperties": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "value"],
                    "properties": {
                        "id": {"type": "string"},
                        "value": NUMBER_OR_NULL,
                        "interval": {"type": ["array", "null"], "items": NUMBER_OR_NULL, "minItems": 2, "maxItems": 2},
                        "n": {"type": "integer"},
                    },
                },
            },
        },
        "baselines": {"type": "object", "description": "Split to baseline to metric id to score."},
        "best_step": NUMBER_OR_NULL,
        "steps": NUMBER_OR_NULL,
        "failed_percent": NUMBER_OR_NULL,
    },
}


def make_cli_page() -> str:
    """Return the page of all commands, from their declarations."""
    lines = ["# Commands", "", f"All commands and options. {MADE} from `danseo --help`.", ""]
    lines += ["Exit codes: 0 done; 1 the work failed; 2 wrong usage or bad input; 3 partly done; 130 interrupted.", ""]
    for path, command in _walk(cli, ("danseo",)):
        context = click.Context(command, info_name=" ".join(path))
        usage = " ".join((*path, *command.collect_usage_pieces(context)))
        paragraphs = inspect.cleandoc(command.help or "").partition("\f")[0].strip().split("\n\n")
        help_text = "\n\n".join(map(_format_paragraph, paragraphs))
        lines += [f"## {' '.join(path)}", "", f"`{usage}`", "", help_text, ""]
        options = [_describe_option(each, context) for each in command.params if isinstance(each, click.Option)]
        if options:
            lines += ["| option | meaning |", "|---|---|", *options, ""]
    return "\n".join(lines).rstrip() + "\n"


def _walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _walk(command.commands[name], (*path, name))
    else:
        yield path, command


def _describe_option(option: click.Option, context: click.Context) -> str:
    names, meaning = option.get_help_record(context) or (", ".join(option.opts), "")
    return f"| `{_join_words(names)}` | {_escape(' '.join(meaning.split()))} |"


def _format_paragraph(text: str) -> str:
    """Return a paragraph of a help text; click keeps the lines of one that starts with a backspace."""
    return f"```text\n{text.removeprefix(chr(8)).strip()}\n```" if text.startswith("\b") else _escape(text)


def _join_words(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


WORDS: dict[str, dict[str, str]] = {
    "en": {
        "title": "Metrics",
        "lead": f"""Every score has an id, `task/metric@convention-version`. {MADE} from `tools/metrics.toml`.

- The first metric of a task is its headline.
- All scores are from 0 to 100; a correlation may be negative.
- F1 is `2 × right / (answered + gold)`. *Macro* is the mean over classes, *micro* counts all classes together.
- `official` does exactly what the released KLUE code does. 127 values of that code are part of the tests.
- `subword` repeats older reports. All other conventions are plain or corrected forms.
- "The KLUE table" has scores on the **hidden test set**; a dev score follows the same rule on other examples.

[The official metrics and their traps](../explanation/metrics.md) explains why numbers differ.""",
        "columns": "| id | definition | comparable with | trap |",
        "rest": """## Conventions

{conventions}

## Baselines

Each score is shown with three answers that need no model, computed on the scored gold:

| name | answers |
|---|---|
| oracle | the gold itself: 100, or undefined |
| majority | the most frequent label; the mean number; no entity; the next word as head; no answer; an empty state |
| random | the gold answers shuffled over the examples, fixed by the seed |

## Undefined scores

A score without a value is empty in tables and `null` in JSON. It is never replaced by 0 or 100.

| case | score |
|---|---|
| no entity, or no slot value, in gold or answers | entity F1, token F1 and `wos/slot_f1@pooled-1` are undefined |
| nothing answered | precision is undefined; F1 is 0 |
| nothing in gold | recall is undefined; F1 is 0 if something was answered |
| all answers, or all golds, the same number | `sts/pearson@official-1` is undefined |
| a relation without a gold example | `re/auprc@official-1` is undefined; the other two leave the label out |
| no relation, or no similar pair, on either side | `re/micro_f1@official-1` and `sts/f1@official-1` are 0 |
| a tag absent from both sides | counts as 1 in the `ner/char_f1` ids |
| both states of a turn empty | 1 in `wos/slot_f1@official-1` |
""",
    },
    "ko": {
        "title": "지표",
        "lead": """모든 점수에는 `task/metric@convention-version` 형식의 id가 있습니다. 이 문서는
`tools/metrics.toml`에서 만듭니다.

- 과제의 첫 지표가 대표 지표입니다.
- 점수는 0에서 100까지이고, 상관은 음수일 수 있습니다.
- F1은 `2 × 정답 / (예측 + 정답 수)`입니다. *매크로*는 부류의 평균, *마이크로*는 모든 부류를 합친 값입니다.
- `official`은 공개된 KLUE 코드와 똑같이 계산합니다. 그 코드의 값 127개를 테스트에서 확인합니다.
- `subword`는 예전 보고서의 계산입니다. 나머지는 표준적이거나 바로잡은 형태입니다.
- "KLUE 표"는 **비공개 테스트 세트**의 점수입니다. 개발 세트 점수는 규칙만 같고 예제가 다릅니다.

숫자가 왜 다른지는 [공식 지표와 그 함정](../explanation/metrics.md)에 있습니다.""",
        "columns": "| id | 정의 | 비교할 수 있는 것 | 함정 |",
        "rest": """## 방식(convention)

{conventions}

## 기준 점수

모든 점수에 모델 없는 답 세 가지의 점수가 함께 나옵니다. 채점하는 정답에서 계산합니다.

| 이름 | 답 |
|---|---|
| oracle | 정답 자체. 100이거나 정의되지 않음 |
| majority | 가장 흔한 레이블, 평균 숫자, 개체 없음, 다음 어절이 지배소, 답 없음, 빈 상태 |
| random | 예제 사이에서 섞은 정답. 시드로 고정 |

## 정의되지 않는 점수

값이 없는 점수는 표에서 비고 JSON에서 `null`입니다. 0이나 100으로 바꾸지 않습니다.

| 경우 | 점수 |
|---|---|
| 정답과 예측에 개체나 슬롯 값이 없음 | 개체 F1, 토큰 F1, `wos/slot_f1@pooled-1`이 정의되지 않음 |
| 아무것도 답하지 않음 | 정밀도는 정의되지 않고 F1은 0 |
| 정답에 아무것도 없음 | 재현율은 정의되지 않고, 답이 있으면 F1은 0 |
| 예측이나 정답이 모두 같은 숫자 | `sts/pearson@official-1`이 정의되지 않음 |
| 정답 예제가 없는 관계 | `re/auprc@official-1`이 정의되지 않음. 나머지 둘은 그 레이블을 뺌 |
| 양쪽에 관계나 유사 쌍이 없음 | `re/micro_f1@official-1`과 `sts/f1@official-1`은 0 |
| 양쪽에 없는 태그 | `ner/char_f1`에서 1로 셈 |
| 한 발화의 두 상태가 모두 빔 | `wos/slot_f1@official-1`에서 1 |
""",
    },
}


def make_metrics_page(language: str) -> str:
    """Return the page of all metrics in a language; every metric of the registry must be described."""
    described = tomllib.loads((ROOT / "tools" / "metrics.toml").read_text("utf-8"))
    words = WORDS[language]
    lines = [f"# {words['title']}", "", words["lead"]]
    ids = []
    for task in TASKS.values():
        of_task = [*task.metrics, *(id_ for id_ in TOKEN_METRICS if id_.startswith(f"{task.name}/"))]
        lines += ["", f"## {task.short} ({task.name})", "", words["columns"], "|---|---|---|---|"]
        lines += [f"| `{id_}` | {' | '.join(described[id_][language])} |" for id_ in of_task]
        ids += of_task
    if unknown := set(described) - set(ids):
        raise SystemExit(f"tools/metrics.toml describes metrics that do not exist: {', '.join(sorted(unknown))}")
    names = sorted({id_.split("@")[1].rpartition("-")[0] for id_ in ids})
    conventions = ", ".join(f"`{name}`" for name in names)
    return "\n".join(lines) + "\n\n" + words["rest"].format(conventions=conventions)


def make_python_page() -> str:
    """Return the page of the public Python functions and their results."""
    lines = ["# Python API", "", f"The functions of `import danseo`. {MADE} from their signatures.", ""]
    tree = ast.parse(inspect.getsource(functions))
    declared = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in FUNCTIONS:
        doc = _escape(inspect.getdoc(getattr(functions, name)) or "")
        lines += [f"## danseo.{name}", "", "```text", *_format_signature(declared[name]), "```", "", doc, ""]
    lines += ["## Results", "", "Every result prints as a table and has `to_dict()`.", ""]
    for cls in (results.Scores, results.SystemComparison, results.OpenRun, results.RunAnswer, results.RunList):
        lines += [f"### {cls.__name__}", "", _escape(inspect.getdoc(cls) or ""), "", "| name | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {_escape(meaning)} |" for name, meaning in _list_members(cls)] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _format_signature(function: ast.FunctionDef) -> Iterator[str]:
    """Yield a signature as it is in the source, one parameter per line."""
    yield f"danseo.{function.name}("
    for part in re.split(r", (?=\*|\w+(?::|=|$))", ast.unparse(function.args)):
        yield f"    {part},"
    yield f") -> {ast.unparse(function.returns) if function.returns else None}"


def _list_members(cls: type) -> Iterator[tuple[str, str]]:
    source = inspect.getsource(cls)
    for field in dataclasses.fields(cls):
        if not field.name.startswith("_"):
            found = re.search(rf'^    {field.name}: [^\n]*\n    """(.*?)"""', source, re.M)
            yield field.name, found.group(1) if found else ""
    for name, value in vars(cls).items():
        if isinstance(value, property) and not name.startswith("_"):
            yield name, inspect.getdoc(value) or ""
        elif inspect.isfunction(value) and not name.startswith("_"):
            yield f"{name}({', '.join(list(inspect.signature(value).parameters)[1:])})", inspect.getdoc(value) or ""


def make_pages() -> dict[str, str]:
    """Return every generated file below docs/reference/ by name."""
    answer = json.loads((ROOT / "src" / "danseo" / "inference" / "answer.schema.json").read_text("utf-8"))
    schemas = {"prediction": PREDICTION_SCHEMA, "scores": SCORES_SCHEMA, "answer": answer}
    schemas["config"] = RunConfig.model_json_schema()
    pages = {
        f"schemas/{name}.schema.json": f"{json.dumps(schema, ensure_ascii=False, indent=2)}\n"
        for name, schema in schemas.items()
    }
    return {
        "cli.md": make_cli_page(),
        "settings.md": make_settings_page(),
        "metrics.md": make_metrics_page("en"),
        "metrics.ko.md": make_metrics_page("ko"),
        "python.md": make_python_page(),
        **pages,
    }


if __name__ == "__main__":
    for name, text in make_pages().items():
        path = REFERENCE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
