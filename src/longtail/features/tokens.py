"""Texts -> token ids: by a pretrained tokenizer, or by a unigram model of word pieces that is fitted to the texts.

Pieces are those of SentencePiece's unigram model (Kudo, ACL 2018): a word is split into the pieces with the largest product
of probabilities. SentencePiece fits them, because its results are reproducible (those of the tokenizers library are not).
The tokenizers library then splits texts, and its single file is stored in bundles.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longtail.errors import DataError, MissingExtra, SettingError
from longtail.features.pretrained import find_pretrained_folder, find_tokenizer_file
from longtail.features.token_rows import TokenRows, join_rows, read_cached, write_cached
from longtail.kernels import Ints, Longs
from longtail.progress import SILENT, Progress
from longtail.settings import Settings, setting, settings
from longtail.state import State, get_text, refuse

_FitModel = Callable[[Counter[str], int | None], tuple[Any, Any]]

# Names that cannot occur in a text, because spaces are replaced by another character before a text is split.
PAD, UNKNOWN, SEP, CLS = SPECIAL_PIECES = ("pad piece", "unknown piece", "sep piece", "cls piece")

_TEXTS_PER_CALL = 1024
_MAX_PIECES = 32_000  # by default
_MAX_DISTINCT_WORDS = 1_000_000  # pieces are fitted to the most frequent words
_WORD = re.compile(r"[^\s!-/:-@\[-`{-~]+|\S")  # a run without spaces and ASCII punctuation, or one punctuation character


@settings
class TokensSettings(Settings):
    """Settings of token ids."""

    pretrained: str | None = setting(
        "Pretrained tokenizer: minilm, wordllama, a folder, or a model in the cache of the hub. None: fit word pieces.",
        default=None,
    )
    max_length: int | None = setting(
        "Maximum number of tokens of a text; the rest is cut off. None: no maximum.", default=512, positive=True
    )
    n_pieces: int | None = setting(
        "Number of word pieces to fit. None: one for each character and for each word that occurs twice, up to 32,000.",
        default=None,
        positive=True,
    )
    whole_words: bool = setting(
        "Fit whole words instead, the most frequent ones; all others are one unknown token. Needs no pretrained tokenizer.",
        default=False,
    )
    lower: bool = setting("Lower-case texts before word pieces are fitted.", default=True)
    special: bool = setting(
        "Add special tokens: those of the pretrained tokenizer, or SEP and CLS at the end of each text.", default=False
    )
    cache: str | None = setting("Folder where the token ids of every corpus are cached. None: no cache.", default=None)

    def check(self) -> None:
        """Check every setting, and that special tokens leave room for others."""
        super().check()
        if self.whole_words and self.pretrained is not None:
            raise SettingError("whole_words is set, and a pretrained tokenizer", hint="Leave one of them out")
        if self.special and self.max_length is not None and self.max_length < 3:
            raise SettingError(f"max_length is {self.max_length}", hint="It must be at least 3 with special tokens")


class Tokens(TokensSettings):
    """Texts -> token ids, by default up to a maximum length.

    >>> tokens = Tokens()
    >>> rows = tokens.fit_transform(["red apple", "green apple", "a red red rose"])
    >>> len(rows), tokens.transform(["red", "RED  ", ""]).lengths.tolist()[1:]
    (3, [1, 0])
    """

    tokenizer: Any  # of the tokenizers library

    @property
    def n_tokens(self) -> int:
        """Number of distinct tokens."""
        return int(self.tokenizer.get_vocab_size())

    def get_token(self, number: int) -> str:
        """The token of an id."""
        return str(self.tokenizer.id_to_token(number))

    def fit(self, texts: Sequence[str], progress: Progress = SILENT) -> Tokens:
        """Fit word pieces to the texts, or load the pretrained tokenizer."""
        self.check()
        if not len(texts):
            raise DataError("there are no texts to fit", hint="Give at least one text")
        if self.pretrained is None:
            fit_model = _fit_words if self.whole_words else _fit_pieces
            self._set(_fit_tokenizer(texts, fit_model, self.n_pieces, self.lower, progress))
        else:
            self._set(_load_tokenizer(self.pretrained))
        return self

    def fit_transform(self, texts: Sequence[str], progress: Progress = SILENT) -> TokenRows:
        """Fit to texts and return their token ids."""
        return self.fit(texts, progress).transform(texts, progress)

    def transform(self, texts: Sequence[str], progress: Progress = SILENT) -> TokenRows:
        """The token ids of texts; memory-mapped if there is a cache."""
        if self.cache is None:
            return join_rows(self._split(texts, progress))
        key = self._hash(texts)
        found = read_cached(Path(self.cache), key)
        return write_cached(Path(self.cache), key, self._split(texts, progress)) if found is None else found

    def align_words(self, text: str) -> tuple[Ints, Longs, Longs]:
        """Align the tokens of one text with its words.

        :returns: The token ids [n]; the word of each token [n], −1 for special tokens; and the characters [start, end) of
            each word [n_words, 2]. Words without a token, because the text was cut off, are not included.
        """
        row = self.tokenizer.encode(_replace_surrogates(text), add_special_tokens=self.special)
        spans = np.array([match.span() for match in _WORD.finditer(text)], np.int64).reshape(-1, 2)
        word_of_character = np.full(len(text), -1)
        for number, (start, end) in enumerate(spans):
            word_of_character[start:end] = number
        word, next_word = np.full(len(row.ids), -1), -1
        for at, (start, end) in reversed(list(enumerate(row.offsets))):
            inside = [w for w in word_of_character[start:end] if w >= 0]
            if start < end:  # special tokens are empty
                next_word = word[at] = inside[0] if inside else next_word  # a space belongs to the word after it
        used, numbers = np.unique(word[word >= 0], return_inverse=True)
        word[word >= 0] = numbers
        return np.array(row.ids, np.int32), word, spans[used]

    def state(self) -> dict[str, NDArray[Any]]:
        """The tokenizer as bytes."""
        return {"tokenizer": np.frombuffer(self.tokenizer.to_str().encode(), np.uint8)}

    def restore(self, state: State) -> Tokens:
        """Restore what ``state`` returned."""
        text, tokenizers = get_text(state, "tokenizer"), _import_tokenizers()
        try:
            self._set(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # the library raises nothing more special
            raise refuse(
                state, "tokenizer", f"is no tokenizer ({error})", "It must be one of the tokenizers library"
            ) from error
        return self

    def _set(self, tokenizer: Any) -> None:
        tokenizer.no_padding()
        if self.max_length is None:
            tokenizer.no_truncation()
        else:
            tokenizer.enable_truncation(self.max_length)
        tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text, not a special token
        self.tokenizer = tokenizer

    def _split(self, texts: Sequence[str], progress: Progress) -> Iterator[TokenRows]:
        with progress.stage("tokens", len(texts)) as stage:
            for start in range(0, len(texts), _TEXTS_PER_CALL):
                part = [_replace_surrogates(text) for text in texts[start : start + _TEXTS_PER_CALL]]
                rows = self.tokenizer.encode_batch_fast(part, add_special_tokens=self.special)
                yield TokenRows.from_lists([row.ids for row in rows])
                stage.advance(len(part))

    def _hash(self, texts: Sequence[str]) -> str:
        """The key of texts in the cache: a hash of the tokenizer, the settings and the texts."""
        key = hashlib.sha256(f"{self.special} {self.tokenizer.to_str()}".encode())
        for text in texts:
            content = text.encode("utf-8", "replace")
            key.update(len(content).to_bytes(8, "little"))  # so that the key of "ab", "c" differs from that of "a", "bc"
            key.update(content)
        return key.hexdigest()


def _import_tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtra("tokenizers", "nn", "Splitting texts into tokens") from error
    return tokenizers


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which the tokenizers library does not accept."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _load_tokenizer(name: str) -> Any:
    """Load the tokenizer of a pretrained model."""
    folder, tokenizers = find_pretrained_folder(name), _import_tokenizers()
    if (file := find_tokenizer_file(folder)) is not None:
        return tokenizers.Tokenizer.from_file(str(file))
    try:  # older models have another format, which transformers converts
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False).backend_tokenizer
    except ImportError as error:
        raise MissingExtra("transformers", "nn", f'The tokenizer of "{name}"') from error
    except (OSError, ValueError, AttributeError) as error:
        hint = "Copy the tokenizer.json of the model into the folder"
        raise SettingError(f"the tokenizer cannot be loaded ({error})", where=str(folder), hint=hint) from error


def _fit_tokenizer(texts: Sequence[str], fit_model: _FitModel, n_pieces: int | None, lower: bool, progress: Progress) -> Any:
    """Fit a tokenizer to the words of texts.

    :param fit_model: Returns how texts are split into words, and a model of the tokens by the frequencies of parts of texts
        without spaces.
    """
    tokenizers = _import_tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
    steps = [tokenizers.normalizers.Nmt(), tokenizers.normalizers.NFKC()]  # as SentencePiece: Unicode spaces and variants
    steps += [tokenizers.normalizers.Lowercase()] if lower else []
    steps += [tokenizers.normalizers.Replace(tokenizers.Regex(r"\s+"), " "), tokenizers.normalizers.Strip()]
    tokenizer.normalizer = tokenizers.normalizers.Sequence(steps)
    words: Counter[str] = Counter()
    with progress.stage("word pieces", len(texts)) as stage:
        for text in texts:
            words.update(tokenizer.normalizer.normalize_str(_replace_surrogates(text)).split(" "))
            stage.advance()
    del words[""]
    if not words:
        raise DataError("the texts contain no words", hint="Check the texts of the training data")
    tokenizer.pre_tokenizer, tokenizer.model = fit_model(words, n_pieces)
    ends = [(name, SPECIAL_PIECES.index(name)) for name in (SEP, CLS)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=["$A", SEP, CLS], special_tokens=ends)
    return tokenizer


def _fit_words(words: Counter[str], n_words: int | None) -> tuple[Any, Any]:
    """Choose the most frequent words; by default those that occur twice, or all if there are none."""
    tokenizers = _import_tokenizers()
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()  # at spaces, and around punctuation
    counts: Counter[str] = Counter()
    for part, n in words.items():
        for word, _ in splitter.pre_tokenize_str(part):
            counts[word] += n
    frequent = sorted(counts, key=lambda word: (-counts[word], word))
    wanted = n_words or min(sum(n > 1 for n in counts.values()) or len(counts), _MAX_PIECES)
    vocabulary = {word: number for number, word in enumerate([*SPECIAL_PIECES, *frequent[:wanted]])}
    return splitter, tokenizers.models.WordLevel(vocabulary, UNKNOWN)


def _fit_pieces(words: Counter[str], n_pieces: int | None) -> tuple[Any, Any]:
    """Fit a unigram model of word pieces to the frequencies of words."""
    tokenizers = _import_tokenizers()
    try:
        from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
    except ImportError as error:
        raise MissingExtra("sentencepiece", "nn", "Fitting word pieces") from error
    frequent = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:_MAX_DISTINCT_WORDS]
    min_pieces = len(set().union(*words)) + len(SPECIAL_PIECES) + 1  # every character is a piece, and so is a word start
    wanted = n_pieces or min(sum(n > 1 for n in words.values()) + min_pieces, _MAX_PIECES)
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=(f"{word}\t{n}" for word, n in frequent),
        model_writer=model,
        input_format="tsv",
        model_type="unigram",
        vocab_size=max(wanted, min_pieces),
        hard_vocab_limit=False,
        normalization_rule_name="identity",  # words are normalised already
        control_symbols=[SEP, CLS],
        pad_id=SPECIAL_PIECES.index(PAD),
        pad_piece=PAD,
        unk_id=SPECIAL_PIECES.index(UNKNOWN),
        unk_piece=UNKNOWN,
        bos_id=-1,  # none
        eos_id=-1,
        num_threads=1,  # sums depend on the number of threads
        minloglevel=2,
    )
    fitted = SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [(fitted.id_to_piece(i), fitted.get_score(i)) for i in range(fitted.get_piece_size())]
    return tokenizers.pre_tokenizers.Metaspace(), tokenizers.models.Unigram(pieces, SPECIAL_PIECES.index(UNKNOWN))
