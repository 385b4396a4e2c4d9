"""spaCy on Korean tokens: what they cost, training, and pipelines that are there already."""

import subprocess
import sys
from pathlib import Path
from unicodedata import normalize

import pytest

spacy = pytest.importorskip("spacy")
pytest.importorskip("kiwipiepy")

from danseo.errors import DanseoError  # noqa: E402
from danseo.experiment import run_experiment  # noqa: E402
from danseo.models.families import load_model  # noqa: E402
from danseo.models.spacy.model import Ceiling, fresh  # noqa: E402
from danseo.models.spacy.tokens import laid_out, whole  # noqa: E402
from danseo.models.spans import characters  # noqa: E402
from danseo.predictions.file import read_predictions  # noqa: E402
from danseo.records import TextExample  # noqa: E402
from danseo.tasks import TASKS  # noqa: E402
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
    return run_experiment(quick_config("ner", "spacy", max_steps=40, limit=120), sample, runs, quiet=True)


@pytest.mark.parametrize("words", ["kiwi", "characters"])
@pytest.mark.parametrize("text", ODD)
def test_tokens_make_up_the_text(words: str, text: str):
    doc = fresh(quick_config("ner", "spacy", words=words)).make_doc(text)
    assert doc.text == text
    assert [token.text for token in doc if token.text.strip()]


def test_a_syllable_that_morphemes_share_is_cut_into_characters():
    assert whole("공부했다", [(0, 2), (2, 3), (2, 3), (3, 4)]) == [(0, 2), (2, 3), (3, 4)]
    assert whole("갔던", [(0, 1), (0, 2)]) == [(0, 1), (1, 2)]
    assert characters(normalize("NFD", "갔다")) == [(0, 3), (3, 5)]
    assert laid_out(" 가  나", [(1, 2), (4, 5)]) == ([" ", "가", " ", "나"], [False, True, False, False])


def test_entities_inside_a_token_are_lost_and_counted():
    example = TextExample("a", "박씨는 갔다", ("B-PS", "O", "O", "O", "O", "O"))
    for words, lost in (("characters", 0), ("kiwi", 0)):
        nlp = fresh(quick_config("ner", "spacy", words=words))
        assert Ceiling(NER, nlp.make_doc, [example]).as_dict()["lost"] == lost
    coarse = Ceiling(NER, spacy.blank("xx"), [example])
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
    with pytest.raises(DanseoError, match="knows GPE, PERSON, none of PS"):
        run_experiment(quick_config("ner", model), sample, tmp_path / "runs", quiet=True)
    named = quick_config("ner", model, label_words="LC=GPE+LOC, PS=PERSON")
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
        ("ner", {"label_words": "XX=a"}, "with a type of PS"),
        ("ner", {"model": "spacy:nowhere"}, "not a spaCy pipeline"),
    ],
)
def test_what_it_cannot_do_is_one_line(sample: Path, tmp_path: Path, task: str, settings: dict, complaint: str):
    settings = dict(settings)
    config = quick_config(task, settings.pop("model", "spacy"), **settings)
    with pytest.raises(DanseoError, match=complaint):
        run_experiment(config, sample, tmp_path, quiet=True)
