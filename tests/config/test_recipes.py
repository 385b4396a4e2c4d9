from types import SimpleNamespace

import pytest

from danseo.config.base import flatten_config, read_settings
from danseo.config.recipes import find_configs_folder, find_recipe_file
from danseo.config.run import RunConfig
from danseo.errors import DanseoError
from danseo.models.registry import configure_run, encoder_facts
from danseo.tasks import TASKS

# What KLUE's run_all.sh says: rate, epochs, batch, warm-up, decay, longest input, patience, what picks the checkpoint.
BASE = {
    "ynat": (5e-5, 4, 32, 0.1, 0.0, 128, 100000, "ynat/macro_f1@official-1"),
    "sts": (5e-5, 4, 32, 0.1, 0.0, 128, 5, "sts/pearson@official-1"),
    "nli": (5e-5, 5, 32, 0.1, 0.0, 128, 5, "nli/accuracy@official-1"),
    "ner": (5e-5, 3, 32, 0.0, 0.0, 510, 5, "ner/char_f1@official-1"),
    "re": (5e-5, 3, 32, 0.1, 0.0, 256, 10000, "re/micro_f1@official-1"),
    "dp": (5e-5, 10, 32, 0.1, 0.0, 256, 10000, "dp/las@official-1"),
    "mrc": (3e-5, 5, 16, 0.0, 0.0, 510, 100000, "mrc/rouge_w@official-1"),
    "wos": (3e-5, 5, 16, 0.1, 0.01, 510, 100000, "wos/slot_f1@official-1"),
}
LARGE = {
    "ynat": (5e-5, 4, 32, 0.2, 0.0, 128, 100000, "ynat/macro_f1@official-1"),
    "sts": (2e-5, 4, 32, 0.1, 0.0, 128, 5, "sts/pearson@official-1"),
    "nli": (5e-5, 5, 32, 0.2, 0.0, 128, 5, "nli/accuracy@official-1"),
    "ner": (1e-5, 3, 8, 0.0, 0.0, 510, 5, "ner/char_f1@official-1"),
    "re": (2e-5, 10, 16, 0.2, 0.0, 256, 10000, "re/micro_f1@official-1"),
    "dp": (5e-5, 15, 32, 0.2, 0.0, 256, 10000, "dp/uas@official-1"),
    "mrc": BASE["mrc"],
    "wos": (2e-5, 5, 16, 0.1, 0.01, 510, 100000, "wos/slot_f1@official-1"),  # 8 examples, accumulated twice
}
BERT = {**BASE, "mrc": (3e-5, 5, 16, 0.0, 0.0, 512, 100000, "mrc/rouge_w@official-1")}
COLUMNS = (
    "train.learning_rate",
    "train.epochs",
    "train.batch_size",
    "train.warmup_ratio",
    "train.weight_decay",
    "train.max_length",
    "train.patience",
    "train.metric_for_best_model",
)
COMMON = {
    "encoder.architecture": "official",
    "train.lr_scheduler_type": "linear",
    "train.max_grad_norm": 1.0,
    "train.evals_per_epoch": 4,
    "train.precision": "fp32",
    "train.head_learning_rate": None,
    "encoder.label_smoothing": 0.0,
    "train.layer_lr_decay": 1.0,
    "seed": 42,
}
OWN = {
    "mrc": {
        "encoder.doc_stride": 128,
        "encoder.max_query_length": 64,
        "encoder.max_answer_length": 30,
        "encoder.n_best_size": 20,
    },
    "dp": {"encoder.arc_hidden_size": 512, "encoder.relation_hidden_size": 256},
    "wos": {"encoder.teacher_forcing_ratio": 0.5},
}
ENCODERS = {
    "klue/bert-base": (SimpleNamespace(model_type="bert", hidden_size=768), BERT),
    "klue/roberta-small": (SimpleNamespace(model_type="roberta", hidden_size=768), BASE),
    "klue/roberta-base": (SimpleNamespace(model_type="roberta", hidden_size=768), BASE),
    "klue/roberta-large": (SimpleNamespace(model_type="roberta", hidden_size=1024), LARGE),
    "koelectra": (SimpleNamespace(model_type="electra", hidden_size=768), BASE),
}
FILES = sorted(path for name in ("default", "official") for path in (find_configs_folder() / name).glob("*.toml"))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", ENCODERS)
def test_the_official_recipe_is_the_one_of_the_task_and_size(model, task):
    encoder, table = ENCODERS[model]
    settings = flatten_config(configure_run(task, model, "official", {}, encoder))
    assert tuple(settings[column] for column in COLUMNS) == table[task]
    for name, value in {**COMMON, **OWN.get(task, {})}.items():
        assert settings[name] == value, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_file_loads_and_fits_its_task(path):
    settings = read_settings(path, RunConfig)
    task = TASKS[path.stem.split("-")[0]]
    assert {"train.max_length", "train.learning_rate", "train.epochs", "train.batch_size"} <= settings.keys()
    assert settings.get("train.metric_for_best_model", task.headline) in task.metrics
    if path.parent.name == "official":
        assert set(COLUMNS) <= settings.keys(), "an official recipe leaves nothing to danseo's defaults"


def test_an_unknown_recipe_lists_the_known():
    with pytest.raises(DanseoError, match="no recipe 'offical'; known: default, llm, official"):
        find_recipe_file("offical", "ner")
    for name, fault in (("k" * 3000, "is too long"), ("a\0b", "NUL"), ("k" * 3000 + ".toml", "is too long")):
        with pytest.raises(DanseoError, match=fault):
            find_recipe_file(name, "ner")


@pytest.mark.parametrize(("hidden", "epochs"), [(768, 10), (1024, 15)])
def test_the_size_comes_from_the_checkpoint(tmp_path, hidden, epochs):
    transformers = pytest.importorskip("transformers")
    transformers.AutoConfig.for_model("roberta", hidden_size=hidden).save_pretrained(tmp_path)
    found = encoder_facts(str(tmp_path), "official")
    assert configure_run("dp", str(tmp_path), "official", {}, found).train.epochs == epochs
