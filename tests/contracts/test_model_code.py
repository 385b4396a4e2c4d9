"""No model folder runs code unless the command allows it: every attack, every family, every command."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

if not all(map(find_spec, ("torch", "gliner2", "spacy"))):  # without importing them for other tests
    pytest.skip("torch, gliner2 or spacy is not installed", allow_module_level=True)

from danseo.cli import cli
from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.experiment import run_experiment
from danseo.models.registry import FAMILIES
from danseo.runs.store import Run
from tests.contracts.attacks import ATTACKS, ATTACKS_AND_NONE
from tests.systems.tiny import tiny_gliner
from tests.tiny import quick_config, tiny_decoder, tiny_encoder

TRUST = "--trust-remote-code"
YES = "y\nyes\n" * 500
"""What `yes |` would answer to a question."""


@dataclass(frozen=True)
class Case:
    """How a family names a folder, and how a good folder is made."""

    prefix: str
    make: Callable[[Path, Path], object]
    """Writes a good folder, at the first path; the second is the sample."""
    model: str = ""
    """The name of the model where it is no folder."""
    run_type: str = "training"


def make_gliner(folder: Path, sample: Path) -> None:
    shutil.copytree(tiny_gliner(folder.with_name("parts"), sample), folder)


def make_classic(folder: Path, sample: Path) -> None:
    tiny_encoder(folder, sample)
    (folder / "gliner_config.json").write_text(json.dumps({"model_name": str(folder)}))


def make_pipeline(folder: Path, sample: Path) -> None:
    import spacy

    spacy.blank("ko", config={"nlp": {"tokenizer": {"@tokenizers": "danseo.Characters.v1"}}}).to_disk(folder)


def make_linear(folder: Path, sample: Path) -> None:
    config = RunConfig(task="ynat", model="linear", max_train_samples=16)
    run = run_experiment(config, sample, folder.with_name("linear-runs"), quiet=True)
    shutil.copytree(run.path / "model", folder)


CASES = {
    "encoder": Case("", tiny_encoder),
    "llm": Case("llm:", tiny_decoder),
    "llm, prompted": Case("llm:", tiny_decoder, run_type="prompt"),
    "gliner": Case("gliner:", make_gliner),
    "gliner, classic": Case("gliner:", make_classic),
    "spacy": Case("spacy:", make_pipeline),
    "baseline": Case("", make_linear, model="linear"),
    "server": Case("", lambda folder, sample: folder.mkdir(), model="server:stub", run_type="prompt"),
}
FOLDERS = [name for name, case in CASES.items() if not case.model]

SPACE = ("--space", "SPACE", "--trials", "1")
ITEMS = ("--probe-items", "sample", *SPACE)
RUN_COMMANDS = {
    "predict": ("predict", "RUN", "LINES"),
    "eval": ("eval", "RUN", "--split", "train", "--data", "SAMPLE"),
    "stress": ("stress", "RUN", "--perturb", "typos", "--limit", "8", "--data", "SAMPLE"),
    "distill": ("distill", "RUN", "-m", "mini", "--limit", "8", "--data", "SAMPLE", "--runs", "OUT"),
    "serve": ("serve", "RUN", "--host", "203.0.113.1"),  # an address that no machine has: a model that opens ends there
    "export": ("export", "RUN", "--to", "onnx", "--out", "OUT"),
    "soup": ("soup", "RUN", "RUN", "--data", "SAMPLE", "--runs", "OUT"),
    "ensemble": ("ensemble", "RUN", "RUN", "--data", "SAMPLE", "--runs", "OUT"),
}
MODEL_COMMANDS = {
    "train": ("train", "TASK", "-m", "MODEL", "--data", "SAMPLE", "--runs", "OUT", "--limit", "8"),
    "prompt": ("prompt", "TASK", "-m", "MODEL", "--data", "SAMPLE", "--runs", "OUT", "--limit-calls", "1"),
    "data stats": ("data", "stats", "TASK", "--tokenizer", "FOLDER", "--data", "SAMPLE"),
    "probe": ("probe", "FOLDER", "--quick", "--output-dir", "OUT"),
    "pretrain": ("pretrain", "--from", "FOLDER", "--text", "LINES", "--steps", "1", "--out", "OUT"),
    "coref": ("coref", "FOLDER", "--text", "LINES", "--steps", "1", "--out", "OUT"),
    "tune train": ("tune", "train", "TASK", "-m", "MODEL", "--data", "SAMPLE", "--runs", "OUT", *SPACE),
    "tune pretrain": ("tune", "pretrain", "--from", "FOLDER", "--text", "LINES", "--steps", "1", *ITEMS),
    "tune coref": ("tune", "coref", "FOLDER", "--text", "LINES", "--steps", "1", *ITEMS),
    "mine": ("mine", "ynat", "-m", "MODEL", "--data", "SAMPLE", "--runs", "OUT", "--folds", "2", "--out", "OUT"),
    "sweep": ("sweep", "SWEEP", "--data", "SAMPLE", "--runs", "OUT"),
    "reproduce": ("reproduce", "FOLDER", "--tasks", "ner", "--data", "SAMPLE", "--runs", "OUT"),
}
NAMED = {"spacy": "function_of_a_plugin"}
"""The attack by name of code, where the settings are no JSON."""
PICKLES = "safetensors|adapters|pickle|damaged|corrupted|is missing|classic GLiNER|no such program|GLiNER process"
IN_PROCESSES = ("mine", "sweep", "reproduce")
"""Commands that open the model in processes of their own."""


@pytest.fixture(scope="module")
def good(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The good folder of a case, made once."""
    made: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("good") / "model"
            CASES[name].make(made[name], sample)
        return made[name]

    return find


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("DANSEO_SPAN_PYTHON", sys.executable)
    monkeypatch.chdir(tmp_path)
    return iter([None]).__next__()


@dataclass(frozen=True)
class Attempt:
    """A hostile folder, a run that holds it, and the file that its code leaves behind."""

    case: Case
    folder: Path
    run: Path
    trace: Path
    sample: Path
    reason: str
    """What the line that refuses it is about."""

    def claims(self, is_trusted: bool) -> None:
        """Let the run folder say whether its code is trusted, which is not for it to say."""
        for path in self.run.rglob("config.toml"):
            Run(path.parent).start(update_config(Run(path.parent).config, {"trust_remote_code": is_trusted}))

    def command(self, words: tuple[str, ...], *more: str) -> Result:
        """Run a command in this process, with many a yes on standard input."""
        lines, sweep = self.trace.with_name("lines.txt"), self.trace.with_name("hostile.toml")
        lines.write_text("홍길동은 서울에 갔다.\n" * 3, "utf-8")
        space = self.trace.with_name("space.toml")
        space.write_text("learning_rate = [1e-4]\n")
        model = self.case.model or f"{self.case.prefix}{self.folder}"
        sweep.write_text(f"task = 'ner'\nmodel = '{model}'\nmax_train_samples = 8\n[grid]\nseed = [1]\n")
        places = {"RUN": self.run, "FOLDER": self.folder, "MODEL": model, "LINES": lines, "SAMPLE": self.sample}
        places |= {"OUT": self.trace.with_name("out"), "TASK": "ner", "SWEEP": sweep, "SPACE": space}
        return CliRunner().invoke(cli, [str(places.get(word, word)) for word in (*words, *more)], input=YES)

    def check(self, words: tuple[str, ...], *, passes: bool = False) -> None:
        """Nothing of the folder runs, and the command fails with one line about it, unless it reads none of it."""
        result = self.command(words)
        assert not self.trace.exists(), f"{' '.join(words)}: code of the model ran\n{result.output}"
        if passes and not result.exit_code:
            return
        assert isinstance(result.exception, DanseoError), f"{' '.join(words)}: {result.exception!r} {result.output}"
        assert re.search(self.reason, str(result.exception)), result.exception


@pytest.fixture
def attempt(good, sample: Path, tmp_path: Path) -> Callable[..., Attempt | None]:
    """Make a folder of a case hostile; None where the attack has nothing to change."""

    def make(name: str, attack: str, base: Path | None = None) -> Attempt | None:
        case, trace, run = CASES.get(name, CASES["encoder"]), tmp_path / "it-ran", tmp_path / "run"
        for left in (run, tmp_path / "out"):
            shutil.rmtree(left, ignore_errors=True)
        if base:
            shutil.copytree(base, run)
        else:
            shutil.copytree(good(name), run / "model")
        folder = run if name == "exported" else run / "model"
        if not ATTACKS_AND_NONE[attack](folder, trace):
            return None
        model = case.model or f"{case.prefix}{run / 'model'}"
        if not base:
            task = "ynat" if case.model == "linear" else "ner"
            Run(run).start(RunConfig(task=task, model=model, run_type=case.run_type))
        return Attempt(case, folder, run, trace, sample, PICKLES if "pickled" in attack else TRUST)

    return make


def test_every_family_and_every_command_is_under_contract():
    covered = {name.split(",")[0] for name in CASES} | {"ensemble"}  # whose members are the models
    assert covered == {family.name for family in FAMILIES}
    assert {*RUN_COMMANDS, *MODEL_COMMANDS} >= {name for name, command in walk(cli) if TRUST in options(command)}


def walk(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for inner, one in command.commands.items():
            yield from walk(one, f"{name} {inner}".strip())
    else:
        yield name, command


def options(command: click.Command) -> list[str]:
    return [option for parameter in command.get_params(click.Context(command)) for option in parameter.opts]


@pytest.mark.parametrize("name", CASES)
def test_a_run_folder_runs_no_code(attempt, trained: Path, name: str):
    for attack in ATTACKS:
        if found := attempt(name, attack, trained if name == "encoder" else None):
            found.check(RUN_COMMANDS["predict"])


@pytest.mark.parametrize("name", CASES)
def test_a_run_folder_cannot_allow_its_own_code(attempt, name: str):
    found = attempt(name, NAMED.get(name, "code_of_a_known_type")) or attempt(name, "nothing")
    found.claims(is_trusted=True)
    found.check(RUN_COMMANDS["predict"])


@pytest.mark.parametrize("name", FOLDERS)
def test_a_model_folder_runs_no_code(attempt, name: str):
    for attack in ATTACKS:
        if found := attempt(name, attack):
            found.check(MODEL_COMMANDS["prompt" if CASES[name].run_type == "prompt" else "train"])


@pytest.fixture(scope="module")
def trained(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of an encoder."""
    encoder = tiny_encoder(tmp_path_factory.mktemp("encoder") / "tiny", sample)
    config = quick_config("ynat", encoder, max_train_samples=16, evals_per_epoch=1)
    return run_experiment(config, sample, tmp_path_factory.mktemp("runs"), quiet=True).path


@pytest.mark.parametrize("command", RUN_COMMANDS)
def test_no_command_runs_code_of_a_run(attempt, trained: Path, command: str):
    for attack in ("code_of_a_known_type", "code_under_another_key", "code_of_the_tokenizer", "pickled_shards"):
        found = attempt("encoder", attack, trained)
        for is_trusted in (False, True) if "pickled" not in attack else (False,):
            found.claims(is_trusted)
            found.check(RUN_COMMANDS[command], passes=command == "ensemble")  # which opens no model


@pytest.mark.parametrize("command", ["predict", "eval", "serve"])
def test_no_command_runs_code_of_a_member(attempt, trained: Path, sample: Path, tmp_path: Path, command: str):
    for attack in ("code_of_a_known_type", "code_of_the_tokenizer", "pickled_shards"):
        found = attempt("encoder", attack, trained)
        out = tmp_path / f"of-{attack}"
        made = CliRunner().invoke(
            cli, ["ensemble", str(found.run), str(trained), "--data", str(sample), "--runs", str(out)]
        )
        assert not made.exit_code, made.output
        ensemble = replace(found, run=next(out.iterdir()))
        ensemble.check(RUN_COMMANDS[command])


@pytest.mark.parametrize("command", [name for name in MODEL_COMMANDS if name not in IN_PROCESSES])
def test_no_command_runs_code_of_a_model_folder(attempt, command: str):
    for attack in ("code_of_an_unknown_type", "code_of_the_tokenizer", "code_in_another_folder", "pickled_shards"):
        found = attempt("llm, prompted" if command == "prompt" else "encoder", attack)
        found.check(MODEL_COMMANDS[command], passes=command == "data stats")  # which reads no weights


@pytest.mark.parametrize("command", ["predict", "eval", "serve"])
def test_no_command_runs_code_of_an_exported_model(attempt, exported: Path, command: str):
    for attack in ("code_of_a_known_type", "code_under_another_key"):
        found = attempt("exported", attack, exported)
        found.claims(is_trusted=True)
        found.check(RUN_COMMANDS[command])


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run as a network for ONNX Runtime, with the configuration of its checkpoint beside it."""
    out = tmp_path_factory.mktemp("exported") / "onnx"
    result = CliRunner().invoke(cli, ["export", str(trained), "--to", "onnx", "--out", str(out)])
    assert not result.exit_code, result.output
    shutil.copy(trained / "model" / "config.json", out)
    return out


@pytest.mark.parametrize("claim", [False, True])
def test_merging_adapters_runs_no_code(attempt, trained: Path, claim: bool):
    found = attempt("llm", "code_in_another_folder")
    shutil.copytree(trained, found.run, ignore=shutil.ignore_patterns("model"), dirs_exist_ok=True)
    Run(found.run).start(RunConfig(task="ynat", model=f"llm:{found.folder}", trust_remote_code=claim))
    found.check(("export", "RUN", "--to", "merged", "--out", "OUT"))


def test_a_chat_template_reaches_nothing_outside(attempt):
    found = attempt("llm, prompted", "nothing")
    call = f"os.system('touch {found.trace}')"
    escapes = ("cycler.__init__.__globals__.{}", "self.__init__.__globals__.{}", "strftime_now.__globals__.{}")
    for escape in escapes:
        template = f"{{{{ {escape.format(call)} }}}}{{% for m in messages %}}{{{{ m.content }}}}{{% endfor %}}"
        (found.folder / "chat_template.jinja").write_text(template)
        found.command(MODEL_COMMANDS["prompt"], "--set", "max_length=4096")
        assert not found.trace.exists(), escape


@pytest.mark.lengthy
@pytest.mark.parametrize("command", IN_PROCESSES)
@pytest.mark.parametrize("name", FOLDERS)
def test_no_process_of_a_command_runs_code(attempt, command: str, name: str):
    found = attempt(name, NAMED.get(name, "code_under_another_key"))
    result = found.command(MODEL_COMMANDS[command])
    assert not found.trace.exists(), result.output
    assert result.exit_code
    assert "unknown setting" not in result.output + str(result.exception)


@pytest.mark.parametrize("name", ["encoder", "gliner"])
def test_the_command_line_allows_code(attempt, name: str):
    """The attacks are real: with the option their code runs."""
    found = attempt(name, "code_under_another_key" if name == "gliner" else "code_of_an_unknown_type")
    found.command(RUN_COMMANDS["predict"], TRUST)
    assert found.trace.exists()


LOADS_ANYTHING = """
from types import SimpleNamespace
__version__ = "0.2.29"
class GLiNER:
    @classmethod
    def from_pretrained(cls, folder, local_files_only):
        import json, pathlib, transformers
        named = json.loads((pathlib.Path(folder) / "gliner_config.json").read_text())["model_name"]
        transformers.AutoModel.from_pretrained(named, trust_remote_code=True)
        raise SystemError("it was loaded")
"""


@pytest.mark.lengthy
def test_a_classic_checkpoint_that_names_another_folder_runs_no_code(attempt, tmp_path: Path, monkeypatch):
    """The library of classic checkpoints trusts everybody; the folder itself looks harmless."""
    found = attempt("gliner, classic", "code_of_an_unknown_type")
    harmless, packages = tmp_path / "harmless", tmp_path / "packages"
    for folder in (harmless, packages):
        folder.mkdir()
    (packages / "gliner.py").write_text(LOADS_ANYTHING)
    (harmless / "gliner_config.json").write_text(json.dumps({"model_name": str(found.folder)}))
    (harmless / "model.safetensors").write_bytes(b"")
    monkeypatch.setenv("PYTHONPATH", f"{packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    hostile = replace(found, folder=harmless)
    hostile.check(MODEL_COMMANDS["train"])
    assert hostile.command(MODEL_COMMANDS["train"]).exception.exit_code == 2
    hostile.command(MODEL_COMMANDS["train"], TRUST)
    assert found.trace.exists()
