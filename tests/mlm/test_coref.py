"""Entity fine-tuning: mentions and their rows, objectives, datasets and whole trainings."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from danseo.config.base import parse_assignment, update_config  # noqa: E402
from danseo.config.mlm import CorefConfig, MentionSettings  # noqa: E402
from danseo.errors import WorkFailed  # noqa: E402
from danseo.mlm.coref import CorefJob, coref  # noqa: E402
from danseo.mlm.masking import (  # noqa: E402
    BEGINS,
    KEPT,
    SPECIAL,
    TARGET,
    MentionMasker,
    Vocabulary,
)
from danseo.mlm.mentions import MentionRows, find_mentions, open_dataset, write_dataset  # noqa: E402
from danseo.mlm.packing import PackedRows  # noqa: E402
from danseo.mlm.tables import coref_tables  # noqa: E402
from danseo.models.mlm.objective import MlmNetwork, MlmObjective  # noqa: E402
from danseo.models.new_encoder import make_wordpiece_tokenizer  # noqa: E402
from danseo.runs.lock import lock_folder  # noqa: E402
from danseo.text.documents import Document  # noqa: E402
from danseo.text.morphology import Noun  # noqa: E402
from danseo.training.features import Features  # noqa: E402
from tests.mlm.conftest import PLAIN, masked_model  # noqa: E402

TEXT = "이순신에 대한 이야기는 오래 전부터 있었다. 그때 이순신의 소식이 들렸고 마침내 이순신을 보았다."
NAMES = ("김유정", "서울", "춘천", "한강", "세종대왕", "이순신", "부산", "백두산")


class Known:
    """An analyser that knows a few names."""

    version = "known 1"

    def find_nouns(self, texts):
        for text in texts:
            found = re.finditer("|".join(NAMES), text)
            yield [Noun(match[0], "NNP", match.start(), match.end()) for match in found]


def documents(count: int = 60) -> str:
    rng = np.random.default_rng(5)
    made = []
    for number in range(count):
        a, b = rng.choice(NAMES, 2, replace=False)
        made.append(
            f"{number}번 글. {a}에 대한 이야기는 오래 전부터 있었다. {b}에서 사람들이 모였다. "
            f"그때 {a}의 소식이 들렸다. 그래서 {b}까지 걸었고 마침내 {a}을 보았다."
        )
    return "\n\n".join(made)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("coref") / "text.txt"
    path.write_text(documents(), "utf-8")
    return path


LETTERS = sorted({letter for letter in documents(200) + TEXT if not letter.isspace()})
TOKENS = {*LETTERS, *(f"##{letter}" for letter in LETTERS), *NAMES[1:]}
"""Names but the first are one token each, and all else is letters."""


@pytest.fixture(scope="module")
def tokenizer():
    return make_wordpiece_tokenizer(TOKENS, 512)


@pytest.fixture(scope="module")
def checkpoint(tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    masked_model("bert", tokenizer, positions=96).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DANSEO_CACHE", str(tmp_path / "cache"))


def row_of(tokenizer, text: str, number: int = 0, seq_len: int = 96):
    (words,) = Known().find_nouns([text])
    mentions = list(find_mentions(Document("d", "s", text), text, words, MentionSettings(), "known 1"))
    row = MentionRows(tokenizer, seq_len).make_row(mentions[number])
    return mentions[number], row and row[:2]


def features(row, example: int = 0) -> Features:
    return Features(example, row[0], [], {"marks": row[1], "parts": np.array([len(row[0])])})


def masker(tokenizer, objective: str, **changes) -> MentionMasker:
    return MentionMasker(Vocabulary.of(tokenizer), CorefConfig(checkpoint="", objective=objective, **changes))


def test_later_mentions_become_items(tokenizer):
    (words,) = Known().find_nouns([TEXT])
    found = list(find_mentions(Document("d", "s", TEXT), TEXT, words, MentionSettings(), "known 1"))
    assert [mention.item.span[0] for mention in found] == [m.start() for m in re.finditer("이순신", TEXT)][1:]
    assert {mention.item.antecedent for mention in found} == {(0, 3)}
    near = MentionSettings(min_distance=30)
    assert len(list(find_mentions(Document("d", "s", TEXT), TEXT, words, near, "known 1"))) == 1
    assert not list(find_mentions(Document("d", "s", TEXT), TEXT, words, MentionSettings(max_mentions=1), "known 1"))


@pytest.mark.parametrize("number", [0, 1])
def test_marks_show_the_mention_and_the_others(tokenizer, number):
    mention, (ids, marks) = row_of(tokenizer, TEXT, number)
    word = tokenizer("이순신", add_special_tokens=False)["input_ids"]
    assert ids[marks == TARGET].tolist() == word
    assert (marks[0], marks[-1]) == (SPECIAL, SPECIAL)
    kept = tokenizer.convert_ids_to_tokens(ids[marks == KEPT].tolist())
    assert "".join(piece.removeprefix("##") for piece in kept).count("이순신") == 2
    assert tokenizer.mask_token_id not in ids
    assert mention.item.target == "이순신"


def test_rows_are_tokens_of_the_unchanged_text(tokenizer, checkpoint, text, tmp_path):
    """The particle behind a mention goes on inside its word; once it began a new one."""
    write_dataset(tmp_path / "d", [text], tokenizer, config_of(checkpoint), 96, Known())
    cut = [tokenizer(document, add_special_tokens=False)["input_ids"] for document in documents().split("\n\n")]
    known = {tuple(ids[k : k + 8]) for ids in cut for k in range(len(ids) - 7)}
    rows = [row for split in ("train", "held_out") for row in PackedRows(tmp_path / "d" / split)]
    assert len(rows) > 50
    particles = set()
    for row in rows:
        inner = row.ids[1:-1].tolist()
        assert all(tuple(inner[k : k + 8]) in known for k in range(len(inner) - 7))
        after = int(np.flatnonzero(row.fields["marks"] == TARGET)[-1]) + 1
        particles.add(tokenizer.convert_ids_to_tokens(int(row.ids[after])))
    assert particles == {"##의", "##까", "##을"}


def test_token_with_a_particle_is_recovered_completely(tokenizer, checkpoint, text, tmp_path):
    wide_tokenizer = make_wordpiece_tokenizer({*TOKENS, "이순신의"}, 512)
    maker = MentionRows(wide_tokenizer, 96)
    (words,) = Known().find_nouns([TEXT])
    wide, exact = map(
        maker.make_row, find_mentions(Document("d", "s", TEXT), TEXT, words, MentionSettings(), "known 1")
    )
    for row, target, is_wider in ((wide, ["이순신의"], True), (exact, ["이순신"], False)):
        assert wide_tokenizer.convert_ids_to_tokens(row.ids[row.marks == TARGET].tolist()) == target
        assert row.is_wider is is_wider
        assert row.ids.tolist() == wide_tokenizer(TEXT)["input_ids"]
    write_dataset(tmp_path / "d", [text], tokenizer, config_of(checkpoint), 96, Known())
    description, facts, _ = open_dataset(tmp_path / "d", tokenizer)
    assert description["mentions"] == facts["train"].rows + facts["held_out"].rows
    assert description["wider"] == 0


def test_mention_without_antecedent_in_the_window_gives_no_row(tokenizer):
    long = "이순신은 장군이다. " + "그때 사람들이 모였다. " * 30 + "마침내 이순신을 보았다."
    assert row_of(tokenizer, long, 0, seq_len=48)[1] is None
    assert row_of(tokenizer, long, 0, seq_len=512)[1] is not None


def loss_of(tokenizer, model, row, objective: str) -> float:
    objective_ = MlmObjective(masker(tokenizer, objective))
    network = MlmNetwork(model)
    batch = network.collate([features(row)], objective_, True)
    with torch.inference_mode():
        loss, weight = objective_.loss(network(batch), batch)
    return float(loss / weight)


def test_loss_depends_on_the_target(tokenizer):
    """And with the library's collator, for which a mask in the input is a special piece, it would not."""
    from transformers import DataCollatorForLanguageModeling

    model = masked_model("bert", tokenizer, positions=96)
    _, (ids, marks) = row_of(tokenizer, TEXT)
    position = np.flatnonzero(marks == TARGET)
    other = ids.copy()
    other[position] = tokenizer("부산", add_special_tokens=False)["input_ids"][0]
    for objective, changes in (("target", True), ("both", True), ("mlm", False)):
        losses = [loss_of(tokenizer, model, (row, marks), objective) for row in (ids, other)]
        assert (abs(losses[0] - losses[1]) > 1e-6) is changes, objective
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    stock = []
    for row in (ids, other):
        holed = row.copy()
        holed[position] = tokenizer.mask_token_id  # prepared as the old dataset was: the target is only a column
        torch.manual_seed(3)
        batch = collator([{"input_ids": holed.tolist()}])
        assert (batch["labels"][0, position] == -100).all(), "the gap is never learned"
        with torch.inference_mode():
            stock.append(float(model(**batch).loss))
    assert stock[0] == stock[1]


def test_all_tokens_of_the_mention_are_masked_with_weight_one(tokenizer):
    _, row = row_of(tokenizer, TEXT)
    position = np.flatnonzero(row[1] == TARGET)
    for objective in ("target", "both"):
        masked = masker(tokenizer, objective)(features(row), 0)
        assert (masked.ids[position] == tokenizer.mask_token_id).all()
        assert masked.positions[: len(position)].tolist() == position.tolist()
        assert (masked.labels[: len(position)] == row[0][position]).all()
        assert (masked.weights[: len(position)] == 1).all()
    assert len(masker(tokenizer, "target")(features(row), 0).positions) == len(position)


def test_antecedent_is_never_masked_and_ordinary_masks_have_their_weight(tokenizer):
    _, row = row_of(tokenizer, TEXT)
    kept = np.flatnonzero(row[1] == KEPT)
    both = masker(tokenizer, "both", mlm_weight=0.25, mlm_probability=0.9)
    for step in range(50):
        masked = both(features(row), step)
        assert (masked.ids[kept] == row[0][kept]).all()
        assert not set(kept) & set(masked.positions)
        others = ~np.isin(masked.positions, np.flatnonzero(row[1] == TARGET))
        assert (masked.weights[others] == 0.25).all()
        assert (row[1][masked.positions[others]] == BEGINS).all()


def test_evaluation_is_on_the_mention_for_every_objective(tokenizer):
    _, row = row_of(tokenizer, TEXT)
    positions = [
        masker(tokenizer, objective)(features(row), None).positions.tolist() for objective in ("target", "mlm", "both")
    ]
    assert positions[0] == positions[1] == positions[2] == np.flatnonzero(row[1] == TARGET).tolist()


def config_of(checkpoint: Path, *settings: str) -> CorefConfig:
    chosen = (
        *PLAIN,
        "min_distance=5",
        "held_out_ratio=0.3",
        "steps=8",
        "learning_rate=3e-3",
        "max_held_out_items=20",
        *settings,
    )
    return update_config(
        CorefConfig(checkpoint=str(checkpoint)), dict(parse_assignment(s, CorefConfig) for s in chosen)
    )


def test_splits_share_no_document(tokenizer, checkpoint, text, tmp_path):
    write_dataset(tmp_path / "d", [text], tokenizer, config_of(checkpoint), 96, Known())
    _, facts, probes = open_dataset(tmp_path / "d", tokenizer)
    assert facts["train"].rows > facts["held_out"].rows > 0
    held = {item.document for item in probes}
    assert held
    texts = {
        split: {tokenizer.decode(row.ids[1:4]) for row in PackedRows(tmp_path / "d" / split)}
        for split in ("train", "held_out")
    }
    assert not texts["train"] & texts["held_out"], "every text begins with its own number"


def test_objectives_are_compared_on_a_saved_dataset(checkpoint, text, tmp_path, monkeypatch):
    monkeypatch.setattr("danseo.text.morphology.KiwiAnalyser", Known)
    config = config_of(checkpoint)
    job = CorefJob(config, (text,), save_dataset=tmp_path / "d", device="cpu", quiet=True, analyser=Known())
    whole = coref(job, tmp_path / "out", ("target", "mlm", "both"))
    found = {each["objective"]: each for each in whole["objectives"]}
    assert {each["steps"] for each in found.values()} == {8}
    befores = [each["before"] for each in found.values()]
    assert befores[0] == befores[1] == befores[2]
    drops = {name: each["before"]["held_out_loss"] - each["after"]["held_out_loss"] for name, each in found.items()}
    assert drops["target"] > max(0.3, drops["mlm"]), drops
    tables = coref_tables(whole)
    assert [row[0] for row in tables[0].rows] == ["before", "target", "mlm", "both"]
    again = CorefJob(config, dataset=tmp_path / "d", device="cpu", quiet=True)
    assert coref(again, tmp_path / "out", ("target", "mlm", "both"))["objectives"] == whole["objectives"]
    state = json.loads((tmp_path / "out" / "both" / "checkpoint-8" / "trainer_state.json").read_text("utf-8"))
    assert state["global_step"] == 8


def test_locked_folder_is_not_written(text, checkpoint, tmp_path):
    config = CorefConfig(checkpoint=str(checkpoint))
    job = CorefJob(config, (text,), quiet=True, analyser=Known(), device="cpu")
    with lock_folder(tmp_path / "out"), pytest.raises(WorkFailed, match="another process"):
        coref(job, tmp_path / "out", wait=False)
    assert not (tmp_path / "out").exists()
