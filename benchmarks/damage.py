"""Small models of every method, and ways to damage them as an attacker would: every hash of the result is right.

``faults.py`` runs a campaign with them, ``tests/tagger/test_strangers.py`` a part of it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from longtail import Dataset, Tagger
from longtail.decisions.constraints import Constraints
from longtail.features.tokens import Tokens
from longtail.kernels import Bools
from longtail.tagger.bundle import FORMAT, MANIFEST, Bundle, encode_files, load_bundle, sign_manifest
from longtail.tagger.label_editor import LabelEditor
from longtail.topk import TopK

TOPICS = {
    "fruit": "apple pear plum cherry juice ripe",
    "metal": "iron copper zinc steel ore alloy",
    "music": "violin piano tune chord song choir",
    "sea": "wave ship harbour tide sail reef",
    "snow": "frost ice sled cold white ski",
}
_NETWORK = "+epochs=1+holdout=0+collapse_epochs=0"
ENCODER = "ENCODER"  # in a spec: the folder of a small pretrained encoder
SPECS = (  # every method, with the parts that a saved model can have
    "popularity",
    "ovr",
    "ovr+loss=logistic+code=4",
    "plt+fanout=2+subwords=0.5",
    "plt+tree=huffman+tail=0.3",
    "hierarchicalxc+fanout=2",
    "hierarchicalxc+code=4",
    f"glas+dim=4{_NETWORK}",
    f"glas+dim=4+sparse_part=true+relu=false{_NETWORK}",
    f"neuralxc+encoder=8+label_encoder=4{_NETWORK}",
    f"aplc+hidden=8{_NETWORK}",
    f"aplc+encoder=gru+width=8+layers=1+hidden=8{_NETWORK}",
    f"lightattention+word_dim=4+hidden=4{_NETWORK}",
    f"lightattention+word_dim=4+hidden=4+negatives=dynamic+n_trees=2+max_leaf=2{_NETWORK}",
    f"secseq{_NETWORK}",
    f"secseq+depth=2+n_symbols=4+n_trees=2+sparse_part=true{_NETWORK}",
    f"secseq+target=sequence+encoder=gru+width=8+layers=1+hidden=8+symbol_width=4+n_trees=2+beam=2{_NETWORK}",
    "blend+members=ovr, plt+fanout=2",
    f"ovr+dense={ENCODER}",
    f"secseq+target=sequence+decoding=samples+samples=4{_NETWORK}",
    f"glas:paper+dim=4{_NETWORK}",
)
TEXTS = ("a ripe apple on a white ship", "iron", "", "zzz unknown words", "wave " * 50)
_NUMBERS = (0, 1, -1, 2, 7, 127, 255, 10**6, 2**31 - 1, -(2**31), 2**62)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 10**9, 2**63, -(2**63), 10**30, 1e308, float("nan"), float("inf")),
    *("", "x", "../../etc/passwd", "a" * 1000, [], {}, [1], ["x"], {"x": 1}, [[[[]]]], "plt", "none"),
)


def make_corpus(n_samples: int = 60, seed: int = 0) -> Dataset:
    """Texts of words from one or two topics, which are their labels."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n_samples):
        mine = random.choice(list(TOPICS), size=random.integers(1, 3), replace=False).tolist()
        texts.append(" ".join(word for topic in mine for word in random.choice(TOPICS[topic].split(), size=5)))
        labels.append(mine)
    return Dataset.from_texts(texts, labels)


def train_model(spec: str, folder: Path) -> None:
    """Train a small model and save it. Those of ``plt`` have labels that were changed and added, and constraints."""
    method, _, settings = spec.partition("+")
    if ENCODER in spec:
        make_encoder(folder.parent / ENCODER)
        spec = spec.replace(ENCODER, str(folder.parent / ENCODER))
    tagger = Tagger(method, members=settings.removeprefix("members=")) if method == "blend" else Tagger(spec)
    tagger.fit(make_corpus())
    if method == "plt":
        editor = LabelEditor(tagger)
        editor.merge(["sea"], "snow")
        editor.retire("metal")
        editor.add(["violin concert"])
        tagger.constraints = Constraints(deny=["metal"], at_most_one=[["fruit", "music"]])
    tagger.save(folder)


def make_encoder(folder: Path) -> None:
    """Write a small BERT with random weights and its tokenizer, as transformers does."""
    import transformers

    tokens = Tokens(special=True).fit(make_corpus().texts or [])
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=tokens.n_tokens, max_position_embeddings=128, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    tokens.tokenizer.save(str(folder / "tokenizer.json"))


def check_predictions(tagger: Tagger) -> None:
    """Ask a tagger for labels, sets and an explanation; an ``AssertionError`` if they are not valid."""
    inputs = list(TEXTS)
    for best in (tagger.topk(inputs, 3), tagger.topk(inputs, 50, raw=True), tagger.choose_sets(inputs)):
        _check_topk(best, len(tagger.labels))
    tagger.explain(inputs[0])


def _check_topk(best: TopK, n_labels: int) -> None:
    found: Bools = best.ids >= 0
    assert best.ids.min(initial=0) >= -1 and best.ids.max(initial=0) < n_labels, "an id is out of range"
    assert np.isfinite(best.scores[found]).all(), "a score is not finite"
    rows = np.sort(best.ids, axis=1)
    assert not ((rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] >= 0)).any(), "a label is predicted twice"


# Arrays: each function returns another array in place of one, or None to remove it.


def change_value(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """One value becomes an extreme one."""
    out = array.copy()
    if out.size:
        out.flat[random.integers(out.size)] = _draw_value(array.dtype, random)
    return out


def change_all(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """All values become the same extreme one."""
    return np.full_like(array, _draw_value(array.dtype, random))


def shuffle(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """The values change their places."""
    return np.asarray(random.permutation(array.ravel()).reshape(array.shape))


def change_dtype(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """The same values, or bytes, of another type."""
    dtype = random.choice(["f8", "f4", "f2", "i8", "i4", "i1", "u1", "u2", "u8"])
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def change_shape(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """The same values in another shape."""
    shapes = [(-1,), (1, -1), (-1, 1), (*array.shape, 1), array.shape[::-1]]
    return array.reshape(shapes[random.integers(len(shapes))] if array.size else (0, 3))


def truncate(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """The first rows or columns only, maybe none."""
    if array.ndim > 1 and random.random() < 0.5:
        return np.ascontiguousarray(array[:, : random.integers(max(array.shape[1], 1))])
    return array[: random.integers(max(len(array), 1))]


def extend(array: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Further rows or columns."""
    return np.concatenate([array, array], axis=int(random.integers(array.ndim)))


def remove(array: NDArray[Any], random: np.random.Generator) -> None:
    """No array."""


def _draw_value(dtype: np.dtype[Any], random: np.random.Generator) -> Any:
    if dtype.kind == "f":
        choices = [np.nan, np.inf, -np.inf, np.finfo(dtype).max, np.finfo(dtype).min, 0.0, -1.0, 1e-30]
        return choices[random.integers(len(choices))]
    limits = np.iinfo(dtype)
    numbers = [limits.min, limits.max, *(n for n in _NUMBERS if limits.min <= n <= limits.max)]
    return numbers[random.integers(len(numbers))]


ARRAY_DAMAGE: dict[str, Callable[[NDArray[Any], np.random.Generator], NDArray[Any] | None]] = {
    "value": change_value,
    "all values": change_all,
    "order": shuffle,
    "type": change_dtype,
    "shape": change_shape,
    "truncated": truncate,
    "extended": extend,
    "removed": remove,
}


def damage_array(bundle: Bundle, part: str, name: str, kind: str, random: np.random.Generator) -> Bundle:
    """Damage one array of a bundle."""
    changed = ARRAY_DAMAGE[kind](bundle.arrays[part][name], random)
    arrays = {key: array for key, array in bundle.arrays[part].items() if key != name}
    if changed is not None:
        arrays[name] = changed
    return replace(bundle, arrays={**bundle.arrays, part: type(bundle.arrays[part])(arrays, part)})  # type: ignore[call-arg]


# Descriptions, labels and files.


def list_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all entries of a description, those of objects and lists included."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(*path, key), *list_places(value[key], (*path, key))]]


def damage_entry(about: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """Replace or remove one entry of a description."""
    out = json.loads(json.dumps(about))
    places = list_places(out)
    *path, last = places[random.integers(len(places))]
    owner = out
    for key in path:
        owner = owner[key]
    if random.random() < 0.15:
        del owner[last]
    else:
        owner[last] = _VALUES[random.integers(len(_VALUES))]
    return dict(out)


def write_signed(bundle: Bundle, folder: Path, about: dict[str, Any] | None = None) -> None:
    """Write a bundle as ``save_bundle`` does, with hashes of whatever it has."""
    folder.mkdir(parents=True)
    write_files(dict(encode_files(bundle)), bundle.about if about is None else about, folder)


def write_files(contents: dict[str, bytes], about: dict[str, Any], folder: Path, *, whole: bool = False) -> None:
    """Write files and the manifest that names them; whole: what the description says about format and files stays."""
    files: dict[str, Any] = {}
    for name, content in contents.items():
        digest, (stem, ending) = sha256(content).hexdigest(), name.split(".")
        file = f"{stem}-{digest[:12]}.{ending}"
        (folder / file).write_bytes(content)
        files[name] = {"file": file, "bytes": len(content), "sha256": digest}
    others = {
        name: value for name, value in about.items() if name != "sha256" and (whole or name not in ("format", "files"))
    }
    manifest = {"format": FORMAT, "files": files, **others}
    (folder / MANIFEST).write_bytes(sign_manifest(manifest))


def damage_header(content: bytes, random: np.random.Generator) -> bytes:
    """Damage the header of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    kind = random.integers(5)
    if kind == 0:
        sizes = (2**40, 2**63, 0, 1, size - 1, len(content))
        return sizes[random.integers(len(sizes))].to_bytes(8, "little") + content[8:]
    if kind == 1:
        return content[: random.integers(len(content))]
    if kind == 2:
        text = (b"[" * 100_000, b"{", b"null", b'{"a": 1}', b"\xff")[random.integers(5)]
    else:
        text = json.dumps(damage_entry(header, random)).encode()
    return len(text).to_bytes(8, "little") + text + data


def damage_labels(content: bytes, random: np.random.Generator) -> bytes:
    """Damage the file of the labels."""
    lines = content.decode().splitlines()
    at = random.integers(len(lines))
    row = json.loads(lines[at])
    bad = ["", "null", "[]", "{}", "{", "1e999", "[" * 100_000, '{"name": "\\ud800"}', lines[0], f"{lines[at]}\n{lines[at]}"]
    bad += [json.dumps(damage_entry(row, random)), json.dumps({**row, "parents": [1]}), json.dumps({**row, "uri": 3})]
    lines[at] = bad[random.integers(len(bad))]
    return "\n".join(lines).encode() if random.random() < 0.9 else b"\xff" + content


def damage_links(folder: Path, random: np.random.Generator) -> None:
    """Replace a file of a bundle by something that is not a regular file of the folder."""
    path = sorted(folder.iterdir())[random.integers(len(list(folder.iterdir())))]
    content = path.read_bytes()
    path.unlink()
    kind = random.integers(5)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("/dev/zero")
    elif kind == 3:
        outside = folder.parent / f"{folder.name}-outside"
        outside.write_bytes(content)
        path.symlink_to(outside)
    else:
        path.symlink_to(path.name)  # to itself


OTHER_DAMAGE = ("manifest", "settings", "manifest bytes", "header", "labels", "links")


def damage_model(source: Path, folder: Path, kind: str, random: np.random.Generator) -> str:
    """Write a damaged copy of a saved model, and return what was damaged.

    :param source: The folder of the model.
    :param folder: The new folder.
    :param kind: A key of ``ARRAY_DAMAGE``, or one of ``OTHER_DAMAGE``.
    """
    bundle = load_bundle(source)
    contents = dict(encode_files(bundle))
    if kind in ARRAY_DAMAGE:
        names = [(part, name) for part, arrays in bundle.arrays.items() for name in arrays]
        part, name = names[random.integers(len(names))]
        arrays = dict(bundle.arrays[part])
        changed = ARRAY_DAMAGE[kind](arrays.pop(name), random)
        arrays |= {} if changed is None else {name: np.ascontiguousarray(changed)}
        folder.mkdir(parents=True)
        write_files({**contents, f"{part}.safetensors": save(arrays)}, bundle.about, folder)
        return f"{part}.{name}"
    if kind == "links":
        shutil.copytree(source, folder)
        damage_links(folder, random)
        return kind
    folder.mkdir(parents=True)
    about, whole = {name: value for name, value in bundle.about.items() if name not in ("format", "files")}, False
    if kind == "manifest":
        whole = random.random() < 0.3
        about = damage_entry(json.loads((source / MANIFEST).read_bytes()) if whole else about, random)
    elif kind == "settings":
        about["settings"] = damage_entry(about["settings"], random) if about["settings"] else {"x": 1}
    elif kind == "header":
        names = [name for name in contents if name.endswith(".safetensors")]
        name = names[random.integers(len(names))]
        contents[name] = damage_header(contents[name], random)
    elif kind == "labels":
        contents["labels.jsonl"] = damage_labels(contents["labels.jsonl"], random)
    write_files(contents, about, folder, whole=whole)
    if kind == "manifest bytes":
        content = (folder / MANIFEST).read_bytes()
        texts = (b"", b"null", b"[]", b"[" * 100_000, b'{"format": true}', b'{"format": 5.0}', b"\xff\xfe", content[:-20])
        (folder / MANIFEST).write_bytes(texts[random.integers(len(texts))])
    return kind
