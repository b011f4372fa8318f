"""Token classes, by hand: the pieces of each kind of tokenizer, and texts in many scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokensphere import pieces

BYTES = {"space": "ĠĊĉ"}
SENTENCE = {"space": "▁"}
WORDPIECE = {"continuation": "##"}
ENDS = {"end": "</w>"}

LETTERS = {"*": "special", ".": "punctuation", "1": "number", "-": "subword", "w": "word"}


def found(*tokens, markers=BYTES, special=()):
    flags = [index in special for index in range(len(tokens))]
    return pieces.classes(tokens, flags, markers)


def named(kinds):
    return [LETTERS[kind] for kind in kinds]


# --- tokenizers


@pytest.mark.parametrize(
    "tokens, kinds",
    [
        (["The", "Ġcat", "s", "Ġsat", ".", "Ċ", "And"], "ww-w..w"),
        (["un", "believ", "able"], "w--"),
        (["Ġ", "a"], ".w"),
        (["Ċ", "Ċ", "ĉ", "ĊĊ", "ĠĠ"], "....."),
        (["Ġa", "Ċb", "ĉc", "ĊĠd"], "wwww"),
        (["Ġ(", "see", ")", "x"], ".w.w"),
        (["Ġdon", "'t"], "ww"),  # it begins with punctuation
        (["it", "'", "s"], "w.w"),
    ],
)
def test_byte_level_signs_stand_for_white_space(tokens, kinds):
    assert found(*tokens) == named(kinds)


@pytest.mark.parametrize(
    "tokens, kinds",
    [
        (["▁The", "▁cat", "s", "▁", "."], "ww-.."),
        (["▁a", "<0x0A>", "b"], "w.w"),  # a newline, written as its byte
        (["a", "<0x41>"], "w-"),  # the letter A, written as its byte
        (["▁", "<0x41>"], ".w"),
        (["▁", "<0x31>"], ".1"),
        (["Ġ", "ĠA"], "w-"),  # letters of Maltese: no sign here
    ],
)
def test_sentencepiece_has_its_own_sign_and_writes_bytes(tokens, kinds):
    assert found(*tokens, markers=SENTENCE) == named(kinds)


@pytest.mark.parametrize(
    "tokens, kinds",
    [
        (["the", "cat", "##s", ".", "a", "##b", "##c"], "ww-.w--"),
        (["un", "##7", "7", "##th"], "w11-"),
        (["x", "##.", "##y"], "w.w"),  # the piece before it ends in no letter
        (["##s", "a"], "ww"),  # a continuation of nothing
        (["#", "##", "###"], "..."),
    ],
)
def test_a_wordpiece_is_a_word_unless_it_goes_on(tokens, kinds):
    assert found(*tokens, markers=WORDPIECE) == named(kinds)


@pytest.mark.parametrize(
    "tokens, kinds",
    [
        (["the</w>", "c", "at</w>", ".</w>", "a</w>"], "ww-.w"),
        (["lo", "w", "er</w>", "</w>", "x</w>"], "w--.w"),
        (["3</w>", "r", "d</w>"], "1w-"),
    ],
)
def test_a_sign_may_stand_at_the_end_of_a_word(tokens, kinds):
    assert found(*tokens, markers=ENDS) == named(kinds)


def test_without_any_sign_every_piece_goes_on_after_a_letter():
    assert found("a", "b", " ", "c", " d", "##e", "Ġf", markers={}) == named("w-.www-")


# --- characters that are cut


@pytest.mark.parametrize("markers", [BYTES, SENTENCE, ENDS, {}])
def test_the_pieces_of_a_cut_emoji_are_punctuation(markers):
    assert found("<0xF0><0x9F>", "<0x98>", "<0x80>", markers=markers) == named("...")
    assert found("a", "<0xF0>", "<0x9F><0x98><0x80>", "b", markers=markers) == named("w..w")


@pytest.mark.parametrize("markers", [BYTES, SENTENCE])
def test_a_cut_letter_is_a_word_and_then_goes_on(markers):
    assert found("<0xE6>", "<0xBC>", "<0xA2>", markers=markers) == named("w--")
    assert found("<0xE6><0xBC>", "<0xA2>", markers=markers) == named("w-")
    assert found(".", "<0xE6>", "<0xBC><0xA2>", "。", "漢", markers=markers) == named(".w-.w")
    # A piece may hold the end of one character and the beginning of the next.
    assert found("<0xE6><0xBC>", "<0xA2><0xE5>", "<0xAD><0x97>", markers=markers) == named("w--")
    assert found("<0xF0><0x9F><0x98>", "<0x80>b", markers=markers) == named(".-")


def test_a_cut_letter_after_a_space_is_a_word():
    assert found("a", "Ġ<0xE6>", "<0xBC><0xA2>") == named("ww-")
    assert found("a", "Ġ", "<0xE6>", "<0xBC><0xA2>") == named("w.w-")


def test_bytes_that_make_no_character_are_punctuation():
    assert found("a", "<0xFF>", "<0xE6>", "b", "<0xBC>") == named("w..w.")
    assert found("\ud800", "a") == named(".w")


def test_a_special_token_within_a_character_ends_it():
    assert found("<0xE6>", "</s>", "<0xBC><0xA2>", special=[1]) == named(".*.")


def test_only_two_capital_hexadecimal_digits_make_a_byte():
    assert found("<0x0a>", "<0x0>", "<0x0AB>") == named("www")


# --- texts


@pytest.mark.parametrize(
    "piece, kind",
    [
        ("Ġ2024", "1"), ("Ġ½", "1"), ("Ġ²", "1"), ("Ġ①", "1"), ("ĠⅧ", "1"), ("Ġ٣", "1"),
        ("Ġ३", "1"), ("Ġ3.14", "1"), ("Ġ-5", "1"), ("Ġ1,000", "1"), ("Ġ$5", "1"), ("Ġ7%", "1"),
        ("Ġ3rd", "w"), ("Ġx2", "w"), ("Ġ一", "w"), ("Ġ3百", "w"),
        ("Ġ(a", "w"), ("Ġa.", "w"), ("Ġ\"3", "1"), ("Ġe.g.", "w"), ("Ġ'tis", "w"),
        ("Ġécole", "w"), ("Ġe\u0301cole", "w"), ("Ġİ", "w"), ("Ġß", "w"), ("Ġª", "w"),
        ("Ġسلام", "w"), ("Ġשלום", "w"), ("ĠДа", "w"), ("Ġ漢字", "w"), ("Ġनमस्ते", "w"),
        ("Ġ،", "."), ("Ġ؟", "."), ("Ġ。", "."), ("Ġ«", "."), ("Ġ—", "."), ("Ġ…", "."),
        ("Ġ€", "."), ("Ġ+", "."), ("Ġ😀", "."), ("Ġ_", "."), ("Ġ\u0301", "."), ("Ġ\u200d", "."),
        ("\u00a0", "."), ("", "."),
    ],
)  # fmt: skip
def test_a_piece_is_what_its_letters_and_digits_are(piece, kind):
    assert found("a", piece)[1] == LETTERS[kind]


@pytest.mark.parametrize("letters", ["سلام", "שלום", "école", "漢字", "слово"])
def test_a_word_goes_on_in_every_script(letters):
    assert found("Ġ" + letters[:1], letters[1:], "Ġ" + letters) == named("w-w")


def test_the_first_piece_begins_a_word_with_a_sign_or_without():
    for tokens in (["a", "b"], ["Ġa", "b"]):
        assert found(*tokens) == named("w-")
    assert found("s", markers=WORDPIECE) == found("##s", markers=WORDPIECE) == named("w")


def test_an_empty_piece_is_punctuation_and_parts_nothing():
    assert found("a", "", "b", "") == named("w.-.")
    assert found("") == named(".")
    assert found() == []


# --- precedence


def test_special_comes_before_everything():
    assert found("<s>", ".", "1", "a", "b", special=range(5)) == named("*****")


def test_a_special_token_parts_the_text():
    assert found("a", "b", "<mask>", "c", "d", special=[2]) == named("w-*w-")
    assert found("[CLS]", "a", "##b", "[SEP]", "##c", markers=WORDPIECE, special=[0, 3]) == named(
        "*w-*w"
    )


def test_text_that_looks_special_is_not():
    assert found("a", "<s>", "Ġ<s>") == named("www")


def test_a_number_goes_before_a_subword_and_punctuation_before_both():
    assert found("a", "1", "b", "2c", ".", "2") == named("w1--.1")
    assert found("a", "1.", "b") == named("w1w")


def test_every_token_needs_to_be_known_as_special_or_not():
    with pytest.raises(ValueError, match="zip"):
        pieces.classes(["a", "b"], [True], {})


TEXT = st.text("aé漢😀1. ", max_size=8)


@given(st.lists(TEXT, max_size=6))
def test_cutting_a_text_into_bytes_of_sentencepiece_changes_no_class(texts):
    as_bytes = ["".join(f"<0x{byte:02X}>" for byte in text.encode()) for text in texts]
    assert found(*as_bytes, markers=SENTENCE) == found(*texts, markers=SENTENCE)


@given(st.lists(TEXT, max_size=6))
def test_signs_are_as_good_as_the_white_space_that_they_stand_for(texts):
    signs = [text.replace(" ", "Ġ") for text in texts]
    assert found(*signs) == found(*texts, markers={})


# --- the text again


def shown(*tokens, markers=BYTES, special=()):
    return pieces.texts(tokens, [index in special for index in range(len(tokens))], markers)


def test_signs_are_text_again():
    assert shown("def", "Ġf", "():", "ĊĠĠ", "ĉx") == [["def"], [" f"], ["():"], ["\n  "], ["\tx"]]
    assert shown("▁The", "▁Ġ", markers=SENTENCE) == [[" The"], [" Ġ"]]
    assert shown("the", "cat", "##s", markers=WORDPIECE) == [[" the"], [" cat"], ["s"]]
    assert shown("lo", "w</w>", markers=ENDS) == [["lo"], ["w "]]
    assert shown("Ċ", markers={}) == [["Ċ"]]


def test_bytes_of_a_whole_character_are_the_character_and_cut_ones_stay_bytes():
    assert shown("a<0x0A>b", markers=SENTENCE) == [["a\nb"]]
    assert shown("<0xF0><0x9F><0x98><0x80>!") == [["😀!"]]
    assert shown("a<0xF0><0x9F>", "<0x98>", "<0x80>b") == [
        ["a", "<0xF0><0x9F>"],
        ["", "<0x98>"],
        ["", "<0x80>", "b"],
    ]
    # The rest of a character is none, however much text follows it.
    assert shown("<0xF0><0x9F>", "<0x98><0x80>bcd")[1] == ["", "<0x98><0x80>", "bcd"]
    assert shown("<0x80>a<0xFF>") == [["", "<0x80>", "a", "<0xFF>"]]  # of no character at all


def test_a_special_token_is_its_own_text():
    assert shown("[CLS]", "a", "<0xF0>", markers=WORDPIECE, special=[0, 2]) == [
        ["[CLS]"],
        [" a"],
        ["<0xF0>"],
    ]
    assert shown("", "a", special=[0]) == [[""], ["a"]]


@given(st.text("aé漢😀1. \n\t", max_size=40), st.data())
def test_the_texts_of_a_text_cut_anywhere_are_the_text(text, data):
    tokens = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        tokens, text = [*tokens, text[:size]], text[size:]
    signs = str.maketrans(" \n\t", "ĠĊĉ")
    assert shown(*(token.translate(signs) for token in tokens)) == [[token] for token in tokens]
