"""Text to token numbers: a pretrained tokenizer, or a unigram model of word pieces learned from the texts.

Pieces are those of SentencePiece's unigram model (Kudo, ACL 2018): a word is cut into the pieces whose probabilities have
the largest product. SentencePiece learns them, as it gives the same pieces every time (the trainer of the tokenizers library
does not); the tokenizers library then cuts, and its one file is what a bundle keeps.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import DataError, SettingError, missing_extra
from longtail.features.pretrained import pretrained_folder, tokenizer_file
from longtail.features.token_rows import TokenRows, joined, read_cached, write_cached
from longtail.kernels import Ints, Longs
from longtail.progress import SILENT, Progress

CHUNK = 1024  # texts handled by one call of the tokenizer
MOST_PIECES = 32_000
MOST_WORDS = 1_000_000  # distinct words that pieces are learned from, the most frequent ones
# Pieces that no text can hold: a space is written as another character before a text is cut.
PAD, UNKNOWN, SEP, CLS = SPECIALS = ("pad piece", "unknown piece", "sep piece", "cls piece")

WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+|\S")  # a run without blanks and ASCII punctuation, or a punctuation character


class Tokens:
    """Texts -> numbers of their tokens, cut to a length.

    >>> tokens = Tokens()
    >>> rows = tokens.fit_transform(["red apple", "green apple", "a red red rose"])
    >>> len(rows), tokens.transform(["red", "RED  ", ""]).lengths.tolist()[1:]
    (3, [1, 0])
    """

    def __init__(
        self,
        *,
        pretrained: str | None = None,
        max_length: int = 512,
        n_pieces: int | None = None,
        lower: bool = True,
        special: bool = False,
        cache: str | None = None,
    ) -> None:
        """Store the settings.

        pretrained: a folder or a model of the hub's cache whose tokenizer is taken; by default one is learned.
        max_length: tokens of a text that are kept. n_pieces: how many pieces are learned; by default one for each character
        and each word that occurs twice, 32,000 at most (or as many as there are characters). lower: learned pieces have no
        capital letters. special: whether texts get the tokens that mark start and end: those of the pretrained tokenizer, or
        SEP and CLS at the end. cache: a folder that keeps the tokens of every corpus, for the next run.
        """
        if n_pieces is not None and n_pieces < 1:
            raise SettingError(f"n_pieces is {n_pieces}", hint="It must be at least 1, or left out")
        fewest = 3 if special else 1
        if max_length < fewest:
            raise SettingError(f"max_length is {max_length}", hint=f"It must be at least {fewest}")
        self.pretrained, self.max_length, self.n_pieces = pretrained, max_length, n_pieces
        self.lower, self.special, self.cache = lower, special, cache

    @property
    def n_tokens(self) -> int:
        """How many different tokens there are."""
        return int(self.tokenizer.get_vocab_size())

    def token(self, number: int) -> str:
        """The token behind a number."""
        return str(self.tokenizer.id_to_token(number))

    def fit(self, texts: Sequence[str], progress: Progress = SILENT) -> Tokens:
        """Learn pieces, or load the pretrained tokenizer."""
        if not len(texts):
            raise DataError("there is not a single text to learn from")
        if self.pretrained is None:
            self._set(learned(texts, self.n_pieces, self.lower, progress))
        else:
            self._set(loaded(self.pretrained))
        return self

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> TokenRows:
        """Learn from texts and return their tokens."""
        return self.fit(texts, progress).transform(texts, progress)

    def transform(self, texts: Sequence[str], progress: Progress = SILENT) -> TokenRows:
        """Tokens of texts; mapped from disk where there is a cache."""
        if self.cache is None:
            return joined(self._parts(texts, progress))
        key = self._key(texts)
        found = read_cached(Path(self.cache), key)
        return write_cached(Path(self.cache), key, self._parts(texts, progress)) if found is None else found

    def words(self, text: str) -> tuple[Ints, Longs, Longs]:
        """Token numbers of one text [n], the word that each is of [n] (−1: of none), and the characters of words [w, 2].

        Words are those of which at least one token is kept.
        """
        row = self.tokenizer.encode(plain(text), add_special_tokens=self.special)
        spans = np.array([match.span() for match in WORD.finditer(text)], np.int64).reshape(-1, 2)
        word = np.full(len(text), -1)  # of each character
        for number, (start, end) in enumerate(spans):
            word[start:end] = number
        of, after = np.full(len(row.ids), -1), -1
        for at, (start, end) in reversed(list(enumerate(row.offsets))):
            inside = [w for w in word[start:end] if w >= 0]
            if start < end:  # else it marks an end, and is of no word
                after = of[at] = inside[0] if inside else after  # a token that is but a blank is of the word behind it
        kept, numbers = np.unique(of[of >= 0], return_inverse=True)
        of[of >= 0] = numbers
        return np.array(row.ids, np.int32), of, spans[kept]

    def settings(self) -> dict[str, object]:
        """What the constructor was given, but for the cache, which belongs to a machine."""
        names = ("pretrained", "max_length", "n_pieces", "lower", "special")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, NDArray[Any]]:
        """The tokenizer, as bytes."""
        return {"tokenizer": np.frombuffer(self.tokenizer.to_str().encode(), np.uint8)}

    def restore(self, state: dict[str, NDArray[Any]]) -> Tokens:
        """Take back what ``state`` gave."""
        self._set(library().Tokenizer.from_str(state["tokenizer"].tobytes().decode()))
        return self

    def _set(self, tokenizer: Any) -> None:
        tokenizer.no_padding()
        tokenizer.enable_truncation(self.max_length)
        tokenizer.encode_special_tokens = True  # a text that says "[SEP]" means these letters
        self.tokenizer = tokenizer

    def _parts(self, texts: Sequence[str], progress: Progress) -> Iterator[TokenRows]:
        with progress.stage("tokens", len(texts)) as stage:
            for start in range(0, len(texts), CHUNK):
                part = [plain(text) for text in texts[start : start + CHUNK]]
                rows = self.tokenizer.encode_batch_fast(part, add_special_tokens=self.special)
                yield TokenRows.of([row.ids for row in rows])
                stage.advance(len(part))

    def _key(self, texts: Sequence[str]) -> str:
        """Tells the tokens of these texts from those of others."""
        key = hashlib.sha256(f"{self.special} {self.tokenizer.to_str()}".encode())
        for text in texts:
            content = text.encode("utf-8", "replace")
            key.update(len(content).to_bytes(8, "little"))  # so that "ab", "c" are not "a", "bc"
            key.update(content)
        return key.hexdigest()


def library() -> Any:
    """The tokenizers library."""
    try:
        import tokenizers
    except ImportError as error:
        raise missing_extra("tokenizers", "nn", "Cutting texts into tokens") from error
    return tokenizers


def plain(text: str) -> str:
    """A text without halves of characters, which the library refuses."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def loaded(name: str) -> Any:
    """The tokenizer of a pretrained model."""
    folder, tokenizers = pretrained_folder(name), library()
    if (file := tokenizer_file(folder)) is not None:
        return tokenizers.Tokenizer.from_file(str(file))
    try:  # older models have it in another form, which transformers turns into this one
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer
    except ImportError as error:
        raise missing_extra("transformers", "nn", f'The tokenizer of "{name}"') from error
    except (OSError, ValueError, AttributeError) as error:
        hint = "Put the tokenizer.json of the model into the folder"
        raise SettingError(f"there is no tokenizer that can be read ({error})", where=str(folder), hint=hint) from error


def learned(texts: Sequence[str], n_pieces: int | None, lower: bool, progress: Progress) -> Any:
    """A unigram model of word pieces."""
    tokenizers = library()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
    steps = [tokenizers.normalizers.Nmt(), tokenizers.normalizers.NFKC()]  # as SentencePiece: odd spaces, wide letters
    steps += [tokenizers.normalizers.Lowercase()] if lower else []
    steps += [tokenizers.normalizers.Replace(tokenizers.Regex(r"\s+"), " "), tokenizers.normalizers.Strip()]
    tokenizer.normalizer = tokenizers.normalizers.Sequence(steps)
    words: Counter[str] = Counter()
    with progress.stage("word pieces", len(texts)) as stage:
        for text in texts:
            words.update(tokenizer.normalizer.normalize_str(plain(text)).split(" "))
            stage.advance()
    del words[""]
    if not words:
        raise DataError("the texts hold no words", hint="Check the texts of the training data")
    tokenizer.model = tokenizers.models.Unigram(pieces(words, n_pieces), SPECIALS.index(UNKNOWN))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    ends = [(name, SPECIALS.index(name)) for name in (SEP, CLS)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=["$A", SEP, CLS], special_tokens=ends)
    return tokenizer


def pieces(words: Counter[str], n_pieces: int | None) -> list[tuple[str, float]]:
    """Pieces of words and the logarithms of their probabilities, learned from how often words occur."""
    try:
        from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
    except ImportError as error:
        raise missing_extra("sentencepiece", "nn", "Learning word pieces") from error
    most = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:MOST_WORDS]
    fewest = len(set().union(*words)) + len(SPECIALS) + 1  # each character is a piece, and so is the start of a word
    asked = n_pieces or min(sum(n > 1 for n in words.values()) + fewest, MOST_PIECES)
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{n}" for word, n in most),
        model_writer=model,
        input_format="tsv",
        model_type="unigram",
        vocab_size=max(asked, fewest),
        hard_vocab_limit=False,
        normalization_rule_name="identity",  # done before
        control_symbols=[SEP, CLS],
        pad_id=SPECIALS.index(PAD),
        pad_piece=PAD,
        unk_id=SPECIALS.index(UNKNOWN),
        unk_piece=UNKNOWN,
        bos_id=-1,  # none
        eos_id=-1,
        num_threads=1,  # more give other sums
        minloglevel=2,
    )
    learned = SentencePieceProcessor(model_proto=model.getvalue())
    return [(learned.id_to_piece(i), learned.get_score(i)) for i in range(learned.get_piece_size())]
