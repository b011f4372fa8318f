"""Prompts: a text is fed as it was written, or refused with what to mend."""

import hashlib
import re
import sys
import unicodedata

import pytest
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tokensphere import prompts
from tokensphere.harness.errors import UserError


@pytest.fixture
def file(tmp_path):
    def write(data):
        path = tmp_path / "prompt.txt"
        path.write_bytes(data)
        return path

    return write


def refusal(path):
    with pytest.raises(UserError) as caught:
        prompts.read(path, "config: prompts.mine.file")
    assert caught.value.where == "config: prompts.mine.file"
    assert str(path) in caught.value.what
    return caught.value


@pytest.mark.parametrize(
    "data, text",
    [
        (b"one line", "one line"),
        (b"one line\n", "one line"),
        (b"a blank line ends it\n\n", "a blank line ends it\n"),
        (b"two\r\nlines\r\n", "two\nlines"),
        ("Brontë 漢 🦉\n".encode(), "Brontë 漢 🦉"),
        (b"  spaces stay \n", "  spaces stay "),
    ],
)
def test_only_the_newline_that_ends_the_file_is_not_part_of_the_text(file, data, text):
    assert prompts.read(file(data), "here") == text


@pytest.mark.parametrize("data", [b"one line\n", b"two\r\nlines", b"blank\n\n", b" x "])
def test_a_text_survives_being_written_and_read(file, tmp_path, data):
    text = prompts.read(file(data), "here")
    prompts.write(tmp_path / "copy.txt", text)
    assert prompts.read(tmp_path / "copy.txt", "here") == text


def test_a_byte_order_mark_is_refused(file):
    assert "byte-order mark" in refusal(file(b"\xef\xbb\xbftext\n")).what


@pytest.mark.parametrize("data", [b"caf\xe9\n", "text".encode("utf-16")], ids=["latin-1", "utf-16"])
def test_a_file_that_is_not_utf_8_is_refused(file, data):
    error = refusal(file(data))
    assert f"is not UTF-8 (byte {3 if data[0] == 0x63 else 0})" in error.what
    assert error.hint == "save it as UTF-8"


@pytest.mark.parametrize("data", [b"", b"\n", b" \r\n\t\n"])
def test_an_empty_file_is_refused(file, data):
    assert "is empty" in refusal(file(data)).what


def test_a_missing_file_is_refused(tmp_path):
    error = refusal(tmp_path / "absent.txt")
    assert "No such file" in error.what
    assert "working directory" in error.hint


def test_the_hash_of_a_prompt_is_that_of_its_text_alone(file):
    with_newline, without = (prompts.read(file(data), "here") for data in (b"text\n", b"text"))
    assert prompts.sha256(with_newline) == prompts.sha256(without)
    assert prompts.sha256("é") == hashlib.sha256("é".encode()).hexdigest()


def test_the_prompts_that_ship_are_well_formed(root):
    paths = sorted((root / "config/prompts").iterdir())
    assert paths
    for path in paths:
        assert path.suffix == ".txt"
        text = prompts.read(path, "here")
        # A prompt's text is its bytes: one newline at the end, no carriage return.
        assert path.read_bytes() == (text + "\n").encode()
        assert text == text.strip()
        assert unicodedata.is_normalized("NFC", text)
        assert not [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"]


SENTENCE = re.compile(r"[^.!?;:]+[.!?;:]")


def shipped(root, name):
    return prompts.read(root / f"config/prompts/{name}.txt", "here")


def test_no_sentence_stands_in_two_prompts_or_twice_in_one(root):
    names = sorted(path.stem for path in (root / "config/prompts").glob("*.txt"))
    sentences = [
        " ".join(sentence.lower().split())
        for name in names
        if name != "repeated_tokens"
        for sentence in SENTENCE.findall(shipped(root, name))
    ]
    long = [one for one in sentences if len(one.split()) > 3]
    assert len(long) > 100
    assert len(long) == len(set(long))


def test_the_control_for_position_is_one_piece_repeated(root):
    assert set(shipped(root, "repeated_tokens").split(" ")) == {"."}


def test_the_french_prompt_is_written_as_french_is(root):
    text = shipped(root, "camus_letranger")
    assert {"é", "è", "ê", "à"} & set(text) >= {"é", "à"}
    assert text.count("«") == text.count("»") > 0
    assert text.count("« ") == text.count(" »") == text.count("«")
    assert not {'"', "“", "”"} & set(text)


def test_the_latex_prompt_is_latex(root):
    text = shipped(root, "latex_monograph")
    begun = re.findall(r"\\begin\{(\w+)\}", text)
    assert {"definition", "lemma", "proof", "equation"} <= set(begun)
    assert sorted(begun) == sorted(re.findall(r"\\end\{(\w+)\}", text))
    assert text.count("{") == text.count("}")
    assert text.count(r"\[") == text.count(r"\]") >= 2  # displayed
    assert text.count("$") % 2 == 0
    assert re.findall(r"\\eqref\{(\w+)\}", text) == re.findall(r"\\label\{(\w+)\}", text)


def test_a_letter_of_1861_is_dated_and_signed(root):
    assert "1861" in shipped(root, "sullivan_ballou").splitlines()[0]


# --- the source of a module

SOURCE = "first = 1\nsecond = 'é'\n\n\nfifth = 5\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose modules must not be imported."""
    folder = tmp_path / "site" / "code_of_mine"
    (folder / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py"):
        (folder / name).write_text("raise RuntimeError('imported')")
    (folder / "module.py").write_text(SOURCE, encoding="utf-8")
    (folder / "inner" / "deep.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder


@pytest.mark.parametrize("module", ["code_of_mine.module", "code_of_mine.inner.deep"])
@pytest.mark.parametrize(
    "lines, text",
    [("1-2", "first = 1\nsecond = 'é'"), ("2-2", "second = 'é'"), ("4-5", "\nfifth = 5")],
)
def test_lines_of_a_module_are_read_without_importing_it(package, module, lines, text):
    assert prompts.read_module(module, lines, prompts.sha256(text), "here") == text
    assert not {"code_of_mine", module} & sys.modules.keys()


def module_refusal(module, lines="1-2", sha="0" * 64):
    with pytest.raises(UserError) as caught:
        prompts.read_module(module, lines, sha, "config: prompts.code")
    assert caught.value.where == "config: prompts.code"
    return caught.value


def test_another_text_than_the_one_stated_is_refused_with_what_to_do(package):
    error = module_refusal("code_of_mine.module")
    assert error.what == (
        "lines 1-2 of code_of_mine.module are another text than the one with sha256 000000000000…"
    )
    assert "install the version that requirements.lock names" in error.hint
    assert prompts.sha256("first = 1\nsecond = 'é'") in error.hint


@pytest.mark.parametrize("lines", ["1-1", "1-3", "2-2"])
def test_other_lines_are_another_text(package, lines):
    module_refusal("code_of_mine.module", lines, prompts.sha256("first = 1\nsecond = 'é'"))


def test_a_missing_package_is_refused_with_the_command():
    error = module_refusal("no_such_package.module")
    assert error.what == "the Python package 'no_such_package' is not installed here"
    assert error.hint == "pip install no_such_package"


@pytest.mark.parametrize("module", ["code_of_mine.absent", "code_of_mine.inner"])
def test_a_missing_module_is_refused(package, module):
    error = module_refusal(module)
    assert error.what == f"'code_of_mine' has no module {module!r}"


def test_an_entry_is_read_from_its_file_or_its_module(package, file):
    text = "first = 1"
    entry = {"module": "code_of_mine.module", "lines": "1-1", "sha256": prompts.sha256(text)}
    assert prompts.load(entry | {"control": False}, "here") == text
    assert prompts.load({"file": str(file(b"one\n"))}, "here") == "one"


def test_the_code_prompt_of_the_default_configuration_is_in_the_locked_package(root):
    entries = yaml.safe_load((root / "config/config.yaml").read_text())["prompts"]
    modules = [entry for entry in entries.values() if "module" in entry]
    assert modules
    for entry in modules:
        text = prompts.load(entry, "here")
        assert len(text.splitlines()) > 10
        assert text == text.strip("\n")


# --- tokens


class Words:
    """A tokenizer of words between [CLS] and [SEP], as transformers calls one."""

    def __call__(self, text, truncation=False, max_length=None, verbose=True, **_):
        words = [len(word) for word in text.split()]
        if truncation:
            words = words[: max_length - 2]
        ids = [101, *words, 102]
        return {"input_ids": ids, "special_tokens_mask": [1, *[0] * len(words), 1]}

    def convert_ids_to_tokens(self, ids):
        return [f"id{token}" for token in ids]

    def get_vocab(self):
        return {"id1": 1}


def test_tokens_are_fed_with_the_tokenizers_own_specials():
    tokens = prompts.tokenize(Words(), "a bb ccc", 512, "here")
    assert tokens == prompts.Tokens(
        ids=[101, 1, 2, 3, 102],
        pieces=["id101", "id1", "id2", "id3", "id102"],
        special=[True, False, False, False, True],
        markers={},
        truncated=False,
    )


@pytest.mark.parametrize("most, truncated", [(4, True), (5, False), (6, False)])
def test_a_longer_text_is_cut_and_says_so(most, truncated):
    tokens = prompts.tokenize(Words(), "a bb ccc", most, "here")
    assert len(tokens.ids) == min(most, 5)
    assert tokens.truncated == truncated


def test_fewer_than_three_tokens_are_refused():
    assert len(prompts.tokenize(Words(), "one", 512, "here").ids) == 3
    with pytest.raises(UserError, match=r"the prompt has 2 tokens, the fewest .* is 3"):
        prompts.tokenize(Words(), "", 512, "here")


class Pieces(Words):
    """A tokenizer that gives these pieces, and decodes as its library's one does."""

    def __init__(self, pieces, model=None, decoder=None):
        self.pieces = pieces
        self.backend_tokenizer = Tokenizer(model or models.BPE())
        self.backend_tokenizer.decoder = decoder

    def convert_ids_to_tokens(self, ids):
        return self.pieces


def test_byte_level_pieces_are_readable_and_keep_their_markers():
    # é, a leading space, a newline, a tab, an emoji in three pieces, and an added token.
    pieces = ["Ã©", "Ġnight", "Ċ", "ĉ", "ĠðŁ", "ĺ", "Ģ", "<|fin de texte ▁|>"]
    tokens = prompts.tokenize(Pieces(pieces, decoder=decoders.ByteLevel()), "a b c", 512, "here")
    assert tokens.pieces == [
        "é", "Ġnight", "Ċ", "ĉ", "Ġ<0xF0><0x9F>", "<0x98>", "<0x80>", "<|fin de texte ▁|>",
    ]  # fmt: skip


def test_the_letters_of_bytes_are_those_of_the_tokenizers_library():
    assert set(prompts.BYTE_OF) == set(pre_tokenizers.ByteLevel.alphabet())
    text = "".join(chr(code) for code in range(1, 0x180))  # bytes of every kind
    ((written, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)\
        .pre_tokenize_str(text)  # fmt: skip
    assert bytes(prompts.BYTE_OF[letter] for letter in written) == text.encode()


def test_other_pieces_stay_as_they_are():
    pieces = ["▁a", "##ing", "Ã©"]
    tokens = prompts.tokenize(Pieces(pieces, decoder=decoders.Metaspace()), "a b c", 9, "here")
    assert tokens.pieces == pieces


@pytest.mark.parametrize(
    "tokenizer, markers",
    [
        (Pieces([], decoder=decoders.ByteLevel()), {"space": "ĠĊĉ"}),
        (Pieces([], decoder=decoders.Metaspace()), {"space": "▁"}),
        (Pieces([], decoder=decoders.Replace("▁", " ")), {"space": "▁"}),  # as Llama's is stored
        (Pieces([], models.WordPiece(unk_token="?")), {"continuation": "##"}),
        (Pieces([], models.WordPiece(unk_token="?", continuing_subword_prefix="@")),
         {"continuation": "@"}),
        (Pieces([], models.BPE(end_of_word_suffix="</w>")), {"end": "</w>"}),
        (Pieces([], models.BPE()), {}),
        (Words(), {}),
    ],
)  # fmt: skip
def test_markers_are_found_in_the_tokenizers_own_rules(tokenizer, markers):
    assert prompts.piece_markers(tokenizer) == markers


@pytest.mark.parametrize(
    "vocabulary, markers",
    [(["▁a", "b"], {"space": "▁"}), (["a", "##b"], {"continuation": "##"}), (["a"], {})],
)
def test_a_tokenizer_in_python_alone_shows_its_markers_in_its_vocabulary(vocabulary, markers):
    tokenizer = Words()
    tokenizer.get_vocab = lambda: dict.fromkeys(vocabulary, 0)
    assert prompts.piece_markers(tokenizer) == markers
