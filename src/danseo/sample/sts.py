"""Sample sentence pairs for the similarity task: the nearer their meanings, the higher the scores."""

import random
from typing import Any, NamedTuple

from danseo.sample.templates import belongs, draw, fill, slots

_SIZES = {"train": 700, "dev": 140}

# Words of both splits | of train | of dev.
_WORDS = {
    "역": "서울역, 부산역, 홍대입구역 | 강남역, 동대구역, 수원역 | 용산역, 광주역, 해운대역",
    "분": "5, 10, 15 | 3, 8 | 7, 12",
    "가게": "편의점, 마트, 빵집 | 약국, 세탁소 | 전통시장, 카페",
    "공간": "욕실, 주방, 침실 | 거실, 화장실 | 현관, 베란다",
    "냄새": "곰팡이 냄새, 담배 냄새 | 음식 냄새, 페인트 냄새 | 하수구 냄새, 쓰레기 냄새",
    "선물": "간식, 커피, 과일 | 와인, 손 편지 | 수제 쿠키, 꽃다발",
    "시간": "10분, 30분, 한 시간 | 5분, 두 시간 | 15분, 세 시간",
    "인원": "세, 네 | 다섯, 여섯 | 일곱, 여덟",
    "가전": "에어컨, 세탁기 | 건조기, 텔레비전, 전자레인지 | 보일러, 냉장고, 전기밥솥",
    "소음": "자동차 소리, 공사 소음 | 오토바이 소리, 윗집 발소리 | 기차 소리, 옆방 말소리",
    "동네": "주택가, 강가 | 산자락, 골목 안쪽 | 숲속, 마을 끝",
    "대상": "청년 창업자, 저소득 노인 | 신혼부부, 등록 장애인 | 귀농인, 미취업 청년",
    "금액": "10만, 20만 | 15만, 30만 | 25만, 40만",
    "달": "3월, 9월 | 4월, 11월 | 7월, 10월",
    "학교": "초등학교, 중학교 | 고등학교 | 특수학교",
    "과목": "인공지능, 금융 | 코딩, 환경 | 인권, 경제",
    "설비": "공기청정기, 전자칠판 | 에어컨, 무선 인터넷 | 화재경보기, 환기 장치",
    "검진": "위암, 당뇨 | 폐암, 골밀도 | 간암, 치매",
    "나이": "40, 50 | 45, 60 | 55, 65",
    "질병": "독감, 폐렴 | 대상포진, 간염 | 홍역, 수두",
    "도시": "부산, 대전, 광주 | 수원, 전주, 창원 | 대구, 청주, 강릉",
    "해": "2027, 2030 | 2028, 2032 | 2029, 2035",
    "용품": "비닐봉지, 종이컵 | 플라스틱 빨대, 일회용 접시 | 일회용 수저, 나무젓가락",
    "장소": "카페, 음식점 | 장례식장, 편의점 | 야구장, 영화관",
    "만": "5, 10 | 8, 20 | 12, 30",
    "때": "오늘, 내일 | 모레, 이번 주말 | 내일 아침, 다음 주",
    "요일": "월요일, 금요일 | 화요일, 토요일 | 수요일, 목요일",
    "시각": "두 시, 세 시 | 한 시, 다섯 시 | 네 시, 여섯 시",
    "모임": "회의, 면접 | 병원 예약, 동창 모임 | 회식, 발표 연습",
    "사람": "팀장님, 민수 | 엄마, 지연이 | 교수님, 하준이",
    "용건": "휴가 안내, 약속 변경 | 감사 인사, 자료 요청 | 견적 문의, 축하 인사",
    "방": "거실, 안방 | 서재, 작은방 | 주방, 아이 방",
    "기기": "에어컨, 공기청정기 | 선풍기, 제습기 | 가습기, 텔레비전",
    "온도": "22, 24 | 20, 25 | 23, 26",
    "요리": "김치찌개, 파스타 | 불고기, 잡채 | 카레, 된장찌개",
}
# Frames of one line mean the same once filled alike, the last one is kept for dev;
# the lines of one aspect speak of the same thing.
_MEANINGS: dict[str, dict[str, tuple[tuple[str, ...], ...]]] = {
    "airbnb": {
        "위치": (
            (
                "숙소는 {역}에서 걸어서 {분}분 거리에 있어요.",
                "{역}에서 도보로 {분}분이면 숙소에 도착합니다.",
                "{역}에서 내려 {분}분만 걸으면 숙소가 나옵니다.",
                "숙소에서 {역}까지는 도보로 {분}분 정도 걸려요.",
            ),
            (
                "숙소 바로 옆에 {가게:이/가} 있어서 편했어요.",
                "{가게:이/가} 숙소 코앞이라 편리했습니다.",
                "{가게:이/가} 숙소와 붙어 있어 지내기 편했습니다.",
                "숙소를 나서면 바로 {가게:이/가} 있는 점이 좋았어요.",
            ),
        ),
        "청결": (
            (
                "{공간:이/가} 정말 깨끗했습니다.",
                "{공간:은/는} 아주 청결하게 관리되어 있었어요.",
                "{공간} 청소 상태가 무척 좋았습니다.",
                "{공간:은/는} 먼지 하나 없이 깔끔했어요.",
            ),
            (
                "{공간}에서 {냄새:이/가} 나서 불편했습니다.",
                "{공간}에 {냄새:이/가} 배어 있어 지내기 힘들었어요.",
                "{공간}에서 나는 {냄새} 때문에 괴로웠습니다.",
                "{공간}의 {냄새:이/가} 심해서 불쾌했어요.",
            ),
        ),
        "호스트": (
            (
                "호스트가 {선물:을/를} 준비해 주셨어요.",
                "호스트께서 {선물:을/를} 챙겨 주셔서 감동했습니다.",
                "도착하니 호스트가 마련해 둔 {선물:이/가} 있었습니다.",
                "호스트의 배려로 {선물:을/를} 받았어요.",
            ),
            (
                "호스트는 {시간} 안에 답장을 보내 주었습니다.",
                "문의를 남기면 {시간} 안에 호스트의 답이 왔어요.",
                "호스트에게 연락하니 {시간} 만에 회신을 받았습니다.",
                "호스트의 답변을 받기까지 {시간}도 걸리지 않았어요.",
            ),
        ),
        "시설": (
            (
                "{인원} 명이 지내기에 충분히 넓은 숙소였습니다.",
                "방이 넓어서 {인원} 명이 함께 머물기에 넉넉했어요.",
                "{인원} 명이 묵었는데도 공간이 여유로웠습니다.",
                "일행 {인원} 명이 쓰기에 넉넉한 크기의 숙소였어요.",
            ),
            (
                "{가전:이/가} 고장 나서 사용할 수 없었습니다.",
                "{가전:이/가} 작동하지 않아 쓰지 못했어요.",
                "머무는 동안 {가전:이/가} 고장 나 있어 아쉬웠습니다.",
                "{가전:을/를} 켜 봤지만 작동하지 않았습니다.",
            ),
        ),
        "소음": (
            (
                "밤에 {소음} 때문에 잠을 설쳤습니다.",
                "{소음:이/가} 들려서 밤새 제대로 못 잤어요.",
                "밤새 들리는 {소음} 탓에 깊이 잠들지 못했습니다.",
                "{소음:이/가} 심해 밤잠을 이루기 어려웠어요.",
            ),
            (
                "숙소가 {동네}에 있어 아주 조용했습니다.",
                "{동네}에 자리한 덕분에 소음 없이 푹 쉬었어요.",
                "숙소 위치가 {동네:이라/라} 주변이 고요했습니다.",
                "{동네}에 있는 숙소라서 시끄럽지 않았어요.",
            ),
        ),
    },
    "policy": {
        "지원": (
            (
                "정부는 {대상}에게 매달 {금액} 원을 지원한다.",
                "{대상:은/는} 정부에서 월 {금액} 원의 지원금을 받는다.",
                "정부 예산으로 {대상}에게 월 {금액} 원의 보조금이 지급된다.",
                "정부가 {대상}에게 주는 지원금은 한 달에 {금액} 원이다.",
            ),
            (
                "{대상} 지원 사업은 {달}부터 신청할 수 있다.",
                "{달}부터 {대상} 지원 사업의 신청을 받는다.",
                "{대상} 지원 사업 접수가 {달}에 시작된다.",
                "{대상:을/를} 위한 지원 사업은 {달}에 접수를 시작한다.",
            ),
        ),
        "교육": (
            (
                "내년부터 모든 {학교}에서 {과목} 과목을 가르친다.",
                "{과목} 수업이 내년부터 전국 {학교}에 도입된다.",
                "전국의 {학교:은/는} 내년부터 {과목} 교육을 시작한다.",
                "내년이면 전국 {학교} 학생들이 {과목} 수업을 듣게 된다.",
            ),
            (
                "교육부는 {학교} 교실마다 {설비:을/를} 설치하기로 했다.",
                "모든 {학교} 교실에 {설비:이/가} 설치된다고 교육부가 밝혔다.",
                "교육부 계획에 따라 {학교} 교실에는 빠짐없이 {설비:이/가} 들어선다.",
                "교육부가 {학교}의 모든 교실에 {설비:을/를} 놓기로 결정했다.",
            ),
        ),
        "건강": (
            (
                "{나이}세 이상이면 누구나 {검진} 검사를 무료로 받을 수 있다.",
                "{검진} 검사 비용은 {나이}세부터 전액 지원된다.",
                "만 {나이}세 이상 국민에게는 {검진} 검사를 무료로 제공한다.",
                "{나이}세 이상 국민의 {검진} 검사비를 나라에서 모두 부담한다.",
            ),
            (
                "{질병} 예방 접종은 {달}부터 보건소에서 받을 수 있다.",
                "보건소는 {달}부터 {질병} 예방 접종을 시작한다.",
                "{달}이 되면 보건소에서 {질병} 백신을 맞을 수 있다.",
                "{질병} 백신 접종이 {달}부터 전국 보건소에서 이루어진다.",
            ),
        ),
        "교통": (
            (
                "{도시}에 {달}부터 심야 버스가 다닌다.",
                "{도시}시는 {달}부터 심야 버스를 운행하기로 했다.",
                "{달}부터 {도시} 시민은 심야 버스를 이용할 수 있다.",
                "{도시}의 심야 버스 운행이 {달}에 시작된다.",
            ),
            (
                "{도시:과/와} {도시2:을/를} 잇는 철도가 {해}년에 개통된다.",
                "{해}년이면 {도시}에서 {도시2}까지 철도로 오갈 수 있다.",
                "정부는 {해}년에 {도시:과/와} {도시2} 사이의 철도를 개통할 계획이다.",
                "{도시}-{도시2} 구간 철도의 개통 시기는 {해}년으로 정해졌다.",
            ),
        ),
        "환경": (
            (
                "앞으로 {장소}에서는 {용품} 사용이 금지된다.",
                "{장소}에서 더 이상 {용품:을/를} 쓸 수 없게 된다.",
                "환경부는 {장소} 안에서 {용품:을/를} 쓰지 못하게 하기로 했다.",
                "앞으로 {장소:은/는} 손님에게 {용품:을/를} 내줄 수 없다.",
            ),
            (
                "전기차 충전소가 {해}년까지 {만}만 곳으로 늘어난다.",
                "정부는 {해}년까지 전기차 충전소를 {만}만 곳으로 확대한다.",
                "{해}년에는 전국의 전기차 충전소가 {만}만 곳에 이르게 된다.",
                "{해}년까지 전기차 충전소 {만}만 곳을 갖추는 것이 정부의 목표다.",
            ),
        ),
    },
    "paraKQC": {
        "날씨": (
            (
                "{때} {도시} 날씨 알려 줘.",
                "{때} {도시} 날씨가 어떤지 말해 줄래?",
                "{도시}의 {때} 날씨 좀 확인해 줘.",
                "{때} {도시} 날씨는 어때?",
            ),
            (
                "{때} {도시}에 비가 올까?",
                "{도시}에 {때} 비 소식이 있는지 알려 줘.",
                "{때} {도시}에 비 예보가 있는지 확인해 줘.",
                "{때} {도시}에 비가 오는지 궁금해.",
            ),
        ),
        "일정": (
            (
                "{요일} {시각}에 {모임} 일정 등록해 줘.",
                "{모임} 일정을 {요일} {시각}로 잡아 줄래?",
                "달력에 {요일} {시각} {모임} 추가해 줘.",
                "{요일} {시각}에 {모임:이/가} 있으니 일정에 넣어 줘.",
            ),
            (
                "{요일} {모임} 일정을 취소해 줘.",
                "{요일}에 잡힌 {모임:을/를} 없애 줄래?",
                "{모임:은/는} {요일} 일정에서 지워 줘.",
                "달력에서 {요일} {모임} 일정 삭제해 줘.",
            ),
        ),
        "메일": (
            (
                "{사람}한테서 온 메일 읽어 줘.",
                "{사람:이/가} 보낸 메일 좀 읽어 줄래?",
                "{사람} 메일 온 거 있으면 소리 내어 읽어 줘.",
                "받은 메일 가운데 {사람:이/가} 보낸 것을 읽어 줘.",
            ),
            (
                "{사람}한테 {용건} 메일 보내 줘.",
                "{용건} 메일을 써서 {사람}한테 보내 줄래?",
                "{사람} 앞으로 {용건} 메일 한 통 부쳐 줘.",
                "{사람}한테 보낼 {용건} 메일을 작성해서 발송해 줘.",
            ),
        ),
        "집": (
            (
                "{방} {기기} 좀 켜 줘.",
                "{방}에 있는 {기기:을/를} 틀어 줄래?",
                "{기기:을/를} 켜 줬으면 좋겠어, {방}에 있는 걸로.",
                "{방}에서 {기기:을/를} 쓰게 전원 켜 줘.",
            ),
            (
                "{방} 온도를 {온도}도로 맞춰 줘.",
                "{방:이/가} {온도}도가 되게 온도 조절해 줄래?",
                "{방} 실내 온도 {온도}도로 설정해 줘.",
                "{온도}도로 {방} 온도를 바꿔 줘.",
            ),
        ),
        "요리": (
            (
                "{요리} 만드는 법 알려 줘.",
                "{요리:은/는} 어떻게 만들어?",
                "{요리} 조리법 좀 찾아봐 줄래?",
                "{요리:을/를} 만드는 순서를 가르쳐 줘.",
            ),
            (
                "{사람} 생일에 {요리:을/를} 하려는데 재료 좀 주문해 줘.",
                "{사람} 생일상에 올릴 {요리} 재료를 사 줄래?",
                "{요리} 재료를 시켜 줘, {사람} 생일에 쓸 거야.",
                "{사람} 생일에 만들 {요리} 재료를 장바구니에 담아 결제해 줘.",
            ),
        ),
    },
}
# What one sentence may say beyond the other without changing the main point.
_EXTRAS = {
    "airbnb": ("{} 예약하실 분들은 참고하세요.", "{} 도움이 되길 바랍니다.", "제 기억으로는 {}", "참고로 {}"),
    "policy": ("{} 문의는 전화로 받는다.", "{} 예산도 이미 확정됐다.", "보도에 따르면 {}", "예고한 대로 {}"),
    "paraKQC": ("{} 그리고 음악도 틀어 줘.", "{} 그리고 몇 시야?", "급해서 그런데 {}", "바빠서 그런데 {}"),
}


class _Kind(NamedTuple):
    share: int  # of a hundred pairs
    score: float  # what annotators give on average
    source: int  # 0 for round-trip translation and paraphrase, 1 for sampled sentences


_KINDS = {
    "paraphrase": _Kind(26, 4.8, 0),
    "extra": _Kind(18, 3.8, 0),
    "detail": _Kind(22, 2.4, 1),
    "aspect": _Kind(13, 1.4, 1),
    "domain": _Kind(11, 0.6, 1),
    "unrelated": _Kind(10, 0.1, 1),
}
_SOURCES = {
    "airbnb": ("airbnb-rtt", "airbnb-sampled"),
    "policy": ("policy-rtt", "policy-sampled"),
    "paraKQC": ("paraKQC-para", "paraKQC-sampled"),
}


class _Pair(NamedTuple):
    kind: str
    domain: str
    first: str
    second: str


DEMO = {"epochs": 4, "batch_size": 8}
"""How the demo trains the encoder in the box on it."""


def make(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """The rows of a raw klue-sts file, shuffled; about 45 in 100 score 3 or more."""
    pairs: dict[str, _Pair] = {}
    for kind, count in _counts(_SIZES[split]).items():
        target = len(pairs) + count
        while len(pairs) < target:
            pair = _pair(kind, split, rng)
            text = " ".join(sorted((pair.first, pair.second)))  # a pair turned round is the same pair
            if belongs(text, split):
                pairs.setdefault(text, pair)
    rows = rng.sample(list(pairs.values()), len(pairs))
    return [_row(number, pair, split, rng) for number, pair in enumerate(rows)]


def _counts(size: int) -> dict[str, int]:
    return {name: size * kind.share // 100 for name, kind in _KINDS.items()}


def _pair(kind: str, split: str, rng: random.Random) -> _Pair:
    domain = rng.choice(list(_MEANINGS))
    if kind in ("paraphrase", "extra", "detail"):
        first, second = _near_pair(kind, domain, split, rng)
    else:
        first, second = _far_pair(kind, domain, split, rng)
    return _Pair(kind, domain, first, second)


def _near_pair(kind: str, domain: str, split: str, rng: random.Random) -> list[str]:
    """Two sentences in two frames of one meaning, in either order; a detail never differs in the same words."""
    frames = _frames(rng.choice(rng.choice(list(_MEANINGS[domain].values()))), split)
    frame, other = rng.sample(frames, 2)
    words = draw(slots(frame), _WORDS, split, rng)
    other_words = _changed(words, split, rng) if kind == "detail" else words
    sentences = [fill(frame, words), fill(other, other_words)]
    if kind == "extra":
        sentences[1] = rng.choice(_EXTRAS[domain]).format(sentences[1])
    return rng.sample(sentences, 2)


def _changed(words: dict[str, str], split: str, rng: random.Random) -> dict[str, str]:
    """The same words but one: 서울역, 5 may become 서울역, 10."""
    name = rng.choice(list(words))
    new = words[name]
    while new in words.values():
        new = draw([name], _WORDS, split, rng)[name]
    return {**words, name: new}


def _far_pair(kind: str, domain: str, split: str, rng: random.Random) -> list[str]:
    """Two sentences of different meanings; where both have a slot they share its word."""
    frames = [rng.choice(_frames(meaning, split)) for meaning in _far_meanings(kind, domain, rng)]
    words = draw(dict.fromkeys(name for frame in frames for name in slots(frame)), _WORDS, split, rng)
    return [fill(frame, words) for frame in frames]


def _far_meanings(kind: str, domain: str, rng: random.Random) -> list[tuple[str, ...]]:
    """Two meanings: of one aspect, of two aspects of the domain, or of two domains."""
    aspects = _MEANINGS[domain]
    if kind == "aspect":
        return rng.sample(rng.choice(list(aspects.values())), 2)
    if kind == "domain":
        return [rng.choice(meanings) for meanings in rng.sample(list(aspects.values()), 2)]
    elsewhere = _MEANINGS[rng.choice([name for name in _MEANINGS if name != domain])]
    return [rng.choice(rng.choice(list(place.values()))) for place in (aspects, elsewhere)]


def _frames(meaning: tuple[str, ...], split: str) -> tuple[str, ...]:
    return meaning[:2] if split == "train" else meaning[2:]


def _row(number: int, pair: _Pair, split: str, rng: random.Random) -> dict[str, Any]:
    kind = _KINDS[pair.kind]
    scores = _scores(kind.score, rng)
    mean = sum(scores) / len(scores)
    readers = sorted(rng.sample(range(1, 20), len(scores)))
    return {
        "guid": f"klue-sts-sample_{split}_{number:05d}",
        "source": _SOURCES[pair.domain][kind.source],
        "sentence1": pair.first,
        "sentence2": pair.second,
        "labels": {"label": round(mean, 1), "real-label": mean, "binary-label": int(mean >= 3.0)},
        "annotations": {
            "agreement": ":".join(str(scores.count(score)) for score in range(6)),
            "annotators": [f"{reader:02d}" for reader in readers],
            "annotations": scores,
        },
    }


def _scores(expected: float, rng: random.Random) -> list[int]:
    """Five to seven whole scores from 0 to 5, scattered closely around what the pair deserves."""
    votes = (round(rng.gauss(expected, 0.5)) for _ in range(rng.randint(5, 7)))
    return [min(5, max(0, vote)) for vote in votes]
