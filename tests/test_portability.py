"""The light install needs neither a POSIX system nor torch; what needs one says so in one line.

Windows is imitated: danseo finds no module, function or constant there that Windows does not have.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from danseo.runs.lock import Owner
from tests.conftest import ROOT, Result

MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty")
NAMES = {
    "os": "fork forkpty getloadavg getegid geteuid getgid getpgid getuid killpg mkfifo nice openpty posix_spawn "
    "sched_getaffinity setsid statvfs uname wait3 wait4 O_NONBLOCK O_DIRECTORY O_NOFOLLOW O_CLOEXEC",
    "signal": "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 alarm pthread_sigmask setitimer",
    "time": "tzset",
}
HEAVY = ("danseo.training", "danseo.models", "danseo.mlm.masked_trainer")
IMITATION = f"""
import builtins, importlib, os, pkgutil, signal, sys, time, types

def import_as_windows(name, globals=None, *rest, before=builtins.__import__, **options):
    found = before(name, globals, *rest, **options)
    if not (globals or {{}}).get("__name__", "").startswith("danseo"):
        return found
    if name.split(".")[0] in {MODULES!r}:
        raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
    return views.get(name, found)

def hide(name, hidden):
    view = types.ModuleType(name)
    view.__dict__.update({{key: value for key, value in vars(sys.modules[name]).items() if key not in hidden.split()}})
    return view

views = {{name: hide(name, hidden) for name, hidden in {NAMES!r}.items()}}
views["sys"] = hide("sys", "")
views["sys"].platform = "win32"
builtins.__import__ = import_as_windows
"""
IMPORT = f"""
import danseo
names = [module.name for module in pkgutil.walk_packages(danseo.__path__, "danseo.")]
assert len(names) > 100
for name in names:
    if not name.startswith({HEAVY!r}) and not name.endswith("__main__"):
        importlib.import_module(name)
        assert "torch" not in sys.modules and "transformers" not in sys.modules, f"{{name}} loads them"
"""
RUN = """
from danseo.cli import main
for command in {commands!r}:
    try:
        main(command.split())
    except SystemExit as ended:
        assert not ended.code, (command, ended.code)
"""
COMMANDS = (
    "train ynat -m majority --seed 1 --data sample --runs runs",
    "train ynat -m majority --seed 2 --data sample --runs runs",
    "runs runs --group model",
    "report runs --data sample --out report.html",
    "doctor --data sample",
    "sweep grid.toml --data sample --runs others --dry-run",
)


def run_as_windows(script: str, folder: Path) -> Result:
    (folder / "grid.toml").write_text('[base]\ntask = "ynat"\nmodel = "majority"\n[grid]\nseed = [1, 2]\n')
    command = [sys.executable, "-c", IMITATION + script]
    return Result(subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder))


TRIAL = """
for line in ("import resource", "import os; os.killpg", "from signal import SIGHUP"):
    try:
        exec(line, {"__name__": "danseo.trial"})
    except (ImportError, AttributeError):
        print(line)
"""


def test_the_imitation_refuses_posix(tmp_path: Path) -> None:
    assert len(run_as_windows(TRIAL, tmp_path).out.splitlines()) == 3


def test_light_modules_and_commands_work_without_posix_and_torch(tmp_path: Path) -> None:
    result = run_as_windows(IMPORT + RUN.format(commands=COMMANDS), tmp_path)
    assert result.code == 0, result.err
    assert (tmp_path / "report.html").is_file()


def test_a_local_sweep_says_that_it_needs_linux(tmp_path: Path) -> None:
    script = f"from danseo.cli import main; main({'sweep grid.toml --data sample --runs runs'.split()!r})"
    result = run_as_windows(script, tmp_path)
    assert (result.code, result.out) == (2, "")
    assert "Linux" in result.complaint
    assert not (tmp_path / "runs").exists()


def test_no_process_is_signalled_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows, os.kill(pid, 0) would interrupt the owner of a lock."""
    monkeypatch.setattr("danseo.runs.lock.sys.platform", "win32")
    monkeypatch.setattr("danseo.runs.lock.Path.read_text", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))
    monkeypatch.setattr("danseo.runs.lock.Path.exists", lambda *_: False)
    monkeypatch.setattr("os.kill", lambda *_: pytest.fail("a process was signalled"))
    assert not Owner.me().is_dead()


def test_posix_modules_are_imported_in_functions_only() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {*names} & {*MODULES}, path
