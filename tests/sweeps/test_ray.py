"""Sweeps on Ray: a real cluster of two nodes on the loopback of this machine, one of which dies in the middle."""

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
from danseo.runs.locks import Locks  # noqa: E402
from danseo.sweeps.clock import Clock  # noqa: E402
from danseo.sweeps.driver import Driver, Journal, Listed  # noqa: E402
from danseo.sweeps.ray_cluster import check_address  # noqa: E402
from danseo.sweeps.ray_executor import RayExecutor, pack, unpack  # noqa: E402
from danseo.sweeps.space import Resources  # noqa: E402

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

        from danseo.runs.directory import Run
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


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def driven(executor: RayExecutor, points, planner, **options) -> Driver:
    journal, clock = Journal(planner.runs / "ray.sweep.jsonl"), Clock([], planner, "cpu")
    options = {"quiet": True, **options}
    return Driver(Listed(points), executor, Locks(planner.runs), clock, journal, root=planner.root, **options)


def test_real_runs_are_copied_back_where_the_folder_is_not_shared(cluster, points, planner):
    chosen = points(1, 2)
    executor = RayExecutor(cluster.address, Resources(files="copied"))
    assert executor.capacity() == 2
    schedule = driven(executor, chosen, planner).run()
    assert [schedule.entries[point.name].state for point in chosen] == ["done", "done"]
    assert all(point.run.is_finished and point.run.predictions_path("dev").is_file() for point in chosen)
    assert not ray.is_initialized()


def test_more_than_the_cluster_has_is_refused(cluster):
    with pytest.raises(DanseoError, match="no node of the Ray cluster has 64 CPUs"):
        RayExecutor(cluster.address, Resources(cpus=64))
    assert not ray.is_initialized()


def test_a_lost_node_loses_no_run_and_none_is_done_twice(cluster, points, planner):
    chosen = points(1, 2, 3, 4, 5)
    executor = RayExecutor(cluster.address, Resources(), do_work=pretend_to_work(1.0))
    victim = cluster.add_node(**NODE)  # the third, so that the two others stay for the other tests
    cluster.wait_for_nodes()
    started: list[int] = []

    def kill_a_node():
        while not any(victim.node_id in path.read_text() for path in planner.runs.glob("tries-*")):
            time.sleep(0.05)
        started.extend(lines(planner.runs / f"ends-{point.name}") for point in chosen)
        cluster.remove_node(victim, allow_graceful=False)

    killer = threading.Thread(target=kill_a_node)
    killer.start()
    schedule = driven(executor, chosen, planner).run()
    killer.join()
    assert sum(started) < 5, "it died in the middle"
    assert {entry.state for entry in schedule.entries.values()} == {"done"}
    assert [lines(planner.runs / f"ends-{point.name}") for point in chosen] == [1] * 5, "each done once"
    events = (planner.runs / "ray.sweep.jsonl").read_text()
    assert events.count('"ending": "lost"') == 1, "one run was on the node"
    assert sum(lines(planner.runs / f"tries-{point.name}") for point in chosen) == 6
    assert all(point.run.read_json("scores.json")["by"] for point in chosen)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_killed_worker_is_a_failure_and_retries_help(cluster, points, planner, retries):
    (point,) = points(9)
    tries = planner.runs / f"tries-{point.name}"

    def kill_the_worker():
        while not lines(tries):
            time.sleep(0.05)
        os.kill(int(tries.read_text().split()[0]), 9)

    killer = threading.Thread(target=kill_the_worker)
    killer.start()
    executor = RayExecutor(cluster.address, Resources(), do_work=pretend_to_work(0.1))
    schedule = driven(executor, [point], planner, retries=retries).run()
    killer.join()
    assert (schedule.entries[point.name].state, lines(tries)) == (("failed", 1), ("done", 2))[retries]
    assert (point.run.path / "error.txt").read_text().startswith("the worker died (WorkerCrashedError)")


def test_a_run_directory_travels(tmp_path):
    source = tmp_path / "source"
    (source / "predictions").mkdir(parents=True)
    (source / "predictions" / "dev.jsonl").write_text("{}")
    (source / "scores.json").write_text("{}")
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "error.txt").write_text("old")
    unpack(pack(source), tmp_path / "runs" / "a")
    found = {str(path.relative_to(tmp_path / "runs")) for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert found == {"a/predictions/dev.jsonl", "a/scores.json"}


def test_an_address_where_nothing_or_something_else_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DanseoError, match="something answers there, but it is no Ray cluster"):
            check_address(f"127.0.0.1:{port}")
        thread.join()
    with pytest.raises(DanseoError, match="nothing answers there"):
        check_address(f"127.0.0.1:{port}")
