"""Fine-tuned language models: what is learned, and that it goes on, is saved, merged and asked again."""

import json
from pathlib import Path

import pytest
import torch

from danseo.config.base import update_config
from danseo.config.run import RunConfig
from danseo.experiment import run_experiment
from danseo.models.llm.tuned_model import ReplyNetwork, ReplyObjective, TunedModel, encode_replies
from danseo.models.registry import load_model
from danseo.runs.events import RunEvents
from danseo.runs.store import Run
from danseo.tasks import TASKS
from danseo.training.features import IGNORED
from tests.models.llm.test_prompt_command import run, small  # noqa: F401
from tests.tiny import read_split, tiny_decoder

QUICK = {"precision": "fp32", "num_threads": 1, "batch_size": 8, "epochs": 1, "learning_rate": 5e-3, "max_length": 4000}
QUICK |= {"llm.lora_rank": 4, "evals_per_epoch": 2, "prompt.mode": "likelihood"}


def config(small, task="ynat", **settings) -> RunConfig:  # noqa: F811
    base = RunConfig(task=task, model=f"llm:{small / 'tiny'}", recipe="llm")
    return update_config(base, {**QUICK, **settings})


@pytest.fixture(scope="module")
def made(small):  # noqa: F811
    return TunedModel(config(small), TASKS["ynat"], "cpu")


def losses(made, features) -> torch.Tensor:
    network = ReplyNetwork(made.model.eval(), keeps_frozen=False)
    objective = ReplyObjective()
    batch = network.collate(features, objective, True)
    with torch.no_grad():
        return torch.stack(objective.loss(network(batch), batch))


def test_prompts_are_a_prefix_and_the_end_is_learned(made, sample):
    prompt_format, examples = made.prompted.prompt_format, read_split(sample, "ynat", "dev", 3)
    features, left = encode_replies(prompt_format, made.chat, examples, 4000)
    assert left == 0
    for record, example in zip(features, examples, strict=True):
        prompt = made.chat.prompt(prompt_format.messages(example))
        assert record.ids[: len(prompt)] == prompt
        assert record.ids[-1] == made.chat.end
        batch = ReplyNetwork(made.model, keeps_frozen=False).collate([record], None, True)
        assert batch["following"].tolist() == record.ids[len(prompt) :]
    assert encode_replies(prompt_format, made.chat, examples, 10) == ([], 3)


def test_the_loss_depends_on_replies_alone(made, sample):
    prompt_format, examples = made.prompted.prompt_format, read_split(sample, "ynat", "dev", 4)
    features, _ = encode_replies(prompt_format, made.chat, examples, 4000)
    together = losses(made, features)
    alone = sum(losses(made, [record]) for record in features)
    assert torch.allclose(together, alone, rtol=1e-4)  # neither padding nor batch mates
    plain = 0.0
    for record in features:  # the library's own loss over the same tokens
        ids = torch.tensor([record.ids])
        labels = ids.clone()
        labels[0, : record.fields["start"]] = IGNORED
        with torch.no_grad():
            found = made.model(input_ids=ids, labels=labels).loss
        plain += float(found) * (len(record) - record.fields["start"])
    assert float(together[0]) == pytest.approx(plain, rel=1e-4)
    assert float(together[1]) == sum(len(record) - record.fields["start"] for record in features)


def test_training_is_saved_and_predicts(small, tmp_path, capsys, monkeypatch):  # noqa: F811
    settings, activities = config(small, epochs=3), []
    monkeypatch.setattr(RunEvents, "work_on", lambda self, activity, total=0: activities.append(activity))
    made = run_experiment(settings, small / "data", tmp_path, quiet=True)
    after = [activity.split()[0] for activity in activities[-6:]]  # everything after the last step has a name
    assert after == ["saving", "loading", "prompting", "computing", "saving", "scoring"]
    scores = made.read_json("scores.json")
    log = made.read_log()
    assert log[-1]["loss"] < log[0]["loss"]
    assert scores["monitor"] == "reply loss"
    assert scores["replies"]["asked"] == len(read_dev(small))
    names = {path.name for path in (made.path / "model").iterdir()}
    assert {"adapter_model.safetensors", "base.json", "prompt.txt", "prompt.json"} <= names
    assert "model.safetensors" not in names
    again = load_model(made).predict(read_dev(small))
    saved = [json.loads(line) for line in made.predictions_path("dev").read_text("utf-8").splitlines()]
    assert [p.answer for p in again] == [record["answer"] for record in saved]
    for one, other in zip(again, saved, strict=True):
        assert one.probabilities == pytest.approx(other["probabilities"], abs=1e-4)
    out = tmp_path / "merged"
    code, make_completion, err = run(
        capsys, "export", made.path, "--to", "merged", "--out", out, "--data", small / "data", "--json"
    )
    assert code == 0, err
    document = json.loads(make_completion)
    assert document["rescored"] == pytest.approx(document["scored"], abs=1e-6)
    assert document["changed_answers"] == 0
    from transformers import AutoModelForCausalLM

    assert not any("lora" in name for name, _ in AutoModelForCausalLM.from_pretrained(out).named_parameters())


def read_dev(small: Path) -> list:  # noqa: F811
    return TASKS["ynat"].read(small / "data" / "ynat-v1.1" / "ynat-v1.1_dev.json")


def test_killed_training_resumes_bit_for_bit(small, tmp_path):  # noqa: F811
    class Killed(Exception):
        pass

    def stop(step, score):
        raise Killed

    whole = run_experiment(config(small, **{"llm.lora_dropout": 0.1}), small / "data", tmp_path / "a", quiet=True)
    with pytest.raises(Killed):
        run_experiment(
            config(small, **{"llm.lora_dropout": 0.1}), small / "data", tmp_path / "b", quiet=True, on_score=stop
        )
    resumed = run_experiment(config(small, **{"llm.lora_dropout": 0.1}), small / "data", tmp_path / "b", quiet=True)
    weights = [(r.path / "model" / "adapter_model.safetensors").read_bytes() for r in (whole, resumed)]
    assert weights[0] == weights[1]


def test_selection_by_score(small, tmp_path):  # noqa: F811
    settings = config(small, **{"llm.select_by": "score", "llm.select_examples": 4, "evals_per_epoch": 1})
    made = run_experiment(settings, small / "data", tmp_path, quiet=True)
    assert made.read_json("scores.json")["monitor"] == "ynat/macro_f1@official-1 of written replies"


@pytest.fixture(scope="module")
def others(tmp_path_factory, sample):
    """Tiny models of other families, with room for long prompts."""
    made = {}
    for family in ("gemma3_text", "qwen2"):
        made[family] = tiny_decoder(tmp_path_factory.mktemp(family), sample, family)
        settings = json.loads((made[family] / "config.json").read_text()) | {"max_position_embeddings": 4096}
        (made[family] / "config.json").write_text(json.dumps(settings))
    return made


def learner(folder, task: str, **settings) -> TunedModel:
    base = RunConfig(task=task, model=f"llm:{folder}", recipe="llm")
    return TunedModel(update_config(base, {**QUICK, "prompt.mode": "auto", **settings}), TASKS[task], "cpu")


def gradients(made: TunedModel, features) -> dict[str, torch.Tensor]:
    network = ReplyNetwork(made.model.train(), keeps_frozen=False)
    objective = ReplyObjective()
    batch = network.collate(features, objective, True)
    objective.loss(network(batch), batch)[0].backward()
    return {name: w.grad for name, w in made.model.named_parameters() if w.grad is not None}


@pytest.mark.parametrize(
    ("task", "family"), zip(("sts", "ner", "re", "dp", "mrc", "wos"), ("gemma3_text", "qwen2") * 3, strict=True)
)
def test_every_task_type_is_learned_by_other_architectures(task, family, others, sample):
    """A step along the gradient of the adapters makes the right replies likelier, and the body stays."""
    made = learner(others[family], task)
    train = read_split(sample, task, "train", 3)
    made.prompted.prepare(train, [])
    features, left = encode_replies(made.prompted.prompt_format, made.chat, train, 4000)
    assert left == 0
    before, found = losses(made, features), gradients(made, features)
    assert found
    assert all("lora" in name for name in found)
    length = torch.stack([gradient.norm() for gradient in found.values()]).norm()
    with torch.no_grad():
        for name, weight in made.model.named_parameters():
            if name in found:
                weight -= 0.02 * found[name] / length
    assert losses(made, features)[0] < before[0]


def test_recomputed_activations_give_the_same_gradients(others, sample):
    train = read_split(sample, "sts", "train", 2)
    found = []
    for settings in ({}, {"gradient_checkpointing": True}):
        made = learner(others["gemma3_text"], "sts", **settings)
        features, _ = encode_replies(made.prompted.prompt_format, made.chat, train, 4000)
        found.append(gradients(made, features))
    assert made.model.is_gradient_checkpointing
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-6), name


def test_all_weights_learn_without_adapters(small, tmp_path):  # noqa: F811
    settings = config(
        small, **{"llm.lora_rank": 0}, epochs=1, gradient_checkpointing=True, evals_per_epoch=1, max_train_samples=8
    )
    made = run_experiment(settings, small / "data", tmp_path, quiet=True)
    names = {path.name for path in (made.path / "model").iterdir()}
    assert "model.safetensors" in names
    assert not {"adapter_model.safetensors", "base.json"} & names
    facts = made.read_json("environment.json")
    assert facts["learning_parameters"] == facts["parameters"]
    again = load_model(made).predict(read_dev(small)[:4])
    saved = [json.loads(line) for line in made.predictions_path("dev").read_text("utf-8").splitlines()]
    assert [p.answer for p in again] == [record["answer"] for record in saved[:4]]


def test_own_prompt_is_used_and_saved(small, tmp_path, capsys):  # noqa: F811
    prompt = tmp_path / "short.txt"
    prompt.write_text("== system ==\n주제를 고릅니다.\n== user ==\n제목: {{text}}\n== end ==\n", "utf-8")
    command = ("train", "ynat", "-m", f"llm:{small / 'tiny'}", "--data", small / "data", "--runs", tmp_path / "runs")
    quick = ("--epochs", 1, "--limit", 8, "--set", "llm.lora_rank=2", "--precision", "fp32", "--json")
    code, out, err = run(capsys, *command, "--prompt", prompt, *quick)
    assert code == 0, err
    document = json.loads(out)
    folder = Path(document["run"])
    assert (folder / "model" / "prompt.txt").read_text("utf-8") == prompt.read_text("utf-8")
    asked = load_model(Run(folder)).prompt_format.messages(read_dev(small)[0])
    assert asked[0]["content"] == "주제를 고릅니다."
    assert document["prompt"]["template"] in (folder / "config.toml").read_text("utf-8")
    prompt.write_text("== system ==\n고릅니다.\n== user ==\n제목\n", "utf-8")
    code, _, err = run(capsys, *command, "--prompt", prompt)
    assert (code, "the prompt has no {{text}}" in err) == (2, True)
    code, _, err = run(capsys, "train", "ynat", "-m", "majority", "--prompt", prompt)
    assert (code, "language models" in err) == (2, True)


def test_shots_are_refused(small):  # noqa: F811
    from danseo.errors import DanseoError

    changed = config(small, shots=2)
    with pytest.raises(DanseoError, match="without shots"):
        TunedModel(changed, TASKS["ynat"], "cpu")
