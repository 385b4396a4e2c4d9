"""The page of `danseo serve` in a real browser (`make test-browser`): every form asks, and shows what comes back."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from danseo.experiment import run_experiment
from danseo.inference.predict import open_model
from danseo.models.base import LoadOptions
from danseo.models.registry import configure_run
from danseo.serve.app import Limits, make_app
from danseo.tasks import get_task

if os.environ.get("DANSEO_BROWSER") != "1":
    pytest.skip("only by `make test-browser`", allow_module_level=True)
SHOTS = os.environ.get("DANSEO_SHOTS")

ENTITY = {"start": 0, "end": 2, "type": "PER"}
OWN = {
    "topics": ('type = "multilabel"\nlabel = "topics"\n', {"text": "맛있고 비싸다", "topics": ["맛", "값"]}),
    "pick": (
        'type = "multiple_choice"\nlabel = "right"\nchoices = ["a", "b"]\n',
        {"text": "비가 온다", "a": "우산", "b": "삽", "right": "a"},
    ),
    "link": (
        'type = "relation"\nlabel = "label"\nsubject = "who"\nobject = "what"\n',
        {"text": "철수 책", "who": ENTITY, "what": {"start": 3, "end": 4}, "label": "x"},
    ),
}
FILLED = {
    "sts": {"#first": "비가 온다", "#second": "비가 와요"},
    "re": {"#sentence": "철수는 서울에 산다", "#subject": "철수", "#object": "서울"},
    "mrc": {"#context": "철수는 서울에 산다.", "#question": "어디에 사는가?"},
    "wos": {"#turns": "서울 호텔을 찾아요.\n어느 쪽이요?\n남쪽이요."},
    "topics": {"#text": "맛있는 집"},
    "pick": {"#text": "비가 온다", "#choice0": "우산", "#choice1": "삽"},
    "link": {"#sentence": "영희 책", "#subject": "영희", "#object": "책"},
}


def own_task(name: str, folder: Path) -> str:
    """A task file with a handful of rows, of which each other one has another label."""
    described, row = OWN[name]
    other = {"topics": {"topics": ["맛"]}, "pick": {"right": "b"}, "link": {"label": "y"}}[name]
    rows = [{**row, "text": row["text"] + " " * k, **(other if k % 2 else {})} for k in range(8)]
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows)
    (folder / f"{name}.jsonl").write_text(lines, "utf-8")
    text = f'{described}train = "{name}.jsonl"\ndev = 0.5\ntext = "text"\n'
    (folder / f"{name}.toml").write_text(text, "utf-8")
    return str(folder / f"{name}.toml")


@contextmanager
def served(path: Path) -> Iterator[str]:
    from tests.asgi_server import LoopbackServer

    server = LoopbackServer(make_app(open_model(path, LoadOptions()), Limits(), ["127.0.0.1"]), lifespan="on")
    yield f"http://127.0.0.1:{server.port}/"
    server.end()


@pytest.mark.parametrize("name", FILLED)
def test_every_form_sends_a_request_and_shows_the_answer(chromium, sample: Path, tmp_path: Path, name: str) -> None:
    task = own_task(name, tmp_path) if name in OWN else name
    assert get_task(task).name == name
    run = run_experiment(configure_run(task, "majority", "default", {}), sample, tmp_path / "runs", quiet=True)
    page = chromium.new_page(viewport={"width": 900, "height": 700})
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with served(run.path) as address:
        page.goto(address)
        for place, text in FILLED[name].items():
            page.locator(place).fill(text)
        page.locator("button").click()
        page.locator("#raw:not(:empty), .error").first.wait_for(state="attached")
        said = page.locator("#answer").inner_text()
        if SHOTS:
            page.screenshot(path=str(Path(SHOTS) / f"serve-{name}.png"))
        assert page.locator(".error").count() == 0, said
        assert said.strip()
    page.close()
    assert wrong == []
