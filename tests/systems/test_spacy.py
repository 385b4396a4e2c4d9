"""spaCy on Korean tokens: what they cost, training, and pipelines that are there already."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

spacy = pytest.importorskip("spacy")
pytest.importorskip("kiwipiepy", reason="the extra ko is not installed")

from danseo.config.base import update_config  # noqa: E402
from danseo.data.prediction_file import read_predictions  # noqa: E402
from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.entity_spans import split_characters  # noqa: E402
from danseo.models.registry import load_model  # noqa: E402
from danseo.models.spacy.model import TokenizationCeiling  # noqa: E402
from danseo.models.spacy.pipeline import add_new_ner, continue_ner, locate_pipeline, make_blank_pipeline  # noqa: E402
from danseo.models.spacy.tokenizers import resolve_morphemes, split_words_and_spaces  # noqa: E402
from danseo.records import TextExample  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.tiny import quick_config, read_split  # noqa: E402

NER = TASKS["ner"]
ODD = [
    "홍길동은  서울에\t갔다.",
    " 앞에 빈칸",
    "😀서울🇰🇷 시청",
    normalize("NFD", "홍길동이 부산에 갔다."),
    "\u3000전각 ",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, sample: Path):
    runs = tmp_path_factory.mktemp("spacy")
    return run_experiment(quick_config("ner", "spacy", max_steps=40, max_train_samples=120), sample, runs, quiet=True)


@pytest.mark.parametrize("words", ["kiwi", "characters"])
@pytest.mark.parametrize("text", ODD)
def test_tokens_make_up_the_text(words: str, text: str):
    doc = make_blank_pipeline(quick_config("ner", "spacy", tokenizer=words)).make_doc(text)
    assert doc.text == text
    assert [token.text for token in doc if token.text.strip()]


def test_a_syllable_that_morphemes_share_is_cut_into_characters():
    assert resolve_morphemes("공부했다", [(0, 2), (2, 3), (2, 3), (3, 4)]) == [(0, 2), (2, 3), (3, 4)]
    assert resolve_morphemes("갔던", [(0, 1), (0, 2)]) == [(0, 1), (1, 2)]
    assert split_characters(normalize("NFD", "갔다")) == [(0, 3), (3, 5)]
    assert split_words_and_spaces(" 가  나", [(1, 2), (4, 5)]) == ([" ", "가", " ", "나"], [False, True, False, False])


def test_entities_inside_a_token_are_lost_and_counted():
    example = TextExample("a", "박씨는 갔다", ("B-PS", "O", "O", "O", "O", "O"))
    for words, lost in (("characters", 0), ("kiwi", 0)):
        nlp = make_blank_pipeline(quick_config("ner", "spacy", tokenizer=words))
        assert TokenizationCeiling(NER, nlp.make_doc, [example]).as_dict()["lost"] == lost
    coarse = TokenizationCeiling(NER, spacy.blank("xx"), [example])
    assert coarse.as_dict()["lost"] == 1
    assert "0.00 % of 1 dev entities" in coarse.line()


def test_a_run_is_whole_and_its_model_answers_the_same(trained, sample: Path):
    scores = trained.read_json("scores.json")
    assert scores["best_step"] > 0
    assert scores["preflight"]["ceiling"] > 95
    dev = read_split(sample, "ner", "dev")
    again = load_model(trained).predict(dev)
    assert any(tag != "O" for prediction in again for tag in prediction.answer)
    assert read_predictions(trained.predictions_path("dev"), NER, dev) == again.predictions


def test_the_saved_pipeline_is_an_ordinary_one(trained):
    code = f"""
import danseo, spacy
print(spacy.load({str(trained.path / "model")!r})("홍길동은 서울에 갔다.").text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "홍길동은 서울에 갔다."


def test_a_pipeline_that_is_there_is_scored_by_its_label_map(sample: Path, tmp_path: Path):
    nlp = spacy.blank("xx")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "GPE", "pattern": "서울"}, {"label": "PERSON", "pattern": "홍길동"}])
    nlp.to_disk(tmp_path / "ruler")
    model = f"spacy:{tmp_path / 'ruler'}"
    frozen = {"spacy.ner": "frozen"}
    with pytest.raises(DanseoError, match="knows GPE, PERSON, none of PS"):
        run_experiment(quick_config("ner", model, **frozen), sample, tmp_path / "runs", quiet=True)
    named = quick_config("ner", model, **frozen, **{"spacy.label_names": "LC=GPE+LOC, PS=PERSON"})
    run = run_experiment(named, sample, tmp_path / "runs", quiet=True)
    (found,) = load_model(run).predict([TextExample("a", "홍길동 서울", ())])
    assert found.answer == ("B-PS", "I-PS", "I-PS", "O", "B-LC", "I-LC")
    ruler.add_patterns([{"label": "GPE", "pattern": "부산"}])
    nlp.to_disk(tmp_path / "ruler")  # the same place, another pipeline
    other = run_experiment(named, sample, tmp_path / "runs", quiet=True)
    assert other.path != run.path
    hashes = [each.read_json("environment.json")["model"]["sha256"] for each in (run, other)]
    assert hashes[0] != hashes[1]


@pytest.mark.parametrize(
    ("task", "settings", "complaint"),
    [
        ("ynat", {}, "does not know ynat"),
        ("ner", {"spacy.label_names": "XX=a"}, "with a type of PS"),
        ("ner", {"model": "spacy:nowhere"}, "not a spaCy pipeline"),
        ("ner", {"spacy.ner": "frozen"}, "has no NER yet"),
    ],
)
def test_what_it_cannot_do_is_one_line(sample: Path, tmp_path: Path, task: str, settings: dict, complaint: str):
    settings = dict(settings)
    config = quick_config(task, settings.pop("model", "spacy"), **settings)
    with pytest.raises(DanseoError, match=complaint):
        run_experiment(config, sample, tmp_path, quiet=True)


def make_pipeline(folder: Path, words: list[str], *parts: str) -> Path:
    """An English pipeline with vectors, and with untrained parts."""
    nlp = spacy.blank("en")
    numbers = np.random.default_rng(0).standard_normal((len(words), 20), dtype=np.float32)
    nlp.vocab.vectors = spacy.vectors.Vectors(strings=nlp.vocab.strings, data=numbers, keys=words, name="test")
    for part in parts:
        nlp.add_pipe(part)
    if parts:
        nlp.initialize(lambda: make_examples(nlp))
    folder.mkdir(parents=True)
    nlp.to_disk(folder)
    return folder


def make_examples(nlp) -> list:
    made = {"entities": [(10, 16, "PERSON")], "tags": ["X"] * 4}
    return [spacy.training.Example.from_dict(nlp.make_doc("He called Alfred ."), made)]


def get_weights(nlp, part: str) -> bytes:
    model = nlp.get_pipe(part).model
    return (model.get_ref("tok2vec") if part == "ner" else model).to_bytes()


@pytest.mark.parametrize(("parts", "kept"), [(("tok2vec", "tagger"), "tok2vec"), (("tok2vec", "tagger", "ner"), "ner")])
def test_a_new_ner_keeps_tok2vec_and_vectors(tmp_path: Path, parts: tuple[str, ...], kept: str):
    nlp = spacy.load(make_pipeline(tmp_path / "nlp", ["He", "called"], *parts))
    before, vectors = get_weights(nlp, kept), nlp.vocab.vectors.data.copy()
    add_new_ner(nlp, make_examples(nlp))
    assert get_weights(nlp, kept) == before
    assert (nlp.vocab.vectors.data == vectors).all()
    assert nlp.pipe_names == (["ner"] if kept == "ner" else ["tok2vec", "ner"])  # that NER has a tok2vec of its own
    assert nlp("He called Alfred .").has_annotation("ENT_IOB")


def test_a_new_tok2vec_reads_the_vectors_and_a_continued_ner_gets_new_labels(tmp_path: Path):
    nlp = spacy.load(make_pipeline(tmp_path / "nlp", ["He", "called"]))
    add_new_ner(nlp, make_examples(nlp))
    assert any(layer.name == "static_vectors" for layer in nlp.get_pipe("tok2vec").model.walk())
    before = get_weights(nlp, "ner")
    continue_ner(nlp, ["PERSON", "PLACE"])
    assert nlp.get_pipe("ner").labels == ("PERSON", "PLACE")
    assert get_weights(nlp, "ner") == before


def test_parts_without_weights_are_replaced(sample: Path, tmp_path: Path):
    nlp = spacy.blank("en")
    for part in ("tok2vec", "ner"):
        nlp.add_pipe(part)
    nlp.to_disk(tmp_path / "untrained")
    quick = {"max_steps": 2, "max_train_samples": 8}
    config = quick_config("ner", f"spacy:{tmp_path / 'untrained'}", **quick)
    assert run_experiment(config, sample, tmp_path / "runs", quiet=True).read_json("scores.json")["ner"] == "new"
    with pytest.raises(DanseoError, match="finds no entities"):
        run_experiment(update_config(config, {"spacy.ner": "continued"}), sample, tmp_path / "runs", quiet=True)


def test_an_english_pipeline_with_vectors_learns_and_is_continued(tmp_path: Path):
    data = ROOT.parent / "shared" / "data" / "english_ner" / "wnut17"
    if not data.is_dir():
        pytest.skip("the real files are not in ../shared/data")
    lines = (data / "wnut17train.conll").read_text("utf-8").splitlines()
    words = [word for word, _ in Counter(line.split("\t")[0] for line in lines if line.strip()).most_common(300)]
    folder = make_pipeline(tmp_path / "english", words, "tok2vec", "tagger")
    quick = {"max_train_samples": 200, "spacy.label_names": "person=PERSON"}
    config = quick_config("wnut17.toml", f"spacy:{folder}", max_epochs=4, patience=1000, **quick)
    run = run_experiment(config, data, tmp_path / "runs", quiet=True)
    scores = run.read_json("scores.json")
    assert scores["ner"] == "new"
    assert scores["select_score"] > 0
    assert 4 <= scores["steps"] < 200
    assert {line["step"] for line in run.read_log()} >= {1, scores["best_step"]}
    nlp = spacy.load(run.path / "model")
    assert {"PERSON", "location"} <= set(nlp.get_pipe("ner").labels)
    assert (nlp.vocab.vectors.data == spacy.load(folder).vocab.vectors.data).all()
    assert nlp.pipe_names == ["tok2vec", "ner"]
    again = quick_config("wnut17.toml", f"spacy:{run.path / 'model'}", max_steps=2, **quick)
    second = run_experiment(again, data, tmp_path / "runs", quiet=True).read_json("scores.json")
    assert second["ner"] == "continued"
    assert second["select_score"] > scores["select_score"] / 2  # a new one would find nothing after two steps


def test_the_data_of_an_installed_package_is_read_and_its_code_is_not_run(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package = tmp_path / "site" / "xx_test_pipeline"
    make_pipeline(package / "xx_test_pipeline-1.0", ["홍길동"])
    (package / "__init__.py").write_text(
        "import spacy\n@spacy.registry.callbacks('test_pipeline.callback')\ndef make():\n    return lambda nlp: nlp\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    model = "spacy:xx_test_pipeline"
    assert locate_pipeline(model) == str(package / "xx_test_pipeline-1.0")
    quick = quick_config("ner", model, max_steps=2, max_train_samples=8)
    run = run_experiment(quick, sample, tmp_path / "runs", quiet=True)
    assert run.path.name.startswith("ner--spacy-xx_test_pipeline--")
    assert "xx_test_pipeline" not in sys.modules
    settings = package / "xx_test_pipeline-1.0" / "config.cfg"
    text = settings.read_text("utf-8").replace("before_creation = null\n", "")
    settings.write_text(text + '\n[nlp.before_creation]\n@callbacks = "test_pipeline.callback"\n', "utf-8")
    with pytest.raises(DanseoError, match=r"test_pipeline\.callback"):
        run_experiment(quick, sample, tmp_path / "runs", quiet=True)
    trusted = quick_config("ner", model, max_steps=2, max_train_samples=8, trust_remote_code=True)
    assert run_experiment(trusted, sample, tmp_path / "runs", quiet=True).is_finished
