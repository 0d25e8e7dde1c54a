"""Compares ambi's tokenizers with the package `tokenizers`, where it is installed: ids of random texts, texts of those ids,
and a vocabulary that each of them learns from the same text.

    python3 tests/compare_tokenizers.py BUILD [SEED [COUNT]]       BUILD holds ambi and tests/test_tokenizer
"""
import glob
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

try:
    import tokenizers
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    print("  SKIPPED compare_tokenizers: there is no package tokenizers")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
PIECES = [" ", "  ", "\n", "\r\n", "\t", "the", "The", " there", "'s", "'LL", "'ſ", "’s", "don't", "12", "3456", "½", "٣", "é",
          "e\u0301", "\u0323\u0301", "\u0301", "Å", "中文", "かな", "한", "\u1112\u1161\u11ab", "مرحبا", "हिन्दी", "👩‍👩‍👧", "👍🏽", "\u200d", "\u00a0",
          "\u3000", "\u2028", "\x00", "\x7f", "!", "...", "==", "_", "{", "}", "<|endoftext|>", "<|begin_of_text|>", "<mask>",
          "<cut>", "<|", "Ġ", "ﬁ", "İ", "ß", "x", "Hello", "123"]
counts = {True: 0, False: 0}


def expect(ok, what):
    counts[bool(ok)] += 1
    if not ok and counts[False] <= 20:
        print("FAILED " + what)


def random_char():
    top = random.choice([0x80, 0x250, 0x800, 0x3000, 0x10000, 0x20000, 0x110000])
    c = random.randrange(top)
    known = not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn"
    return chr(c) if known else "a"


def random_text():
    n = random.choice([0, 1, 2, 3, 5, 8, 20, 60])
    return "".join(random.choice(PIECES) if random.random() < 0.8 else random_char() for _ in range(n))


def is_old(text):
    """Whether the package's NFC, whose tables are of Unicode 9, knows its characters: ambi's are newer."""
    return normalizers.NFC().normalize_str(text) == unicodedata.normalize("NFC", text)


def ambi_ids(build, path, texts):
    raw = [t.encode() for t in texts]
    out = subprocess.run([os.path.join(build, "tests", "test_tokenizer"), "ids", path], check=True, capture_output=True,
                         input=b"".join(b"%d\n%s" % (len(t), t) for t in raw)).stdout
    return [[int(x) for x in line.split()] for line in out.decode().split("\n")[:-1]]


def compare(build, path, texts, returns):
    """returns: the text of its ids is the text itself, so that decoding can be compared too."""
    t, name = Tokenizer.from_file(path), os.path.basename(path)
    for text, ids in zip(texts, ambi_ids(build, path, texts)):
        want = t.encode(text, add_special_tokens=False).ids
        expect(ids == want, "%s, %r: %s, not %s" % (name, text, ids, want))
    for text in texts[:20] if returns else []:
        ids = " ".join(map(str, t.encode(text, add_special_tokens=False).ids))
        back = subprocess.run([os.path.join(build, "ambi"), "tokenizer", "decode", path, "--ids", ids], check=True,
                              capture_output=True).stdout
        expect(back == text.encode(), "%s decodes %s to %r, not %r" % (name, ids, back, text))


def compare_training(build, folder, size):
    sources = sorted(glob.glob(os.path.join(HERE, "..", "cli", "*.c")) + [os.path.join(HERE, "make_tokenizer_data.py")])
    path = os.path.join(folder, "trained.json")
    subprocess.run([os.path.join(build, "ambi"), "tokenizer", "train", *sources, "--vocab", str(size), "--out", path],
                   check=True, capture_output=True)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator([open(s, encoding="utf-8", newline="").read() for s in sources], trainer)
    ours = Tokenizer.from_file(path)
    expect(ours.get_vocab() == t.get_vocab(), "ambi and the package learn %d different tokens of %d"
           % (len(ours.get_vocab().items() - t.get_vocab().items()), size))
    return path


def main():
    build, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    random.seed(seed)
    texts = [t for t in (random_text() for _ in range(count)) if is_old(t)]
    print("tokenizers %s, seed %d, %d texts" % (tokenizers.__version__, seed, len(texts)))
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(glob.glob(os.path.join(HERE, "data", "tokenizers", "*.json"))):
            name = os.path.basename(path)
            if name != "cases.json":
                compare(build, path, texts, name not in ("neox.json", "prefix.json"))
        compare(build, compare_training(build, folder, 1500), texts, True)
    print("%d passed, %d failed" % (counts[True], counts[False]))
    return 1 if counts[False] else 0


sys.exit(main())
