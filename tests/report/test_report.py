import json
import re
from html import escape
from pathlib import Path

import pytest
from click.testing import CliRunner

from danseo.cli import cli
from danseo.display.plots.figures import Forest
from danseo.display.plots.svg import choose_ticks, draw_svg
from danseo.errors import DanseoError
from danseo.records import Prediction, QuestionExample, TextExample
from danseo.report.build import make_pages, write_report
from danseo.report.collection import collect_runs
from danseo.report.html import hash_for_policy
from danseo.scoring.calibration import bin_confidences
from danseo.tasks import TASKS
from tests.showing import LABELS, OWN, RUNS, TEXT

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def report(runs, sample, tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("out") / "report.html"
    made = CliRunner().invoke(cli, ["report", str(runs), "--data", str(sample), "--out", str(out), "--json"])
    assert json.loads(made.output)["tasks"] == [*TASKS, *OWN]
    return out.read_text()


def test_nothing_leaves_the_file(report):
    assert not re.findall(r"(?:src|href|action)=\"(?!#)[^\"]*\"", report)
    assert "@import" not in report
    assert not re.findall(r"url\(", report)
    assert not re.findall(r"\sstyle=\"", report)


def test_the_policy_names_exactly_what_is_inside(report):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', report)[1].replace("&#39;", "'")
    (style,) = re.findall(r"<style>(.*?)</style>", report, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", report, re.DOTALL)
    assert f"style-src {hash_for_policy(style)}" in policy
    assert f"script-src {hash_for_policy(script)}" in policy
    assert policy.startswith("default-src 'none'")


def test_names_and_facts_with_html_in_them_are_text(report):
    assert "<script>alert" not in report
    assert "<img" not in report
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in report
    assert "&lt;img src=x onerror=alert(1)&gt;" in report


def test_labels_and_texts_with_html_in_them_are_text(report):
    for text in (*LABELS, TEXT, "<b>0</b>"):
        assert text not in report
        assert escape(text) in report or escape(text).replace("&#x27;", "&#39;") in report.replace("&#34;", "&quot;")
    assert not re.search(r"<(?:img|b|svg onload)[ >]", report.replace("<b>danseo</b>", ""))
    assert "49" not in re.findall(r"영화 (\S+)", report)


def test_all_links_lead_to_a_page(report):
    anchors = set(re.findall(r'id="([^"]+)"', report))
    targets = set(re.findall(r'(?:href|value)="#([^"]+)"', report))
    assert targets
    assert targets <= anchors


def test_the_same_name_on_two_tasks_leads_to_two_runs(report):
    overview = report.split('id="task-ynat"')[0]
    targets = re.findall(r'<a href="#(run-\d+)">majority</a>', overview)
    assert len(set(targets)) == len(TASKS) + len(OWN)


def test_every_task_has_examples_in_its_own_form(runs, sample):
    pages = {page.key: page for page in make_pages(collect_runs([runs], str(sample)), rounds=100)}
    kinds = {}
    for page in pages.values():
        for section in page.sections:
            for block in section.blocks:
                if block.kind == "examples" and block.examples:
                    kinds.setdefault(page.lead.split(",")[0], block.examples[0])
    assert set(TASKS) <= set(kinds)
    assert kinds["dp"].tree is not None
    assert [line.name for line in kinds["mrc"].lines] == ["passage", "question", "gold", "answer"]
    assert kinds["wos"].lines[0].role == "user"
    assert {span.mark.split()[0] for span in kinds["re"].lines[0].spans if span.mark} == {"subject", "object"}


def test_pages_without_data_have_a_note(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    made = write_report([runs], tmp_path / "bare.html", str(tmp_path / "empty"))
    assert made["runs"] == RUNS
    assert "name its folder with --data" in (tmp_path / "bare.html").read_text()


def test_what_is_no_folder_of_runs_or_no_html_is_one_line(tmp_path, runs):
    with pytest.raises(DanseoError, match=r"end its name in \.html"):
        write_report([runs], tmp_path / "report.pdf")
    with pytest.raises(DanseoError, match="no runs in"):
        write_report([tmp_path], tmp_path / "report.html")
    with pytest.raises(DanseoError, match="not a folder of runs"):
        write_report([tmp_path / "absent"], tmp_path / "report.html")
    assert not list(Path(tmp_path).glob("*.html"))


# Parts


def test_entities_are_right_wrong_or_missed():
    text, task = "서울 김철수", TASKS["ner"]
    gold = ("B-LC", "I-LC", "O", "B-PS", "I-PS", "I-PS")
    answer = ("B-LC", "I-LC", "O", "B-PS", "I-PS", "O")
    shown = task.type.render(task, TextExample("g", text, gold), {"a": Prediction("g", answer)})
    states = [[(p.text, p.mark, p.state) for p in line.spans if p.mark] for line in shown.lines]
    assert states == [
        [("서울", "LC", "right"), ("김철수", "PS", "missed")],
        [("서울", "LC", "right"), ("김철", "PS", "wrong")],
    ]


def test_a_passage_marks_gold_and_answer():
    example = QuestionExample("g", "가" * 400 + "정답" + "나" * 400 + "오답", "무엇?", ("정답",), (400,))
    shown = TASKS["mrc"].type.render(TASKS["mrc"], example, {"a": Prediction("g", "오답")})
    passage = shown.lines[0].spans
    assert [(p.text, p.mark) for p in passage if p.mark] == [("정답", "gold"), ("오답", "answer")]
    assert max(len(span.text) for span in passage) < 350


def test_calibration_of_answers_that_are_surer_than_right():
    found = bin_confidences("answers", np.array([0.95, 0.95, 0.55, 0.55]), np.array([True, False, True, False]))
    assert found.error == pytest.approx((2 * 45 + 2 * 5) / 4)


def test_axes_have_round_numbers_and_figures_escape_names():
    assert choose_ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert choose_ticks(5.0, 5.0)[0] <= 5 <= choose_ticks(5.0, 5.0)[-1]
    assert len(set(choose_ticks(10.0, 10.0000001))) > 1
    assert choose_ticks(1, 2, whole=True) == [1, 2]
    drawn = draw_svg(Forest(["<b>"], [(1, 2, 3)], "x"), 'say "hi"')
    assert "<b>" not in drawn
    assert "&lt;b&gt;" in drawn
    assert 'aria-label="say &quot;hi&quot;"' in drawn
