"""A language model that learns the right replies, with adapters (LoRA) or whole, and is then asked as any other."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from danseo.config import RunConfig
from danseo.data.halves import in_half
from danseo.errors import DanseoError
from danseo.files import write_atomically
from danseo.models.encoder.adapters import BASE, add_adapters, body_of, check_settings, load_adapters, save_adapters
from danseo.models.encoder.model import loss_of
from danseo.models.llm.asking import Asking
from danseo.models.llm.calls import Calls
from danseo.models.llm.family import checkpoint_of
from danseo.models.llm.here import Here, ends_of
from danseo.models.llm.loading import load_language_model
from danseo.models.llm.prompted import Prompted, Shown
from danseo.models.llm.template import Template
from danseo.models.llm.writing import Writing
from danseo.models.protocol import Answers, Events, Fitted
from danseo.runs.directory import folder_identity
from danseo.runs.scores import finite
from danseo.scoring.score import measure
from danseo.tasks.task import Task
from danseo.training.features import IGNORED, Features, Outputs, padded
from danseo.training.fit import Fitting, Progress
from danseo.training.loop import Engine
from danseo.training.network import TrainableNetwork, tensors
from danseo.training.numbers import conditions, settle
from danseo.training.speed import ComputeMode, usual_precision
from danseo.training.workers import Workers


class ReplyNetwork(TrainableNetwork):
    """A language model as training sees it: the vocabulary is computed only where a reply is to be learned."""

    def __init__(self, model: Any, pad: int, *, keeps_frozen: bool) -> None:
        super().__init__()
        self.model, self.pad, self.keeps_frozen = model, pad, keeps_frozen

    def collate(self, features: list[Features], objective: Any, with_gold: bool) -> dict[str, Tensor]:
        """Ids with their mask, and for every place the token that comes next where that belongs to a reply."""
        ids = [record.ids for record in features]
        following = [
            [IGNORED] * (record.fields["start"] - 1) + record.ids[record.fields["start"] :] + [IGNORED]
            for record in features
        ]
        there = padded([[1] * len(row) for row in ids], 0)
        arrays = {"input_ids": padded(ids, self.pad), "attention_mask": there, "following": padded(following, IGNORED)}
        return tensors(arrays)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        body = self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model.base_model
        states = body(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
        chosen = batch["following"] != IGNORED
        logits = self.model.get_output_embeddings()(states[chosen])
        cap = getattr(self.model.config, "final_logit_softcapping", None)
        return {"logits": torch.tanh(logits / cap) * cap if cap else logits}


class Replies:
    """What the network learns: the tokens of right replies and their end, nothing of the prompt."""

    def __init__(self, features: Sequence[Features]) -> None:
        learned = sum(len(record) - record.fields["start"] for record in features)
        self.usual_weight: float | None = learned / max(1, len(features))

    def begin_step(self, number: int, batch: Sequence[Features]) -> None:
        """Nothing is drawn anew."""

    def loss(self, outputs: dict[str, Tensor], batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        due = batch["following"][batch["following"] != IGNORED]
        loss = nn.functional.cross_entropy(outputs["logits"].float(), due, reduction="sum")
        return loss, torch.tensor(float(len(due)), device=loss.device)

    def unpack(
        self, outputs: dict[str, Tensor], batch: dict[str, Tensor], features: Sequence[Features]
    ) -> list[Outputs]:
        raise NotImplementedError("replies are written, not unpacked")


def encoded(asking: Asking, writing: Writing, examples: Sequence[Any], longest: int) -> tuple[list[Features], int]:
    """Prompts with their right replies and how many were longer than the model is to read; these are left out."""
    found: list[Features] = []
    for position, example in enumerate(examples):
        prompt = writing.prompt(asking.messages(example))
        ids = [*prompt, *writing.reply(asking.gold(example)), writing.end]
        if len(ids) <= longest:
            found.append(Features(position, ids, [], {"start": len(prompt)}))
    return found, len(examples) - len(found)


class Tuned:
    """Learns replies, and answers by writing or weighing them."""

    reads_pos = False

    def __init__(self, config: RunConfig, task: Task, device: str | None, template: Template | None = None) -> None:
        self.config, self.task, self.workers = config, task, Workers(device)
        check_settings(config.train)
        if config.prompt.shots:
            raise DanseoError("prompt.shots: a model that is fine-tuned is asked without examples; leave shots out")
        settle(config.train, self.workers.device)
        torch.manual_seed(config.seed)
        name = checkpoint_of(config.model)
        loaded = load_language_model(config, name, self.workers.device, learns=not config.train.lora)
        model, self.tokenizer, self.identity = loaded
        if config.train.lora:
            for weight in model.parameters():
                weight.requires_grad_(False)
            add_adapters(model, config.train)
        if config.train.gradient_checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        self.model = model
        self.writing = Writing(self.tokenizer, config.prompt.think, ends_of(model))
        self.prompted = Prompted(config, task, self._here(), template)

    def _here(self) -> Here:
        return Here(self.model, self.writing, self.config, f"{self.identity}+tuned")

    # Fitting

    def fit(self, train: Sequence[Any], dev: Sequence[Any], events: Events) -> Fitted:
        """Learn the replies of train, keep the best step, and answer dev."""
        self.prompted.prepare(train, dev)
        asking, longest = self.prompted.asking, self.config.head.max_length
        features, left = encoded(asking, self.writing, train, longest)
        self.dev, self.chosen = list(dev), [dev[position] for position in self._select(dev)]
        self.judging, _ = encoded(asking, self.writing, self.chosen, longest)
        if not features or not self.judging:
            raise DanseoError(f"head.max_length = {longest}: no example fits; the prompt alone may be longer")
        events.begin()
        if left:
            events.note(f"{left} of {len(train)} training examples are longer than {longest} tokens and left out")
        progress = self._train(features, events)
        return self._answered(progress, left, events)

    def _select(self, dev: Sequence[Any]) -> list[int]:
        positions = in_half(self.task, dev, self.config.train.select_on)
        if not positions:
            raise DanseoError("no dev example falls into the select half; use --select-on dev for so small a set")
        return positions

    def _train(self, features: list[Features], events: Events) -> Progress:
        pad = self.tokenizer.pad_token_id
        network = ReplyNetwork(
            self.model, pad if pad is not None else self.writing.end, keeps_frozen=not self.config.train.lora
        )
        engine = Engine(network, Replies(features), self.workers, self._mode(network), self._tokens(), events.note)
        fitting = Fitting(engine, features, self.config.train, self.config.seed, events.run)
        progress = fitting.run_to_end(lambda: self._judged(engine), events)
        self.engine = engine
        return progress

    def _mode(self, network: ReplyNetwork) -> ComputeMode:
        named, attention = self.config.train.precision, self.config.train.attention
        usual = "bf16" if self.model.dtype == torch.bfloat16 else usual_precision(self.workers.device)
        mode = ComputeMode(usual if named == "auto" else named, "sdpa" if attention == "auto" else attention)
        mode.engage(network)
        return mode

    def _tokens(self) -> int:
        return self.config.train.batch_tokens

    def _judged(self, engine: Engine) -> float:
        """How good the weights are on the select half: by the loss of right replies, or by those that are written."""
        if self.config.prompt.judge == "loss":
            return -loss_of(engine, self.judging)
        some = self.chosen[: self.config.prompt.judge_on]
        self.model.eval()
        asked = Prompted(self.config, self.task, self._here(), self.prompted.template)
        asked.asking.restore(self.prompted.asking.state())
        return measure(self.task, some, asked.ask(some))[self.task.headline].value()

    def _answered(self, progress: Progress, left: int, events: Events) -> Fitted:
        began = time.perf_counter()
        self.model.eval()
        self.prompted.calls = Calls(events.run.path / "calls.jsonl")
        if self.config.train.gradient_checkpointing:
            self.model.gradient_checkpointing_disable()
        events.note(f"{len(self.dev)} examples, {len(self.prompted.calls.known)} replies known")
        answers = self.prompted.answers(self.dev, self.prompted.ask(self.dev, Shown(events.note)))
        facts = self.prompted._surroundings(time.perf_counter() - began) | conditions(self.workers)
        facts |= {
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "learning_parameters": sum(w.numel() for w in self.model.parameters() if w.requires_grad),
            "pieces_per_second": progress.pieces / max(1e-9, progress.seconds),
            "left_out": left,
            "answering_seconds": round(time.perf_counter() - began, 3),
        }
        judge = "reply loss" if self.config.prompt.judge == "loss" else f"{self.task.headline} of written replies"
        best = {"monitor": judge, "best_step": progress.best_step, "steps": progress.step}
        best |= {"select_score": finite(progress.best), "select_loss": finite(loss_of(self.engine, self.judging))}
        device = str(self.workers.device)
        return Fitted(answers, device, progress.seconds, facts, best | self.prompted._scored())

    # Answering and saving

    def predict(self, examples: Sequence[Any]) -> Answers:
        return self.prompted.predict(examples)

    def save(self, folder: Path) -> None:
        """Adapters and where their body is, or the whole model; the prompt beside them."""
        folder.mkdir(parents=True, exist_ok=True)
        name = checkpoint_of(self.config.model)
        if self.config.train.lora:
            base = str(Path(name).resolve()) if Path(name).is_dir() else name
            save_adapters(self.model, None, base, folder)
        else:
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.prompted.save(folder)


def tuned_here(config: RunConfig, folder: Path, device: str | None) -> Here:
    """The model of a fine-tuned run, ready to answer."""
    model, tokenizer, identity = load_language_model(config, body_of(folder), Workers(device).device, folder)
    if (folder / BASE).is_file():
        for weight in model.parameters():
            weight.requires_grad_(False)
        add_adapters(model, config.train)
        load_adapters(model, None, folder)
    return Here(model, Writing(tokenizer, config.prompt.think, ends_of(model)), config, identity)


def merge(config: RunConfig, folder: Path, out: Path) -> dict[str, Any]:
    """One plain checkpoint of a body and its adapters, that anything can load."""
    if config.train.precision == "auto":
        config = replace(config, train=replace(config.train, precision="fp32"))  # sums of weights want their digits
    here = tuned_here(config, folder, "cpu")
    model = here.model
    if (folder / BASE).is_file():
        from peft.tuners.lora import LoraLayer

        for name, module in list(model.named_modules()):
            if isinstance(module, LoraLayer):
                module.merge()
                parent, _, own = name.rpartition(".")
                setattr(model.get_submodule(parent), own, module.get_base_layer())
        vars(model).pop("peft_config", None)
    model.save_pretrained(out)
    here.writing.tokenizer.save_pretrained(out)
    write_atomically(out / "prompt.txt", (folder / "prompt.txt").read_bytes())
    return {"out": str(out), "sha256": folder_identity(out)}
