"""The attack on danseo: kills, damaged inputs, full disks, a hostile Hub, a dying node; one table of what held.

    python bench/attack.py [PART …] [--size 1.0] [--seed 0] [--only NUMBER]

Parts are fuzz, kills, exact, disk, hub, ray, and the typed changes of attack_mutations.py; without any, all. A size
below 1 does less of each. Two parts run at a time, and no further round begins after 14 minutes. A finding among the
typed changes is printed with its part, seed and number: the same words and --only repeat it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import Limit, ResultTable, say

ROOT = Path(__file__).parents[1]
CHANGES = ("run-folders", "model-folders", "bundles", "task-files", "parquet", "board", "replies", "serve")
PARTS = ("exact", "kills", "fuzz", *CHANGES, "hub", "disk", "ray")
"""The long ones first, as two run at a time."""


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="attack danseo and print what held")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=840.0, help="no further round begins after this time")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", type=int, help="one part of the typed changes: only this input")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_here(part: str, size: float, seed: int, limit: Limit, only: int | None) -> list[dict[str, object]]:
    """The rows of a part, made in this process."""
    with tempfile.TemporaryDirectory(prefix="danseo-attack-") as workdir:
        if part in CHANGES:
            from attack_mutations import run_attack

            return run_attack(part, Path(workdir), size, seed, limit, only)
        if part == "fuzz":
            from attack_inputs import fuzz

            return fuzz(Path(workdir), size, seed, limit)
        if part in ("kills", "exact"):
            from attack_kills import kills

            return kills(Path(workdir), size, seed, limit, exact=part == "exact")
        import attack_surroundings

        made: list[dict[str, object]] = getattr(attack_surroundings, part)(Path(workdir), size)
        return made


def run_apart(part: str, arguments: argparse.Namespace, limit: Limit) -> list[dict[str, object]]:
    """The rows of a part, from a process of its own; a part that dies is a row as well."""
    command = [sys.executable, __file__, part, "--alone", f"--size={arguments.size}", f"--seed={arguments.seed}"]
    command += [f"--seconds={limit.left:.0f}", *([f"--only={arguments.only}"] if arguments.only is not None else [])]
    quiet = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    began = time.monotonic()
    done = subprocess.run(command, env={**os.environ, **quiet}, stdout=subprocess.PIPE, text=True, check=False)
    say(f"{part}: {time.monotonic() - began:.0f} s")
    try:
        rows: list[dict[str, object]] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        rows = [{"attack": part, "tries": 0, "held": 0, "note": f"the part itself ended with {done.returncode}"}]
    return rows


def main() -> int:
    arguments = parsed()
    if arguments.alone:
        rows = run_here(arguments.parts[0], arguments.size, arguments.seed, Limit(arguments.seconds), arguments.only)
        print(json.dumps(rows))
        return 0
    began, inputs, failed, limit = time.monotonic(), 0, 0, Limit(arguments.seconds)
    table = ResultTable("attacks", ("attack", "inputs", "findings", "note"))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for rows in pool.map(lambda part: run_apart(part, arguments, limit), arguments.parts or PARTS):
            for row in rows:
                findings = int(str(row["tries"])) - int(str(row["held"])) if row["tries"] else 1
                table.add(row["attack"], row["tries"], findings, row["note"])
                inputs, failed = inputs + int(str(row["tries"])), failed + findings
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = f"{time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of computing"
    print(f"\n{inputs:,} inputs, {failed} findings; {spent}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
