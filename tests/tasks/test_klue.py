"""Readers of the KLUE files: bad content is one line with its location; legal but odd content is read."""

import gzip
import json
from copy import deepcopy

import pytest

from danseo.errors import DataError
from danseo.tasks import TASKS

SENTENCE = "가온전자는 1998년 서울에서 설립됐다."
NER = "## ner-0\t<솔이:PS>는\n솔\tB-PS\n이\tI-PS\n는\tO\n\n## ner-1\t가자\n가\tO\n자\tO\n\n"
DP = (
    "## dp-0\t나는 밥을 먹는다.\n"
    "1\t나는\t나 는\tNP+JX\t3\tNP_SBJ\n"
    "2\t밥을\t밥 을\tNNG+JKO\t3\tNP_OBJ\n"
    "3\t먹는다.\t먹 는다 .\tVV+EF+SF\t0\tVP\n"
)
QUESTIONS = [
    {"guid": "mrc-0", "question": "언제 섰나?", "is_impossible": False, "question_type": 1,
     "answers": [{"text": "1998년", "answer_start": 6}]},
    {"guid": "mrc-1", "question": "누가 세웠나?", "is_impossible": True, "question_type": 3, "answers": [],
     "plausible_answers": [{"text": "서울", "answer_start": 12}]},
]  # fmt: skip
ROWS = {
    "ynat": [
        {"guid": "ynat-0", "title": "새 전화기 나온다", "label": "IT과학"},
        {"guid": "ynat-1", "title": "내일 비", "label": "사회"},
    ],
    "sts": [{"guid": "sts-0", "sentence1": "비가 와요.", "sentence2": "비 오네요.", "labels": {"real-label": 4.2}}],
    "nli": [{"guid": "nli-0", "premise": "비가 온다.", "hypothesis": "맑다.", "gold_label": "contradiction"}],
    "re": [{
        "guid": "re-0", "sentence": SENTENCE, "label": "org:founded",
        "subject_entity": {"word": "가온전자", "start_idx": 0, "end_idx": 3, "type": "ORG"},
        "object_entity": {"word": "1998년", "start_idx": 6, "end_idx": 10, "type": "DAT"},
    }],
    "mrc": {"data": [{"title": "가온전자", "paragraphs": [{"context": SENTENCE, "qas": QUESTIONS}]}]},
    "wos": [{"guid": "wos-0", "domains": ["식당"], "dialogue": [
        {"role": "user", "text": "식당을 찾아요.", "state": []},
        {"role": "sys", "text": "어느 지역이요?"},
        {"role": "user", "text": "서울 중앙이요.", "state": ["식당-지역-서울 중앙"]},
    ]}],
}  # fmt: skip


@pytest.fixture
def put(tmp_path):
    """Write a file and return its path."""

    def write(content, name="file.data"):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def content_of(name):
    return {"ner": NER, "dp": DP}.get(name) or json.dumps(ROWS[name], ensure_ascii=False, indent=1)


def change_row(name, place, value):
    """Return the small file of a task with one value replaced, or removed if the value is ...; place is 0/labels/x."""
    document = deepcopy(ROWS[name])
    *steps, last = [int(step) if step.isdigit() else step for step in place.split("/")]
    target = document
    for step in steps:
        target = target[step]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return json.dumps(document)


def read_error(name, path):
    """Return the error of a reader after the path."""
    with pytest.raises(DataError) as caught:
        TASKS[name].read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


@pytest.mark.parametrize("name", TASKS)
def test_unreadable_files(name, put, tmp_path):
    for content in (b"", b" \n\n", gzip.compress(b"")):
        assert "is empty" in read_error(name, put(content))
    assert "is a folder" in read_error(name, tmp_path)
    assert "is missing" in read_error(name, tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    "encode",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.encode("cp949"),
        lambda text: text.encode("utf-16"),
        lambda text: text.rstrip("\n").encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text.encode("utf-8-sig")),
    ],
    ids=["CRLF", "byte-order mark", "cp949", "utf-16", "no last line end", "gzipped", "gzipped with mark"],
)
@pytest.mark.parametrize("name", TASKS)
def test_other_encodings_and_line_ends_give_the_same_examples(name, encode, put):
    text = content_of(name)
    examples = TASKS[name].read(put(text))
    assert examples
    assert examples == TASKS[name].read(put(encode(text), "other")) == TASKS[name].read(put(encode(text), "other.gz"))


def test_undecodable_line_is_named(put):
    content = NER.encode().replace("자".encode(), "자".encode("cp949"))
    for mark in (b"", b"\xef\xbb\xbf"):
        assert read_error("ner", put(mark + content)).startswith(", line 6: not UTF-8")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nli", "{}", "should be a JSON list"),
        ("nli", "[]", "contains no examples"),
        ("nli", "[3]", ", row 1: should be an object"),
        ("nli", "[", ", line 1: not valid JSON"),
        ("nli", "[" * 100_000, "not readable JSON"),
        ("nli", "[" + "9" * 5000 + "]", "not readable JSON"),
        ("ynat", content_of("ynat")[:60], ", line 5: not valid JSON"),
        ("mrc", "[]", "should be an object"),
        ("mrc", "{}", "field 'data' is missing"),
        ("mrc", '{"data": []}', "contains no examples"),
        ("ner", "## only a comment\n", "contains no examples"),
        ("ner", gzip.compress(NER.encode(), mtime=0)[:-9], "corrupted gzip"),
        *((name, json.dumps(ROWS[name] * 2), f": guid '{name}-0") for name in ("ynat", "sts", "nli", "re", "wos")),
        ("mrc", json.dumps({"data": ROWS["mrc"]["data"] * 2}), ": guid 'mrc-0' occurs more than once"),
        ("ner", NER * 2, ": guid 'ner-0' occurs more than once"),
        ("dp", DP + "\n" + DP, ": guid 'dp-0' occurs more than once"),
        ("ner", NER.replace("는\tO", "는 O"), ", line 4 (guid 'ner-0'): 1 tab-separated fields instead of 2"),
        ("ner", NER.replace("는\tO", "는\tO\tO"), ", line 4 (guid 'ner-0'): 3 tab-separated fields instead of 2"),
        ("ner", NER.replace("I-PS", "I-XX"), ", line 3 (guid 'ner-0'): tag: unknown label 'I-XX'"),
        ("ner", NER.replace("이\t", "이이\t"), ", line 3 (guid 'ner-0'): '이이' should be a single character"),
        ("ner", NER.replace("가\tO\n자\tO\n", ""), ", line 6 (guid 'ner-1'): the sentence has no lines"),
        ("ner", NER.split("\n", 1)[1], ", line 1: no sentence"),
        ("ner", NER.replace("이\tI-PS", ""), ", line 4: no sentence"),
        ("dp", DP.replace("\tNP+JX", ""), ", line 2 (guid 'dp-0'): 5 tab-separated fields instead of 6"),
        *(
            ("dp", DP.replace("\t3\tNP_OBJ", f"\t{head}\tNP_OBJ"), f", line 3 (guid 'dp-0'): head '{head}' is out of")
            for head in ("4", "-1", "٣")
        ),
        ("dp", DP.replace("NP_OBJ", "OBJ"), ", line 3 (guid 'dp-0'): DEPREL: unknown label 'OBJ'"),
        ("dp", DP.replace("2\t밥을", "1\t밥을"), ", line 3 (guid 'dp-0'): word number '1' should be 2"),
        ("dp", "## dp-0\t가자\n", ", line 1 (guid 'dp-0'): the sentence has no lines"),
    ],
)
def test_bad_files(name, content, message, put):
    assert message in read_error(name, put(content))


QA = "data/0/paragraphs/0/qas/0"


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("ynat", "1/label", "연예", ", row 2 (guid 'ynat-1'): field 'label': unknown label '연예'; known: 정치"),
        ("ynat", "0/label", ..., ", row 1 (guid 'ynat-0'): field 'label' is missing"),
        ("ynat", "0/label", 7, "should be a text, not 7"),
        ("ynat", "0/label", True, "should be a text, not True"),
        ("ynat", "0/guid", 5, ", row 1: field 'guid' should be a text, not 5"),
        ("ynat", "1/title", None, "should be a text, not None"),
        ("ynat", "1/title", "\ud800", "half a surrogate pair"),
        ("nli", "0/gold_label", "-", "field 'gold_label': unknown label '-'"),
        ("sts", "0/labels", 4.2, "field 'labels' should be an object"),
        ("sts", "0/labels/real-label", "4.2", ", labels: field 'real-label' should be a number"),
        ("sts", "0/labels/real-label", 5.1, "should be from 0 to 5"),
        ("sts", "0/labels/real-label", float("nan"), "should be a finite number"),
        ("sts", "0/labels/real-label", 10**400, "too large"),
        ("re", "0/label", "per:friend", "unknown label 'per:friend'"),
        ("re", "0/object_entity/type", "DT", ", object_entity: field 'type': unknown label 'DT'"),
        ("re", "0/object_entity/start_idx", 5, "the sentence has ' 1998년' at 5..10, not '1998년'"),
        ("re", "0/subject_entity/end_idx", 99, "at 0..99, not '가온전자'"),
        ("re", "0/subject_entity/start_idx", -1, "the sentence has '' at -1..3"),
        ("re", "0/subject_entity/start_idx", 10**4299, "the sentence has ''"),
        (
            "mrc",
            f"{QA}/answers/0/answer_start",
            7,
            ", data 1, paragraphs 1, qas 1 (guid 'mrc-0'), answers 1: the answer",
        ),
        ("mrc", f"{QA}/answers/0/text", "1999년", "not in its context at 6"),
        ("mrc", f"{QA}/answers/0/text", "", "not in its context"),
        ("mrc", f"{QA}/answers/0/answer_start", "6", "should be a whole number"),
        ("mrc", f"{QA}/answers", [], "no answers although"),
        ("mrc", f"{QA}/is_impossible", 0, "should be true or false"),
        *(("mrc", f"{QA}/question_type", value, "should be 1, 2, 3 or null") for value in (4, [1], 1.0)),
        ("mrc", "data/0/paragraphs", None, ", data 1: field 'paragraphs' should be a list"),
        ("wos", "0/dialogue/2/role", "sys", ", row 1 (guid 'wos-0'), dialogue 3: role 'sys'"),
        ("wos", "0/dialogue/1", ..., "dialogue 2: role 'user': turns should alternate"),
        ("wos", "0/dialogue/2/state", ["식당-맛-좋음"], "unknown slot '식당-맛'"),
        ("wos", "0/dialogue/2/state", ["식당-지역"], "should look like domain-slot-value"),
        ("wos", "0/dialogue/2/state", [3], "should be a list of texts"),
        ("wos", "0/dialogue/2/state", ..., "field 'state' is missing"),
        ("wos", "0/dialogue", [], "has no turns"),
        ("wos", "0/domains", "식당", "should be a list"),
    ],
)
def test_bad_fields(name, place, value, message, put):
    assert message in read_error(name, put(change_row(name, place, value)))


def test_gold_tags_and_trees_need_not_be_well_formed(put):
    path = put(NER.replace("솔\tB-PS", "솔\tO").replace("자\tO", "자\tI-LC"))
    assert [example.gold for example in TASKS["ner"].read(path)] == [("O", "I-PS", "O"), ("O", "I-LC")]
    path = put(DP.replace("\t3\tNP_SBJ", "\t1\tNP_SBJ").replace("\t3\tNP_OBJ", "\t0\tNP_OBJ"))
    assert TASKS["dp"].read(path)[0].gold == ((1, "NP_SBJ"), (0, "NP_OBJ"), (0, "VP"))


def test_comments_blank_lines_and_characters_that_look_like_marks(put):
    (example,) = TASKS["ner"].read(put("## 칼럼 : 글자\n## ner-0\t# 하나\n#\tB-OG\n \tI-OG\n하\tO\n\u2028\tO\n👍\tO\n"))
    assert (example.text, example.gold) == ("# 하\u2028👍", ("B-OG", "I-OG", "O", "O", "O"))
    (example,) = TASKS["dp"].read(put("## 토큰 구분자 : \\n\n## 칼럼명 : INDEX\tWORD_FORM\n\n\n" + DP + "\n\n"))
    assert example.words == ("나는", "밥을", "먹는다.")
    assert example.gold == ((3, "NP_SBJ"), (3, "NP_OBJ"), (0, "VP"))


@pytest.mark.parametrize("value", [None, ...])
def test_unknown_question_type(value, put):
    assert TASKS["mrc"].read(put(change_row("mrc", f"{QA}/question_type", value)))[0].question_type is None


def test_passage_and_answers_are_stripped(put):
    document = deepcopy(ROWS["mrc"])
    paragraph = document["data"][0]["paragraphs"][0]
    paragraph["context"] = f"\n {SENTENCE} \n"
    answers = {" 가온전자": 1, "1998년 ": 8, "설립됐다. \n": 19}
    paragraph["qas"][0]["answers"] = [{"text": text, "answer_start": start} for text, start in answers.items()]
    answered, impossible = TASKS["mrc"].read(put(json.dumps(document)))
    assert answered.gold == ("가온전자", "1998년", "설립됐다.")
    spans = zip(answered.starts, answered.gold, strict=True)
    assert tuple(answered.text[start : start + len(text)] for start, text in spans) == answered.gold
    assert impossible.gold == impossible.starts == ()


def test_empty_state_and_value_with_hyphens(put):
    state = ["식당-이름-가온-본점", "식당-이름-", "식당-지역-서울 중앙"]
    first, second = TASKS["wos"].read(put(change_row("wos", "0/dialogue/2/state", state)))
    assert (first.guid, first.gold, first.turns) == ("wos-0-0", (), ("식당을 찾아요.",))
    assert (second.guid, second.gold, second.dialogue) == ("wos-0-1", tuple(state), "wos-0")
