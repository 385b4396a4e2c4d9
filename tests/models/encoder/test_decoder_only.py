"""Decoder-only language models with heads of our own: how far they see, what learns, and every kind of task."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.encoder.model import Encoder, get_head_class  # noqa: E402
from danseo.models.encoder.network import load_encoder_tokenizer, load_network  # noqa: E402
from danseo.models.registry import load_model  # noqa: E402
from danseo.runs.store import BEST, Run  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from danseo.training.distributed import Workers  # noqa: E402
from danseo.training.features import Features  # noqa: E402
from danseo.training.precision import PACKED  # noqa: E402
from tests.tiny import assert_same_answers, quick_config, read_split, tiny_decoder, tiny_encoder  # noqa: E402

DECODERS = ("gemma3_text", "llama", "qwen2")


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory, sample: Path) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("decoders")
    return {family: tiny_decoder(root / family, sample, family) for family in DECODERS}


def network_of(folder: Path, task: str = "ynat", **settings):
    config = quick_config(task, folder, **settings)
    cls = get_head_class(TASKS[task])
    kind = cls(
        TASKS[task], load_encoder_tokenizer(config, cls.added_tokens(config.encoder)), config.encoder, config.train
    )
    torch.manual_seed(1)
    return load_network(config, kind).eval(), kind


def first_states(network, kind, last: int, length: int = 6):
    """States of an input and of a shorter one beside it, whose last real piece is the given one."""
    rows = [Features(0, [5, 6, 7, 8, 9, last], [0] * 6), Features(1, [5, 6, 7, last], [0] * 4)]
    return states_of(network, rows)[[0, 6]]


def states_of(network, rows: list[Features]) -> torch.Tensor:
    batch = network.collate(rows, SimpleNamespace(collate=lambda features, with_gold: {}), False)
    with torch.no_grad():
        return network._run(batch["input_ids"], batch["texts"])[0]


@pytest.mark.parametrize("attention", ["eager", "sdpa", PACKED])
@pytest.mark.parametrize("family", DECODERS)
def test_only_bidirectional_pieces_see_those_behind_them(decoders, family: str, attention: str):
    for sight in ("bidirectional", "causal"):
        network, kind = network_of(decoders[family], **{"encoder.attention_direction": sight})
        network.use_attention(attention)
        change = (first_states(network, kind, 10) - first_states(network, kind, 11)).abs().amax(-1)
        assert (change > 1e-4).all() if sight == "bidirectional" else (change < 1e-6).all()


@pytest.mark.parametrize("attention", ["sdpa", PACKED])
def test_a_sliding_window_reaches_both_ways(decoders, tmp_path: Path, attention):
    folder = tmp_path / "sliding"
    folder.mkdir()
    for file in decoders["gemma3_text"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    sizes = {"sliding_window": 2, "layer_types": ["sliding_attention"] * 2}
    (folder / "config.json").write_text(json.dumps({**config, **sizes}))
    network, _ = network_of(folder)
    network.use_attention(attention)
    near = [5, 6, 7, 8, 9, 10]

    def state(ids: list[int], position: int):
        return states_of(network, [Features(0, ids, [0] * 6)])[position]

    changed = [*near[:-1], 11]
    assert not torch.allclose(state(near, 4), state(changed, 4), atol=1e-4)  # a neighbour, through one layer
    assert not torch.allclose(state(near, 3), state(changed, 3), atol=1e-4)  # its neighbour, through two
    assert torch.allclose(state(near, 2), state(changed, 2), atol=1e-6)


@pytest.mark.parametrize("family", DECODERS)
def test_inputs_begin_and_end_alike_whatever_the_tokenizer_lacks(decoders, family: str):
    pieces = load_encoder_tokenizer(quick_config("nli", decoders[family]))
    first, second = pieces.tokenize(["서울은 수도다.", "부산은 항구다."])
    begin, end = pieces.hf_tokenizer.cls_token_id, pieces.hf_tokenizer.sep_token_id
    assert pieces.add_special_tokens(first, second).ids == [begin, *first.ids, end, *second.ids, end]
    assert (begin == end) == (family == "qwen2")
    assert pieces.count_special_tokens() == 2
    assert pieces.pad_id is not None


def test_syllables_in_two_pieces_belong_to_the_first(decoders):
    pieces = load_encoder_tokenizer(quick_config("ner", decoders["llama"]))
    text = "뷁홍길동은 😀서울에 산다"
    (cut,) = pieces.tokenize([text])
    assert len(cut) > len(text)  # some syllables are cut into bytes
    owned = [position for start, end in cut.trimmed_offsets() for position in range(start, end)]
    assert set(owned) == {position for position, letter in enumerate(text) if letter != " "}
    starts = [start for start, end in cut.trimmed_offsets() if end > start]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("task", "family", "settings"),
    [
        ("ynat", "qwen2", {"encoder.attention_direction": "causal"}),
        ("sts", "llama", {"encoder.lora_rank": 4}),
        ("nli", "gemma3_text", {"freeze": "encoder"}),
        ("re", "gemma3_text", {"encoder.lora_rank": 4}),
        ("ner", "llama", {}),
        ("dp", "qwen2", {"encoder.lora_rank": 4}),
        ("mrc", "gemma3_text", {"encoder.attention_direction": "causal", "encoder.lora_rank": 4}),
        ("wos", "llama", {"encoder.lora_rank": 4}),
    ],
)
def test_every_kind_learns_is_saved_and_answers_the_same(
    sample: Path, tmp_path: Path, decoders, task: str, family: str, settings: dict
):
    found, count = TASKS[task], 24
    train, dev = (read_split(sample, task, split, count) for split in ("train", "dev"))
    config = quick_config(task, decoders[family], **{"max_length": 256, "epochs": 1, **settings})
    model = Encoder(config, found, Workers("cpu"))
    run = Run(tmp_path / "run")
    run.start(config)
    cost = model.prepare(train, dev)
    assert cost.unknown_share == 0
    before = {name: weight.detach().clone() for name, weight in model.network.named_parameters()}
    silent = dict.fromkeys(("note", "step", "work_on", "report_evaluation"), lambda *args: None)
    silent["work_on"] = lambda *activity: None
    model.train_steps(SimpleNamespace(run=run, series=None, **silent))
    learned = {name for name, weight in model.network.named_parameters() if not torch.equal(weight, before[name])}
    is_body_frozen = config.encoder.lora_rank or config.train.freeze == "encoder"
    assert learned
    if is_body_frozen:
        assert not any(name.startswith("model.") and "lora" not in name for name in learned)
        held = set(run.load_weights(BEST))
        assert all("lora" in name or not name.startswith("model.") for name in held)
    answers = model.predict_dev()
    model.save(run.path / "model")
    assert (run.path / "model" / "model.safetensors").exists() == (not is_body_frozen)
    again = load_model(run, "cpu")
    assert_same_answers(again.predict(dev), answers)


def test_rows_of_added_pieces_learn_though_the_body_stays(sample: Path, decoders):
    network, kind = network_of(decoders["gemma3_text"], "re", **{"encoder.lora_rank": 2})
    assert network.rows is not None
    ids = torch.tensor([[kind.tokenizer.token_id("<subj>"), 5]])
    table = network.model.get_input_embeddings()
    vectors = table(ids)
    assert torch.allclose(vectors[0, 0], network.rows.vectors[0] * network.rows.scale)
    vectors.sum().backward()
    assert table.weight.grad is None
    assert network.rows.vectors.grad is not None


def test_peft_loads_the_saved_adapters(sample: Path, tmp_path: Path, decoders):
    from peft import PeftModel
    from transformers import AutoModel

    config = quick_config(
        "ynat",
        decoders["llama"],
        **{"encoder.lora_rank": 4},
        max_train_samples=16,
        learning_rate=0.1,
        **{"encoder.attention_direction": "causal"},
    )
    run = run_experiment(config, sample, tmp_path, quiet=True)
    ours = load_model(run, "cpu")
    theirs = PeftModel.from_pretrained(AutoModel.from_pretrained(decoders["llama"]), run.path / "model").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        mine = ours.network.model.eval()(input_ids=ids).last_hidden_state
        plain = AutoModel.from_pretrained(decoders["llama"]).eval()(input_ids=ids).last_hidden_state
        assert torch.allclose(mine, theirs(input_ids=ids).last_hidden_state, atol=1e-5)
    assert not torch.allclose(mine, plain, atol=1e-5)


def test_adapters_go_on_from_their_checkpoint_bit_for_bit(sample: Path, tmp_path: Path, decoders):
    class Killed(Exception):
        pass

    def stop(step, score) -> None:
        if step == 2:
            raise Killed

    config = quick_config(
        "re",
        decoders["gemma3_text"],
        max_train_samples=16,
        epochs=2,
        **{"encoder.lora_rank": 4, "encoder.lora_dropout": 0.1},
    )
    with pytest.raises(Killed):
        run_experiment(config, sample, tmp_path / "killed", quiet=True, on_score=stop)
    runs = [run_experiment(config, sample, tmp_path / position, quiet=True) for position in ("killed", "whole")]
    for file in ("adapter_model", "head", "rows"):
        one, other = ((run.path / "model" / f"{file}.safetensors").read_bytes() for run in runs)
        assert one == other


def test_frozen_weights_lie_in_half_precision_where_the_run_computes_in_it(sample: Path, decoders):
    config = quick_config("ynat", decoders["qwen2"], **{"encoder.lora_rank": 2}, precision="bf16")
    model = Encoder(config, TASKS["ynat"], Workers("cpu"))
    kinds = {(weight.requires_grad, weight.dtype) for weight in model.network.parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}
    examples = read_split(sample, "ynat", "dev", 4)
    assert len(model.predict(examples)) == 4
    assert model.mode.precision == "bf16"


def test_a_body_that_is_gone_or_changed_is_one_line(sample: Path, tmp_path: Path):
    folder = tiny_decoder(tmp_path / "body", sample, "llama")
    config = quick_config("ynat", folder, **{"encoder.lora_rank": 2}, max_train_samples=8)
    run = run_experiment(config, sample, tmp_path / "runs", quiet=True)
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text + " ")
    with pytest.raises(DanseoError, match="has changed since"):
        load_model(run, "cpu")
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(DanseoError, match="which is not there"):
        load_model(run, "cpu")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"encoder.lora_rank": 2, "freeze": "encoder"}, "exclude each other"),
        ({"architecture": "official"}, "KLUE's own heads are for encoders"),
    ],
)
def test_settings_that_a_decoder_cannot_follow_are_refused(decoders, settings: dict, complaint: str):
    with pytest.raises(DanseoError, match=complaint):
        network_of(decoders["llama"], **settings)


def test_encoders_refuse_what_is_for_decoders(sample: Path, tmp_path: Path):
    folder = tiny_encoder(tmp_path, sample)
    for settings in ({"encoder.lora_rank": 2}, {"encoder.attention_direction": "causal"}):
        with pytest.raises(DanseoError, match="is an encoder"):
            network_of(folder, **settings)
