"""The board over 2,000 runs, and the report of 100: how long the list takes, and how large the file is."""

import json
import shutil
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

from danseo.board.app import make_app
from danseo.board.serving import _bound
from danseo.experiment import run_experiment
from danseo.recipes import configured
from danseo.report.making import write_report
from danseo.sample import write_sample
from danseo.tasks import TASKS

MANY, REPORTED = 2000, 104
LIST_MS, REPORT_MB = 100, 3.0


def copies(firsts: list[Path], folder: Path, count: int, *, whole: bool = True) -> None:
    """So many runs that differ in their seed; only what lists read, or all of it."""
    skip = shutil.ignore_patterns("model", *(() if whole else ("predictions",)))
    for number in range(count):
        first = firsts[number % len(firsts)]
        name = first.name.replace("--s42--", f"--s{number}--")
        shutil.copytree(first, folder / name, ignore=skip)
        config = folder / name / "config.toml"
        config.write_text(config.read_text().replace("seed = 42", f"seed = {number}"))


def seconds_of(port: int, path: str) -> tuple[float, int]:
    started = time.perf_counter()
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", path)
    answer = connection.getresponse()
    size = len(answer.read())
    assert answer.status == 200, answer.status
    connection.close()
    return time.perf_counter() - started, size


def main() -> int:
    import uvicorn

    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        write_sample(work / "sample")
        configs = [configured(task, "majority", "default", {}) for task in TASKS]
        configs += [configured(task, "linear", "default", {}) for task in ("ynat", "sts", "nli", "re")]
        firsts = [run_experiment(c, work / "sample", work / "first", quiet=True).path for c in configs]
        (work / "many").mkdir()
        copies(firsts, work / "many", MANY, whole=False)
        listener = _bound("127.0.0.1", 0)
        server = uvicorn.Server(
            uvicorn.Config(make_app(work / "many", str(work / "sample")), log_level="error", lifespan="off")
        )
        threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
        while not server.started:
            time.sleep(0.01)
        port = listener.getsockname()[1]
        cold, _ = seconds_of(port, "/runs")
        warm = [seconds_of(port, "/runs")[0] for _ in range(30)]
        new = [seconds_of(port, f"/runs?q=s{k}")[0] for k in range(10)]
        asked = [seconds_of(port, "/live.json")[0] for _ in range(10)]
        _, size = seconds_of(port, "/runs")
        server.should_exit = True
        copies(firsts, work / "hundred", REPORTED)
        started = time.perf_counter()
        made = write_report([work / "hundred"], work / "report.html", str(work / "sample"))
        found = {
            "runs": MANY,
            "first_list_seconds": round(cold, 2),
            "list_ms": round(1000 * median(warm), 1),
            "slowest_list_ms": round(1000 * max(warm), 1),
            "search_ms": round(1000 * median(new), 1),
            "live_ms": round(1000 * median(asked), 1),
            "list_kb": round(size / 1000, 1),
            "report_runs": made["runs"],
            "report_mb": round(made["bytes"] / 1e6, 2),
            "report_seconds": round(time.perf_counter() - started, 1),
        }
    print(json.dumps(found, indent=2))
    good = found["list_ms"] < LIST_MS and found["report_mb"] < REPORT_MB
    print("pages: PASS" if good else "pages: FAIL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
