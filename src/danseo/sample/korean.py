"""The little Korean grammar that templates need: particles that follow the sound before them."""

# How a Latin letter or a digit ends when read aloud in Korean: its final consonant, "" for none.
_SPOKEN_ENDINGS: dict[str, str] = {
    **dict.fromkeys("2459", ""),
    **dict.fromkeys("036", "ㅇ"),
    **dict.fromkeys("178", "ㄹ"),
    **dict.fromkeys("LRlr", "ㄹ"),
    **dict.fromkeys("MNmn", "ㅇ"),
}
_FINALS: tuple[str, ...] = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")
_PAIRS = {
    "은/는": ("은", "는"),
    "이/가": ("이", "가"),
    "을/를": ("을", "를"),
    "과/와": ("과", "와"),
    "아/야": ("아", "야"),
    "이나/나": ("이나", "나"),
    "이랑/랑": ("이랑", "랑"),
    "이다/다": ("이다", "다"),
    "이었다/였다": ("이었다", "였다"),
    "이라/라": ("이라", "라"),
    "이며/며": ("이며", "며"),
    "이에요/예요": ("이에요", "예요"),
    "으로/로": ("으로", "로"),
}


def final_consonant(word: str) -> str:
    """The consonant that closes the last sound of the word: "서울" gives ㄹ, "부산" ㄴ, "대구" ""."""
    last = word.rstrip("'\"’”)》〉」』]")[-1]
    if "가" <= last <= "힣":
        return _FINALS[(ord(last) - ord("가")) % 28]
    return _SPOKEN_ENDINGS.get(last, "")


def particle(word: str, pair: str) -> str:
    """The form of a particle that fits after the word: particle("서울", "은/는") is "은"."""
    closed, opened = _PAIRS[pair]
    final = final_consonant(word)
    if pair == "으로/로":
        return opened if final in ("", "ㄹ") else closed
    return closed if final else opened


def with_particle(word: str, pair: str) -> str:
    """The word with its particle: with_particle("부산", "으로/로") is "부산으로"."""
    return word + particle(word, pair)
