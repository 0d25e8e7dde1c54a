#!/usr/bin/env python3
"""transformers_test.py -- checkpoints go both ways between ambi and transformers.

What `ambi train` wrote is loaded by transformers, and what transformers saved is read by ambi. Then `ambi check --model`
compares logits, loss, every gradient, three AdamW losses and the most likely continuation (1e-5 of the largest number),
and `ambi generate` and `ambi eval` are compared with what transformers says of the same text.

    tests/transformers_test.py BUILD_FOLDER

Says SKIPPED where torch or transformers are not installed. Ends in "N passed, N failed"."""

import json
import os
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    import torch
    import transformers
    from safetensors.torch import save_file
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
except ImportError as missing:
    print(f"SKIPPED transformers_test: {missing}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

AMBI = os.path.join(os.path.abspath(sys.argv[1]), "ambi")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = {
    "mamba": ["--model", "mamba"],
    "mamba2": ["--model", "mamba2", "--state", "16", "--untied", "1"],
    "llama": ["--model", "llama", "--head-dim", "16", "--heads", "4", "--kv-heads", "2", "--untied", "1"],
    "llama tied": ["--model", "llama", "--head-dim", "16"],
}
ALLOWED = 1e-4
passed = failed = 0


def check(ok, what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print("FAILED", what)


def ambi(*arguments):
    done = subprocess.run([AMBI, *map(str, arguments)], capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"ambi {arguments[0]}: {done.stderr.decode()[:300]}")
    return done.stdout


def greedy(model, ids, count, among):
    """The most likely continuation among the first ids, from the whole text each time."""
    ids = list(ids)
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1, :among].argmax()))
    return ids


def expected_file(model, folder, path):
    """What `ambi check --model` compares with: see shared vectors of the same form."""
    ids = torch.randint(0, 256, (2, 24), generator=torch.Generator().manual_seed(1))
    model = model.train()
    out = {"ids": ids.to(torch.int32)}
    result = model(ids, labels=ids)
    out["logits"], out["loss"] = result.logits.detach().float(), result.loss.detach().double()
    result.loss.backward()
    for name, p in model.named_parameters():
        out["grad/" + name] = p.grad.clone()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses = []
    before = {k: v.clone() for k, v in model.state_dict().items()}
    for _ in range(3):
        adamw.zero_grad()
        loss = model(ids, labels=ids).loss
        losses.append(loss.item())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    model.load_state_dict(before)
    model.eval()
    out["greedy"] = torch.tensor(greedy(model, ids[0, :8].tolist(), 8, None), dtype=torch.int32)
    save_file({k: v.contiguous().clone() for k, v in out.items()}, os.path.join(folder, path))


def compare(kind, folder, origin):
    """The model in `folder`, whoever wrote it, by both."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    wrong = {k: v for k, v in report.items() if v}
    check(not wrong, f"{kind} {origin}: transformers says {wrong}")
    model.eval()
    expected_file(model, folder, "expected.safetensors")
    try:
        said = ambi("check", "--model", folder).decode()
        check("0 failed" in said, f"{kind} {origin}: {said[:400]}")
    except RuntimeError as why:
        out = subprocess.run([AMBI, "check", "--model", folder], capture_output=True).stdout.decode()
        check(False, f"{kind} {origin}: {why} {out[:600]}")
    prompt = "static int"
    wanted = greedy(model, prompt.encode(), 6, 257)[len(prompt):]
    got = ambi("generate", folder, prompt, "--temperature", 0, "--tokens", 6, "--no-prompt")[:-1]
    wanted = bytes(wanted[:wanted.index(256)] if 256 in wanted else wanted)
    check(got == wanted, f"{kind} {origin}: generate gives {got}, transformers {wanted}")
    with open(os.path.join(folder, "..", "text"), "rb") as f:
        text = f.read(200)
    with open(os.path.join(folder, "piece"), "wb") as f:
        f.write(text)
    ids = torch.tensor([list(text) + [256]])
    with torch.no_grad():
        loss = model(ids, labels=ids).loss.item()
    said = ambi("eval", folder, os.path.join(folder, "piece"), "--seq", 200, "--batch", 1).decode()
    mine = float(said.split("loss ")[1].split()[0])
    check(abs(mine - loss) < ALLOWED, f"{kind} {origin}: eval gives {mine}, transformers {loss}")
    return model


def native(kind):
    """A fresh model as transformers makes it; llama's parameters in bf16."""
    torch.manual_seed(3)
    common = {"vocab_size": 300, "hidden_size": 48, "num_hidden_layers": 2, "initializer_range": 0.1}
    if kind == "mamba":
        return transformers.MambaForCausalLM(transformers.MambaConfig(state_size=8, **common))
    if kind == "mamba2":
        return transformers.Mamba2ForCausalLM(transformers.Mamba2Config(
            num_heads=6, head_dim=16, n_groups=2, state_size=16, chunk_size=16, **common))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        num_attention_heads=4, num_key_value_heads=2, intermediate_size=80, **common)).to(torch.bfloat16)


def main():
    work = tempfile.TemporaryDirectory()
    text = os.path.join(work.name, "text")
    with open(os.path.join(ROOT, "README.md"), "rb") as readme, open(text, "wb") as f:
        f.write(readme.read()[:60000])
    for kind, options in KINDS.items():
        run = os.path.join(work.name, kind.replace(" ", "-"))
        ambi("train", text, "--out", run, "--width", 64, "--layers", 2, "--seq", 32, "--batch", 4, "--steps", 12,
             "--lr", 1e-2, "--save-every", 12, "--eval-every", 0, "--sample-every", 0, "--quiet", *options)
        written = run + "-ambi"
        os.rename(os.path.join(run, "checkpoint-12"), written)
        model = compare(kind, written, "written by ambi")
        with open(os.path.join(written, "config.json")) as f:
            made = json.load(f)["architectures"][0]
        check(made == type(model).__name__, f"{kind}: loaded as {type(model).__name__}")
    for kind in ["mamba", "mamba2", "llama"]:
        saved = os.path.join(work.name, kind + "-transformers")
        native(kind).save_pretrained(saved)
        compare(kind, saved, "saved by transformers")


main()
print(f"torch {torch.__version__}, transformers {transformers.__version__}")
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
