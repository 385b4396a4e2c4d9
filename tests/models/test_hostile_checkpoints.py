"""Checkpoint folders that mean harm: one line within seconds, and nothing large is allocated."""

import json
import os
import resource
import shutil
import struct
import time

import pytest

from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.models.llm import chat_template as template_limits
from danseo.models.llm.backend import CallLog
from danseo.models.llm.local_backend import load_local_backend
from danseo.models.llm.prompted_model import PromptedModel
from danseo.models.mlm.masked_model import MaskedModel
from danseo.models.registry import get_family
from danseo.tasks import TASKS
from tests.tiny import quick_config, read_split, tiny_decoder, tiny_encoder

SECONDS, KIBIBYTES = 30, 500_000


@pytest.fixture(scope="module")
def decoder(tmp_path_factory, sample):
    return tiny_decoder(tmp_path_factory.mktemp("decoder") / "llama", sample, "llama")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, sample):
    return tiny_encoder(tmp_path_factory.mktemp("encoder") / "bert", sample)


def changed(folder, out, change):
    """A copy of a folder with a change."""
    shutil.copytree(folder, out)
    change(out)
    return out


def configured(**settings):
    """A change of config.json; None removes a setting."""

    def change(folder):
        found = json.loads((folder / "config.json").read_text()) | settings
        kept = {name: value for name, value in found.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return change


def with_header(edit):
    """A change of the header of the weights, or of all their bytes."""

    def change(folder):
        path = folder / "model.safetensors"
        content = path.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + size])
        whole = edit(header, content)
        text = json.dumps(header).encode()
        path.write_bytes(whole or struct.pack("<Q", len(text)) + text + content[8 + size :])

    return change


def set_first(**facts):
    def edit(header, content):
        header[next(name for name in header if name != "__metadata__")].update(facts)

    return with_header(edit)


def put_nan(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "layer" in name)
    save_file({**weights, name: weights[name] * float("nan")}, folder / "model.safetensors", {"format": "pt"})


def as_pipe(folder):
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


HARMFUL = {
    "weights cut off": with_header(lambda header, content: content[: len(content) // 2]),
    "header without end": with_header(lambda header, content: struct.pack("<Q", 2**60) + content[8:]),
    "header of noise": with_header(lambda header, content: content[:8] + b"{{{{" + content[12:]),
    "shape without measure": set_first(shape=[10**6, 10**6]),
    "shape that wraps": set_first(shape=[2**32, 2**32]),
    "offsets beyond the file": set_first(data_offsets=[0, 10**15]),
    "weights are a pipe": as_pipe,
    "NaN": put_nan,
    "other width": configured(hidden_size=64),
    "width without measure": configured(hidden_size=10**6, intermediate_size=10**6),
    "vocabulary without measure": configured(vocab_size=10**10),
    "no heads": configured(num_attention_heads=0),
    "heads below zero": configured(num_attention_heads=-2),
    "a billion layers": configured(num_hidden_layers=10**9, layer_types=None),
    "many layers": configured(num_hidden_layers=99_999, layer_types=None),
    "many layers of nothing": configured(num_hidden_layers=99_999, layer_types=None, hidden_size=0),
    "no layers": configured(num_hidden_layers=0, layer_types=None),
    "a billion labels": configured(num_labels=10**9),
    "layers as text": configured(num_hidden_layers="many"),
    "deep": lambda folder: (folder / "config.json").write_text("[" * 100_000),
    "odd activation": configured(hidden_act="no such"),
}


def check_refused(work) -> str:
    """The line of a refusal that came soon, with little memory."""
    began, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DanseoError) as caught:
        work()
    assert time.monotonic() - began < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < KIBIBYTES
    assert "\n" not in str(caught.value)
    return str(caught.value)


def load_llm(folder):
    return load_local_backend(RunConfig(task="ynat", model=f"llm:{folder}"), str(folder), "cpu")


@pytest.mark.parametrize("name", HARMFUL)
def test_language_models(name, decoder, tmp_path):
    folder = changed(decoder, tmp_path / "case", HARMFUL[name])
    assert str(folder) in check_refused(lambda: load_llm(folder))


@pytest.mark.parametrize("name", HARMFUL)
def test_encoders(name, encoder, tmp_path):
    folder = changed(encoder, tmp_path / "case", HARMFUL[name])
    config = quick_config("ynat", folder)
    assert str(folder) in check_refused(lambda: get_family(str(folder)).create(config, TASKS["ynat"], "cpu"))
    assert str(folder) in check_refused(lambda: MaskedModel.load(str(folder), "cpu"))


def ask(folder, sample, calls=None):
    """Ask the model of a folder two questions."""
    model = PromptedModel(RunConfig(task="ynat", model=f"llm:{folder}"), TASKS["ynat"], load_llm(folder))
    model.calls = CallLog(calls)
    return model.prompt(read_split(sample, "ynat", "dev", 2))


@pytest.mark.parametrize(
    "settings",
    [
        {"num_key_value_heads": 0},
        {"head_dim": 0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 0.0}, "max_position_embeddings": 4096},
    ],
)
def test_numbers_that_do_not_fit_each_other(settings, decoder, tmp_path, sample):
    folder = changed(decoder, tmp_path / "case", configured(**settings))
    check_refused(lambda: ask(folder, sample, tmp_path / "calls.jsonl"))


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" + "{% endfor %}" * 3
TEMPLATES = {
    "without end": LOOPS,
    "without end for some texts": "{% if 'zq' not in messages|string %}" + LOOPS + "{% endif %}",
    "without end in what it writes": LOOPS.replace("{% endfor %}", "{{ 'x' }}{% endfor %}", 1),
    "memory": "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}{{ ns.x }}",
    "power": "{{ 9 ** 9 ** 9 ** 9 }}",
    "recursion": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "nothing": "{{ '' }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_chat_templates(name, decoder, tmp_path, sample, monkeypatch):
    monkeypatch.setattr(template_limits, "_SECONDS", 1.0)
    monkeypatch.setattr(template_limits, "_BYTES", 100_000_000)
    folder = changed(decoder, tmp_path / "case", configured(max_position_embeddings=4096))
    (folder / "chat_template.jinja").write_text(TEMPLATES[name])
    assert str(folder) in check_refused(lambda: ask(folder, sample))


def test_an_ordinary_chat_template_is_rendered(decoder, tmp_path, sample):
    folder = changed(decoder, tmp_path / "case", configured(max_position_embeddings=4096))
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}**{{ m['role'] }}**: {{ m['content'] }}{{ dict(**{'a': '!'})['a'] }}\n{% endfor %}"
    )
    model = PromptedModel(RunConfig(task="ynat", model=f"llm:{folder}"), TASKS["ynat"], load_llm(folder))
    text = model.backend.chat.text(model.backend.chat.prompt([{"role": "user", "content": "국회"}]))
    assert text == "**user**: 국회!\n"
    assert len(ask(folder, sample)) == 2


def test_tokens_that_the_model_does_not_have(decoder, encoder, tmp_path, sample):
    def change(folder):
        found = json.loads((folder / "tokenizer.json").read_text())
        vocabulary = found["model"]["vocab"]
        found["model"]["vocab"] = {piece: number + 10**6 * (number > 300) for piece, number in vocabulary.items()}
        (folder / "tokenizer.json").write_text(json.dumps(found))

    folder = changed(decoder, tmp_path / "llm", change)
    configured(max_position_embeddings=4096)(folder)
    assert "tokenizer" in check_refused(lambda: ask(folder, sample))
    folder = changed(encoder, tmp_path / "bert", change)
    config = quick_config("ynat", folder)
    assert "tokenizer" in check_refused(lambda: get_family(str(folder)).create(config, TASKS["ynat"], "cpu"))
