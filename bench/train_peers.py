#!/usr/bin/env python3
"""train_peers.py -- tokens a second of `ambi train` and of transformers on torch's CPU kernels: the same model (it is
read from the checkpoint that ambi wrote), batch, row length and threads, AdamW with clipping, f32, one after the other.

    python3 bench/train_peers.py [--ambi build/ambi] [--models mamba,llama] [--size 10m] [--batch 4] [--seq 256]
                                 [--threads N] [--steps 8] [--compile]

The median of the steps after the first two. Needs torch and transformers."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import transformers
except ImportError:
    sys.exit("train_peers: torch and transformers are needed")


def ambi_rate(o, kind, folder):
    """tokens/s of `ambi train`; FOLDER then holds a checkpoint."""
    command = [o.ambi, "train", "--model", kind, "--size", o.size, "--batch", str(o.batch), "--seq", str(o.seq),
               "--threads", str(o.threads), "--steps", str(o.steps), "--out", folder, "--save-every", str(o.steps),
               "--eval-every", "0", "--sample-every", "0", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "log.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    times = [line["seconds"] for line in lines if line["event"] == "step"]
    return o.batch * o.seq / statistics.median(b - a for a, b in zip(times[1:], times[2:]))


def torch_rate(o, folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config).train()
    step_of = torch.compile(model) if o.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    times = []
    for _ in range(o.steps):
        ids = torch.randint(0, 256, (o.batch, o.seq))
        began = time.perf_counter()
        step_of(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    return o.batch * o.seq / statistics.median(times[2:]), sum(p.numel() for p in model.parameters())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ambi", default="build/ambi")
    p.add_argument("--models", default="mamba,llama")
    p.add_argument("--size", default="10m")
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {o.threads} threads, f32, "
          f"batch {o.batch} x {o.seq}")
    print("| model | parameters | ambi, tokens/s | transformers, tokens/s | ratio |\n|---|---|---|---|---|")
    for kind in o.models.split(","):
        with tempfile.TemporaryDirectory() as top:
            folder = os.path.join(top, "run")
            ours = ambi_rate(o, kind, folder)
            theirs, count = torch_rate(o, os.path.join(folder, f"checkpoint-{o.steps}"))
        print(f"| {kind} | {count / 1e6:.1f}M | {ours:.0f} | {theirs:.0f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
