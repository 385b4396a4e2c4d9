"""Sweeps on a Ray cluster of two nodes on the loopback of this machine."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"
ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402

from danseo.errors import DanseoError  # noqa: E402
from danseo.runs.lock import RunLocks  # noqa: E402
from danseo.sweeps.driver import Driver, PointList, SweepLog  # noqa: E402
from danseo.sweeps.plan import RuntimeEstimator  # noqa: E402
from danseo.sweeps.ray_executor import (  # noqa: E402
    RayExecutor,
    check_address,
    pack,
    unpack,
)
from danseo.sweeps.sweep_file import Resources  # noqa: E402

pytestmark = pytest.mark.lengthy

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes of one CPU each; 127.0.0.2 because Ray takes 127.0.0.1 for an address that others cannot reach."""
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.add_node(**NODE)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def pretend_to_work(seconds: float):
    """Work that sleeps under the run's lock and writes down who did it."""

    def work(order):
        import os
        import time
        from pathlib import Path

        import ray

        from danseo.runs.store import Run
        from danseo.sweeps import worker

        def pretend(order, run):
            tries = Path(order.runs) / f"tries-{order.name}"
            is_first = not tries.exists()
            with tries.open("a") as file:
                file.write(f"{os.getpid()} {ray.get_runtime_context().get_node_id()}\n")
            time.sleep(60 if is_first and order.settings["seed"] == 9 else seconds)
            Run(run.path).write_json("scores.json", {"by": os.getpid()})
            with (Path(order.runs) / f"ends-{order.name}").open("a") as file:
                file.write(f"{os.getpid()}\n")
            return "done", ""

        worker._run = pretend
        return worker.work(order)

    return work


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def make_driver(executor: RayExecutor, points, planner, **options) -> Driver:
    log, clock = SweepLog(planner.runs / "ray.sweep.jsonl"), RuntimeEstimator([], planner, "cpu")
    options = {"quiet": True, **options}
    return Driver(PointList(points), executor, RunLocks(planner.runs), clock, log, root=planner.root, **options)


def test_runs_are_copied_back_from_nodes_without_the_folder(cluster, points, planner):
    chosen = points(1, 2)
    executor = RayExecutor(cluster.address, Resources(files="copied"))
    assert executor.capacity() == 2
    queue = make_driver(executor, chosen, planner).run()
    assert [queue.entries[point.name].state for point in chosen] == ["done", "done"]
    assert all(point.run.is_finished and point.run.predictions_path("dev").is_file() for point in chosen)
    assert not ray.is_initialized()


def test_too_many_resources_are_refused(cluster):
    with pytest.raises(DanseoError, match="no node of the Ray cluster has 64 CPUs"):
        RayExecutor(cluster.address, Resources(cpus=64))
    assert not ray.is_initialized()


def test_a_lost_node_loses_no_run(cluster, points, planner):
    chosen = points(1, 2, 3, 4, 5)
    executor = RayExecutor(cluster.address, Resources(), do_work=pretend_to_work(1.0))
    victim = cluster.add_node(**NODE)  # the third, so that the two others stay for the other tests
    cluster.wait_for_nodes()
    started: list[int] = []

    def kill_a_node():
        while not any(victim.node_id in path.read_text() for path in planner.runs.glob("tries-*")):
            time.sleep(0.05)
        started.extend(count_lines(planner.runs / f"ends-{point.name}") for point in chosen)
        cluster.remove_node(victim, allow_graceful=False)

    killer = threading.Thread(target=kill_a_node)
    killer.start()
    queue = make_driver(executor, chosen, planner).run()
    killer.join()
    assert sum(started) < 5, "it died in the middle"
    assert {entry.state for entry in queue.entries.values()} == {"done"}
    assert [count_lines(planner.runs / f"ends-{point.name}") for point in chosen] == [1] * 5, "each done once"
    events = (planner.runs / "ray.sweep.jsonl").read_text()
    assert events.count('"ending": "lost"') == 1, "one run was on the node"
    assert sum(count_lines(planner.runs / f"tries-{point.name}") for point in chosen) == 6
    assert all(point.run.read_json("scores.json")["by"] for point in chosen)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_killed_worker_is_a_failure(cluster, points, planner, retries):
    (point,) = points(9)
    tries = planner.runs / f"tries-{point.name}"

    def kill_the_worker():
        while not count_lines(tries):
            time.sleep(0.05)
        os.kill(int(tries.read_text().split()[0]), 9)

    killer = threading.Thread(target=kill_the_worker)
    killer.start()
    executor = RayExecutor(cluster.address, Resources(), do_work=pretend_to_work(0.1))
    queue = make_driver(executor, [point], planner, retries=retries).run()
    killer.join()
    assert (queue.entries[point.name].state, count_lines(tries)) == (("failed", 1), ("done", 2))[retries]
    assert (point.run.path / "error.txt").read_text().startswith("the worker died (WorkerCrashedError)")


def test_a_run_directory_is_packed_and_unpacked(tmp_path):
    source = tmp_path / "source"
    (source / "predictions").mkdir(parents=True)
    (source / "predictions" / "dev.jsonl").write_text("{}")
    (source / "scores.json").write_text("{}")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "error.txt").write_text("old")
    unpack(pack(source), tmp_path / "runs" / "a")
    found = {str(path.relative_to(tmp_path / "runs")) for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert found == {"a/predictions/dev.jsonl", "a/scores.json"}


def test_ensembles_are_made_of_the_runs_of_a_cluster(cluster, invoke, little, tmp_path, capsys):
    grid = 'model = ["majority", "linear"]\nseed = [1, 2]\n[ensemble]\n[resources]\nfiles = "copied"\n'
    (tmp_path / "grid.toml").write_text(f'task = "ynat"\n[grid]\n{grid}')
    options = ("--executor", "ray", "--ray-address", cluster.address, "--json")
    result = invoke("sweep", "grid.toml", "--data", little, *options)
    assert (result.code, len(result.json["ensembles"])) == (0, 2)
    ray._private.worker.print_to_stdstream({"lines": ["a node was lost"], "pid": "raylet", "is_err": False}, False)
    assert capsys.readouterr().out == ""  # nor does Ray print before a JSON document


def test_an_address_without_ray_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DanseoError, match="no Ray cluster"):
            check_address(f"127.0.0.1:{port}")
        thread.join()
    with pytest.raises(DanseoError, match="no server answers"):
        check_address(f"127.0.0.1:{port}")
