"""Writes tests/data/tokenizers: small tokenizer.json files in the manner of known families, and the ids that the package
`tokenizers` gives for hard texts. Run by hand when a case is added; what it writes is checked in.

    python3 tests/make_tokenizer_data.py
"""
import json
import os
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "tokenizers")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
GPT4 = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")

CORPUS = """The quick brown fox jumps over the lazy dog. They're here; we've seen what I'll do, and it's not what you'd think.
In 2024 there were 1234567 of them, 12,345.67 in all, and the rest were 3.14159265 or so. the the the there then that
    for (int i = 0; i < n; i++) { sum += a[i] * b[i]; }  // the sum of the products
\tif (x == NULL) return -1;\n\n\n\treturn sum;\n}\n
Der schnelle braune Fuchs. Le café était fermé à Noël. Быстрая коричневая лиса прыгает через ленивую собаку.
敏捷的棕色狐狸跳过了懒狗。素早い茶色の狐がのろまな犬を飛び越える。빠른 갈색 여우가 게으른 개를 뛰어넘습니다.
الثعلب البني السريع يقفز فوق الكلب الكسول. हिन्दी में लिखा गया वाक्य। 👩‍👩‍👧‍👦 🎉🎉 naïve façade
"""

TEXTS = [
    "", " ", "  ", "   a", "a", "Hello world", " Hello  world ", "hello\n", "\n\n\n", " \n \n x", "\r\n\r\nx\r\n", "\t\tx\t",
    "a" * 40, " " * 37, "the there they're THE THEY'RE we'Ve I'LL it'S 'tis 'sup", "it’s", "x'ſ y'S", "don't can't won't'",
    "12 123 1234 12345 1234567890", "3.14159 1,000,000 1e-6 0x1F", "²³ ½ Ⅷ ٣٤٥ १२३ 𝟘𝟙", "café", "cafe\u0301", "Å Å Å ﬁ",
    "e\u0301\u0323 e\u0323\u0301 a\u0316\u0300", "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "ﾊﾝｶｸ 全角ＡＢＣ", "中文字符，测试。",
    "日本語のテキスト", "שלום עולם", "الثعلب البني", "हिन्दी में", "ไทยภาษา", "👩‍👩‍👧‍👦 👍🏽 🇩🇪 ❤️", "\u200b\u200d\ufeff", "a\u00a0b\u2003c\u3000d",
    "x\u0085y\u2028z", "for (int i = 0; i < n; i++) {\n    a[i] += b[i];\n}\n", "def f(x):\n\treturn x**2  # square\n",
    "https://example.org/a?b=c&d=%20", "<html><body>\n</body></html>", "!!!???...---", "a_b__c snake_case camelCase",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endoftext", "<|begin_of_text|>x",
    "  <mask>  x", "a<mask>b", "<cut>  <cut>x", "\u0000\u0001\u001f\u007f", "ĠĊ Ā", "𐐷𐐔 𠜎𠜱", "\u0130\u0131 ŉ ß ẞ",
    "line one\n\n  line two\n \n\tline three   \n", "a  b   c    d     e", "🎉" * 9, "end with spaces   ", "'", "''s", " 's", "  's",
    "\u0378\u0590 unassigned", "\u0600\u0601 \u0301 alone", "mixed混合текст123abc", "the\u00adre", "x\n\n", "x \n\n y",
]


def trained(pre, normalizer=None, special=("<|endoftext|>",), size=400):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator([CORPUS], trainer)
    return t


def gpt2():
    t = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    doc = json.loads(t.to_str())
    del doc["model"]["type"], doc["pre_tokenizer"]["use_regex"]  # as old files are
    doc["model"]["merges"] = [" ".join(m) for m in doc["model"]["merges"]]
    return doc


def neox():
    t = trained(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC(), ("<|endoftext|>", "<|padding|>"))
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    t.add_tokens([AddedToken("cafe\u0301", normalized=True)])
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    return json.loads(t.to_str())


def llama3():
    special = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    t = trained(pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
                special=special)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
        special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    doc = json.loads(t.to_str())
    doc["model"]["ignore_merges"] = True
    for word in ("ĠHello", "123", "ä¸Ń", "x"):  # no merges lead to them
        doc["model"]["vocab"].setdefault(word, len(doc["model"]["vocab"]))
    return doc


def gpt4():  # possessive, another (?i:..), what does not match is removed
    split = pre_tokenizers.Split(Regex(GPT4), "removed", invert=True)
    t = trained(pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))
    return json.loads(t.to_str())


def prefix():  # spaces put before words, digits one by one, tokens that take white space with them
    t = trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                         pre_tokenizers.ByteLevel(add_prefix_space=True)]))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True), AddedToken("<cut>", rstrip=True, special=True)])
    return json.loads(t.to_str())


def main():
    os.makedirs(FOLDER, exist_ok=True)
    ids = {}
    for make in (gpt2, neox, llama3, gpt4, prefix):
        text = json.dumps(make(), ensure_ascii=False, separators=(",", ":")).replace('],"', '],\n"') + "\n"
        with open(os.path.join(FOLDER, make.__name__ + ".json"), "w", encoding="utf-8") as f:
            f.write(text)
        t = Tokenizer.from_str(text)
        ids[make.__name__] = {"around_nothing": t.encode("").ids,
                              "ids": [t.encode(s, add_special_tokens=False).ids for s in TEXTS]}
    doc = {"made_by": "tokenizers " + tokenizers.__version__, "corpus": CORPUS, "texts": TEXTS, "tokenizers": ids}
    with open(os.path.join(FOLDER, "cases.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(doc, separators=(",", ":")).replace("]],", "]],\n").replace("],[", "],\n[") + "\n")


main()
