"""A corpus that anyone can make: counted things, dates and times, in English and Brazilian Portuguese words.

python -m training.examples.number_words FOLDER writes train.en, train.pt, valid.en and valid.pt. It is small, but
it is translation: adjectives change places, numerals and articles agree with their noun, and no validation sentence
is among the training sentences.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from training.examples.folder import into_folder

PAIRS, HELD_OUT, SEED = 40_000, 500, 1

ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
UNITS = (
    *("zero", "um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito", "nove", "dez", "onze", "doze"),
    *("treze", "quatorze", "quinze", "dezesseis", "dezessete", "dezoito", "dezenove"),
)
DOZENS = ("vinte", "trinta", "quarenta", "cinquenta", "sessenta", "setenta", "oitenta", "noventa")
HUNDREDS = (
    *("cento", "duzentos", "trezentos", "quatrocentos", "quinhentos", "seiscentos", "setecentos", "oitocentos"),
    "novecentos",
)

NOUNS = {
    "book": ("livro", "livros", False),
    "house": ("casa", "casas", True),
    "car": ("carro", "carros", False),
    "chair": ("cadeira", "cadeiras", True),
    "shirt": ("camisa", "camisas", True),
    "boat": ("barco", "barcos", False),
    "bag": ("bolsa", "bolsas", True),
    "glass": ("copo", "copos", False),
    "table": ("mesa", "mesas", True),
    "hat": ("chapéu", "chapéus", False),
}
"""English: Portuguese singular, plural, and whether it is feminine."""
PLURALS = {"glass": "glasses"}
ADJECTIVES = {
    "red": ("vermelho", "vermelha"),
    "white": ("branco", "branca"),
    "old": ("velho", "velha"),
    "new": ("novo", "nova"),
    "small": ("pequeno", "pequena"),
    "expensive": ("caro", "cara"),
    "beautiful": ("bonito", "bonita"),
}
VERBS = {
    "bought": ("comprei", "comprou", "compraram"),
    "sold": ("vendi", "vendeu", "venderam"),
    "saw": ("vi", "viu", "viram"),
    "lost": ("perdi", "perdeu", "perderam"),
    "found": ("achei", "achou", "acharam"),
}
SUBJECTS = {"I": ("eu", 0), "she": ("ela", 1), "he": ("ele", 1), "they": ("eles", 2)}
"""English: Portuguese, and which form of the verb it takes."""
MONTHS = {
    "January": "janeiro",
    "February": "fevereiro",
    "March": "março",
    "April": "abril",
    "May": "maio",
    "June": "junho",
    "July": "julho",
    "August": "agosto",
    "September": "setembro",
    "October": "outubro",
    "November": "novembro",
    "December": "dezembro",
}

Pair = tuple[str, str]


def english(number: int) -> str:
    """A number below a million, in words."""
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{ONES[hundreds]} hundred" + (f" and {english(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    joint = " and " if rest < 100 else " "
    return f"{english(thousands)} thousand" + (joint + english(rest) if rest else "")


def portuguese(number: int, feminine: bool = False) -> str:
    """The same in Portuguese, where one, two and the hundreds agree with what is counted."""
    if number < 20:
        word = UNITS[number]
        return {"um": "uma", "dois": "duas"}.get(word, word) if feminine else word
    if number < 100:
        tens, ones = divmod(number, 10)
        return DOZENS[tens - 2] + (f" e {portuguese(ones, feminine)}" if ones else "")
    if number == 100:
        return "cem"
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        word = HUNDREDS[hundreds - 1]
        word = word.replace("tos", "tas") if feminine else word
        return word + (f" e {portuguese(rest, feminine)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    word = "mil" if thousands == 1 else f"{portuguese(thousands, feminine)} mil"
    joint = " e " if rest < 100 or rest % 100 == 0 else " "
    return word + (joint + portuguese(rest, feminine) if rest else "")


def counted(random: random.Random) -> Pair:
    """They bought two hundred and one red houses."""
    subject, verb, noun, adjective = (random.choice(list(words)) for words in (SUBJECTS, VERBS, NOUNS, ADJECTIVES))
    number = random.randrange(1, random.choice((10, 100, 1000, 10_000, 1_000_000)))
    singular, plural, feminine = NOUNS[noun]
    many = PLURALS.get(noun, f"{noun}s")
    pronoun, form = SUBJECTS[subject]
    word = ADJECTIVES[adjective][feminine]
    things = (
        (f"{adjective} {noun}", f"{singular} {word}") if number == 1 else (f"{adjective} {many}", f"{plural} {word}s")
    )
    return (
        _sentence(f"{subject} {verb} {english(number)} {things[0]}"),
        _sentence(f"{pronoun} {VERBS[verb][form]} {portuguese(number, feminine)} {things[1]}"),
    )


def dated(random: random.Random) -> Pair:
    """She sold the house on May three, one thousand nine hundred and eighty-seven."""
    subject, verb, noun, month = (random.choice(list(words)) for words in (SUBJECTS, VERBS, NOUNS, MONTHS))
    day, year = random.randrange(1, 29), random.randrange(1500, 2100)
    singular, _, feminine = NOUNS[noun]
    pronoun, form = SUBJECTS[subject]
    days = ("first", "primeiro") if day == 1 else (english(day), portuguese(day))
    return (
        _sentence(f"{subject} {verb} the {noun} on {month} {days[0]}, {english(year)}"),
        _sentence(
            f"{pronoun} {VERBS[verb][form]} {'a' if feminine else 'o'} {singular} em {days[1]} de {MONTHS[month]} de "
            f"{portuguese(year)}"
        ),
    )


def timed(random: random.Random) -> Pair:
    """He lost the bag at twenty past three."""
    subject, verb, noun = (random.choice(list(words)) for words in (SUBJECTS, VERBS, NOUNS))
    hour, minute = random.randrange(1, 13), random.randrange(1, 60)
    singular, _, feminine = NOUNS[noun]
    pronoun, form = SUBJECTS[subject]
    following = hour % 12 + 1
    if minute <= 30:
        times = (f"at {english(minute)} past {english(hour)}", f"{_at(hour)} e {portuguese(minute)}")
    else:
        left = 60 - minute
        article = "a" if following == 1 else "as"
        times = (
            f"at {english(left)} to {english(following)}",
            f"às {portuguese(left)} para {article} {portuguese(following, feminine=True)}",
        )
    return (
        _sentence(f"{subject} {verb} the {noun} {times[0]}"),
        _sentence(f"{pronoun} {VERBS[verb][form]} {'a' if feminine else 'o'} {singular} {times[1]}"),
    )


def _at(hour: int) -> str:
    return f"{'à' if hour == 1 else 'às'} {portuguese(hour, feminine=True)}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def make_pairs(count: int, seed: int) -> list[Pair]:
    """Different pairs, in random order."""
    generator = random.Random(seed)
    pairs: dict[Pair, None] = {}
    while len(pairs) < count:
        make = generator.choice((counted, counted, dated, timed))
        pairs[make(generator)] = None
    return list(pairs)


def write(folder: Path, pairs: Sequence[Pair], held_out: int) -> None:
    """Writes the corpus; the first `held_out` pairs are for validation."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("valid", pairs[:held_out]), ("train", pairs[held_out:])):
        for side, language in enumerate(("en", "pt")):
            text = "".join(f"{pair[side]}\n" for pair in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    into_folder("number_words", __doc__, lambda folder: write(folder, make_pairs(PAIRS, SEED), HELD_OUT))
