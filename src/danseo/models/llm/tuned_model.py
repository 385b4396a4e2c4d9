"""A fine-tuned language model: trained on gold replies, with LoRA or whole, then prompted."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.files import to_finite, write_atomically
from danseo.models.base import Answers, Events, TrainResult, choose_select_examples
from danseo.models.encoder.lora import BASE, add_adapters, check_settings, load_adapters, locate_body, save_adapters
from danseo.models.encoder.model import loss_of
from danseo.models.encoder.packed_forward import make_row, run_model
from danseo.models.encoder.packed_texts import PackedTexts, is_packed, reads_packed
from danseo.models.llm.backend import ProgressReporter
from danseo.models.llm.chat_template import ChatTokenizer
from danseo.models.llm.family import get_checkpoint
from danseo.models.llm.formats.base import PromptFormat
from danseo.models.llm.loading import load_language_model
from danseo.models.llm.local_backend import LocalBackend, get_end_tokens
from danseo.models.llm.prompt_template import PromptTemplate
from danseo.models.llm.prompted_model import PromptedModel
from danseo.runs.store import hash_folder
from danseo.scoring.score import measure
from danseo.tasktypes.base import Task
from danseo.training.distributed import Workers
from danseo.training.features import Features, Outputs
from danseo.training.network import TrainableNetwork, to_tensors
from danseo.training.precision import (
    PACKED,
    ComputeConfig,
    configure_torch,
    describe_conditions,
    select_attention,
    select_precision,
)
from danseo.training.sharding import is_sharded
from danseo.training.trainer import Progress, Trainer
from danseo.training.training_loop import Engine


class ReplyNetwork(TrainableNetwork):
    """A language model for training; the vocabulary is computed only at reply tokens."""

    gathers_half = True

    def __init__(self, model: Any, *, keeps_frozen: bool) -> None:
        super().__init__()
        self.model, self.keeps_frozen = model, keeps_frozen
        self.body = [
            model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
        ]  # in a list: no weights

    @property
    def is_packed(self) -> bool:
        return is_packed(self.model)

    def use_attention(self, name: str) -> None:
        if name == PACKED and not reads_packed(self.model, self._compute_states):
            raise ValueError(f"no {name} attention")
        super().use_attention(name)

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Any]:
        """Return the tokens in one row, the tokens of replies, and the positions before them."""
        ids, starts = [record.ids for record in features], [record.fields["start"] for record in features]
        offsets = np.cumsum([len(row) for row in ids]) - [len(row) for row in ids]
        before = [np.arange(start - 1, len(row) - 1) for start, row in zip(starts, ids, strict=True)]
        arrays = {
            "following": np.concatenate([row[start:] for start, row in zip(starts, ids, strict=True)]),
            "positions": np.concatenate([offset + row for offset, row in zip(offsets, before, strict=True)]),
        }
        return make_row(features, with_segments=False) | to_tensors(arrays)

    def _compute_states(self, ids: Tensor, texts: PackedTexts) -> Tensor:
        states: Tensor = run_model(self.body[0], ids, texts)["last_hidden_state"]
        return states

    def forward(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        states = self._compute_states(batch["input_ids"], batch["texts"])
        logits = self.model.get_output_embeddings()(states.index_select(0, batch["positions"]))
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        return {"logits": torch.tanh(logits / cap) * cap if cap else logits}


class ReplyObjective:
    """The objective: the tokens of gold replies and their end, not the prompt."""

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Do nothing: no random choices per step."""

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        following = batch["following"]
        loss = nn.functional.cross_entropy(outputs["logits"].float(), following, reduction="sum")
        return loss, loss.new_full((), len(following))

    def unpack(
        self, outputs: dict[str, Tensor], batch: dict[str, Tensor], features: Sequence[Features]
    ) -> list[Outputs]:
        raise NotImplementedError("replies are written, not unpacked")


def encode_replies(
    prompt_format: PromptFormat,
    chat: ChatTokenizer,
    examples: Sequence[Any],
    longest: int,
    shown: ProgressReporter | None = None,
) -> tuple[list[Features], int]:
    """Return tokenized prompts with gold replies, and how many were too long and left out."""
    found, started = list[Features](), time.monotonic()
    for position, example in enumerate(examples):
        if shown:
            shown.count("tokenizing prompts", position, len(examples), started)
        prompt = chat.prompt(prompt_format.messages(example))
        ids = [*prompt, *chat.reply(prompt_format.gold_reply(example)), chat.end]
        if len(ids) <= longest:
            found.append(Features(position, ids, [], {"start": len(prompt)}))
    return found, len(examples) - len(found)


class TunedModel:
    """Trains on gold replies, then predicts by prompting."""

    reads_pos = False

    def __init__(
        self, config: RunConfig, task: Task, device: str | None, template: PromptTemplate | None = None
    ) -> None:
        self.config, self.task, self.workers = config, task, Workers(device)
        check_settings(config.llm, config.train)
        if config.prompt.shots:
            raise DanseoError("prompt.shots: fine-tuned models are prompted without shots; leave it out")
        if config.prompt.thinking == "on":
            raise DanseoError("prompt.thinking = on: fine-tuning learns replies without reasoning; leave it out")
        configure_torch(config.train, self.workers.device)
        torch.manual_seed(config.seed)
        name = get_checkpoint(config.model)
        self.is_sharded = is_sharded(config.train, self.workers.world)
        device_of_weights = torch.device("cpu") if self.is_sharded else self.workers.device
        loaded = load_language_model(
            config, name, device_of_weights, learns=not config.llm.lora_rank, as_stored=self.is_sharded
        )
        model, self.tokenizer, self.identity = loaded
        if config.llm.lora_rank:
            add_adapters(model, config.llm)
        if config.train.gradient_checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        self.model = model
        self.chat = ChatTokenizer(self.tokenizer, config.prompt.thinking, get_end_tokens(model))
        self.prompted = PromptedModel(config, task, self._make_backend(), template)

    def _make_backend(self) -> LocalBackend:
        return LocalBackend(self.model, self.chat, self.config, f"{self.identity}+tuned", is_tuned=True)

    # Training

    def prepare_data(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> None:
        """Tokenize the prompts and replies."""
        self.prompted.prepare(train, dev)
        prompt_format, longest = self.prompted.prompt_format, self.config.train.max_length
        self.dev, self.chosen = list(dev), choose_select_examples(self.config, self.task, dev)
        with ProgressReporter(events.note, "tokenizing prompts") as shown:
            self.features, self.left_out = encode_replies(prompt_format, self.chat, train, longest, shown)
            self.select_features, _ = encode_replies(prompt_format, self.chat, self.chosen, longest, shown)
        if not self.features or not self.select_features:
            raise DanseoError(f"train.max_length = {longest}: no example fits; the prompt alone may be longer")

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> TrainResult:
        """Learn the replies of train, keep the best step, and answer dev."""
        left, longest = self.left_out, self.config.train.max_length
        if self.chat.thought:
            events.note("the chat template opens a reasoning block, which is closed before every reply")
        if left:
            events.note(f"{left} of {len(train)} training examples are longer than {longest} tokens and left out")
        progress = self._train(self.features, events)
        return self._answer_dev(progress, left, events)

    def _train(self, features: list[Features], events: Events) -> Progress:
        network = ReplyNetwork(self.model, keeps_frozen=not self.config.llm.lora_rank)
        self.attention = self.model.config._attn_implementation
        named = self.config.train.precision
        usual = "bf16" if self.model.dtype == torch.bfloat16 else select_precision("auto", self.workers.device, 0)
        precision = usual if named == "auto" else named
        mode = ComputeConfig(precision, select_attention(network, self.config.train, self.workers.device, precision))
        tokens = self.config.train.max_batch_tokens
        engine = Engine(
            network, ReplyObjective(), self.workers, mode, tokens, events.note, waits_for_shards=self.is_sharded
        )
        trainer = Trainer(engine, features, self.config.train, self.config.seed, events.run)
        events.work_on("training")
        progress = trainer.train(lambda: self._select_score(engine), events)
        self.engine = engine
        self.model.set_attn_implementation(self.attention)  # for writing
        return progress

    def _select_score(self, engine: Engine) -> float:
        """Return the quality on the select split: by the loss of gold replies, or the score of generated ones."""
        if self.config.llm.select_by == "loss":
            return -loss_of(engine, self.select_features)
        some = self.chosen[: self.config.llm.select_examples]
        self.model.eval()
        prompted = PromptedModel(self.config, self.task, self._make_backend(), self.prompted.template)
        prompted.prompt_format.restore(self.prompted.prompt_format.state())
        self.model.set_attn_implementation(self.attention)  # for writing
        answers = prompted.prompt(some)
        engine.mode.apply_to(engine.network)
        return measure(self.task, some, answers)[self.task.headline].value()

    def _answer_dev(self, progress: Progress, left: int, events: Events) -> TrainResult:
        began = time.perf_counter()
        self.model.eval()
        self.prompted.open_calls(events.run.path / "calls.jsonl")
        if self.config.train.gradient_checkpointing:
            self.model.gradient_checkpointing_disable()
        events.work_on(f"prompting {len(self.dev):,} dev examples")
        events.note(f"{len(self.dev)} examples, {len(self.prompted.calls.known)} replies known")
        with ProgressReporter(events.note, f"preparing {len(self.dev):,} prompts") as shown:
            answers = self.prompted.prompt_format.make_answers(self.dev, self.prompted.prompt(self.dev, shown))
        for line in self.prompted.list_advice():
            events.note(line)
        events.work_on(f"computing the loss of {len(self.select_features):,} gold replies")
        facts = self.prompted.environment(time.perf_counter() - began) | describe_conditions(self.workers)
        facts |= {
            "parameters": self.model.num_parameters(),
            "learning_parameters": sum(w.numel() for w in self.model.parameters() if w.requires_grad),
            "train_tokens_per_second": progress.tokens / max(1e-9, progress.seconds),
            "left_out": left,
            "answering_seconds": round(time.perf_counter() - began, 3),
        }
        judge = "reply loss" if self.config.llm.select_by == "loss" else f"{self.task.headline} of written replies"
        best = {"monitor": judge, "best_step": progress.best_step, "steps": progress.step}
        best |= {
            "select_score": to_finite(progress.best),
            "select_loss": to_finite(loss_of(self.engine, self.select_features)),
        }
        device = str(self.workers.device)
        return TrainResult(answers, device, progress.seconds, facts, best | self.prompted.score_details())

    # Answering and saving

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self.prompted.predict(examples)

    def save(self, folder: Path) -> None:
        """Save adapters and the location of their body, or the whole model, and the prompt."""
        folder.mkdir(parents=True, exist_ok=True)
        name = get_checkpoint(self.config.model)
        if self.config.llm.lora_rank:
            base = str(Path(name).resolve()) if Path(name).is_dir() else name
            save_adapters(self.model, None, base, folder)
        else:
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.prompted.save(folder)


def load_tuned_backend(config: RunConfig, folder: Path, device: str | None) -> LocalBackend:
    """Load the model of a fine-tuned run."""
    model, tokenizer, identity = load_language_model(config, locate_body(folder), Workers(device).device, folder)
    if (folder / BASE).is_file():
        add_adapters(model, config.llm)
        load_adapters(model, None, folder)
    return LocalBackend(
        model, ChatTokenizer(tokenizer, config.prompt.thinking, get_end_tokens(model)), config, identity, is_tuned=True
    )


def merge_adapters(config: RunConfig, folder: Path, out: Path) -> dict[str, Any]:
    """Merge a body and its adapters into one plain checkpoint."""
    is_quantized = config.llm.quantization != "none"
    if config.train.precision == "auto" or is_quantized:
        config = update_config(config, {"train.precision": "fp32"})  # sums of weights need the precision
    config = update_config(config, {"llm.quantization": "none"})  # the adapters are added to the original weights
    backend = load_tuned_backend(config, folder, "cpu")
    model = backend.model
    if (folder / BASE).is_file():
        from peft.tuners.lora import LoraLayer

        for name, module in list(model.named_modules()):
            if isinstance(module, LoraLayer):
                module.merge()
                parent, _, own = name.rpartition(".")
                setattr(model.get_submodule(parent), own, module.get_base_layer())
        vars(model).pop("peft_config", None)
    (model.to(torch.bfloat16) if is_quantized else model).save_pretrained(out)
    backend.chat.tokenizer.save_pretrained(out)
    write_atomically(out / "prompt.txt", (folder / "prompt.txt").read_bytes())
    return {"out": str(out), "sha256": hash_folder(out)}
