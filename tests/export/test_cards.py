import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from danseo.data.input_reader import make_example
from danseo.errors import DanseoError, NetworkError
from danseo.experiment import run_experiment
from danseo.export.base import ExportRequest
from danseo.export.card import EXAMPLE_INPUTS
from danseo.export.registry import export_run
from danseo.inference.predict import predict_lines
from danseo.models.registry import configure_run
from danseo.tasks import TASKS
from tests.showing import _own_task


def test_a_card_has_scores_and_their_protocol(real, tmp_path):
    export_run("card", ExportRequest(str(real), str(tmp_path / "card")))
    head, body = (tmp_path / "card" / "README.md").read_text().split("---\n")[1:3]
    facts = yaml.safe_load(head)
    scores = json.loads((real / "scores.json").read_text())
    assert facts["datasets"] == ["klue/klue"]
    assert facts["pipeline_tag"] == "text-classification"
    (report, dev) = facts["model-index"][0]["results"]
    headline = scores["scores"]["report"][0]
    assert report["metrics"][0]["type"] == headline["id"]
    assert report["metrics"][0]["value"] == headline["value"]
    assert report["metrics"][0]["args"]["n"] == headline["n"]
    assert len(dev["metrics"]) == len(scores["scores"]["dev"])
    assert "CC BY-SA 4.0" in body
    assert "select split" in body
    assert headline["id"] in body
    assert "140 of 9,107 examples of dev" in body


def test_a_score_on_the_sample_is_not_called_a_klue_score(run, tmp_path):
    export_run("card", ExportRequest(str(run), str(tmp_path / "card")))
    head, body = (tmp_path / "card" / "README.md").read_text().split("---\n")[1:3]
    facts = yaml.safe_load(head)
    assert "datasets" not in facts
    assert facts["tags"] == ["danseo"]
    assert {each["dataset"]["type"] for each in facts["model-index"][0]["results"]} == {"danseo-sample"}
    assert "**Nothing here is a score on KLUE**" in body
    assert f"# {run.name}\n" in body
    assert f"echo '{EXAMPLE_INPUTS['ynat']}' | danseo predict run\n" in body
    assert not (tmp_path / "card" / ".eval_results").exists()
    export_run("lm-eval", ExportRequest(str(run), str(tmp_path / "r.json")))
    document = json.loads((tmp_path / "r.json").read_text())
    assert list(document["results"]) == ["sample_ynat"]
    assert document["configs"]["sample_ynat"]["dataset_path"] == "danseo-sample"


@pytest.mark.parametrize("name", TASKS)
def test_example_inputs_of_cards_can_be_read(name):
    line = EXAMPLE_INPUTS[name]
    assert "'" not in line  # the shell would end the line there
    example = make_example(line, TASKS[name], 1)
    if name == "re":
        assert [example.text[e.start : e.end] for e in (example.subject, example.object)] == ["김서연", "한빛전자"]


def test_a_custom_task_is_not_called_klue(sample, tmp_path):
    task = str(_own_task(tmp_path, "mails", lambda n: [{"text": f"글 {k}", "label": "xy"[k % 2]} for k in range(n)]))
    own = run_experiment(configure_run(task, "majority", "default", {}), sample, tmp_path / "runs", quiet=True)
    export_run("card", ExportRequest(str(own.path), str(tmp_path / "card")))
    text = (tmp_path / "card" / "README.md").read_text()
    assert "A model for mails" in text
    assert "klue" not in text.casefold()
    assert not (tmp_path / "card" / ".eval_results").exists()


def test_the_newer_results_are_what_the_hub_reads(real, tmp_path):
    from huggingface_hub import parse_eval_result_entries

    export_run("card", ExportRequest(str(real), str(tmp_path / "card")))
    entries = parse_eval_result_entries(yaml.safe_load((tmp_path / "card" / ".eval_results" / "ynat.yaml").read_text()))
    assert [entry.task_id for entry in entries] == ["ynat/macro_f1@official-1"] * 2
    assert {entry.dataset_id for entry in entries} == {"klue/klue"}
    assert "95 % interval" in entries[0].notes


class Stub(BaseHTTPRequestHandler):
    """As much of the Hub as an upload needs; it keeps what it was given."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        if self.headers.get("Authorization") != "Bearer hf_right":
            return self._answer(401, {"error": "Invalid credentials"})
        if self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            return self._answer(200, {"url": f"{self.server.address}/me/mine", "id": "me/mine"})
        if "/preupload/" in self.path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            return self._answer(200, {"files": files})
        if "/commit/" in self.path:
            for line in body.decode().splitlines():
                value = json.loads(line)
                if value["key"] == "file":
                    self.server.files[value["value"]["path"]] = base64.b64decode(value["value"]["content"])
            url = f"{self.server.address}/me/mine/commit/{'a' * 40}"
            return self._answer(200, {"commitUrl": url, "commitOid": "a" * 40, "success": True})
        if self.path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        return self._answer(404, {})

    def do_GET(self) -> None:
        facts = {"id": "me/mine", "modelId": "me/mine", "sha": "b" * 40, "siblings": [], "private": True, "tags": []}
        self._answer(200, facts)

    def _answer(self, status: int, document: dict) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    server.address, server.files, server.asked, server.created = f"http://127.0.0.1:{server.server_port}", {}, [], None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield server
    server.shutdown()
    server.server_close()


def test_what_is_uploaded_can_be_used_again(real, hub, tmp_path):
    made = export_run("hub", ExportRequest(str(real), "me/mine", options={"private": True}))
    assert made["out"] == "me/mine"
    assert hub.created.get("visibility") == "private" or hub.created.get("private") is True
    assert {"README.md", ".eval_results/ynat.yaml", "config.toml", "scores.json", "model/linear.npz"} <= set(hub.files)
    assert not any("predictions" in name for name in hub.files)
    for name, content in hub.files.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "lines.txt").write_text("새 공장 착공\n")
    for folder, out in ((tmp_path / "run", "here.jsonl"), (real, "there.jsonl")):
        predict_lines(folder, str(tmp_path / "lines.txt"), tmp_path / out)
    assert (tmp_path / "here.jsonl").read_text() == (tmp_path / "there.jsonl").read_text()


def test_a_wrong_token_and_no_network_are_one_line(run, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(NetworkError, match="check HF_TOKEN") as raised:
        export_run("hub", ExportRequest(str(run), "me/mine"))
    assert "hf_wrong" not in str(raised.value)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE"):
        export_run("hub", ExportRequest(str(run), "me/mine"))
    assert not hub.files


@pytest.mark.parametrize("name", [None, "mine", "me/mi ne", "me/mine/more", "../mine"])
def test_a_repository_has_an_owner_and_a_name(run, name):
    with pytest.raises(DanseoError, match="OWNER/NAME"):
        export_run("hub", ExportRequest(str(run), name))


def test_results_as_lm_eval_writes_them(real, tmp_path):
    export_run("lm-eval", ExportRequest(str(real), str(tmp_path / "r.json")))
    document = json.loads((tmp_path / "r.json").read_text())
    scores = json.loads((real / "scores.json").read_text())["scores"]["report"]
    values = document["results"]["klue_ynat"]
    assert values["macro_f1@official-1,none"] == pytest.approx(scores[0]["value"] / 100)
    assert values["macro_f1@official-1_stderr,none"] == "N/A"
    assert document["n-samples"]["klue_ynat"] == {"original": scores[0]["n"], "effective": scores[0]["n"]}
