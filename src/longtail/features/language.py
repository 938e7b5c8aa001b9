"""The languages whose words can be analysed, and which of them a collection of texts is written in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longtail.errors import SettingError, suggest
from longtail.features.words import find_words

_MAX_SAMPLED_TEXTS = 2000
_MAX_SAMPLED_CHARS = 1000  # of each text
_MAX_COMPARED_CHARS = 100_000  # of a text whose language is asked for
_MIN_SHARE = 0.02  # of the words that must be function words of the language; Finnish titles have 5 %, English texts 35 %
_MIN_LEAD = 1.5  # times the share of the next language
_MIN_WORDS = 20  # of the sample: fewer say nothing


@dataclass(frozen=True)
class Language:
    """What is known about a language.

    :param stemmer: Its Snowball algorithm.
    :param compounds: Whether compounds are written as one word.
    """

    stemmer: str
    compounds: bool = False


LANGUAGES = {
    "ar": Language("arabic"),
    "ca": Language("catalan"),
    "cs": Language("czech"),
    "da": Language("danish", compounds=True),
    "de": Language("german", compounds=True),
    "el": Language("greek"),
    "en": Language("english"),
    "es": Language("spanish"),
    "et": Language("estonian", compounds=True),
    "eu": Language("basque"),
    "fa": Language("persian"),
    "fi": Language("finnish", compounds=True),
    "fr": Language("french"),
    "ga": Language("irish"),
    "hi": Language("hindi"),
    "hu": Language("hungarian", compounds=True),
    "id": Language("indonesian"),
    "it": Language("italian"),
    "lt": Language("lithuanian"),
    "nl": Language("dutch", compounds=True),
    "no": Language("norwegian", compounds=True),
    "pl": Language("polish"),
    "pt": Language("portuguese"),
    "ro": Language("romanian"),
    "ru": Language("russian"),
    "sr": Language("serbian"),
    "sv": Language("swedish", compounds=True),
    "ta": Language("tamil"),
    "tr": Language("turkish"),
}
_FUNCTION_WORDS = {  # frequent words that say which language a text is in
    "ar": "في من على إلى أن عن مع هذا هذه التي الذي ما لا بين بعد كان كما أو قبل كل",
    "ca": "els les amb dels per una als què és són va seva seu més però també aquest aquesta del i",
    "cs": "a v na se je že do pro ve jsou nebo jako jeho také při které který podle od být jejich až ale",
    "da": "og i at det en til af er for der på ikke med som den et har fra blev efter eller også han hun var",
    "de": (
        "der die und das den von zu mit sich des auf für ist im dem nicht ein eine als auch es an werden aus "
        "er hat dass sie nach wird bei einer um am sind noch wie einem über zum zur"
    ),
    "el": "και το του της να η τα που των την με για από στο δεν είναι θα οι τις στην",
    "en": (
        "the of and to in a is for that on with as by are be this from it or an was which at not can its has "
        "but were their have you if all will"
    ),
    "es": ("de la que el en y los se del las por un para con una su al es lo como más o pero sus ha fue este entre cuando"),
    "et": "ja on ei et ta see oli kui ka mis oma aga või ning selle nii mida eesti seda nende kes juures kohta",
    "eu": "eta da ez du bat ere izan zen dira baina dute egin zuen hori duen edo bere",
    "fa": "و در به از که این را با است برای آن یک خود تا بر",
    "fi": (
        "ja on ei se että oli mutta kun niin hän joka myös ovat sekä kuin tai vai mitä tämä vuoden jälkeen "
        "kanssa olla hänen miten kuinka siitä sen suomen välillä"
    ),
    "fr": (
        "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec "
        "son aux cette ou ses mais comme"
    ),
    "ga": "agus an na ar le go is bhí sé ag do i atá tá mar sin ach nach siad faoi",
    "hi": "के में की है से को का और पर यह हैं कि एक ने लिए भी इस नहीं",
    "hu": ("a az és hogy nem is egy volt ez meg de csak azt ha van mint még vagy már sem amely után között által szerint"),
    "id": "yang dan di dengan untuk dari pada ini itu dalam tidak akan adalah ke oleh atau juga",
    "it": (
        "di e il la che in per un del una della è con non da le dei si al nel delle sono i come alla anche più gli ha lo su"
    ),
    "lt": "ir kad yra su iš į bei tai buvo kaip apie ar jo už tik bet jų dėl nuo iki savo",
    "nl": (
        "de van het een en in is dat op te voor met zijn niet aan er om ook als bij door naar uit maar wordt "
        "tot hij worden deze over"
    ),
    "no": "og i å det en til av er for som på ikke med den et har fra ble etter eller også han hun var seg være",
    "pl": "w i na się z do nie jest że o od to przez po za jak ale oraz jego dla są który która których ich był",
    "pt": ("de a o que e do da em um para com não uma os no se na por mais as dos como ao das foi pelo são à ou sua pela"),
    "ro": "de și în la a cu pe o din că nu este un care mai pentru prin sau sunt fost după lui ale al",
    "ru": "и в не на что с по как это из к для о у от за но же был при его или так она",
    "sr": "i je u da se na za su od sa nije koji kao iz ali bi и је у да се на за су од са није који",
    "sv": (
        "och i att det som en på är av för med till den har inte om ett de var från vid eller hade men kan ut "
        "efter mellan under"
    ),
    "ta": "ஒரு என்று மற்றும் இந்த என அந்த உள்ள இது அது",
    "tr": "ve bir bu da de için ile olarak olan gibi daha en çok ne kadar sonra ama değil ya göre her",
}
_LANGUAGES_BY_WORD: dict[str, list[str]] = {}
for _code, _words in _FUNCTION_WORDS.items():
    for _word in _words.split():
        _LANGUAGES_BY_WORD.setdefault(_word, []).append(_code)


def get_language(code: str) -> Language:
    """The language of a two-letter code.

    >>> get_language("fi").stemmer
    'finnish'
    """
    if code not in LANGUAGES:
        names = {language.stemmer: known for known, language in LANGUAGES.items()}
        hint = f'Did you mean "{names[code]}"?' if code in names else suggest(code, LANGUAGES)
        raise SettingError(f'"{code}" is not a language that can be analysed', hint=hint)
    return LANGUAGES[code]


def detect_language(texts: Sequence[str], seed: int = 0) -> str | None:
    """The language that most texts are written in, by the function words of a random sample. None if it is not clear.

    A function word that k languages have counts 1/k² for each of them, as it says little.

    >>> detect_language(["Die Geschichte der Stadt und ihrer Bewohner", "Wie man mit dem Hund auf die Reise geht"] * 2)
    'de'
    >>> detect_language(["3 5 7"]) is None
    True
    """
    rows = np.random.default_rng(seed).permutation(len(texts))[:_MAX_SAMPLED_TEXTS]
    words = Counter(word for row in rows for word in find_words(texts[row][:_MAX_SAMPLED_CHARS]))
    n_words, scores = words.total(), _score_languages(words)
    (next_score, _), (score, best) = sorted((score, code) for code, score in scores.items())[-2:]
    clear = n_words >= _MIN_WORDS and score >= _MIN_SHARE * n_words and score >= _MIN_LEAD * next_score
    return best if clear else None


def compare_languages(text: str, languages: Sequence[str]) -> list[tuple[str | None, float]]:
    """How much the function words of a text speak for each of some languages, as shares; the highest share first.

    The share of None is that of all other languages; it is 1 if the text has no function word.

    >>> compare_languages("Die Geschichte der Stadt", ["en", "de"])[0][0]
    'de'
    """
    scores = _score_languages(Counter(find_words(text[:_MAX_COMPARED_CHARS])))
    total = sum(scores.values())
    shares: dict[str | None, float] = {code: scores[code] / total if total else 0.0 for code in languages}
    shares[None] = max(1 - sum(shares.values()), 0.0)
    return sorted(shares.items(), key=lambda pair: -pair[1])


def _score_languages(words: Counter[str]) -> dict[str, float]:
    """How often function words of each language occur; one that k languages have counts 1/k² for each of them."""
    scores = dict.fromkeys(LANGUAGES, 0.0)
    for word, languages in _LANGUAGES_BY_WORD.items():
        for code in languages:
            scores[code] += words[word] / len(languages) ** 2
    return scores
