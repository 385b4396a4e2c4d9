"""The files around the package: citation, security, issue forms, workflows, Docker."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from danseo import __version__
from tests.conftest import ROOT
from tests.test_extras import PROJECT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def read_yaml(path: Path) -> Any:
    return yaml.load(path.read_text("utf-8"), yaml.BaseLoader)  # every value is text, as `on` is a boolean otherwise


def test_the_citation_is_of_this_version() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors", "license"} <= citation.keys()
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    assert citation["repository-code"] == PROJECT["urls"]["Source"]


def test_links_of_the_security_page_exist() -> None:
    links = re.findall(r"\]\(([^):]+)\)", (ROOT / "SECURITY.md").read_text("utf-8"))
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms(name: str) -> None:
    form = read_yaml(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len({*ids}) == len(ids) > 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows(path: Path) -> None:
    """actionlint checks more, where it is installed."""
    workflow = read_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}, "a job asks for more where it needs it"
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, job in workflow["jobs"].items():
        assert job.keys() >= {"runs-on", "timeout-minutes", "steps"}, name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), name
            assert re.fullmatch(r"[\w-]+/[\w-]+@\S+", step.get("uses", "a/b@v1")), step
            words = shlex.split(step.get("run", ""))
            assert words[:1] != ["make"] or words[1] in {*targets, "docs"}, step
            assert [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()] == []
    if linter := shutil.which("actionlint"):
        ended = subprocess.run([linter, str(path)], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stdout


def test_the_matrix_has_the_versions_of_the_package() -> None:
    matrix = read_yaml(GITHUB / "workflows" / "tests.yml")["jobs"]["light"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: 3."
    assert matrix["python"] == [f"3.{c.removeprefix(prefix)}" for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert {system.split("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}


def list_copied() -> list[str]:
    """List the files and folders that the Dockerfile copies from the checkout."""
    copies = re.findall(r"^COPY (?!--from)(.+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    return [source for words in map(str.split, copies) for source in words[:-1]]


@pytest.mark.lengthy
def test_docker_gets_all_that_the_wheel_needs(tmp_path: Path) -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in list_copied():
        assert Path(name).parts[0] in allowed, name
        (tmp_path / name).parent.mkdir(exist_ok=True)
        skip = shutil.ignore_patterns("__pycache__", "*.safetensors")  # the weights only take time
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=skip)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.lengthy
def test_the_docker_image_runs_the_demo_without_root() -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "info"], capture_output=True, timeout=60).returncode:
        pytest.skip("no Docker daemon is running here")
    tag = f"danseo-test:{__version__}"
    built = subprocess.run([docker, "build", "-q", "-t", tag, str(ROOT)], capture_output=True, text=True, timeout=3600)
    assert built.returncode == 0, built.stderr[-3000:]

    def run(*arguments: str) -> str:
        command = [docker, "run", "--rm", "--network", "none", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert ended.returncode == 0, ended.stderr[-3000:]
        return ended.stdout

    try:
        assert run("--entrypoint", "id", tag, "-u").strip() != "0"
        assert run(tag, "--version").split()[-1] == __version__
        assert "report" in run(tag, "demo", "ynat")
    finally:
        subprocess.run([docker, "image", "rm", "-f", tag], capture_output=True, timeout=120)
