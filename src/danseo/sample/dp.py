"""Sample of KLUE-DP: sentences drawn from a small grammar whose brackets are the dependency trees.

A frame writes words as morphemes joined by "+", each with its tag unless the usual one is meant, and puts a
phrase in brackets: its last word is its head, every other word or phrase in it depends on that head. So
"[새/MMA 공원+을] 만들/VV+었+다+." says that 새 depends on 공원을, and 공원을 on 만들었다. Slots such as {city}
take another word or phrase. The spoken forms (공원을, 만들었다) and the labels follow from the morphemes.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from danseo.sample.korean import final_consonant, particle

_SIZES = {"train": 500, "dev": 150}
_LENGTHS = range(3, 17)
_COMMENTS = (
    "## 토큰, 레이블 구분자 : \\t\n## 토큰 구분자 : \\n\n## 문장 구분자 : \\n\\n\n## 주석 : ##\n"
    "## 칼럼명 : INDEX\tWORD_FORM\tLEMMA\tPOS\tHEAD\tDEPREL\n"
)

# --- vocabulary: words of train, words of dev -------------------------------------------------------------

_WORDS = {
    "city": (
        "서울/NNP 부산/NNP 대구/NNP 인천/NNP 광주/NNP 대전/NNP 울산/NNP 수원/NNP 전주/NNP 춘천/NNP 강릉/NNP",
        "포항/NNP 창원/NNP 여수/NNP 목포/NNP 제주/NNP 원주/NNP 천안/NNP 군산/NNP",
    ),
    "org": (
        "한빛전자/NNP 누리은행/NNP 새벽식품/NNP 가람연구소/NNP 다온건설/NNP 푸른통신/NNP 미르제약/NNP",
        "해솔전자/NNP 라온은행/NNP 온새미식품/NNP 아라연구소/NNP 소담건설/NNP",
    ),
    "maker": (
        "한빛전자/NNP 새벽전기/NNP 푸른통신/NNP 미르산업/NNP 누리공업/NNP",
        "해솔전자/NNP 라온전기/NNP 소담산업/NNP 아라공업/NNP",
    ),
    "person": (
        "김민준/NNP 이서연/NNP 박지훈/NNP 최수아/NNP 정도윤/NNP 강하은/NNP 조은우/NNP 송가온/NNP",
        "윤지안/NNP 장서준/NNP 임채원/NNP 한시우/NNP 오다은/NNP 신유찬/NNP",
    ),
    "role": ("대표 이사 부장 팀장", "회장 사장 과장 본부장"),
    "job": ("소설가 화가 건축가 과학자", "시인 음악가 조각가 사진작가"),
    "people": ("어린이 노인 청소년 장애인 신혼부부", "학생 청년 외국인 직장인 임산부"),
    "facility": ("도서관 공원 박물관 수영장 놀이터", "미술관 복지관 체육관 기념관 산책로"),
    "venue": ("도서관 박물관 공원 시민회관 문화회관", "미술관 체육관 복지관 기념관 예술회관"),
    "fac_adj": ("새롭/VA 넓/VA 크/VA 조용하/VA", "깨끗하/VA 작/VA 아름답/VA 쾌적하/VA"),
    "build": ("만들/VV 열/VV 선보이/VV 개방+하", "꾸미/VV 단장+하 정비+하 홍보+하"),
    "product": ("노트북 냉장고 청소기 자전거 휴대전화", "세탁기 카메라 의자 전기차 스피커"),
    "prod_adj": ("가볍/VA 작/VA 튼튼하/VA 편리+하/XSA", "저렴하/VA 독특하/VA 예쁘/VA 간편+하/XSA"),
    "launch": ("출시 공개 개발", "소개 제작 발표"),
    "topic": ("교통 주거 환경 복지 교육", "안전 문화 의료 고용 에너지"),
    "plan": ("대책 정책 사업 계획", "방안 제도 지침 전략"),
    "plan_adj": ("구체+적 적극+적 장기+적", "효과+적 전문+적 체계+적"),
    "polverb": ("추진 발표 마련 검토", "공개 논의 확정 소개"),
    "event": ("축제 전시회 음악회 박람회 강연회", "공연 토론회 설명회 체험전 영화제"),
    "ev_adj": ("다양+하/XSA 특별+하/XSA 크/VA 작/VA 즐겁/VA", "뜻깊/VA 색다르/VA 화려+하/XSA 유익+하/XSA"),
    "weather": ("비 눈 태풍", "폭우 강풍 안개"),
    "say": ("말+하 설명+하 강조+하 밝히/VV", "주장+하 덧붙이/VV 전하/VV 이야기+하"),
    "day": ("3/SN 7/SN 11/SN 15/SN 18/SN 24/SN", "5/SN 9/SN 13/SN 21/SN 26/SN"),
    "month": ("2/SN 3/SN 6/SN 9/SN 11/SN", "1/SN 4/SN 5/SN 8/SN 10/SN"),
    "num": ("12/SN 30/SN 45/SN 58/SN 73/SN", "14/SN 27/SN 36/SN 64/SN 80/SN"),
    "years": ("2/SN 4/SN 6/SN 8/SN", "3/SN 5/SN 7/SN 9/SN"),
    "minutes": ("5/SN 10/SN 20/SN 30/SN", "7/SN 15/SN 25/SN 40/SN"),
    "days": ("2/SN 3/SN 5/SN", "4/SN 6/SN 7/SN"),
    "room": ("방 거실 주방 침실 마당", "욕실 테라스 정원 다락방 서재"),
    "radj": ("넓/VA 깨끗하/VA 크/VA 아늑하/VA", "깔끔하/VA 예쁘/VA 멋지/VA 아름답/VA"),
    "host": ("호스트 주인 주인장", "집+주인 관리인 매니저"),
    "hadj": ("친절+하/XSA 상냥하/VA 세심하/VA 유쾌+하/XSA", "다정+하/XSA 정중+하/XSA 자상하/VA 꼼꼼하/VA"),
    "near": ("지하철역 시장 공항 해변 버스터미널", "기차역 마트 편의점 광장 백화점"),
    "trip": ("파리/NNP 로마/NNP 도쿄/NNP 런던/NNP 오사카/NNP", "프라하/NNP 방콕/NNP 시드니/NNP 리스본/NNP"),
    "companion": ("가족 친구 아이 언니 남편", "연인 동생 동료 아내 할머니"),
    "food": ("커피 빵 과일 와인", "차 쿠키 맥주 샐러드"),
    "thing": ("수건 이불 냉장고 세탁기 드라이기", "베개 침구 다리미 전기장판 식기"),
    "adv": ("정말/MAG 아주/MAG 매우/MAG 무척/MAG", "참/MAG 굉장히/MAG 상당히/MAG 꽤/MAG"),
}

_PHRASES = {
    "time": (
        "[지나/VV+ㄴ {day}+일/NNB^NP_AJT]",
        "[올해 {month}+월/NNB^NP_AJT]",
        "[이번 주^NP_AJT]",
        "최근^NP_AJT",
        "어제^NP_AJT",
    ),
    "fac_np": (
        "{facility}",
        "새/MMA {facility}",
        "{fac_adj}+ㄴ {facility}",
        "[{people}+을 위하/VV+ㄴ] {facility}",
        "[[[누구/NP+이나/JX 이용+하+ㄹ] 수/NNB^NP_SBJ] 있/VV+는] {facility}",
    ),
    "prod_np": (
        "새/MMA {product}",
        "{prod_adj}+ㄴ {product}",
        "[{people}+을 위하/VV+ㄴ] {product}",
        "[가격+이 싸/VA+ㄴ] {product}",
    ),
    "policy_np": (
        "{topic} {plan}",
        "{plan_adj}+이/VCP+ㄴ {topic} {plan}",
        "[{people}+을 위하/VV+ㄴ] {topic} {plan}",
        "[[{topic} 문제+에] 대하/VV+ㄴ] {plan}",
    ),
    "person_np": ("{person} 씨/NNB", "{person} {role}", "{org} {person} {role}", "{org}+의 {person} {role}"),
    "past": ("었+ㅂ니다+.", "었+어요+.", "었+어요+!"),
}

# --- frames: shared by both splits, of train alone, of dev alone ------------------------------------------

_FRAMES = {
    "wikitree": {
        "both": (
            "{city}+시/NNG+은 {time} [{fac_np}+을] {build}+었+다+.",
            "{maker}+은 {time} [{prod_np}+을] {launch}+하+었+다+.",
            "[{person_np}+은] [[{policy_np}+이] 필요+하/XSA+다고] {say}+었+다+.",
            "[{city}+시/NNG+은 [[[{topic} 문제+을] 해결+하+기] 위하/VV+어] [새롭/VA+ㄴ {plan}+을] {polverb}+하+기+으로]"
            " 하/VV+었+다+.",
            "[[[[{topic} {plan}+에] 대하/VV+ㄴ] 시민+들+의 관심+이] 높아지/VV+고] 있/VX+다+.",
            "[[[{maker}+이 개발+하+ㄴ] {product}+이] [크/VA+ㄴ 인기+을] 끌/VV+고] 있/VX+다+.",
            "[[이번 {event}+은] {day}+일/NNB+까지 [{city} {venue}+에서] 열리/VV+ㄹ] 예정+이/VCP+다+.",
            "{time} [{city} {venue}+에서] [{ev_adj}+ㄴ {event}+이] 열리/VV+었+다+.",
            "[{weather}+으로 인하/VV+어] [{city} {event}+이] [다음 주+으로] 연기+되+었+다+.",
            "[{person} 씨/NNB+은] {time} [{org}+의 새/MMA {role}+이/JKC] 되/VV+었+다+.",
            "[{person} 씨/NNB+은] [{city}+에서 태어나/VV+ㄴ] {job}+이/VCP+다+.",
            "[[{city}+시/NNG+과 {city}+시/NNG+은] [{topic} 분야+에서] 협력+하+기+으로] 하/VV+었+다+.",
            "[{maker}+에 따르/VV+면] [지나/VV+ㄴ+달^NP {product} 판매량+이] [{num}+%/SW^NP_AJT] 늘/VV+었+다+.",
            "[[{city} {facility}+은] {people}+들+에게 [좋/VA+ㄴ 쉼터+이/JKC] 되/VV+고] 있/VX+다+.",
            "[{person} {role}+은] [[{time} [{city} {venue}+에서] 열리/VV+ㄴ] {event}+에서]"
            " [[{policy_np}+이] 필요+하/XSA+다고] {say}+었+다+.",
            "[[[[{people}+들+의 건강+을] 지키/VV+기] 위하/VV+어] {city}+시/NNG+은 [{fac_adj}+ㄴ {facility}+을]"
            " 만들/VV+고] [무료 상담+도^NP_OBJ] 시작+하+었+다+.",
            "[[{city}+에서 [{product} 가게+을] 운영+하+는] {person} 씨/NNB+은] [요즘^NP_AJT 주문+이 크/VA+게"
            " 늘/VV+었+다고] {say}+었+다+.",
            "[[[{time} {city}+시/NNG+이 발표+하+ㄴ] 자료+에] 따르/VV+면] [{facility} 이용자+이]"
            " 지난해+보다 [{num}+%/SW^NP_AJT] 늘/VV+었+다+.",
        ),
        "train": (
            "[[{city}+시/NNG+이 마련+하+ㄴ] {event}+에] [시민 {num}+명/NNB+이] 참여+하+었+다+.",
            "[[[[{fac_np}+이] 문+을 열/VV+면] 주민+들+은 [{topic} 서비스+을] 쉽/VA+게 이용+하+ㄹ] 수/NNB^NP_SBJ]"
            " 있/VV+다+.",
            "[그러나/MAJ [{person_np}+은] [{org}+의 제안+을] 받아들이/VV+지] 않/VX+었+다+.",
            "[[{product} 가격+은] 떨어지/VV+었+지만] [{product} 판매량+은] 조금/MAG 늘/VV+었+다+.",
            "[{person} {role}+은] [[[새/MMA {topic} {plan}+이] {people}+들+에게 [크/VA+ㄴ 도움+이/JKC] 되/VV+ㄹ]"
            " 것/NNB+이/VCP+라고] {say}+었+다+.",
            "[[두/MMN 회사+은] [{product} 시장+에서] {years}+년/NNB+째/XSN^NP_AJT 경쟁+하+고] 있/VX+다+.",
            "[[{person} 씨/NNB+은] {time} {city}+을 떠나/VV+어] {city}+에 도착+하+었+다+.",
            "[[[{maker}+과 {maker}+이] 함께/MAG 만들/VV+ㄴ] {product}+은] {num}+개국/NNB+에 수출+되+었+다+.",
            "[이/MMD {event}+은] [{people}+들+이 직접/MAG 준비+하+ㄴ] 행사+이/VCP+다+.",
            "[[{person} {role}+은] [{policy_np}+을] 자세히/MAG 설명+하+고] [주민+들+의 의견+을] 모으/VV+었+다+.",
            "[[[모든/MMN {people}+은] [{topic} 서비스+을] 무료+으로 받/VV+ㄹ] 수/NNB^NP_SBJ] 있/VV+다+.",
            "[이번 {event}+은] [단순+하/XSA+ㄴ 행사+이/JKC] 아니/VCN+다+.",
        ),
        "dev": (
            "[[{org}+의 창업자+이/VCP+ㄴ] {person} {role}+은] {time} {city}+에서 {event}+에 참석+하+었+다+.",
            "[{city} 주민+들+은] [{facility}+이 부족+하/XSA+다고] 주장+하+었+다+.",
            "[[{person_np}+은] [{weather} 때문/NNB+에] [{city} {event}+에] 가/VV+지] 못/MAG+하/XSV+었+다+.",
            "[[[{policy_np}+에] 반대+하+는] 목소리+도] 나오/VV+었+다+.",
            "[또한/MAG {maker}+은 내년+부터 {people}+들+에게 {product}+을 싸/VA+게 팔/VV+ㄹ] 계획+이/VCP+다+.",
            "[[{event}+이 끝나/VV+ㄴ] 뒤^NP_AJT] 참가자+들+은 {venue}+으로 이동+하+었+다+.",
            "{city}+시/NNG+에+은 [{num}+개/NNB+의 {facility}+이] 있/VV+다+.",
            "[[{city} 출신+이/VCP+ㄴ] {job} {person} 씨/NNB+은] {time} [새/MMA 작품+을] 공개+하+었+다+.",
            "[[{person} 씨/NNB+은] {org}+의 {role}+이/VCP+며] 유명+하/XSA+ㄴ {job}+이/VCP+다+.",
        ),
    },
    "airbnb": {
        "both": (
            "[{room}+이 {adv} {radj}+고] {host}+도 {adv} {hadj}+{past}",
            "[{near}+이 숙소+에서 가깝/VA+어서] 다니/VV+기^VP_SBJ {adv} 편하/VA+{past}",
            "[[[{radj}+ㄴ {room}+과] {hadj}+ㄴ {host}] 덕분+에] {adv} 즐겁/VA+{past}",
            "[[다시/MAG {trip}+에 오/VV+ㄴ다면/EC] 꼭/MAG [이/MMD 숙소+에] 머물/VV+ㄹ] 것/NNB+이/VCP+ㅂ니다+.",
            "[[[{companion}+과/JKB 함께/MAG] 지내/VV+기+에] {adv} 좋/VA+ㄴ] 숙소+이/VCP+{past}",
            "[{host}+이 [{food}+과 {food}+을] 준비+하+어] 주/VX+시+{past}",
            "다만/MAG [숙소+에 {thing}+이 없/VA+어서] 조금/MAG 불편+하/XSA+{past}",
            "{near}+까지 버스+으로 [{minutes}+분/NNB 정도^NP_AJT] 걸리/VV+{past}",
            "[[[{trip} 여행+을] 계획+하+는] 분/NNB+들+께] [이/MMD 숙소+을] 추천+하+ㅂ니다+.",
            "[[{companion}+과/JKB 함께/MAG] [{days}+일/NNB 동안^NP_AJT] 지내/VV+었+는데/EC] [[{room}+이 {radj}+고]"
            " {host}+이 {hadj}+어서] {adv} 좋/VA+{past}",
            "[[[{near}+에서 숙소+까지 가/VV+는] 길+이] 조금/MAG 복잡+하/XSA+었+지만]"
            " [[[[{host}+이 보내/VV+어] 주/VX+ㄴ] 지도] 덕분+에] 쉽/VA+게 찾/VV+{past}",
            "{room}+이 사진+보다 훨씬/MAG {radj}+{past}",
            "[[이/MMD 숙소+의] [가장/MAG 좋/VA+ㄴ] 점+은] {radj}+ㄴ {room}+이/VCP+{past}",
        ),
        "train": (
            "[[{host}+의 설명+이] {adv} 자세하/VA+어서] [숙소+을 찾/VV+기^VP_SBJ] 쉽/VA+{past}",
            "밤+에+도 [{near} 주변+이] {adv} 조용하/VA+{past}",
            "{companion}+이 [{radj}+ㄴ {room}+을] {adv} 좋아하/VV+{past}",
            "[[{host}+이 주/VV+ㄴ] {food}+도] {adv} 맛+있/VA+{past}",
            "[[{thing}+과 {thing}+이] 모두/MAG 준비+되+어] 있/VX+{past}",
            "[첫/MMN {trip} 여행+이/VCP+었+는데/EC] [{host} 덕분+에] 편하/VA+게 지내/VV+{past}",
        ),
        "dev": (
            "[[[{room}+과 {room}+이] 모두/MAG {radj}+고] {thing}+도 넉넉하/VA+어서] [{companion}+과/JKB 지내/VV+기+에]"
            " {adv} 좋/VA+{past}",
            "[[{near}+과/JKB 가깝/VA+고] {room}+도 {radj}+어서] {adv} 만족+스럽/XSA+{past}",
            "[[[{companion}+과/JKB 함께/MAG] {trip}+을 여행+하+는] 동안^NP_AJT] 편하/VA+게 쉬/VV+{past}",
            "특히/MAG [[{room}+에서 보이/VV+는] 풍경+이] {adv} 마음+에 들/VV+{past}",
            "[저/NP+은 [다시/MAG {trip}+에 가/VV+면] 여기/NP+에서 또/MAG 묵/VV+고] 싶/VX+ㅂ니다+.",
            "[{thing}+은 조금/MAG 오래되/VV+었+지만] {room}+은 {adv} {radj}+{past}",
            "[[{host}+은 {hadj}+ㄴ 사람+이/VCP+고] [{trip} 맛집+을] 많이/MAG 알/VV+고] 있/VX+{past}",
        ),
    },
}

# --- morphemes to words -----------------------------------------------------------------------------------

_USUAL_TAGS = {
    **dict.fromkeys(("은", "도", "까지", "부터"), "JX"),
    **dict.fromkeys(("에", "에서", "에게", "께", "으로", "보다"), "JKB"),
    **{"이": "JKS", "을": "JKO", "의": "JKG", "과": "JC", "들": "XSN", "적": "XSN", "하": "XSV", "되": "XSV"},
    **dict.fromkeys(("었", "시"), "EP"),
    **dict.fromkeys(("다", "ㅂ니다", "어요"), "EF"),
    **dict.fromkeys(("ㄴ", "ㄹ", "는"), "ETM"),
    **dict.fromkeys(("고", "며", "면", "어", "어서", "지", "지만", "게", "다고", "라고"), "EC"),
    **{"기": "ETN", ".": "SF", "!": "SF"},
}
_PARTICLES = {"은": "은/는", "이": "이/가", "을": "을/를", "과": "과/와", "으로": "으로/로", "이나": "이나/나"}
_AFTER_CONSONANT = {"ㄴ": "은", "ㄹ": "을", "ㅂ니다": "습니다", "며": "으며", "면": "으면"}
_SOFTENED_BEFORE = ("ㄴ", "ㄹ", "며", "면", "어", "었")  # 가깝 + ㄴ is 가까운, 가깝 + 었 is 가까웠
_ONSETS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_FINALS = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")
_CONTRACTIONS = {
    **{"ㅏㅏ": "ㅏ", "ㅓㅓ": "ㅓ", "ㅗㅏ": "ㅘ", "ㅜㅓ": "ㅝ", "ㅣㅓ": "ㅕ", "ㅐㅓ": "ㅐ"},
    **{"ㅕㅓ": "ㅕ", "ㅡㅓ": "ㅓ", "ㅡㅏ": "ㅏ", "ㅚㅓ": "ㅙ", "ㅏㅕ": "ㅐ"},
}


@dataclass(frozen=True)
class _Morpheme:
    """A morpheme as the LEMMA column shows it, with its Sejong tag."""

    form: str
    tag: str


@dataclass(frozen=True)
class _Word:
    """An eojeol: how it is written, its morphemes and its relation to its head."""

    form: str
    morphemes: tuple[_Morpheme, ...]
    label: str


def _letters(syllable: str) -> tuple[str, str, str]:
    """The letters of a syllable: "한" gives ㅎ, ㅏ, ㄴ."""
    code = ord(syllable) - ord("가")
    return _ONSETS[code // 588], _VOWELS[code % 588 // 28], _FINALS[code % 28]


def _syllable(onset: str, vowel: str, final: str = "") -> str:
    """The syllable of three letters: ㅎ, ㅏ, ㄴ give "한"."""
    return chr(ord("가") + (_ONSETS.index(onset) * 21 + _VOWELS.index(vowel)) * 28 + _FINALS.index(final))


def _with_final(text: str, final: str) -> str:
    """The text with another final consonant: "크" and ㄴ give "큰"."""
    onset, vowel, _ = _letters(text[-1])
    return text[:-1] + _syllable(onset, vowel, final)


def _softens(text: str, tag: str) -> bool:
    """Whether the final ㅂ of the stem turns into a vowel before some endings, as in 가깝다 and 만족스럽다."""
    return tag in ("VA", "XSA") and final_consonant(text) == "ㅂ"


def _harmonise(text: str, tag: str, ending: str) -> str:
    """An ending in 어 or 었 with the vowel its stem asks for: 하 takes 였, 보 takes 았, 먹 takes 었."""
    if tag == "EP" or _softens(text, tag):
        return ending
    if text[-1] == "하":
        return ending.replace("었", "였") if ending != "어요" else "아요"  # KLUE writes 하 아요, but 하 였
    vowels = [_letters(syllable)[1] for syllable in text[-2:]]
    deciding = vowels[-2] if vowels[-1] == "ㅡ" and len(vowels) > 1 else vowels[-1]
    return ending.replace("어", "아", 1).replace("었", "았") if deciding in "ㅏㅗ" else ending


def _fitting(text: str, before: str, form: str, tag: str) -> str:
    """The variant of a particle or an ending that fits the text before it."""
    if tag.startswith("J"):
        return particle(text, _PARTICLES[form]) if form in _PARTICLES else form
    if not tag.startswith("E"):
        return form
    if form[0] in "어었":
        fitting = _harmonise(text, before, form)
        return fitting.replace("어", "여", 1) if text[-1] == "하" else fitting
    soft = _softens(text, before) and form in _SOFTENED_BEFORE
    return form if soft or final_consonant(text) in ("", "ㄹ") else _AFTER_CONSONANT.get(form, form)


def _contract(text: str, tag: str, ending: str) -> str:
    """Stem and vowel ending in one: 열리 + 었 is 열렸, 하 + 였 is 했, but 여행이 + 었 stays apart."""
    onset, vowel, final = _letters(text[-1])
    _, ending_vowel, ending_final = _letters(ending[0])
    joined = "ㅐ" if text[-1] == "하" else _CONTRACTIONS.get(vowel + ending_vowel)
    if final or joined is None or (tag == "VCP" and final_consonant(text[:-1])):
        return text + ending
    return text[:-1] + _syllable(onset, joined, ending_final) + ending[1:]


def _joined(text: str, before: str, form: str, tag: str) -> str:
    """The text with one more morpheme written on to it."""
    if not text or not tag.startswith("E"):
        return text + form
    if _softens(text, before) and form.startswith(_SOFTENED_BEFORE):
        text = _with_final(text, "") + "우"
    if form[0] in "ㄴㄹㅂ":
        return _with_final(text, form[0]) + form[1:]
    if form[0] in "는시" and final_consonant(text) == "ㄹ":
        return _with_final(text, "") + form
    return _contract(text, before, form) if form[0] in "어아여었았였" else text + form


def _label(morphemes: tuple[_Morpheme, ...]) -> str:
    """The relation that a word of these morphemes usually has to its head."""
    body = [morpheme for morpheme in morphemes if morpheme.tag != "SF"]
    tags = [morpheme.tag for morpheme in body]
    if tags[-1] in ("MAG", "MAJ"):
        return "AP"
    if tags[-1].startswith("MM"):
        return "DP"
    verbal = any(tag[0] == "V" or tag in ("XSV", "XSA") for tag in tags)
    phrase = "VNP" if "VCP" in tags else "VP" if verbal else "NP"
    return phrase + _function(body, tags)


_FUNCTIONS = {
    **{"JKS": "_SBJ", "JKO": "_OBJ", "JKG": "_MOD", "JKB": "_AJT", "JC": "_CNJ", "JKC": "_CMP", "ETM": "_MOD"},
    **{"ETN": "_OBJ", "JX": "_SBJ"},
}


def _function(body: list[_Morpheme], tags: list[str]) -> str:
    """The second half of a label, from the last particle or ending."""
    last = body[-1].form
    if last in ("다고", "라고"):
        return "_CMP"
    if last in ("까지", "부터") or tags[-2:] == ["JKB", "JX"] or (last == "게" and tags[-2] in ("VA", "XSA")):
        return "_AJT"
    return _FUNCTIONS.get(tags[-1], "")


def _word(token: str) -> _Word:
    """The word of a frame token: "공원+을" is 공원을, an object; "^NP_AJT" at the end overrules the usual label."""
    spelled, _, label = token.partition("^")
    text, before = "", ""
    morphemes: list[_Morpheme] = []
    for part in spelled.split("+"):
        form, _, tag = part.partition("/")
        tag = tag or _USUAL_TAGS.get(form, "NNG")
        form = _fitting(text, before, form, tag)
        text = _joined(text, before, form, tag)
        before = tag
        morphemes.append(_Morpheme(form, tag))
    return _Word(text, tuple(morphemes), label or _label(tuple(morphemes)))


# --- frames to trees --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Phrase:
    """A head and the phrases before it that depend on it."""

    head: _Word
    dependents: tuple["_Phrase", ...]

    def __len__(self) -> int:
        return 1 + sum(len(dependent) for dependent in self.dependents)

    def arcs(self, start: int, parent: int) -> Iterator[tuple[_Word, int]]:
        """The words in order, the first having index start, each with the index of its head."""
        own = start + len(self) - 1
        for dependent in self.dependents:
            yield from dependent.arcs(start, own)
            start += len(dependent)
        yield self.head, parent


def _read_phrase(tokens: Iterator[str]) -> _Phrase:
    """The phrase up to the closing bracket: its last member is the head and takes the others as dependents."""
    members: list[_Phrase] = []
    for token in tokens:
        if token == "]":
            break
        members.append(_read_phrase(tokens) if token == "[" else _Phrase(_word(token), ()))
    *dependents, last = members
    return _Phrase(last.head, (*dependents, *last.dependents))


def _parse(frame: str) -> _Phrase:
    """The tree of a frame without slots."""
    return _read_phrase(iter(re.findall(r"[\[\]]|[^\s\[\]]+", frame)))


def _options(name: str, split: str) -> list[str]:
    """What may stand in a slot: a phrase of both splits, or a word of this split."""
    if name in _PHRASES:
        return list(_PHRASES[name])
    train, dev = _WORDS[name]
    return (train if split == "train" else dev).split()


def _expand(frame: str, split: str, rng: random.Random) -> str:
    """The frame with all slots filled, no filler twice."""
    used: set[str] = set()
    while slot := re.search(r"\{(\w+)\}", frame):
        options = [option for option in _options(slot[1], split) if option not in used]
        choice = rng.choice(options)
        used.add(choice)
        frame = frame[: slot.start()] + choice + frame[slot.end() :]
    return frame


def _sentences(source: str, split: str, count: int, rng: random.Random) -> list[_Phrase]:
    """That many different sentences of one source, the frames taking turns."""
    frames = [*_FRAMES[source]["both"], *_FRAMES[source][split]]
    sentences: dict[str, _Phrase] = {}
    turn = 0
    while len(sentences) < count:
        phrase = _parse(_expand(frames[turn % len(frames)], split, rng))
        turn += 1
        if len(phrase) in _LENGTHS:
            sentences.setdefault(_text(phrase), phrase)
    return list(sentences.values())


def _text(phrase: _Phrase) -> str:
    """The sentence as written."""
    return " ".join(word.form for word, _ in phrase.arcs(1, 0))


def _block(guid: str, phrase: _Phrase) -> str:
    """The lines of one sentence in the official file."""
    lines = [f"## {guid}\t{_text(phrase)}"]
    for index, (word, head) in enumerate(phrase.arcs(1, 0), start=1):
        lemma = " ".join(morpheme.form for morpheme in word.morphemes)
        tags = "+".join(morpheme.tag for morpheme in word.morphemes)
        lines.append(f"{index}\t{word.form}\t{lemma}\t{tags}\t{head}\t{word.label}")
    return "\n".join(lines) + "\n"


DEMO = {"epochs": 3, "batch_size": 16, "optimizer": "adamw", "learning_rate": 5e-4}
"""How the demo trains the encoder in the box on it: by AdamW, whose steps are cheaper than those of the recipe."""


def make(split: str, rng: random.Random) -> str:
    """The whole file of a split, half news and half reviews."""
    half = _SIZES[split] // 2
    drawn = [(source, phrase) for source in _FRAMES for phrase in _sentences(source, split, half, rng)]
    rng.shuffle(drawn)
    blocks = [
        _block(f"klue-dp-sample_{split}_{number:05}_{source}", phrase) for number, (source, phrase) in enumerate(drawn)
    ]
    return _COMMENTS + "\n".join(blocks)
