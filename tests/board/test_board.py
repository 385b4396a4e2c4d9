"""The board over the bundled sample: what it shows, and what it refuses."""

import json
import shutil
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest

from danseo.board.pages import make_live_status

pytest.importorskip("starlette", reason="the extra board or serve is not installed")
uvicorn = pytest.importorskip("uvicorn")

from danseo.board.app import (  # noqa: E402
    make_app,
    open_listener,
    serve_board,
)
from danseo.board.pages import (  # noqa: E402
    PER_PAGE,
    make_runs_page,
)
from danseo.board.run_cache import (  # noqa: E402
    RecordStore,
    RunCache,
    find_run_folders,
)
from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.registry import configure_run  # noqa: E402
from danseo.runs.index import read_record  # noqa: E402
from danseo.runs.lock import RunLocks  # noqa: E402
from danseo.runs.progress_file import ProgressFile  # noqa: E402
from danseo.serve.server import serve_in_thread  # noqa: E402
from tests.asgi_server import LoopbackServer  # noqa: E402

SECRET = "not for the board"


class Served(LoopbackServer):
    """A board on a free port of loopback."""

    def __init__(self, app) -> None:
        super().__init__(app, lifespan="off")

    def ask(self, path: str, method: str = "GET", **headers: str):
        return self.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.fixture(scope="module")
def folder(sample, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    runs = folder / "runs"
    for model in ("majority", "linear"):
        run_experiment(configure_run("ynat", model, "default", {}), sample, runs, quiet=True)
    outside = folder / "outside"
    shutil.copytree(next(runs.glob("ynat--linear*")), outside / "ynat--secret")
    (outside / "secret.txt").write_text(SECRET)
    (runs / "linked").symlink_to(outside / "ynat--secret")
    half = runs / "half"
    shutil.copytree(outside / "ynat--secret", half)
    (half / "environment.json").unlink()
    (half / "environment.json").symlink_to(outside / "ynat--secret" / "environment.json")
    running = runs / "ynat--running"
    shutil.copytree(outside / "ynat--secret", running, ignore=shutil.ignore_patterns("scores.json", "environment.json"))
    (running / "log.jsonl").write_text(
        '{"step": 5, "loss": 1.5, "score": 40.0, "best": 40.0}\n{"step": 10, "loss": 1.0, "score": 50.0}\n'
    )
    ProgressFile(running).write(10, 40, 5.0)
    (runs / "study.sweep.jsonl").write_text('{"run": "a", "state": "done"}\n{"run": "b", "state": "running"}\n{"run"')
    return runs


@pytest.fixture(scope="module")
def board(folder, sample):
    served = Served(make_app(folder, str(sample)))
    yield served
    served.end()


def test_pages_and_their_json(board, folder):
    name = next(folder.glob("ynat--linear*")).name
    for path in ("/", "/runs", "/task/ynat", f"/run/{name}", "/compare"):
        status, headers, text = board.ask(path)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8"), path
        assert "<h1>" in text
        status, headers, text = board.ask("/index.json" if path == "/" else f"{path}.json")
        assert (status, headers["content-type"]) == (200, "application/json; charset=utf-8"), path
        assert json.loads(text)["sections"] or path == "/compare"


def test_pages_have_the_language_of_the_visitor(board, folder, monkeypatch):
    monkeypatch.delenv("DANSEO_LANG")
    _, headers, english = board.ask("/runs")
    _, _, korean = board.ask("/runs", accept_language="ko-KR,ko;q=0.9")
    assert ("<h1>Runs</h1>" in english, "<h1>실험</h1>" in korean) == (True, True)
    assert 'href="/runs?lang=ko"' in english  # the switch
    assert "lang=" not in korean.partition("<nav")[2].partition("</nav>")[0]  # nothing was chosen
    assert "accept-language" in headers["vary"]
    _, _, chosen = board.ask("/runs?q=linear&lang=ko")
    assert '<html lang="ko">' in chosen
    assert 'href="/?lang=ko"' in chosen  # links keep the choice
    assert 'name="lang" value="ko"' in chosen
    assert 'href="/runs?q=linear&amp;lang=en"' in chosen
    assert board.ask("/runs.json?lang=ko")[2] == board.ask("/runs.json")[2]
    assert '<html lang="en">' in board.ask("/runs?lang=%3Cscript%3E")[2]
    monkeypatch.setenv("DANSEO_LANG", "ko")
    assert '<html lang="ko">' in board.ask("/runs", accept_language="en")[2]


def test_two_runs_are_compared(board, folder):
    keys = [f"run=run/{path.name}" for path in sorted(folder.glob("ynat--*s42*"))]
    status, _, text = board.ask(f"/compare.json?{'&'.join(keys)}")
    titles = [section["title"] for section in json.loads(text)["sections"]]
    assert (status, titles) == (200, ["Scores", "Paired tests", "Where the best two disagree"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_shows(board, method):
    assert board.ask("/", method)[0] == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "localhost.evil"])
def test_other_names_are_refused(board, host):
    assert board.ask("/", Host=host)[0] == 421


def test_loopback_names_are_known(board):
    for host in ("localhost", f"127.0.0.1:{board.port}", "[::1]:9", "LOCALHOST:1"):
        assert board.ask("/runs", Host=host)[0] == 200


def test_every_answer_has_the_policy_and_no_cookie(board):
    for path in ("/", "/style.css", "/absent", "/live.json"):
        _, headers, _ = board.ask(path)
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/run/../../outside/secret.txt",
        "/run/..%2f..%2foutside%2fsecret.txt",
        "/run/%2e%2e/%2e%2e/outside/ynat--secret",
        "/run/linked",
        "/run/linked/../../outside/secret.txt",
        "/../outside/secret.txt",
        "/..%5c..%5coutside%5csecret.txt",
        "//etc/passwd",
        "/run//etc/passwd",
        "/run/%00",
        "/outside/secret.txt",
        "/blocks.html",
        "/run/ynat--running/config.toml",
    ],
)
def test_nothing_but_the_runs_is_served(board, path):
    status, _, text = board.ask(path)
    assert status == 404
    assert SECRET not in text


def test_linked_folders_are_no_runs_and_linked_files_are_not_read(board, folder):
    names = sorted(Path(path).name[:10] for path in find_run_folders(str(folder)))
    assert names == ["half", "ynat--line", "ynat--majo", "ynat--runn"]
    status, _, text = board.ask("/run/half.json")
    assert status == 200
    assert "environment.json is a link that leads out" in json.loads(text)["lead"]
    assert len(json.loads(text)["sections"]) == 1


def test_what_did_not_change_is_not_sent_again(board):
    status, headers, _ = board.ask("/runs")
    assert status == 200
    status, again, text = board.ask("/runs", If_None_Match=headers["etag"])
    assert (status, text, again["etag"]) == (304, "", headers["etag"])


def test_a_training_shows_how_far_it_is(board, folder):
    found = json.loads(board.ask("/live.json")[2])
    (one,) = found["running"]
    assert (one["percent"], one["left_seconds"], one["alive"], one["score"]) == (25.0, 15, True, 50.0)
    assert found["sweeps"] == [{"sweep": "study", "states": {"done": 1, "stopped": 1}, "alive": False}]
    ProgressFile(folder / "ynat--running").write(40, 40, 20.0)
    assert json.loads(board.ask("/live.json")[2])["running"][0]["percent"] == 100.0
    assert "Progress" in board.ask("/run/ynat--running")[2]
    ProgressFile(folder / "ynat--running").write(40, 40, 20.0)


def test_a_training_without_a_process_is_not_alive(folder, tmp_path):
    run = shutil.copytree(folder / "ynat--running", tmp_path / "ynat--running")
    ProgressFile(run).write(10, 40, 5.0)
    lock = RunLocks(tmp_path).acquire(run.name)
    snapshot = RunCache(tmp_path).snapshot()
    before = sorted(path for path in tmp_path.rglob("*"))
    assert make_live_status(snapshot)["running"][0]["alive"]
    lock.release()
    assert not make_live_status(snapshot)["running"][0]["alive"]
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_masked_model_in_training_shows_its_progress(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "pretrain.toml").write_text("")
    (tmp_path / "small" / "log.jsonl").write_text('{"step": 10, "loss": 7.5}\n')
    ProgressFile(tmp_path / "small").write(10, 40, 5.0)
    (one,) = make_live_status(RunCache(tmp_path).snapshot())["running"]
    assert (one["run"], one["page"], one["percent"], one["loss"]) == ("small", "masked", 25.0, 7.5)


def test_a_run_that_comes_is_seen_and_one_that_goes_is_not(folder, monkeypatch):
    monkeypatch.setattr("danseo.board.run_cache._PAUSE", 0.0)
    index = RunCache(folder)
    before = index.refresh()
    assert index.refresh() is before
    shutil.copytree(next(folder.glob("ynat--linear*")), folder / "ynat--new")
    assert "run/ynat--new" in index.refresh().by_key
    shutil.rmtree(folder / "ynat--new")
    assert "run/ynat--new" not in index.refresh().by_key


def test_the_list_is_cut_into_pages(folder):
    snapshot = RunCache(folder).snapshot()
    snapshot.collection.records[:] = snapshot.collection.records * PER_PAGE
    page = make_runs_page(snapshot, {"page": ["2"], "q": ["ynat"]})
    assert page.lead == f"{3 * PER_PAGE:,} of {4 * PER_PAGE:,} runs, page 2 of 3."
    assert len(page.sections[0].blocks[0].table.rows) == PER_PAGE


def test_the_token_is_due_and_links_carry_it(folder, sample):
    served = Served(make_app(folder, str(sample), token="s3cret"))
    try:
        assert served.ask("/")[0] == 401
        assert served.ask("/?token=wrong")[0] == 401
        assert served.ask("/", Authorization="Bearer s3cret")[0] == 200
        status, _, text = served.ask("/runs?token=s3cret")
        assert status == 200
        assert '/style.css?token=s3cret"' in text
    finally:
        served.end()


def test_a_folder_that_is_not_there_and_a_taken_port_are_one_line(tmp_path):
    with pytest.raises(DanseoError, match="not a folder of runs"):
        RunCache(tmp_path / "absent")
    taken = open_listener("127.0.0.1", 0)
    taken.listen()
    with pytest.raises(DanseoError, match="choose another --port"):
        open_listener("127.0.0.1", taken.getsockname()[1])
    taken.close()


def test_what_was_read_is_kept_for_the_next_start(folder, tmp_path, monkeypatch):
    store = RecordStore(tmp_path / "index.sqlite")
    first = RunCache(folder, None, store).snapshot()
    read = []
    monkeypatch.setattr("danseo.board.run_cache.read_record", lambda run: read.append(run) or read_record(run))
    again = RunCache(folder, None, store).snapshot()
    assert read == []
    assert again.by_key == first.by_key
    changed = folder / "ynat--running" / "error.txt"
    changed.write_text("it broke\n")
    try:
        third = RunCache(folder, None, store).snapshot()
        assert [run.path.name for run in read] == ["ynat--running"]
        assert third.by_key["run/ynat--running"].note == "it broke"
    finally:
        changed.unlink()
    store.path.write_bytes(b"no database at all")
    assert RunCache(folder, None, store).snapshot().by_key == first.by_key
    store.path.unlink()
    assert RunCache(folder, None, store).snapshot().by_key == first.by_key


def test_the_board_works_without_its_database(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    found = RunCache(folder, None, RecordStore(tmp_path / "file" / "index.sqlite")).snapshot()
    assert len(found.by_key) == 4
    assert "the next start reads all runs again" in capsys.readouterr().err


def test_a_model_is_tried_beside_the_board_which_still_only_shows(folder, sample):
    with serve_in_thread(next(folder.glob("ynat--linear*"))) as ready:
        served = Served(make_app(folder, str(sample), model_address=ready.address))
        try:
            text = served.ask("/")[2]
            assert f'href="{ready.address}"' in text
            assert served.ask("/predict", "POST")[0] == 405
            port = int(ready.address.rstrip("/").rsplit(":", 1)[1])
            while not ready.uvicorn_server.started:
                time.sleep(0.01)
            asked = HTTPConnection("127.0.0.1", port, timeout=60)
            asked.request("POST", "/predict", json.dumps("새 공장 착공"), {"Content-Type": "application/json"})
            assert "answer" in json.loads(asked.getresponse().read())
            asked.close()
        finally:
            served.end()


def test_a_model_is_not_offered_to_other_machines(folder):
    with pytest.raises(DanseoError, match="token"):
        serve_board(folder, None, "0.0.0.0", 0, model=folder / "ynat--running")
