"""Bad input is refused in one line that says where; legal but odd input is read."""

import gzip
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from danseo.errors import DataError
from danseo.files import content_sha256, quote, read_bytes, write_atomically
from danseo.tasks import TASKS

SENTENCE = "가온전자는 1998년 서울에서 설립됐다."
CONTEXT = "가온전자는 1998년 서울에서 설립됐다."
NER = "## ner-0\t<솔이:PS>는\n솔\tB-PS\n이\tI-PS\n는\tO\n\n## ner-1\t가자\n가\tO\n자\tO\n\n"
DP = (
    "## dp-0\t나는 밥을 먹는다.\n"
    "1\t나는\t나 는\tNP+JX\t3\tNP_SBJ\n"
    "2\t밥을\t밥 을\tNNG+JKO\t3\tNP_OBJ\n"
    "3\t먹는다.\t먹 는다 .\tVV+EF+SF\t0\tVP\n"
)
ROWS: dict[str, Any] = {
    "ynat": [
        {"guid": "ynat-0", "title": "새 전화기 나온다", "label": "IT과학"},
        {"guid": "ynat-1", "title": "내일 비", "label": "사회"},
    ],
    "sts": [{"guid": "sts-0", "sentence1": "비가 와요.", "sentence2": "비 오네요.", "labels": {"real-label": 4.2}}],
    "nli": [{"guid": "nli-0", "premise": "비가 온다.", "hypothesis": "맑다.", "gold_label": "contradiction"}],
    "re": [
        {
            "guid": "re-0",
            "sentence": SENTENCE,
            "subject_entity": {"word": "가온전자", "start_idx": 0, "end_idx": 3, "type": "ORG"},
            "object_entity": {"word": "1998년", "start_idx": 6, "end_idx": 10, "type": "DAT"},
            "label": "org:founded",
        }
    ],
    "mrc": {
        "data": [
            {
                "title": "가온전자",
                "paragraphs": [
                    {
                        "context": CONTEXT,
                        "qas": [
                            {
                                "guid": "mrc-0",
                                "question": "언제 섰나?",
                                "is_impossible": False,
                                "question_type": 1,
                                "answers": [{"text": "1998년", "answer_start": 6}],
                            },
                            {
                                "guid": "mrc-1",
                                "question": "누가 세웠나?",
                                "is_impossible": True,
                                "question_type": 3,
                                "answers": [],
                                "plausible_answers": [{"text": "서울", "answer_start": 12}],
                            },
                        ],
                    }
                ],
            }
        ]
    },
    "wos": [
        {
            "guid": "wos-0",
            "domains": ["식당"],
            "dialogue": [
                {"role": "user", "text": "식당을 찾아요.", "state": []},
                {"role": "sys", "text": "어느 지역이요?"},
                {"role": "user", "text": "서울 중앙이요.", "state": ["식당-지역-서울 중앙"]},
            ],
        }
    ],
}


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Write a file and give its path."""

    def write(content: str | bytes, name: str = "file.data") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def changed(name: str, place: str, value: Any) -> str:
    """The task's small file as JSON with one value replaced, or removed if the value is ...; place is 0/labels/x."""
    document = deepcopy(ROWS[name])
    *steps, last = [int(step) if step.isdigit() else step for step in place.split("/")]
    target = document
    for step in steps:
        target = target[step]
    if value is ...:
        del target[last]
    else:
        target[last] = value
    return json.dumps(document, ensure_ascii=False)


def refusal(name: str, path: Path) -> str:
    """What the reader says against a file, after its path."""
    with pytest.raises(DataError) as caught:
        TASKS[name].read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message.splitlines()) == 1
    return message.removeprefix(str(path))


def content_of(name: str) -> str:
    return {"ner": NER, "dp": DP}.get(name) or json.dumps(ROWS[name], ensure_ascii=False)


# Any task


@pytest.mark.parametrize("name", TASKS)
def test_the_small_files_read(name: str, put: Callable[..., Path]) -> None:
    assert TASKS[name].read(put(content_of(name)))


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("content", [b"", b" \n\n", gzip.compress(b"")], ids=["nothing", "blank", "packed nothing"])
def test_empty_file(name: str, content: bytes, put: Callable[..., Path]) -> None:
    assert refusal(name, put(content)) == " is empty; write or fetch it again"


@pytest.mark.parametrize("name", TASKS)
def test_folder_instead_of_a_file(name: str, tmp_path: Path) -> None:
    assert refusal(name, tmp_path) == " is a folder; name the file inside it"


@pytest.mark.parametrize("name", TASKS)
def test_missing_file(name: str, tmp_path: Path) -> None:
    assert refusal(name, tmp_path / "nowhere.json").startswith(" is missing; check the path")


def test_file_inside_a_file(put: Callable[..., Path]) -> None:
    assert " cannot be read: Not a directory" in refusal("nli", put("x") / "deeper.json")


def test_path_that_cannot_exist(tmp_path: Path) -> None:
    assert "cannot be read" in refusal("nli", tmp_path / "nul\0byte")


@pytest.mark.parametrize("name", TASKS)
def test_wrong_encoding(name: str, put: Callable[..., Path]) -> None:
    complaint = refusal(name, put(content_of(name).encode("cp949")))
    assert complaint.startswith(", line 1: not UTF-8 (byte ")
    assert "iconv -f CP949 -t UTF-8" in complaint


def test_wrong_encoding_further_down(put: Callable[..., Path]) -> None:
    content = NER.encode().replace("자".encode(), "자".encode("cp949"))
    assert refusal("ner", put(content)).startswith(", line 6: not UTF-8")
    assert refusal("ner", put(b"\xef\xbb\xbf" + content)).startswith(", line 6: not UTF-8")


def test_damaged_gzip(put: Callable[..., Path]) -> None:
    assert refusal("ner", put(gzip.compress(NER.encode())[:-9])) == " is a damaged gzip file; fetch it again"


@pytest.mark.parametrize("name", ["ynat", "mrc"])
def test_truncated_json(name: str, put: Callable[..., Path]) -> None:
    lines = json.dumps(ROWS[name], ensure_ascii=False, indent=1).split("\n")
    complaint = refusal(name, put("\n".join(lines[:6])))
    assert complaint.startswith((", line 6: not valid JSON", ", line 7: not valid JSON"))
    assert complaint.endswith("is the file cut off?")


def test_the_line_of_broken_json_whatever_the_path(put: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "line").mkdir()
    assert refusal("nli", put("[", "line/dev.json")).startswith(", line 1: not valid JSON")


def test_json_nested_too_deep_or_with_too_many_digits(put: Callable[..., Path]) -> None:
    assert ": not readable JSON" in refusal("nli", put("[" * 100_000))
    assert ": not readable JSON" in refusal("nli", put("[" + "9" * 5000 + "]"))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("nli", "{}", ": should be a JSON list of examples; is this the right file for the task?"),
        ("nli", "[]", " holds no examples; fetch it again"),
        ("nli", "[3]", ", row 1: should be an object with named fields, not 3"),
        ("mrc", "[]", ": should be an object with named fields, not []"),
        ("mrc", "{}", ": field 'data' is missing; is this the right file for the task?"),
        ("mrc", '{"data": []}', " holds no examples; fetch it again"),
        ("ner", "## only a comment\n", " holds no examples; fetch it again"),
    ],
)
def test_not_a_file_of_the_task(name: str, content: str, complaint: str, put: Callable[..., Path]) -> None:
    assert refusal(name, put(content)) == complaint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, json.dumps(ROWS[name] * 2)) for name in ("ynat", "sts", "nli", "re", "wos")),
        ("mrc", json.dumps({"data": ROWS["mrc"]["data"] * 2})),
        ("ner", NER * 2),
        ("dp", DP + "\n" + DP),
    ],
)
def test_repeated_guid(name: str, content: str, put: Callable[..., Path]) -> None:
    assert refusal(name, put(content)).startswith(f": guid '{name}-0")
    assert refusal(name, put(content)).endswith("occurs more than once; remove the repetition")


# Labels and fields


@pytest.mark.parametrize(
    ("name", "place", "value", "complaint"),
    [
        ("ynat", "1/label", "연예", ", row 2 (guid 'ynat-1'): field 'label': unknown label '연예'; known: 정치, 경제,"),
        ("ynat", "0/label", ..., ", row 1 (guid 'ynat-0'): field 'label' is missing; is this the right file"),
        ("ynat", "0/label", 7, ", row 1 (guid 'ynat-0'): field 'label' should be a text, not 7"),
        ("ynat", "0/label", True, ", row 1 (guid 'ynat-0'): field 'label' should be a text, not True"),
        ("ynat", "0/guid", 5, ", row 1: field 'guid' should be a text, not 5"),
        ("ynat", "1/title", None, ", row 2 (guid 'ynat-1'): field 'title' should be a text, not None"),
        ("ynat", "1/title", "\ud800", ", row 2 (guid 'ynat-1'): field 'title' holds half a surrogate pair"),
        (
            "nli",
            "0/gold_label",
            "-",
            ", row 1 (guid 'nli-0'): field 'gold_label': unknown label '-'; known: entailment",
        ),
        ("sts", "0/labels", 4.2, ", row 1 (guid 'sts-0'): field 'labels' should be an object, not 4.2"),
        ("sts", "0/labels/real-label", "4.2", ", row 1 (guid 'sts-0'), labels: field 'real-label' should be a number"),
        ("sts", "0/labels/real-label", 5.1, ", row 1 (guid 'sts-0'), labels: field 'real-label' should be from 0 to 5"),
        ("sts", "0/labels/real-label", float("nan"), ", row 1 (guid 'sts-0'), labels: field 'real-label' should be a"),
        ("sts", "0/labels/real-label", 10**400, ", row 1 (guid 'sts-0'), labels: field 'real-label' is too large"),
        ("re", "0/label", "per:friend", ", row 1 (guid 're-0'): field 'label': unknown label 'per:friend'; known: no_"),
        ("re", "0/object_entity/type", "DT", ", row 1 (guid 're-0'), object_entity: field 'type': unknown label 'DT'"),
        (
            "re",
            "0/object_entity/start_idx",
            5,
            ", row 1 (guid 're-0'), object_entity: the sentence has ' 1998년' at 5..10, not '1998년'; mend start_idx",
        ),
        (
            "re",
            "0/subject_entity/end_idx",
            99,
            f", row 1 (guid 're-0'), subject_entity: the sentence has '{SENTENCE}' at 0..99, not '가온전자'; mend",
        ),
        ("re", "0/subject_entity/start_idx", -1, ", row 1 (guid 're-0'), subject_entity: the sentence has '' at -1..3"),
        ("re", "0/subject_entity/start_idx", 10**4299, ", row 1 (guid 're-0'), subject_entity: the sentence has ''"),
    ],
)
def test_bad_field(name: str, place: str, value: Any, complaint: str, put: Callable[..., Path]) -> None:
    document = changed(name, place, value) if value != "\ud800" else changed(name, place, "@").replace("@", r"\ud800")
    assert refusal(name, put(document)).startswith(complaint)


# NER and DP


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (
            NER.replace("는\tO", "는 O"),
            ", line 4 (guid 'ner-0'): 1 tab-separated fields instead of 2; restore the line",
        ),
        (NER.replace("는\tO", "는\tO\tO"), ", line 4 (guid 'ner-0'): 3 tab-separated fields instead of 2"),
        (NER.replace("I-PS", "I-XX"), ", line 3 (guid 'ner-0'): unknown tag 'I-XX'; known: B-PS, I-PS,"),
        (NER.replace("이\t", "이이\t"), ", line 3 (guid 'ner-0'): '이이' should be a single character"),
        (NER.replace("가\tO\n자\tO\n", ""), ", line 6 (guid 'ner-1'): the sentence has no lines; restore them"),
        (NER.split("\n", 1)[1], ", line 1: a line outside any sentence; a `## guid<TAB>text` line is due"),
        (NER.replace("이\tI-PS", ""), ", line 4: a line outside any sentence"),
    ],
)
def test_bad_ner_line(content: str, complaint: str, put: Callable[..., Path]) -> None:
    assert refusal("ner", put(content)).startswith(complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (DP.replace("\tNP+JX", ""), ", line 2 (guid 'dp-0'): 5 tab-separated fields instead of 6; restore the line"),
        (DP.replace("\t3\tNP_OBJ", "\t4\tNP_OBJ"), ", line 3 (guid 'dp-0'): head '4' is out of range; it should be"),
        (DP.replace("\t3\tNP_OBJ", "\t-1\tNP_OBJ"), ", line 3 (guid 'dp-0'): head '-1' is out of range"),
        (DP.replace("\t3\tNP_OBJ", "\t٣\tNP_OBJ"), ", line 3 (guid 'dp-0'): head '٣' is out of range"),
        (DP.replace("NP_OBJ", "OBJ"), ", line 3 (guid 'dp-0'): DEPREL: unknown label 'OBJ'; known: NP,"),
        (DP.replace("2\t밥을", "1\t밥을"), ", line 3 (guid 'dp-0'): word number '1' should be 2; restore the missing"),
        ("## dp-0\t가자\n", ", line 1 (guid 'dp-0'): the sentence has no lines"),
    ],
)
def test_bad_dp_line(content: str, complaint: str, put: Callable[..., Path]) -> None:
    assert refusal("dp", put(content)).startswith(complaint)


# MRC

QAS = "data/0/paragraphs/0/qas"
ANSWER = ", data 1, paragraphs 1, qas 1 (guid 'mrc-0')"


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (
            f"{QAS}/0/answers/0/answer_start",
            7,
            f"{ANSWER}, answers 1: the answer '1998년' is not in its context at 7; mend text or answer_start",
        ),
        (f"{QAS}/0/answers/0/text", "1999년", f"{ANSWER}, answers 1: the answer '1999년' is not in its context at 6"),
        (f"{QAS}/0/answers/0/text", "", f"{ANSWER}, answers 1: the answer '' is not in its context"),
        (f"{QAS}/0/answers/0/answer_start", "6", f"{ANSWER}, answers 1: field 'answer_start' should be a whole number"),
        (f"{QAS}/0/answers", [], f"{ANSWER}: no answers although is_impossible is false"),
        (f"{QAS}/0/is_impossible", 0, f"{ANSWER}: field 'is_impossible' should be true or false, not 0"),
        (f"{QAS}/0/question_type", 4, f"{ANSWER}: question_type 4 should be 1, 2, 3 or null"),
        (f"{QAS}/0/question_type", [1], f"{ANSWER}: question_type [1] should be 1, 2, 3 or null"),
        (f"{QAS}/0/question_type", 1.0, f"{ANSWER}: question_type 1.0 should be 1, 2, 3 or null"),
        ("data/0/paragraphs", None, ", data 1: field 'paragraphs' should be a list, not None"),
    ],
)
def test_bad_question(place: str, value: Any, complaint: str, put: Callable[..., Path]) -> None:
    assert refusal("mrc", put(changed("mrc", place, value))).startswith(complaint)


# WoS

TURN = ", row 1 (guid 'wos-0'), dialogue 3"


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        ("0/dialogue/2/role", "sys", f"{TURN}: role 'sys': turns should alternate, the user first"),
        ("0/dialogue/1", ..., ", row 1 (guid 'wos-0'), dialogue 2: role 'user': turns should alternate"),
        ("0/dialogue/2/state", ["식당-맛-좋음"], f"{TURN}: unknown slot '식당-맛'; `danseo tasks wos` lists"),
        ("0/dialogue/2/state", ["식당-지역"], f"{TURN}: '식당-지역' should look like domain-slot-value"),
        ("0/dialogue/2/state", [3], f"{TURN}: field 'state' should be a list of texts, but holds 3"),
        ("0/dialogue/2/state", ..., f"{TURN}: field 'state' is missing"),
        ("0/dialogue", [], ", row 1 (guid 'wos-0'): the dialogue has no turns; restore or remove it"),
        ("0/domains", "식당", ", row 1 (guid 'wos-0'): field 'domains' should be a list, not '식당'"),
    ],
)
def test_bad_dialogue(place: str, value: Any, complaint: str, put: Callable[..., Path]) -> None:
    assert refusal("wos", put(changed("wos", place, value))).startswith(complaint)


# Legal but odd


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    "odd",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.rstrip("\n").encode(),
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text.encode("utf-8-sig")),
    ],
    ids=["CRLF", "byte-order mark", "no last line end", "gzipped", "gzipped with mark"],
)
def test_other_dress_same_examples(name: str, odd: Callable[[str], bytes], put: Callable[..., Path]) -> None:
    text = content_of(name) if name in ("ner", "dp") else json.dumps(ROWS[name], ensure_ascii=False, indent=2) + "\n"
    plain, dressed, packed = put(text), put(odd(text), "dressed"), put(odd(text), "dressed.gz")
    assert TASKS[name].read(plain) == TASKS[name].read(dressed) == TASKS[name].read(packed)


def test_a_packed_file_has_the_hash_of_its_content(put: Callable[..., Path]) -> None:
    assert content_sha256(put(NER)) == content_sha256(put(gzip.compress(NER.encode()), "packed"))
    assert read_bytes(put(gzip.compress(NER.encode()), "packed")) == NER.encode()


def test_gold_tags_need_not_be_well_formed(put: Callable[..., Path]) -> None:
    path = put(NER.replace("솔\tB-PS", "솔\tO").replace("자\tO", "자\tI-LC"))
    assert [example.gold for example in TASKS["ner"].read(path)] == [("O", "I-PS", "O"), ("O", "I-LC")]


def test_characters_that_look_like_marks(put: Callable[..., Path]) -> None:
    path = put("## 칼럼 : 글자\n## ner-0\t# 하나\n#\tB-OG\n \tI-OG\n하\tO\n\u2028\tO\n👍\tO\n")
    (example,) = TASKS["ner"].read(path)
    assert example.text == "# 하\u2028👍"
    assert example.gold == ("B-OG", "I-OG", "O", "O", "O")


def test_comments_and_blank_lines_between_sentences(put: Callable[..., Path]) -> None:
    path = put("## 토큰 구분자 : \\n\n## 칼럼명 : INDEX\tWORD_FORM\n\n\n" + DP + "\n\n")
    (example,) = TASKS["dp"].read(path)
    assert example.words == ("나는", "밥을", "먹는다.")
    assert example.gold == ((3, "NP_SBJ"), (3, "NP_OBJ"), (0, "VP"))


def test_gold_may_hold_self_loops_and_several_roots(put: Callable[..., Path]) -> None:
    path = put(DP.replace("\t3\tNP_SBJ", "\t1\tNP_SBJ").replace("\t3\tNP_OBJ", "\t0\tNP_OBJ"))
    assert TASKS["dp"].read(path)[0].gold == ((1, "NP_SBJ"), (0, "NP_OBJ"), (0, "VP"))


@pytest.mark.parametrize("value", [None, ...])
def test_unknown_question_type(value: Any, put: Callable[..., Path]) -> None:
    assert TASKS["mrc"].read(put(changed("mrc", f"{QAS}/0/question_type", value)))[0].question_type is None


def test_passage_and_answers_lose_their_margins(put: Callable[..., Path]) -> None:
    document = deepcopy(ROWS["mrc"])
    paragraph = document["data"][0]["paragraphs"][0]
    paragraph["context"] = f"\n {CONTEXT} \n"
    paragraph["qas"][0]["answers"] = [
        {"text": " 가온전자", "answer_start": 1},
        {"text": "1998년 ", "answer_start": 8},
        {"text": "설립됐다. \n", "answer_start": 19},
    ]
    answered, impossible = TASKS["mrc"].read(put(json.dumps(document)))
    assert answered.gold == ("가온전자", "1998년", "설립됐다.")
    assert [answered.text[s : s + len(t)] for s, t in zip(answered.starts, answered.gold, strict=True)] == [
        *answered.gold
    ]
    assert impossible.gold == impossible.starts == ()


def test_empty_state_and_value_with_hyphens(put: Callable[..., Path]) -> None:
    state = ["식당-이름-가온-본점", "식당-이름-", "식당-지역-서울 중앙"]
    first, second = TASKS["wos"].read(put(changed("wos", "0/dialogue/2/state", state)))
    assert (first.guid, first.gold, first.turns) == ("wos-0-0", (), ("식당을 찾아요.",))
    assert (second.guid, second.gold, second.dialogue) == ("wos-0-1", tuple(state), "wos-0")


# The tools


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("가\n나", r"'가\n나'"),
        ("\ud800", r"'\ud800'"),
        ("가" * 99, "'" + "가" * 58 + "…"),
    ],
)
def test_quote(value: object, shown: str) -> None:
    assert quote(value) == shown


def test_quote_of_an_endless_value() -> None:
    assert quote(10**5000) == "a number too large to show"
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert quote(nested) == "a list too large to show"
    while nested:
        nested = nested.pop()  # taken apart by hand: dropping it whole would go as deep


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_atomically(tmp_path / "new" / "file.txt", "단서")
    assert (tmp_path / "new" / "file.txt").read_text() == "단서"
    with pytest.raises(DataError, match="cannot be written"):
        write_atomically(tmp_path / "new" / "file.txt" / "deeper", "단서")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.txt"]
