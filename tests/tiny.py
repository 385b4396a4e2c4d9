"""Tiny random encoders of every family, and settings that train them in a moment."""

import shutil
import tempfile
from pathlib import Path

import pytest

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.config.train import TrainSettings
from danseo.models.encoder.settings import EncoderSettings
from danseo.models.new_encoder import EncoderSize, make_encoder
from danseo.tasks import TASKS

FAMILIES = ("bert", "roberta", "electra", "deberta-v2", "xlm-roberta", "modernbert")
QUICK = {
    "precision": "fp32",
    "attn_implementation": "auto",
    "num_threads": 1,
    "batch_size": 8,
    "epochs": 1,
    "learning_rate": 1e-3,
}


def read_split(sample: Path, task: str, split: str, count: int | None = None) -> list:
    found = TASKS[task]
    return found.read(sample / found.folder / found.file(split))[:count]


def tiny_encoder(folder: Path, sample: Path, family: str = "bert", **measures) -> Path:
    """A checkpoint folder whose tokenizer knows the sample; a copy of one that was made before, if there is one."""
    key = (sample, family, *sorted(measures.items()))
    if key not in _ENCODERS:
        _ENCODERS[key] = _make_encoder(Path(_KEPT.name) / str(len(_ENCODERS)), sample, family, **measures)
    return shutil.copytree(_ENCODERS[key], folder, dirs_exist_ok=True)


_KEPT = tempfile.TemporaryDirectory(prefix="danseo-tests-")
_ENCODERS: dict[tuple, Path] = {}


def _make_encoder(folder: Path, sample: Path, family: str, **measures) -> Path:
    texts = [
        example.text for task in ("ynat", "ner", "re", "mrc") for example in read_split(sample, task, "train", 100)
    ]
    texts += [turn for example in read_split(sample, "wos", "train", 50) for turn in example.turns]
    chosen = {"layers": 2, "hidden": 32, "heads": 2, "vocabulary": 1500, "positions": 160, "dropout": 0.0, **measures}
    return make_encoder(folder, texts, family, EncoderSize(**chosen))


def tiny_decoder(folder: Path, sample: Path, family: str = "gemma3_text", *, vocabulary: int = 1200) -> Path:
    """A random language model: Gemma's tokenizer has all special pieces, Llama's no padding, Qwen's no beginning."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = {"gemma3_text": ("bos", "eos", "pad"), "llama": ("bos", "eos"), "qwen2": ("eos",)}[family]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[f"<{name}>" for name in names],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [example.text for task in ("ynat", "ner", "mrc") for example in read_split(sample, task, "train", 40)]
    tokenizer.train_from_iterator(texts, trainer)
    pieces = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{f"{name}_token": f"<{name}>" for name in names})
    config = AutoConfig.for_model(
        family,
        vocab_size=len(pieces),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        **{f"{name}_token_id": pieces.convert_tokens_to_ids(f"<{name}>") for name in names},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    pieces.save_pretrained(folder)
    return folder


def assert_same_answers(found: list, expected: list) -> None:
    """Equal answers, and numbers equal to rounding: their last bits depend on the processor and on the batch."""
    for one, other in zip(found, expected, strict=True):
        is_number = isinstance(other.answer, float)
        assert (one.guid, one.answer) == (
            other.guid,
            pytest.approx(other.answer, abs=1e-4) if is_number else other.answer,
        )
        assert (one.probabilities is None) == (other.probabilities is None)
        if other.probabilities is not None:
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)


def quick_config(task: str, model: object, **settings) -> RunConfig:
    return update_config(RunConfig(task=task, model=str(model)), {**QUICK, **settings})


def kind_settings(**settings) -> tuple[EncoderSettings, TrainSettings]:
    """The settings that an encoder's kind of task reads, by name."""
    length = {"max_length": settings.pop("max_length")} if "max_length" in settings else {}
    return EncoderSettings(**settings), TrainSettings(**length)


class Watch:
    """A watcher of a fitting, or all the events of a run, that keeps what it is told."""

    def __init__(self, run=None, look=lambda step, progress: None) -> None:
        self.run, self.series, self.look = run, None, look
        self.notes: list[str] = []
        self.scores: list[float | None] = []

    def note(self, line: str) -> None:
        self.notes.append(line)

    def work_on(self, activity: str, total: int = 0) -> None:
        pass

    def advance(self, count: int) -> None:
        pass

    def step(self, step, progress) -> None:
        self.look(step, progress)

    def report_evaluation(self, step, progress, score) -> None:
        self.scores.append(score)
        self.look(step, progress)
