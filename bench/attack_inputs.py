"""Damaged inputs over every reader: what comes out is a result, or one line that a user can act on."""

import importlib
import io
import json
import math
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from measuring import Limit

from danseo.errors import DanseoError

WHOLE = 10_000
_SECONDS = 30  # after which a reader counts as hanging


class Hanging(BaseException):
    """A reader that does not come to an end."""


@dataclass(frozen=True)
class Reader:
    """Something that reads a file: what the file holds when it is whole, how it is damaged, and its share of all."""

    name: str
    path: Path
    read: Callable[[], object]
    damages: Sequence[Any]
    share: float
    is_odd: bool = False
    """Whether pipes, folders, links and devices take its place as well."""


def fuzz(workdir: Path, size: float, seed: int, limit: Limit) -> list[dict[str, object]]:
    """A row per family of readers."""
    damage: Any = importlib.import_module("tests.damage")
    signal.signal(signal.SIGALRM, _hang)
    rows: dict[str, Counter[str]] = {}
    faults: dict[str, str] = {}
    listed = readers(workdir, damage)
    total = sum(reader.share for reader in listed)
    for number_of_reader, reader in enumerate(listed):
        own = limit.share(1 / (len(listed) - number_of_reader))
        content = reader.path.read_bytes()
        for number in range(max(3, math.ceil(WHOLE * size * reader.share / total))):
            if own.is_over and number >= 3:
                break
            broken, what = damage.damaged(content, reader.damages, f"{seed} {number_of_reader}", number)
            if reader.is_odd and number % 5 == 0:
                odd = damage.ODD_FILES[number // 5 % len(damage.ODD_FILES)]
                damage.put_in_place(reader.path, odd)
                what = odd.__name__
            else:
                reader.path.write_bytes(broken)
            outcome = _outcome(reader.read)
            family = reader.name.partition(":")[0]
            rows.setdefault(family, Counter())[outcome.partition(" ")[0]] += 1
            if outcome.partition(" ")[0] not in ("read", "refused"):
                faults.setdefault(family, f"{reader.name}, {what}: {outcome}")
            damage.remove(reader.path)
        reader.path.write_bytes(content)
    return [_row(family, counts, faults.get(family)) for family, counts in rows.items()]


def _row(family: str, counts: Counter[str], fault: str | None) -> dict[str, object]:
    held = counts["read"] + counts["refused"]
    note = fault or f"{counts['refused']:,} refused in one line, {counts['read']:,} still readable"
    return {"attack": f"damaged {family}", "tries": counts.total(), "held": held, "note": note}


def _hang(*_: object) -> None:
    raise Hanging


def _outcome(read: Callable[[], object]) -> str:
    signal.alarm(_SECONDS)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            read()
    except DanseoError as error:
        message = str(error)
        return "refused" if "\n" not in message and len(message) < 1500 else f"wordy {message[:200]}"
    except Hanging:
        return "hangs"
    except BaseException as error:
        return f"raises {type(error).__name__}: {str(error)[:200]}"
    finally:
        signal.alarm(0)
    return "read"


# The readers


def readers(workdir: Path, damage: Any) -> list[Reader]:
    """Everything that reads what others may have written."""
    from danseo.data.find import write_sample

    write_sample(workdir / "sample")
    return [
        *_data(workdir, damage),
        *_predictions(workdir, damage),
        *_settings(workdir, damage),
        *_texts(workdir, damage),
        *_runs(workdir, damage),
    ]


def _shortened(task: Any, workdir: Path) -> bytes:
    test_fuzz: Any = importlib.import_module("tests.test_fuzz")
    content: bytes = test_fuzz.shorten(task, workdir / "sample" / task.folder / task.file("dev"))
    return content


def _data(workdir: Path, damage: Any) -> list[Reader]:
    from danseo.tasks import TASKS

    test_fuzz: Any = importlib.import_module("tests.test_fuzz")
    found = []
    for task in TASKS.values():
        path = workdir / "data" / task.file("dev")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_shortened(task, workdir))
        damages = damage.TSV_DAMAGES if task.extension == ".tsv" else damage.JSON_DAMAGES
        found.append(Reader(f"data files: {task.name}", path, partial(task.read, path), damages, 4, True))
    for name in ("ynat", "ner", "dp", "mrc"):
        task, path = TASKS[name], workdir / "data" / f"{name}-validation-00000-of-00001.parquet"
        path.write_bytes(test_fuzz.parquet_bytes(test_fuzz.HUB[name]))
        found.append(Reader(f"parquet files: {name}", path, partial(task.read, path), damage.HUB_DAMAGES, 2))
    return found


def _predictions(workdir: Path, damage: Any) -> list[Reader]:
    from danseo.data.prediction_file import read_predictions, write_predictions
    from danseo.scoring.score import baseline
    from danseo.tasks import TASKS

    found = []
    for task in TASKS.values():
        examples = task.read(workdir / "sample" / task.folder / task.file("dev"))[:4]
        path = workdir / "data" / f"{task.name}.jsonl"
        write_predictions(path, baseline("oracle", task, examples))
        read = partial(read_predictions, path, task, examples)
        found.append(Reader(f"prediction files: {task.name}", path, read, damage.JSON_DAMAGES, 4, True))
    return found


def _settings(workdir: Path, damage: Any) -> list[Reader]:

    from danseo.config.base import read_settings, to_toml
    from danseo.config.run import RunConfig, read_config
    from danseo.sweeps.search_space import read_space_file
    from danseo.sweeps.sweep_file import read_sweep

    files: dict[str, tuple[str, Callable[[Path], object]]] = {
        "config": (to_toml(RunConfig(task="ynat", model="majority")), read_config),
        "recipe": (
            "learning_rate = 5e-5\nepochs = 3\n[encoder]\npooling = 'cls'\n",
            lambda path: read_settings(path, RunConfig),
        ),
        "sweep": (
            "task = 'ynat'\nmodel = 'majority'\nepochs = 2\n[grid]\nseed = [1, 2]\nmax_train_samples = [10, 20]\n",
            lambda path: read_sweep(path).configs(),
        ),
        "space": (
            "learning_rate = {low = 1e-5, high = 1e-3, log = true}\nbatch_size = {low = 8, high = 64, step = 8}\n",
            lambda path: read_space_file(path, RunConfig),
        ),
    }
    found = []
    for name, (text, read) in files.items():
        path = workdir / f"{name}.toml"
        path.write_text(text, "utf-8")
        found.append(Reader(f"settings files: {name}", path, partial(read, path), damage.TOML_DAMAGES, 4, True))
    return found


def _texts(workdir: Path, damage: Any) -> list[Reader]:
    from danseo.data.input_reader import group_lines, read_line
    from danseo.mlm.probing.items import read_bundled_items, read_items, write_items
    from danseo.tasks import TASKS
    from danseo.text.documents import read_documents

    items, text, lines = workdir / "items.jsonl", workdir / "text.txt", workdir / "lines.jsonl"
    write_items(items, read_bundled_items("dev")[:4])
    text.write_text("서울에 비가 왔다.\n\n부산에도 비가 왔다.\n", "utf-8")
    question = {"context": "서울에 비가 왔다.", "question": "어디에 왔나?"}
    lines.write_text(json.dumps(question, ensure_ascii=False) + "\n", "utf-8")

    def read_lines() -> None:
        with lines.open("rb") as file:
            for group in group_lines(file, 10):
                for number, line in group:
                    read_line(line, number, TASKS["mrc"])

    return [
        Reader("texts and items: items", items, lambda: read_items(items), damage.JSON_DAMAGES, 6, True),
        Reader("texts and items: text", text, lambda: list(read_documents("t", text)), damage.BYTE_DAMAGES, 4, True),
        Reader("texts and items: lines", lines, read_lines, damage.JSON_DAMAGES, 4),
    ]


def _runs(workdir: Path, damage: Any) -> list[Reader]:
    """The files of finished runs, by the commands that read them."""
    from danseo.experiment import run_experiment

    tiny: Any = importlib.import_module("tests.tiny")
    encoder = tiny.tiny_encoder(workdir / "tiny", workdir / "sample")
    quick = {"max_train_samples": 16, "evals_per_epoch": 1, "epochs": 0.5}
    found = []
    for task, model in (("ynat", "majority"), ("ynat", "linear"), ("ner", encoder)):
        config = tiny.quick_config(task, model, **quick)
        run = run_experiment(config, workdir / "sample", workdir / "runs", quiet=True).path
        shutil.copytree(run, workdir / "others" / run.name.replace("--s42--", "--s43--"), dirs_exist_ok=True)
        for path in sorted(path for path in run.rglob("*") if path.is_file() and path.name != "tokenizer.json"):
            is_model = path.parent.name == "model"
            read = _predicting(run, workdir) if is_model else _reading(run, workdir)
            by_suffix = {".json": damage.JSON_DAMAGES, ".jsonl": damage.JSON_DAMAGES, ".toml": damage.TOML_DAMAGES}
            damages = by_suffix.get(path.suffix, damage.BYTE_DAMAGES)
            kind = "model folders" if is_model else "run directories"
            found.append(Reader(f"{kind}: {path.relative_to(workdir)}", path, read, damages, 0.5, True))
    return found


def _predicting(run: Path, workdir: Path) -> Callable[[], object]:
    from danseo.inference.predict import predict_lines

    (workdir / "one.txt").write_text("서울에 비가 왔다.\n", "utf-8")
    return lambda: predict_lines(run, str(workdir / "one.txt"), workdir / "answers.jsonl", device="cpu")


def _reading(run: Path, workdir: Path) -> Callable[[], object]:
    from danseo.runs.index import find_runs
    from danseo.runs.predictions import open_members
    from danseo.tables.choose import TableChoice, choose_tables

    other = workdir / "others" / run.name.replace("--s42--", "--s43--")

    def read() -> None:
        for table in choose_tables(find_runs(run.parent), TableChoice()):
            table.cells()
        open_members([run, other], str(workdir / "sample"))

    return read
