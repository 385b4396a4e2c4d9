"""What labels mean, in Korean words, for those who are asked to choose one."""

from danseo.tasks.task import Task

_MEANINGS: dict[str, dict[str, str]] = {
    "ynat": {
        "정치": "정부, 국회, 정당, 외교, 북한",
        "경제": "기업, 금융, 시장, 부동산",
        "사회": "사건, 교육, 노동, 지역 소식",
        "생활문화": "날씨, 건강, 여행, 책, 공연",
        "세계": "다른 나라의 일",
        "IT과학": "정보 기술, 통신, 과학, 게임",
        "스포츠": "경기와 선수",
    },
    "nli": {
        "entailment": "전제가 참이면 가설도 참이다 (함의)",
        "contradiction": "전제가 참이면 가설은 거짓이다 (모순)",
        "neutral": "전제만으로는 가설이 참인지 알 수 없다 (중립)",
    },
    "ner": {
        "PS": "인물 (사람 이름)",
        "LC": "지역 (나라, 도시, 산, 강 등의 이름)",
        "OG": "기관 (회사, 단체, 정부 기관 등의 이름)",
        "DT": "날짜 (연도, 월, 일, 요일, 기간)",
        "TI": "시간 (시각과 시간의 길이)",
        "QT": "수량 (나이, 금액, 횟수, 순위 등의 수)",
    },
    "re": {
        "no_relation": "관계 없음",
        "org:dissolved": "단체가 없어진 날짜",
        "org:founded": "단체가 세워진 날짜",
        "org:place_of_headquarters": "단체의 본부가 있는 곳",
        "org:alternate_names": "단체의 다른 이름",
        "org:member_of": "단체가 속한 더 큰 단체",
        "org:members": "단체에 속한 단체나 구성원",
        "org:political/religious_affiliation": "단체의 정치나 종교 성향",
        "org:product": "단체가 만든 제품이나 작품",
        "org:founded_by": "단체를 세운 사람이나 단체",
        "org:top_members/employees": "단체의 대표나 구성원인 사람",
        "org:number_of_employees/members": "단체의 구성원 수",
        "per:date_of_birth": "태어난 날짜",
        "per:date_of_death": "죽은 날짜",
        "per:place_of_birth": "태어난 곳",
        "per:place_of_death": "죽은 곳",
        "per:place_of_residence": "사는 곳",
        "per:origin": "출신이나 국적",
        "per:employee_of": "일하거나 속한 단체",
        "per:schools_attended": "다닌 학교",
        "per:alternate_names": "사람의 다른 이름",
        "per:parents": "부모",
        "per:children": "자녀",
        "per:siblings": "형제자매",
        "per:spouse": "배우자",
        "per:other_family": "그 밖의 가족",
        "per:colleagues": "함께 일하는 사람",
        "per:product": "사람이 만든 작품이나 제품",
        "per:religion": "종교",
        "per:title": "직책이나 직업",
    },
    "re types": {"PER": "인물", "ORG": "단체", "LOC": "장소", "DAT": "날짜", "POH": "그 밖의 고유명사", "NOH": "수"},
}
_PHRASES = {"NP": "체언구", "VP": "용언구", "VNP": "긍정 지정사구", "AP": "부사구", "DP": "관형사구", "IP": "감탄사구"}
_PHRASES |= {"X": "의사구", "L": "여는 부호", "R": "닫는 부호"}
_ROLES = {"SBJ": "주어", "OBJ": "목적어", "MOD": "관형어", "AJT": "부사어", "CMP": "보어", "CNJ": "접속어"}


def meaning(task: Task, label: str) -> str:
    """The label in Korean words; "" where none are known."""
    if task.name == "dp":
        phrase, _, role = label.partition("_")
        return " ".join(filter(None, (_PHRASES.get(phrase, ""), _ROLES.get(role, ""))))
    return _MEANINGS.get(task.name, {}).get(label, "")


def entity_type(name: str) -> str:
    """A type of an entity of a relation, in Korean words where there are some."""
    return _MEANINGS["re types"].get(name, name)


def listed(task: Task, labels: tuple[str, ...]) -> str:
    """A line per label with its meaning."""
    return "\n".join(f"- {label}: {words}" if (words := meaning(task, label)) else f"- {label}" for label in labels)
