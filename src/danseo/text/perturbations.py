"""Change texts as writers do (spaces, typos, slang, spellings, endings), with the new place of every span."""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from unicodedata import normalize

Span = tuple[int, int]
"""Start and end (exclusive)."""


class Edit(NamedTuple):
    """A part of a text, and what replaces it; an empty part is an insertion."""

    start: int
    end: int
    new: str


class ChangedText(NamedTuple):
    """A changed text, and the places of the original characters in it."""

    text: str
    starts: Sequence[int]
    """New start of each original character."""
    ends: Sequence[int]
    """New end of each original character."""

    def map_span(self, span: Span) -> Span:
        """Return the place of an original span; empty if all of it was deleted."""
        start, end = span
        return (self.starts[start], self.ends[end - 1]) if start < end else (self.starts[start], self.starts[start])


Perturb = Callable[[str, random.Random], list[Edit]]
Change = Callable[[str, Sequence[Span]], ChangedText]
"""Change a text without edits across the borders of these spans."""


def apply_edits(text: str, edits: Iterable[Edit], spans: Sequence[Span] = ()) -> ChangedText:
    """Apply edits in order; leave out those across the border of a span, and insertions of symbols inside of one."""
    parts, starts, ends, done, length = list[str](), list[int](), list[int](), 0, 0
    for edit in edits:
        if any(_is_forbidden(edit, span) for span in spans):
            continue
        same = edit.start - done
        starts += range(length, length + same)
        ends += range(length + 1, length + same + 1)
        length += same
        parts += [text[done : edit.start], edit.new]
        starts += [length] * (edit.end - edit.start)
        length += len(edit.new)
        ends += [length] * (edit.end - edit.start)
        done = edit.end
    starts += range(length, length + len(text) - done + 1)  # with the end of the text
    ends += range(length + 1, length + len(text) - done + 1)
    return ChangedText("".join([*parts, text[done:]]), starts, ends)


def _is_forbidden(edit: Edit, span: Span) -> bool:
    if edit.start == edit.end:
        return span[0] < edit.start < span[1] and bool(edit.new.strip())
    return any(edit.start < border < edit.end for border in span)


# Spaces and composition


def remove_spaces(text: str, rng: random.Random) -> list[Edit]:
    """Remove all spaces."""
    return [Edit(k, k + 1, "") for k, character in enumerate(text) if character == " "]


def misplace_spaces(text: str, rng: random.Random) -> list[Edit]:
    """Remove three of ten spaces, and put one between one of ten pairs of syllables."""
    edits = []
    for k, character in enumerate(text):
        if character == " " and rng.random() < 0.3:
            edits.append(Edit(k, k + 1, ""))
        elif k and _is_syllable(character) and _is_syllable(text[k - 1]) and rng.random() < 0.1:
            edits.append(Edit(k, k, " "))
    return edits


def decompose(text: str, rng: random.Random) -> list[Edit]:
    """Write syllables as conjoining jamo (NFD), as files from macOS have them."""
    return [Edit(k, k + 1, new) for k, each in enumerate(text) if (new := normalize("NFD", each)) != each]


def _is_syllable(character: str) -> bool:
    return "가" <= character <= "힣"


# The two-set keyboard

_LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_TAILS = " ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
_ROWS = ("ㅂㅈㄷㄱㅅ", "ㅛㅕㅑㅐㅔ", "ㅁㄴㅇㄹㅎ", "ㅗㅓㅏㅣ", "ㅋㅌㅊㅍ", "ㅠㅜㅡ")
_SHIFTED = dict(zip("ㅃㅉㄸㄲㅆㅒㅖ", "ㅂㅈㄷㄱㅅㅐㅔ", strict=True))
_NEIGHBOURS = {
    key: [row[k] for k in (place - 1, place + 1) if 0 <= k < len(row)] for row in _ROWS for place, key in enumerate(row)
}
_TYPO_RATE = 0.06  # of the syllables


def mistype(text: str, rng: random.Random) -> list[Edit]:
    """Mistype one of sixteen syllables, at least one: a neighbouring key, no shift, or two keys in the wrong order."""
    places = [k for k, character in enumerate(text) if _is_syllable(character)]
    chosen = rng.sample(places, min(len(places), max(1, round(_TYPO_RATE * len(places)))))
    return [Edit(k, k + 1, _mistype_syllable(text[k], rng)) for k in sorted(chosen)]


def split_syllable(syllable: str) -> tuple[str, str, str]:
    """Return lead, vowel and tail of a syllable; a tail of " " is none."""
    number = ord(syllable) - ord("가")
    return _LEADS[number // 588], _VOWELS[number // 28 % 21], _TAILS[number % 28]


def join_syllable(lead: str, vowel: str, tail: str = " ") -> str:
    """Return the syllable of these letters."""
    return chr(ord("가") + (_LEADS.index(lead) * 21 + _VOWELS.index(vowel)) * 28 + _TAILS.index(tail))


def _mistype_syllable(syllable: str, rng: random.Random) -> str:
    letters = split_syllable(syllable)
    keys = [k for k, letter in enumerate(letters) if letter in _NEIGHBOURS or letter in _SHIFTED]
    if letters[2] == " " and (not keys or rng.random() < 0.2):
        return letters[1] + letters[0]  # 하 becomes ㅏㅎ
    if not keys:
        return letters[0] + letters[1]  # the tail is missed, and nothing composes
    place = rng.choice(keys)
    old = letters[place]
    new = [*letters]
    new[place] = _SHIFTED[old] if old in _SHIFTED else rng.choice(_NEIGHBOURS[old])
    return join_syllable(*new)


# Slang, emoji and punctuation

_SLANG = {
    "감사": "ㄱㅅ",
    "인정": "ㅇㅈ",
    "축하": "ㅊㅋ",
    "죄송": "ㅈㅅ",
    "진짜": "ㄹㅇ",
    "정말": "ㄹㅇ",
    "빨리": "ㅃㄹ",
    "어디": "ㅇㄷ",
    "기대": "ㄱㄷ",
}
_LAUGHS = ("ㅋㅋ", "ㅋㅋㅋㅋ", "ㅎㅎ", "ㅠㅠ", "ㅜㅜ", "ㄷㄷ")
_EMOJI = ("😀", "😂", "😭", "👍", "🔥", "❤️", "🙏", "🎉")
_MARKS: Mapping[str, tuple[str, ...]] = {
    ".": ("", "!", "..."),
    "?": ("??", "", "?!"),
    "!": ("!!", ".", ""),
    ",": ("", "·", " ,"),
    "…": ("...", "..", " "),
    "·": (", ", "/", "ㆍ"),
    "~": ("-", "∼"),
    **dict.fromkeys("\"“”'‘’", ("", '"', "'", "`")),
    **dict.fromkeys("()", ("", "|")),
}


def add_slang(text: str, rng: random.Random) -> list[Edit]:
    """Write words by their first letters (감사: ㄱㅅ), and laugh or cry at the end."""
    words = _replace_words(text, _SLANG, unless_before="인어원관")  # 감사원 and 감사관 audit
    return [*words, Edit(len(text), len(text), rng.choice(("", " ")) + rng.choice(_LAUGHS))]


def add_emoji(text: str, rng: random.Random) -> list[Edit]:
    """Put an emoji at the end, and after one of six words."""
    gaps = [match.start() for match in re.finditer(r"(?<=\S) ", text) if rng.random() < 1 / 6]
    return [Edit(k, k, rng.choice(_EMOJI)) for k in (*gaps, len(text))]


def change_punctuation(text: str, rng: random.Random) -> list[Edit]:
    """Replace or leave out half of the marks, but not inside of numbers; end with a mark if there was none."""
    edits = []
    for k, mark in enumerate(text):
        is_number = text[k - 1 : k].isdigit() and text[k + 1 : k + 2].isdigit()
        if mark in _MARKS and not is_number and rng.random() < 0.5:
            edits.append(Edit(k, k + 1, rng.choice([new for new in _MARKS[mark] if new != mark])))
    if text[-1:].isalnum():
        edits.append(Edit(len(text), len(text), rng.choice((".", "!", "...", "~"))))
    return edits


# Spellings

_LATIN = (
    "구글 Google|애플 Apple|삼성 Samsung|네이버 Naver|카카오 Kakao|페이스북 Facebook|트위터 Twitter|"
    "유튜브 YouTube|아이폰 iPhone|갤럭시 Galaxy|트럼프 Trump|오바마 Obama|푸틴 Putin|아베 Abe|미국 USA|"
    "한국 Korea|일본 Japan|중국 China|영국 UK|러시아 Russia|유럽 Europe|서울 Seoul|부산 Busan|이란 Iran|"
    "시리아 Syria|이스라엘 Israel|터키 Turkey|서비스 service|뉴스 news|게임 game|인터넷 internet|"
    "스마트폰 smartphone|디지털 digital|온라인 online|모바일 mobile|컴퓨터 computer|프로그램 program|"
    "시스템 system|데이터 data|클라우드 cloud|로봇 robot|드론 drone|카메라 camera|월드컵 World Cup|"
    "올림픽 Olympic|리그 league|골프 golf|홈런 homerun|테러 terror|미사일 missile|버스 bus|택시 taxi|호텔 hotel|"
    "카페 cafe|아파트 apartment|콘서트 concert|드라마 drama|앨범 album|센터 center|포럼 forum|펀드 fund"
)
_HANJA = (
    "미국 美|중국 中|일본 日|한국 韓|북한 北|영국 英|프랑스 佛|독일 獨|러시아 露|대통령 大統領|총리 總理|"
    "장관 長官|정부 政府|국회 國會|여당 與黨|야당 野黨|선거 選擧|외교 外交|국방 國防|경제 經濟|사회 社會|"
    "문화 文化|과학 科學|기술 技術|교육 敎育|역사 歷史|세계 世界|국민 國民|시민 市民|여성 女性|남성 男性|"
    "학생 學生|학교 學校|대학 大學|병원 病院|은행 銀行|기업 企業|회장 會長|사장 社長|경찰 警察|검찰 檢察|"
    "법원 法院|재판 裁判|전쟁 戰爭|평화 平和|민주 民主|자유 自由|연구 硏究|우승 優勝|감독 監督|축구 蹴球|"
    "야구 野球|농구 籠球|승리 勝利|무역 貿易|증시 證市|금리 金利|부동산 不動産|관광 觀光|여행 旅行"
)


def _read_words(text: str) -> dict[str, str]:
    return {word: new for word, _, new in (pair.partition(" ") for pair in text.split("|"))}


_LATIN_WORDS, _HANJA_WORDS = _read_words(_LATIN), _read_words(_HANJA)


def _replace_words(text: str, words: Mapping[str, str], unless_before: str = "인어") -> list[Edit]:
    """Replace these words where they begin a word of the text, but not before these syllables (한국인, 한국어)."""
    found = re.finditer(rf"(?<![가-힣])({'|'.join(sorted(words, key=len, reverse=True))})(?![{unless_before}])", text)
    return [Edit(match.start(), match.end(), words[match[0]]) for match in found]


def spell_latin(text: str, rng: random.Random) -> list[Edit]:
    """Write frequent names and loanwords in Latin letters (구글: Google)."""
    return _replace_words(text, _LATIN_WORDS)


def spell_hanja(text: str, rng: random.Random) -> list[Edit]:
    """Write frequent Sino-Korean words in Hanja, as headlines do (미국: 美)."""
    return _replace_words(text, _HANJA_WORDS)


# Endings of politeness

_LAST_WORD = re.compile(r"[가-힣]+(?=[.!?…]|[\"'”’)]*$)")
_FIXED = {
    "합니다": ("해요",),
    "됩니다": ("된다", "돼요"),
    "입니다": ("이다", "이에요"),
    "아닙니다": ("아니다", "아니에요"),
    "해요": ("합니다",),
    "돼요": ("됩니다", "된다"),
    "이에요": ("입니다", "이다"),
    "하세요": ("하십시오", "해라"),
    "주세요": ("주십시오", "줘"),
    "아니다": ("아닙니다", "아니에요"),
    "이다": ("입니다", "이에요"),
    "하다": ("합니다", "해요"),
}


def change_endings(text: str, rng: random.Random) -> list[Edit]:
    """Change the level of politeness of final endings (했다: 했습니다, 했어요)."""
    edits = []
    for match in _LAST_WORD.finditer(text):
        if found := _find_endings(match[0]):
            old, new = found
            edits.append(Edit(match.end() - len(old), match.end(), rng.choice(new)))
    return edits


def _find_endings(word: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the ending of a word and endings of other politeness; None if it has none."""
    for old, new in _FIXED.items():
        if word.endswith(old) and (len(word) > len(old) or len(old) > 2):
            return old, new
    for old, new in (("습니다", ("다", "어요")), ("어요", ("다", "습니다")), ("다", ("습니다", "어요"))):
        stem = word.removesuffix(old)
        if stem and stem != word and split_syllable(stem[-1])[2] in "ㅆㅄ":
            return old, new  # 했다, 있다, 없다
    if word.endswith("는다") and len(word) > 2 and split_syllable(word[-3])[2] != " ":
        return "는다", ("습니다",)  # 먹는다
    if word.endswith("다") and len(word) > 1 and split_syllable(word[-2])[2] == "ㄴ":
        return word[-2:], (join_syllable(*split_syllable(word[-2])[:2], "ㅂ") + "니다",)  # 간다: 갑니다
    return None


def change_spans(text: str, spans: Sequence[Span], change: Change) -> tuple[str, list[Span]]:
    """Return the changed text and the places of its spans; nothing is changed if a span would be empty."""
    changed = change(text, spans)
    mapped = [changed.map_span(span) for span in spans]
    return (changed.text, mapped) if all(start < end for start, end in mapped) else (text, list(spans))


PERTURBATIONS: dict[str, Perturb] = {
    "no_spaces": remove_spaces,
    "wrong_spaces": misplace_spaces,
    "nfd": decompose,
    "typos": mistype,
    "slang": add_slang,
    "latin": spell_latin,
    "hanja": spell_hanja,
    "punctuation": change_punctuation,
    "emoji": add_emoji,
    "endings": change_endings,
}
WITHIN_WORDS = ("nfd", "typos", "latin", "hanja", "punctuation", "endings")
"""Perturbations that mostly keep the words between spaces apart."""


def make_change(name: str, seed: str) -> Change:
    """Return the function that changes the texts of one example by a perturbation."""
    perturb, rng = PERTURBATIONS[name], random.Random(f"{seed} {name}")

    def change(text: str, spans: Sequence[Span]) -> ChangedText:
        changed = apply_edits(text, perturb(text, rng), spans)
        return changed if changed.text.strip() else apply_edits(text, ())

    return change
