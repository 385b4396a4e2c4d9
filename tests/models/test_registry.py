"""The registry of families: one entry per family, and an injected family replaces it everywhere."""

from dataclasses import replace

from danseo.experiment import run_experiment
from danseo.models.registry import get_family
from tests.tiny import quick_config


def test_an_injected_family_is_used_from_the_checks_to_the_scores(sample, tmp_path):
    """No entry of the registry could run this model: its name would be looked up on the Hub."""
    majority = get_family("majority")
    seen = []
    family = replace(
        majority,
        name="mine",
        check_config=lambda config, task: seen.append("checked"),
        create=lambda config, task, device: majority.create(
            config.model_copy(update={"model": "majority"}), task, device
        ),
    )
    run = run_experiment(quick_config("ynat", "mine:model"), sample, tmp_path, quiet=True, family=family)
    assert seen == ["checked"]
    assert run.is_finished
    assert run.read_json("environment.json")["family"] == "mine"
