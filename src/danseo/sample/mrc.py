"""Sample of KLUE-MRC: invented passages about a few kinds of things, with questions on their facts.

A kind of passage is a list of sentences and questions with slots; a passage has the first of them and a few that stand
side by side, so that it is short enough for a demo. Where several wordings stand side by side,
train uses all but the last and dev all but the first, so dev asks and tells in ways that train never did.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from danseo.sample.korean import with_particle
from danseo.sample.templates import fill

_PASSAGES = {"train": 200, "dev": 40}
_LENGTHS = (2, 3)  # sentences after the first one
_QUESTIONS = ((3, 1), (4, 1), (3, 1), (2, 0))  # of a passage: with an answer, without one
_SLOT = re.compile(r"\{(\w+)(?::([^}]+))?\}")
_COUNTED = re.compile(r"([\d,]+)(년|명|개|곳|점|권|승|분|시간|미터|킬로미터|원|만 원|가구|살)")


@dataclass(frozen=True)
class _Question:
    """A question, the slot that answers it, and its KLUE type: 1 paraphrase, 2 several sentences, 3 no answer."""

    wordings: tuple[str, ...]
    answer: str
    type: int = 1


@dataclass(frozen=True)
class _Kind:
    """One kind of passage: every sentence and question in one or more wordings."""

    title: str
    category: str
    sentences: tuple[tuple[str, ...], ...]
    questions: tuple[_Question, ...]
    splits: tuple[str, ...] = ("train", "dev")
    bound: tuple[int, ...] = ()  # sentences that make no sense without the one before


# --- fillers: of train, of dev; a slot such as person2 takes from person ----------------------------------

_WORDS = {
    "person": (
        "강도현,김라희,문태오,박서진,배유나,서준혁,손미르,안채린,유하람,이든솔,장예림,전우석,정다온,차은결,황보람",
        "고나래,곽시온,노은찬,도하영,백지오,심가람,양태린,엄도하,우서담,진하율,천유림",
    ),
    "city": (
        "춘천시,전주시,강릉시,안동시,진주시,충주시,공주시,순천시,목포시,경주시",
        "제천시,통영시,여수시,속초시,군산시,김해시",
    ),
    "country": ("베트남,독일,캐나다,태국,프랑스,인도", "호주,멕시코,폴란드,싱가포르,스페인"),
    "company": (
        "가온공방,나래산업,다솜상사,미리내,보람물산,새길제작소,아람공업,초롱상회",
        "도담산업,마루상사,여울공업,하늬공방",
    ),
    "goods": ("우산,안경,가방,자전거,찻잔,운동화", "연필,의자,칫솔,모자"),
    "relation": ("딸,아들,조카", "손녀,사위"),
    "job": ("교사,변호사,은행원,간호사", "기자,연구원,요리사"),
    "material": ("재활용 플라스틱,식물성 소재,버려진 옷감", "옥수수 전분,낡은 그물,커피 찌꺼기"),
    "festival": ("물빛 축제,별밤 축제,한지 축제,북소리 축제,골목 축제", "등불 축제,돛단배 축제,소리꾼 축제,장승 축제"),
    "venue": ("시민 공원,강변 광장,옛 기차역,중앙 시장", "호수 공원,역전 광장,종합 운동장"),
    "show": ("불꽃놀이,줄타기 공연,드론 쇼,연날리기 대회", "탈춤 공연,뗏목 경주,합창 대회"),
    "food": ("메밀국수,감자전,비빔밥,쑥떡", "해물파전,팥죽,옥수수찐빵"),
    "cause": ("폭우,태풍,산불", "가뭄,전염병"),
    "museum": ("생활사 박물관,옛살림 박물관,골목 박물관,추억 박물관", "장터 박물관,손때 박물관,이야기 박물관"),
    "building": ("양조장,방직 공장,초등학교,우체국", "정미소,성당,기차역"),
    "treasure": ("은빛 회중시계,백자 등잔,나무 활자판,유리 단추", "청동 열쇠,비단 엽서,금박 우표"),
    "weekday": ("월요일,화요일,수요일", "목요일,금요일"),
    "field": (  # field|what is found in it
        "해양학|심해 해파리,천문학|작은 소행성,식물학|고산 이끼,지질학|푸른빛 광물",
        "곤충학|바위 딱정벌레,생물학|눈먼 동굴 물고기,고생물학|깃털 공룡 화석",
    ),
    "hobby": ("바이올린 연주,수채화,장거리 달리기", "도자기 빚기,사진 촬영,바둑"),
    "prize": ("한별과학상,누리학술상,미래연구상", "온빛과학상,가람학술상"),
    "school": ("한울대학교,새롬대학교,푸른대학교", "도란대학교,예솔대학교"),
    "policy": ("공동 부엌,이동 진료소,공유 세탁소,작은 목욕탕", "나눔 식당,동네 영화관,공유 서재"),
    "people": ("노인,청소년,임산부,장애인", "대학생,신혼부부,군인"),
    "complaint": ("이용 시간이 너무 짧다,안내가 부족하다,이용 장소가 멀다", "예약이 어렵다,홍보가 부족하다"),
    "app": (  # name|what it does
        "‘길동무’|빈 주차장을 찾아 주는,‘잠소리’|잠든 시간을 기록하는,‘책다리’|중고 책을 나누는",
        "‘약속시계’|약 먹을 시간을 알려 주는,‘동네북’|동네 행사를 모아 주는,‘텃밭지기’|채소 기르는 법을 가르치는",
    ),
    "origin": ("대학 과제,졸업 작품,동아리 과제", "가족 여행,졸업 전시회,창업 대회"),
    "village": ("달맞이마을,솔바람마을,물레마을,꽃내마을,돌담마을", "노을마을,까치마을,반딧불마을"),
    "crop": ("사과,인삼,녹차,마늘", "포도,딸기,유자"),
    "old_name": ("새터골,윗말,범바위골,장승골", "배나무골,안뜰,샘골"),
    "workshop": ("천연 염색,두부 만들기,한지 공예", "떡메치기,짚신 삼기"),
    "team": ("한마음,새물결,큰걸음,새바람", "첫걸음,푸른꿈,온누리"),
    "sport": ("배구단,농구단,핸드볼단", "축구단,하키단"),
    "mascot": ("수달,부엉이,다람쥐", "고라니,두루미"),
    "novel": (
        "『바람의 우체부』,『겨울 정거장』,『다섯 번째 계절』,『유리 골목』",
        "『파도가 쓴 일기』,『빈집의 시계』,『먼 데서 온 편지』",
    ),
    "hero": ("등대지기,시계 수리공,우편배달부", "피아노 조율사,식물학자"),
    "trail": ("", "솔향길,은하수길,바람꽃길,옛나루길"),
    "tree": ("", "소나무,자작나무,편백나무"),
    "bridge": ("햇살다리,무지개다리,나비다리,이음다리", ""),
    "river": ("맑은내,은빛강,새벽강,버들내", ""),
    "material2": ("유리,철근,나무", ""),
}
_NUMBERS = {
    "birth": (1938, 1946, 1, "년"),
    "early": (1948, 1979, 1, "년"),
    "middle": (1981, 1999, 1, "년"),
    "recent": (2001, 2012, 1, "년"),
    "late": (2014, 2023, 1, "년"),
    "begun": (2010, 2013, 1, "년"),
    "ended": (2014, 2017, 1, "년"),
    "few": (3, 9, 1, "명"),
    "staff": (80, 950, 10, "명"),
    "crowd": (12000, 98000, 1000, "명"),
    "visitors": (1100, 8900, 100, "명"),
    "pieces": (1200, 9800, 100, "점"),
    "households": (28, 96, 1, "가구"),
    "age": (60, 70, 1, "살"),
    "places": (12, 60, 1, "곳"),
    "fee": (1000, 9000, 500, "원"),
    "wins": (18, 34, 1, "승"),
    "copies": (11000, 95000, 1000, "권"),
    "minutes": (35, 95, 5, "분"),
    "length": (120, 880, 10, "미터"),
    "month": (3, 11, 1, "월"),
}
_GROUPED = ("crowd", "visitors", "pieces", "fee", "copies")  # written with a comma: 12,000명

# --- kinds of passages ------------------------------------------------------------------------------------

_COMPANY = _Kind(
    title="{goods} 만드는 {company}",
    category="경제",
    sentences=(
        (
            "{company:은/는} {early}에 {person1:이/가} 세운 {goods} 제조업체이다.",
            "{goods:을/를} 만드는 {company:은/는} {early}에 {person1:이/가} 세웠다.",
            "{early}, {person1:은/는} {goods:을/를} 만드는 회사인 {company:을/를} 세웠다.",
        ),
        ("처음에는 직원이 {few}뿐인 작은 공장이었지만 품질이 좋다는 소문이 나면서 빠르게 성장했다.",),
        (
            "본사는 {city1}에 있고 현재 직원 {staff:이/가} 일하고 있다.",
            "지금은 {city1}에 본사를 두고 직원 {staff:을/를} 고용하고 있다.",
        ),
        (
            "{recent}에는 {country:으로/로} 첫 수출을 시작했다.",
            "해외로 눈을 돌린 것은 {recent}으로, 첫 수출 대상은 {country:이었다/였다}.",
        ),
        ("지금 회사를 이끄는 {person2} 대표는 창업자의 {relation:으로/로}, 회사에 들어오기 전에는 {job:이었다/였다}.",),
        (
            "{person2} 대표는 앞으로 {material:으로/로} 만든 제품을 늘리겠다고 밝혔다.",
            "그는 최근 기자 간담회에서 {material:으로/로} 만든 제품을 늘리겠다는 계획을 내놓았다.",
        ),
    ),
    questions=(
        _Question(
            ("{company:을/를} 세운 사람은?", "{company}의 창업자는 누구인가?", "{company:은/는} 누가 만든 회사인가?"),
            "person1",
        ),
        _Question(
            ("{company:이/가} 세워진 해는?", "{company:은/는} 언제 설립되었나?", "{company}의 창업 연도는?"), "early"
        ),
        _Question(
            ("{company:이/가} 처음 수출한 나라는?", "{company}의 제품이 처음 팔려 나간 외국은 어디인가?"), "country"
        ),
        _Question(
            (
                "{person1:이/가} 세운 회사의 본사가 있는 도시는?",
                "{person1:이/가} 창업한 업체는 어디에 본사를 두고 있나?",
            ),
            "city1",
            2,
        ),
        _Question(
            ("{early}에 세워진 회사를 지금 이끄는 사람은?", "{goods} 업체 {company}의 현재 대표는 누구인가?"),
            "person2",
            2,
        ),
        _Question(("{person2} 대표가 회사에 들어오기 전에 가졌던 직업은?", "{person2} 대표의 이전 직업은?"), "job"),
        _Question(
            (
                "{company:이/가} 앞으로 늘리려는 제품의 재료는?",
                "{company} 대표가 새 제품에 더 많이 쓰겠다고 한 재료는?",
            ),
            "material",
            2,
        ),
        _Question(("{company}에서 현재 일하는 직원은 몇 명인가?", "{company}의 지금 직원 수는?"), "staff", 2),
        _Question(("{person1:이/가} 태어난 도시는?", "{company}의 공장이 있는 도시는 어디인가?"), "city1", 3),
        _Question(("{company:이/가} 두 번째로 수출한 나라는?", "{company:이/가} 원료를 사 오는 나라는?"), "country", 3),
        _Question(("{company:이/가} 처음 적자를 낸 해는?", "{person2:이/가} 대표가 된 해는?"), "recent", 3),
    ),
)

_FESTIVAL = _Kind(
    title="{city1} {festival}",
    category="문화",
    bound=(5,),
    sentences=(
        (
            "{city1}의 {festival:은/는} 해마다 {month}에 {venue}에서 열린다.",
            "해마다 {month:이/가} 되면 {city1} {venue}에서 {festival:이/가} 열린다.",
            "{festival:은/는} {city1:이/가} 매년 {month}에 {venue}에서 여는 행사이다.",
        ),
        (
            "{middle}에 상인 {few:이/가} 손님을 모으려고 시작한 작은 장터가 그 출발이었다.",
            "그 시작은 {middle}에 상인 {few:이/가} 손님을 모으려고 연 작은 장터였다.",
        ),
        ("가장 인기 있는 순서는 마지막 날 밤에 열리는 {show:으로/로}, 이를 보려고 전국에서 사람들이 찾아온다.",),
        (
            "방문객들은 이 지역의 특산물로 만든 {food:을/를} 즐겨 먹는다.",
            "행사장에서 가장 많이 팔리는 음식은 이 지역에서 난 재료로 만든 {food:이다/다}.",
        ),
        (
            "{recent}에는 {cause} 때문에 행사가 취소되기도 했다.",
            "다만 {recent}에는 {cause}의 피해가 커서 행사를 열지 못했다.",
        ),
        (
            "지난해에는 모두 {crowd:이/가} 다녀가 역대 최다 기록을 세웠다.",
            "그러나 지난해에는 역대 가장 많은 {crowd:이/가} 이곳을 찾았다.",
        ),
        ("올해 행사를 총괄하는 {person1} 감독은 어린이를 위한 체험 공간을 넓힐 계획이라고 말했다.",),
    ),
    questions=(
        _Question(("{festival:이/가} 열리는 달은?", "{festival:은/는} 매년 몇 월에 열리나?"), "month"),
        _Question(
            (
                "{festival:이/가} 열리는 장소는?",
                "{festival}의 행사장은 어디인가?",
                "{festival:을/를} 보려면 어디로 가야 하나?",
            ),
            "venue",
        ),
        _Question(("{festival:이/가} 시작된 해는?", "{festival}의 바탕이 된 장터가 처음 열린 때는?"), "middle", 2),
        _Question(
            ("{festival}에서 가장 인기가 많은 순서는?", "{city1} 축제의 마지막 날 밤을 장식하는 행사는?"), "show", 2
        ),
        _Question(
            ("{festival:이/가} 취소된 이유는?", "{recent}에 {festival:을/를} 열지 못하게 만든 재해는?"), "cause", 2
        ),
        _Question(
            ("지난해 {festival:을/를} 찾은 사람은 몇 명인가?", "지난해 세워진 {festival}의 최다 방문객 기록은?"),
            "crowd",
            2,
        ),
        _Question(
            ("{venue}에서 열리는 축제의 올해 감독은?", "올해 {festival:을/를} 총괄하는 사람은 누구인가?"), "person1", 2
        ),
        _Question(
            ("지역 특산물로 만들어 방문객에게 인기 있는 음식은?", "{city1} 축제에서 사람들이 즐겨 찾는 먹을거리는?"),
            "food",
        ),
        _Question(("{festival}의 첫 감독은 누구인가?", "지난해 {festival:을/를} 총괄한 사람은?"), "person1", 3),
        _Question(
            ("올해 {festival}에 다녀간 사람은 몇 명인가?", "{middle} 장터를 찾은 손님은 몇 명이었나?"), "crowd", 3
        ),
        _Question(("{festival} 첫날 밤에 열리는 순서는?", "어린이 체험 공간에서 열리는 행사는?"), "show", 3),
    ),
)

_MUSEUM = _Kind(
    title="{museum}",
    category="문화",
    bound=(3,),
    sentences=(
        (
            "{city1} {museum:은/는} {late}에 문을 연 작은 박물관이다.",
            "{late} {city1}에 작은 박물관인 {museum:이/가} 문을 열었다.",
        ),
        (
            "건물은 {early}에 지어진 {building:을/를} 고쳐 만들었다.",
            "박물관 건물은 원래 {early}에 지은 {building:이었다/였다}.",
            "{early}에 세워져 오랫동안 비어 있던 {building:이/가} 박물관으로 다시 태어난 것이다.",
        ),
        (
            "관장 {person1} 씨가 삼십 년 동안 모은 {pieces}의 소장품을 돌아가며 전시한다.",
            "전시품은 관장 {person1} 씨가 평생 모은 것으로, 모두 {pieces:이다/다}.",
        ),
        (
            "그 가운데 가장 이름난 것은 {treasure:으로/로}, {person2} 씨가 기증했다.",
            "특히 {person2} 씨가 기증한 {treasure:은/는} 관람객에게 가장 인기 있는 전시품이다.",
        ),
        (
            "입장료는 어른 {fee}이며, {weekday}에는 문을 닫는다.",
            "어른은 {fee}을 내고 들어갈 수 있으며, 쉬는 날은 {weekday:이다/다}.",
        ),
        ("{person1} 관장은 내년에 {country} 작가들과 함께 특별전을 열 예정이라고 밝혔다.",),
    ),
    questions=(
        _Question(("{museum:이/가} 문을 연 해는?", "{museum:은/는} 언제 개관했나?", "{museum}의 개관 연도는?"), "late"),
        _Question(
            ("{museum} 건물은 원래 무엇이었나?", "{museum:으로/로} 바뀌기 전에 건물은 무엇으로 쓰였나?"), "building", 2
        ),
        _Question(("{museum}의 관장은 누구인가?", "{city1} 박물관의 소장품을 모은 사람은?"), "person1", 2),
        _Question(("{person2} 씨가 기증한 물건은?", "{person2} 씨는 박물관에 무엇을 내놓았나?"), "treasure"),
        _Question(("{treasure:을/를} 기증한 사람은?", "관람객에게 가장 인기 있는 소장품을 내놓은 사람은?"), "person2"),
        _Question(("{museum:이/가} 쉬는 요일은?", "{museum:을/를} 관람할 수 없는 요일은?"), "weekday", 2),
        _Question(("어른이 내는 입장료는 얼마인가?", "{museum}에 들어가려면 어른은 얼마를 내야 하나?"), "fee"),
        _Question(
            (
                "{museum:이/가} 내년 특별전을 함께 여는 작가들의 나라는?",
                "{late}에 문을 연 박물관의 특별전에는 어느 나라 작가가 참여하나?",
            ),
            "country",
            2,
        ),
        _Question(("{museum}의 어린이 입장료는 얼마인가?", "{museum} 특별전의 관람료는?"), "fee", 3),
        _Question(("{museum} 건물을 설계한 사람은?", "{museum} 특별전을 기획한 작가의 이름은?"), "person2", 3),
        _Question(("{person1} 관장이 태어난 해는?", "{treasure:이/가} 만들어진 해는?"), "early", 3),
    ),
)

_SCIENTIST = _Kind(
    title="{field} 연구자 {person1}",
    category="과학",
    bound=(4,),
    sentences=(
        (
            "{person1:은/는} {birth}에 {city1}에서 태어난 {field} 연구자이다.",
            "{field} 연구자인 {person1:은/는} {birth}에 {city1}에서 태어났다.",
        ),
        (
            "어릴 때는 {hobby}에 빠져 지냈지만, 선생님이었던 {person2:을/를} 만나면서 과학에 관심을 두게 되었다.",
            "{hobby:을/를} 좋아하던 아이는 {person2} 선생님을 만난 뒤 과학자의 꿈을 키우기 시작했다.",
        ),
        (
            "{school}에서 공부를 마친 뒤에는 {country:으로/로} 건너가 연구를 이어 갔다.",
            "그는 {school:을/를} 졸업하고 {country}에서 연구 생활을 시작했다.",
        ),
        (
            "{middle}에는 {field_pair:을/를} 처음으로 발견해 학계를 놀라게 했다.",
            "그의 이름이 널리 알려진 것은 {middle}에 {field_pair:을/를} 처음 발견하면서부터이다.",
        ),
        ("그는 이 공로로 {recent}에 {prize:을/를} 받았다.", "이 업적을 인정받아 {recent}에는 {prize:을/를} 수상했다."),
        ("상금은 모두 고향의 도서관에 기부했으며, {age}에 은퇴한 뒤에도 학생들을 가르치고 있다.",),
    ),
    questions=(
        _Question(
            ("{person1:이/가} 태어난 곳은?", "{person1}의 고향은 어디인가?", "{person1:은/는} 어느 도시 출신인가?"),
            "city1",
        ),
        _Question(("{person1:이/가} 연구한 분야는?", "{person1:은/는} 무엇을 연구하는 학자인가?"), "field"),
        _Question(
            ("{person1:이/가} 과학에 관심을 두게 만든 사람은?", "{person1}에게 과학자의 꿈을 심어 준 선생님은?"),
            "person2",
            2,
        ),
        _Question(("{person1:이/가} 다닌 대학교는?", "{person1:은/는} 어느 학교에서 공부했나?"), "school", 2),
        _Question(
            ("{person1:이/가} {middle}에 발견한 것은?", "{person1}의 이름을 널리 알린 발견은 무엇인가?"),
            "field_pair",
            2,
        ),
        _Question(
            ("{field_pair:을/를} 발견한 공로로 받은 상은?", "{recent}에 {person1:이/가} 받은 상의 이름은?"), "prize", 2
        ),
        _Question(("{field_pair:이/가} 처음 발견된 해는?", "{field_pair:은/는} 언제 발견되었나?"), "middle"),
        _Question(("{person1:이/가} 은퇴한 나이는?", "{person1:은/는} 몇 살에 연구 현장을 떠났나?"), "age", 2),
        _Question(("{person2:이/가} 졸업한 대학교는?", "{person1:이/가} 은퇴 뒤에 일하는 대학교는?"), "school", 3),
        _Question(("{person1:이/가} 결혼한 해는?", "{person1:이/가} 고향의 도서관을 세운 해는?"), "recent", 3),
        _Question(("{person1:이/가} {birth}에 받은 상은?", "{person2:이/가} 받은 상의 이름은?"), "prize", 3),
    ),
)

_POLICY = _Kind(
    title="{city1} {policy} 사업",
    category="사회",
    sentences=(
        (
            "{city1:은/는} {late}부터 {people:을/를} 위한 {policy} 사업을 시작했다.",
            "{late} {city1:은/는} {people:을/를} 돕는 {policy} 사업에 나섰다.",
        ),
        (
            "이 사업은 시의원 {person1} 씨가 처음 제안했고, 시민 투표를 거쳐 결정되었다.",
            "처음 의견을 낸 사람은 시의원 {person1} 씨였으며, 시는 투표로 시민의 뜻을 물었다.",
        ),
        (
            "현재 시내 {places}에서 운영되고 있으며, 하루 평균 {visitors:이/가} 이용한다.",
            "지금은 {places}에서 운영 중인데, 하루에 {visitors:이/가} 이용하는 것으로 조사되었다.",
        ),
        (
            "이용자는 한 번에 {fee}을 내며, 모자라는 비용은 시가 부담한다.",
            "이용료는 한 번에 {fee}이고 나머지 비용은 시에서 댄다.",
        ),
        (
            "그러나 {complaint}는 불만도 적지 않다.",
            "다만 일부 이용자는 {complaint}고 지적한다.",
        ),
        (
            "담당자인 {person2} 과장은 {city2}의 사례를 참고해 문제를 고쳐 나가겠다고 말했다.",
            "이에 대해 {person2} 과장은 같은 사업을 먼저 시작한 {city2}의 경험을 배우겠다고 답했다.",
        ),
    ),
    questions=(
        _Question(("{city1:이/가} {policy} 사업을 시작한 해는?", "{city1}의 {policy} 사업은 언제 시작되었나?"), "late"),
        _Question(
            (
                "{policy} 사업을 처음 제안한 사람은?",
                "{policy} 사업은 누구의 의견에서 나왔나?",
                "{city1}의 새 사업을 처음 생각해 낸 시의원은?",
            ),
            "person1",
            2,
        ),
        _Question(
            ("{policy} 사업이 운영되는 곳은 모두 몇 곳인가?", "{city1}에는 {policy} 이용 장소가 몇 곳 있나?"),
            "places",
            2,
        ),
        _Question(
            ("{policy} 사업은 누구를 위한 것인가?", "{city1:이/가} {policy} 사업으로 도우려는 사람들은?"), "people"
        ),
        _Question(
            ("하루에 {policy:을/를} 이용하는 사람은 몇 명인가?", "{policy}의 하루 평균 이용자 수는?"), "visitors", 2
        ),
        _Question(("{policy:을/를} 한 번 이용할 때 내는 돈은?", "{city1} {policy}의 이용료는 얼마인가?"), "fee", 2),
        _Question(("{city1:이/가} 참고하려는 도시는?", "{person2} 과장이 본보기로 든 도시는 어디인가?"), "city2"),
        _Question(
            ("{policy} 사업의 담당 과장은 누구인가?", "{city1}에서 {policy} 사업을 맡은 공무원은?"), "person2", 2
        ),
        _Question(("{city2}에서 {policy} 사업을 제안한 사람은?", "{policy} 사업에 반대한 시의원은?"), "person1", 3),
        _Question(("시민 투표에 참여한 사람은 몇 명인가?", "{city2}의 하루 평균 이용자는 몇 명인가?"), "visitors", 3),
        _Question(("{city2:이/가} {policy} 사업을 시작한 해는?", "{policy} 사업의 이용료가 오른 해는?"), "late", 3),
    ),
)

_APP = _Kind(
    title="휴대전화 앱 {app}",
    category="IT",
    sentences=(
        (
            "{app:은/는} {app_pair} 휴대전화 앱이다.",
            "{app_pair} 휴대전화 앱 {app:이/가} 사람들의 눈길을 끌고 있다.",
        ),
        (
            "{late}에 대학 친구인 {person1} 씨와 {person2} 씨가 {origin:으로/로} 처음 만들었다.",
            "이 앱은 {late} {person1} 씨와 {person2} 씨가 {origin:을/를} 준비하면서 만든 것이다.",
        ),
        (
            "{person1} 씨가 화면을 디자인했고, {person2} 씨가 프로그램을 짰다.",
            "디자인은 {person1} 씨가, 프로그램 개발은 {person2} 씨가 맡았다.",
        ),
        (
            "처음 한 달 동안은 {visitors}만 내려받았지만, 한 방송에 소개된 뒤 이용자가 {crowd:으로/로} 늘었다.",
            "출시 첫 달에는 {visitors}만 내려받았으나 방송에 소개되면서 지금은 {crowd:이/가} 이용하고 있다.",
        ),
        (
            "기본 기능은 무료이고, 광고를 없애려면 한 달에 {fee}을 내야 한다.",
            "광고 없이 쓰려면 매달 {fee}을 내야 하며, 기본 기능은 무료이다.",
        ),
        ("개발자들은 올해 안에 {country}에서도 서비스를 시작할 계획이다.",),
    ),
    questions=(
        _Question(("앱 {app}의 화면을 디자인한 사람은?", "{app}에서 디자인을 맡은 개발자는 누구인가?"), "person1", 2),
        _Question(("앱 {app}의 프로그램을 짠 사람은?", "{app}의 프로그램 개발을 맡은 사람은 누구인가?"), "person2", 2),
        _Question(("{app:이/가} 처음 만들어진 해는?", "{app} 앱은 언제 만들어졌나?"), "late", 2),
        _Question(("두 사람이 앱을 만들게 된 계기는?", "{app:은/는} 무엇을 계기로 만들어졌나?"), "origin"),
        _Question(("방송에 소개된 뒤 이용자는 몇 명으로 늘었나?", "{app}의 지금 이용자는 몇 명인가?"), "crowd"),
        _Question(("첫 달에 앱을 내려받은 사람은 몇 명인가?", "출시하고 한 달 동안의 내려받기 수는?"), "visitors"),
        _Question(("광고를 없애기 위해 한 달에 내는 돈은?", "{app}의 유료 서비스는 한 달에 얼마인가?"), "fee"),
        _Question(
            ("{app} 개발자들이 올해 진출하려는 나라는?", "{app} 서비스가 새로 시작될 외국은 어디인가?"), "country", 2
        ),
        _Question(("{app:을/를} 방송에서 소개한 사람은?", "{app}에 돈을 투자한 사람은?"), "person1", 3),
        _Question(("{app:이/가} 방송에 소개된 해는?", "{app}의 유료 서비스가 시작된 해는?"), "late", 3),
        _Question(("{app} 개발자들이 함께 유학한 나라는?", "{app:이/가} 지난해 진출한 나라는?"), "country", 3),
    ),
)

_VILLAGE = _Kind(
    title="{city1} {village}",
    category="사회",
    sentences=(
        (
            "{city1} 외곽에 있는 {village:은/는} {crop:으로/로} 이름난 곳이다.",
            "{village:은/는} {city1}에 속한 마을로, 맛 좋은 {crop:이/가} 많이 난다.",
        ),
        (
            "옛날에는 {old_name:이라/라}고 불렸으나 {middle}에 지금의 이름으로 바뀌었다.",
            "원래 이름은 {old_name:이었다/였다}가 {middle}에 새 이름을 얻었다.",
        ),
        (
            "한때 젊은 사람들이 떠나면서 {households}만 남았지만, {late}에 체험 마을로 지정되면서 활기를 되찾았다.",
            "인구가 줄어 {households}만 살던 이곳은 {late} 체험 마을이 되면서 다시 북적이기 시작했다.",
        ),
        (
            "관광객이 가장 좋아하는 체험은 {workshop:으로/로}, 이장 {person1} 씨가 직접 가르친다.",
            "이장 {person1} 씨가 가르치는 {workshop} 체험이 특히 인기가 높다.",
        ),
        (
            "지난해에는 {visitors:이/가} 마을을 찾아 하룻밤을 묵었다.",
            "지난해 이 마을에서 하룻밤을 보낸 사람은 {visitors}에 이른다.",
        ),
        (
            "최근에는 도시에서 살던 {job} 출신 {person2} 씨가 빈집을 고쳐 작은 책방을 열었다.",
            "얼마 전에는 {person2} 씨가 도시에서 하던 {job} 일을 그만두고 이곳에 책방을 차렸다.",
        ),
    ),
    questions=(
        _Question(("{village}의 옛 이름은?", "{village:은/는} 예전에 무엇이라고 불렸나?"), "old_name", 2),
        _Question(("{village:은/는} 무엇으로 유명한가?", "{village}에서 많이 나는 농산물은?"), "crop"),
        _Question(("{village:이/가} 체험 마을로 지정된 해는?", "{village:은/는} 언제 체험 마을이 되었나?"), "late", 2),
        _Question(("이장이 직접 가르치는 체험은?", "{village:을/를} 찾은 사람들이 가장 좋아하는 체험은?"), "workshop"),
        _Question(("{village}의 이장은 누구인가?", "{village}에서 체험을 가르치는 사람은?"), "person1", 2),
        _Question(("마을 이름이 바뀐 해는?", "{village:이/가} 지금의 이름을 얻은 때는?"), "middle"),
        _Question(("{village}에 책방을 연 사람은?", "{city1} 외곽의 마을에서 책방을 운영하는 사람은?"), "person2", 2),
        _Question(("책방을 연 사람이 도시에서 가졌던 직업은?", "{person2} 씨가 예전에 하던 일은?"), "job"),
        _Question(("{village}에 책방이 문을 연 해는?", "{person1} 씨가 이장이 된 해는?"), "late", 3),
        _Question(
            ("지난해 책방을 찾은 사람은 몇 명인가?", "{middle}에 {village:을/를} 찾은 관광객은 몇 명인가?"),
            "visitors",
            3,
        ),
        _Question(("{village}에 빈집을 판 사람은?", "{village}의 이름을 새로 지은 사람은?"), "person2", 3),
    ),
)

_TEAM = _Kind(
    title="{city1} {team} {sport}",
    category="스포츠",
    bound=(4,),
    sentences=(
        (
            "{city1} {team:은/는} {middle}에 창단한 시민 {sport:이다/다}.",
            "{middle}에 시민들이 힘을 모아 만든 {sport:이/가} {city1} {team:이다/다}.",
        ),
        (
            "첫 감독은 {person1:이/가} 맡았고, 선수 대부분은 낮에 다른 일을 하는 회사원이었다.",
            "{person1:이/가} 첫 감독을 맡았고 선수들은 대부분 회사원이었다.",
        ),
        (
            "팀의 상징은 {mascot:으로/로}, 어린이 팬들의 투표로 정해졌다.",
            "어린이 팬들은 투표를 거쳐 {mascot:을/를} 팀의 상징으로 뽑았다.",
        ),
        (
            "오랫동안 꼴찌에 머물렀으나 {late}에 {wins:을/를} 거두며 처음으로 우승했다.",
            "첫 우승은 {late}에 나왔는데, 그해 {team:은/는} 모두 {wins:을/를} 올렸다.",
        ),
        (
            "우승을 이끈 주장 {person2:은/는} {job} 출신이라는 점 때문에 더욱 화제가 되었다.",
            "당시 주장은 {job} 출신인 {person2:이었다/였다}.",
        ),
        ("경기마다 평균 {visitors:이/가} 홈구장을 찾으며, 입장료는 {fee}이다.",),
    ),
    questions=(
        _Question(("{team:이/가} 창단한 해는?", "{city1} {team:은/는} 언제 만들어졌나?"), "middle"),
        _Question(("{team}의 첫 감독은?", "{city1} {sport:을/를} 처음 이끈 감독은 누구인가?"), "person1", 2),
        _Question(("{team}의 상징은 무엇인가?", "{city1} {sport:을/를} 나타내는 동물은?"), "mascot", 2),
        _Question(("{team:이/가} 처음으로 우승한 해는?", "{city1} {sport:은/는} 언제 첫 우승을 했나?"), "late", 2),
        _Question(("{team:이/가} 우승할 때 주장이었던 사람은?", "{late} 우승을 이끈 주장은 누구인가?"), "person2", 2),
        _Question(("우승을 이끈 주장이 예전에 가졌던 직업은?", "{person2:은/는} 어떤 직업을 가졌던 사람인가?"), "job"),
        _Question(("{team:이/가} 우승한 해에 거둔 승수는?", "{late}에 {team:은/는} 몇 승을 올렸나?"), "wins"),
        _Question(("{team}의 두 번째 감독은?", "{late} 우승 당시의 감독은 누구인가?"), "person1", 3),
        _Question(("{middle}에 {team:이/가} 거둔 승수는?", "{team:이/가} 지난해 거둔 승수는?"), "wins", 3),
        _Question(("{team:이/가} 홈구장을 새로 지은 해는?", "{person2:이/가} 은퇴한 해는?"), "late", 3),
    ),
)

_NOVEL = _Kind(
    title="장편 소설 {novel}",
    category="문화",
    sentences=(
        (
            "{novel:은/는} 소설가 {person1:이/가} {late}에 펴낸 장편 소설이다.",
            "소설가 {person1:은/는} {late}에 장편 소설 {novel:을/를} 펴냈다.",
        ),
        ("외딴섬에 사는 {hero:이/가} 이름 모를 사람의 편지를 받으면서 이야기가 시작된다.",),
        (
            "작가는 대학 시절 {country:을/를} 여행하다가 이 이야기를 떠올렸다고 한다.",
            "이 이야기는 작가가 젊은 시절 {country:을/를} 여행하면서 떠올린 것이다.",
        ),
        (
            "책은 나온 지 한 달 만에 {copies:이/가} 팔렸고, 지금까지 외국어로도 여러 번 옮겨졌다.",
            "출간 한 달 만에 {copies:이/가} 팔릴 만큼 반응이 뜨거웠다.",
        ),
        (
            "{person2} 감독은 이 소설을 바탕으로 영화를 만들고 있으며, 촬영은 {city1}에서 이루어진다.",
            "지금 {city1}에서는 {person2} 감독이 이 작품을 영화로 찍고 있다.",
        ),
        (
            "작가는 소설가가 되기 전에 {job:으로/로} 일한 적이 있다.",
            "소설을 쓰기 전에 작가의 직업은 {job:이었다/였다}.",
        ),
    ),
    questions=(
        _Question(
            ("{novel:을/를} 쓴 사람은?", "{novel}의 작가는 누구인가?", "{novel:은/는} 누구의 작품인가?"), "person1"
        ),
        _Question(("{novel:이/가} 출간된 해는?", "{novel:은/는} 언제 나왔나?"), "late"),
        _Question(("{novel}에서 편지를 받는 인물은?", "{person1}의 소설에서 외딴섬에 사는 사람은?"), "hero", 2),
        _Question(
            ("{person1:이/가} 소설의 이야기를 떠올린 나라는?", "{novel:은/는} 어느 나라를 여행하다가 구상한 작품인가?"),
            "country",
            2,
        ),
        _Question(
            ("{novel:을/를} 영화로 만드는 감독은?", "{person1}의 소설을 영화로 옮기는 사람은 누구인가?"), "person2", 2
        ),
        _Question(("영화를 촬영하는 도시는?", "{person2} 감독이 영화를 찍는 곳은 어디인가?"), "city1"),
        _Question(
            ("{person1:이/가} 소설가가 되기 전에 가졌던 직업은?", "{novel:을/를} 쓴 작가가 예전에 하던 일은?"), "job", 2
        ),
        _Question(("한 달 동안 팔린 책은 몇 권인가?", "{novel:은/는} 나온 지 한 달 만에 몇 권이 팔렸나?"), "copies"),
        _Question(("{novel}의 영화가 개봉하는 해는?", "{person1:이/가} 첫 소설을 발표한 해는?"), "late", 3),
        _Question(("{novel}의 영화에서 주인공을 맡은 배우는?", "{novel:을/를} 외국어로 옮긴 번역가는?"), "person2", 3),
        _Question(("{person1:이/가} 태어난 도시는?", "{novel}의 배경이 된 도시는?"), "city1", 3),
    ),
)

_BRIDGE = _Kind(
    title="{river}의 {bridge}",
    category="사회",
    splits=("train",),
    sentences=(
        (
            "{bridge:은/는} {city1}의 {river:을/를} 가로지르는 보행자 전용 다리이다.",
            "{city1}의 {river} 위에는 걷는 사람만 건널 수 있는 {bridge:이/가} 놓여 있다.",
        ),
        ("길이는 {length}이며, 바닥은 {material2:으로/로} 되어 있다.",),
        ("건축가 {person1:이/가} 설계를 맡아 {begun}에 공사를 시작했다.",),
        ("공사는 {cause} 때문에 한동안 멈추었다가 {ended}에야 끝났다.",),
        ("개통식에서는 주민 대표 {person2} 씨가 가장 먼저 다리를 건넜다.",),
        ("지금은 하루에 {visitors:이/가} 건너는 도시의 명소가 되었다.",),
    ),
    questions=(
        _Question(("{bridge:을/를} 설계한 사람은?",), "person1", 2),
        _Question(("{bridge} 공사가 시작된 해는?",), "begun", 2),
        _Question(("{bridge} 공사가 끝난 해는?",), "ended", 2),
        _Question(("{bridge} 공사가 멈춘 이유는?",), "cause", 2),
        _Question(("{bridge:을/를} 가장 먼저 건넌 사람은?",), "person2", 2),
        _Question(("{bridge:이/가} 놓인 강의 이름은?",), "river"),
        _Question(("{bridge}의 길이는?",), "length", 2),
        _Question(("{bridge:을/를} 하루에 건너는 자동차는 몇 대인가?",), "visitors", 3),
        _Question(("{bridge:을/를} 다시 고친 해는?",), "ended", 3),
        _Question(("{bridge} 공사에 돈을 낸 사람은?",), "person2", 3),
    ),
)

_TRAIL = _Kind(
    title="{city1} {trail}",
    category="여행",
    splits=("dev",),
    bound=(2, 4),
    sentences=(
        ("{trail:은/는} {city1}에 있는 산책길로, {tree} 숲 사이를 지난다.",),
        ("산림청에서 일하던 {person1} 씨가 {begun}에 버려진 산길을 발견한 것이 시작이었다.",),
        ("그는 주민 {few:과/와} 함께 돌을 치우고 안내판을 세워 {ended}에 길을 완성했다.",),
        ("천천히 걸으면 {minutes:이/가} 걸리며, 중간에 있는 쉼터에서는 {food:을/를} 맛볼 수 있다.",),
        ("쉼터를 운영하는 {person2} 씨는 원래 {job:이었다/였다}.",),
        ("{city1:은/는} 길을 보호하기 위해 {weekday}마다 사람들의 출입을 막고 있다.",),
    ),
    questions=(
        _Question(("{trail:이/가} 지나는 숲의 나무는?",), "tree"),
        _Question(("{trail:이/가} 된 산길을 처음 발견한 사람은?",), "person1", 2),
        _Question(("{trail:이/가} 완성된 해는?",), "ended", 2),
        _Question(("{trail:을/를} 걷는 데 걸리는 시간은?",), "minutes", 2),
        _Question(("{trail:을/를} 걸을 수 없는 요일은?",), "weekday", 2),
        _Question(("쉼터를 운영하는 사람은 누구인가?",), "person2"),
        _Question(("쉼터 주인의 예전 직업은?",), "job"),
        _Question(("{trail} 쉼터가 문을 연 해는?",), "ended", 3),
        _Question(("{trail:을/를} 하루에 찾는 사람은 몇 명인가?",), "few", 3),
        _Question(("안내판의 그림을 그린 사람은?",), "person2", 3),
    ),
)

_KINDS = (_COMPANY, _FESTIVAL, _MUSEUM, _SCIENTIST, _POLICY, _APP, _VILLAGE, _TEAM, _NOVEL, _BRIDGE, _TRAIL)


# --- facts to passages ------------------------------------------------------------------------------------


def _wordings(kind: _Kind, wordings: tuple[str, ...], split: str) -> tuple[str, ...]:
    """The wordings this split may use: all but the last in train, all but the first in dev."""
    if len(wordings) == 1 or len(kind.splits) == 1:
        return wordings
    return wordings[:-1] if split == "train" else wordings[1:]


def _number(name: str, rng: random.Random) -> str:
    """A number with its unit: 1985년, 12,000명."""
    low, high, step, unit = _NUMBERS[name]
    number = rng.randrange(low, high + 1, step)
    return f"{number:,}{unit}" if name in _GROUPED else f"{number}{unit}"


def _draw(slot: str, taken: set[str], split: str, rng: random.Random) -> str:
    """A value for a slot that no other slot of the passage has."""
    name = slot.rstrip("0123456789") if slot not in _WORDS else slot
    if name in _NUMBERS:
        return _number(name, rng)
    train, dev = _WORDS[name]
    values = (train if split == "train" else dev).split(",")
    return rng.choice([value for value in values if value not in taken])


def _facts(kind: _Kind, split: str, rng: random.Random) -> dict[str, str]:
    """Values for all slots of the kind; a value "a|b" fills {name} with a and {name_pair} with b."""
    text = " ".join(wording for wordings in kind.sentences for wording in wordings)
    facts: dict[str, str] = {}
    for slot in dict.fromkeys(match[1].removesuffix("_pair") for match in _SLOT.finditer(text)):
        value, _, pair = _draw(slot, set(facts.values()), split, rng).partition("|")
        facts[slot] = value
        facts[f"{slot}_pair"] = pair
    return facts


def _render(frame: str, facts: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    """The filled frame, and where in it each slot first stands."""
    text, starts, end = "", dict[str, int](), 0
    for match in _SLOT.finditer(frame):
        name, pair = match.groups()
        text += frame[end : match.start()]
        starts.setdefault(name, len(text))
        text += with_particle(facts[name], pair) if pair else facts[name]
        end = match.end()
    return text + frame[end:], starts


def _answers(slot: str, value: str, start: int) -> list[dict[str, Any]]:
    """The value at its place, also without its unit (1985년, 1985) or its kind of town (춘천시, 춘천)."""
    answers = [{"text": value, "answer_start": start}]
    if counted := _COUNTED.fullmatch(value):
        answers.append({"text": counted[1], "answer_start": start})
    if slot.startswith("city"):
        answers.append({"text": value.removesuffix("시"), "answer_start": start})
    return answers


def _question(frame: str, question: _Question, facts: Mapping[str, str], start: int) -> dict[str, Any]:
    """A question in the official layout, its guid still missing."""
    answers = _answers(question.answer, facts[question.answer], start)
    possible = question.type != 3
    entry = {
        "question": fill(frame, facts),
        "answers": answers if possible else [],
        "question_type": question.type,
        "is_impossible": not possible,
    }
    return entry if possible else {**entry, "plausible_answers": answers}


def _part(kind: _Kind, rng: random.Random) -> list[tuple[str, ...]]:
    """The first sentence of the kind and two or three that follow each other."""
    length = rng.choice(_LENGTHS)
    starts = [number for number in range(1, len(kind.sentences) - length + 1) if number not in kind.bound]
    start = rng.choice(starts)
    return [kind.sentences[0], *kind.sentences[start : start + length]]


def _known(question: _Question, told: set[str]) -> bool:
    """Whether a passage tells all that the question speaks of, and something that may answer it."""
    asked = {match[1] for wording in question.wordings for match in _SLOT.finditer(wording)}
    return {question.answer, *asked} <= told


def _chosen(kind: _Kind, told: set[str], rng: random.Random) -> list[_Question] | None:
    """Two to five questions that suit what the passage tells, in random order; None where there are too few."""
    suitable = [question for question in kind.questions if _known(question, told)]
    answerable = [question for question in suitable if question.type != 3]
    others = [question for question in suitable if question.type == 3]
    possible = [(some, none) for some, none in _QUESTIONS if some <= len(answerable) and none <= len(others)]
    if not possible:
        return None
    some, none = rng.choice(possible)
    return rng.sample(rng.sample(answerable, some) + rng.sample(others, none), some + none)


def _article(kind: _Kind, split: str, rng: random.Random) -> dict[str, Any]:
    """A passage with its questions."""
    facts = _facts(kind, split, rng)
    questions = None
    while not questions:
        frame = " ".join(rng.choice(_wordings(kind, wordings, split)) for wordings in _part(kind, rng))
        context, starts = _render(frame, facts)
        questions = _chosen(kind, set(starts), rng)
    asked = [
        _question(rng.choice(_wordings(kind, question.wordings, split)), question, facts, starts[question.answer])
        for question in questions
    ]
    return {
        "title": fill(kind.title, facts),
        "paragraphs": [{"context": context, "qas": asked}],
        "news_category": kind.category,
        "source": "sample",
    }


DEMO = {"epochs": 2, "batch_size": 4}
"""How the demo trains the encoder in the box on it."""


def make(split: str, rng: random.Random) -> dict[str, Any]:
    """The whole file of a split, the kinds of passages taking turns."""
    kinds = [kind for kind in _KINDS if split in kind.splits]
    articles = [_article(kinds[number % len(kinds)], split, rng) for number in range(_PASSAGES[split])]
    questions = [entry for article in articles for entry in article["paragraphs"][0]["qas"]]
    for number, entry in enumerate(questions):
        entry["guid"] = f"klue-mrc-sample_{split}_{number:05}"
    return {"version": "klue-mrc-sample", "data": articles}
