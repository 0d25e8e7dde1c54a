#!/usr/bin/env python3
"""peers.py -- ambi and PyTorch's kernels on the same shapes, dtypes and device, as a Markdown table of ratios.

    python3 bench/peers.py [--ambi build/ambi] [--threads N] [--op OP] [--dtype f32] [--seconds 0.3]
    python3 bench/peers.py --device cuda [--quick] [--turns 1] [--limit 130] [--rows FILE] [..]

Runs `ambi bench --json` and, for each of its rows that torch has a counterpart of, times that. Backward is
torch.autograd.grad alone, on a graph built before the clock starts. Inputs rotate over 1 GiB for both.
On the CPU: runs on torch 1.13 and 2.x. torch allocates its results; malloc is told to keep freed memory, so that this
costs no page faults. On a GPU: peers_gpu.py; the best of torch's own kernels, torch.compile and, where they are
installed, Liger, causal-conv1d and mamba_ssm."""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

try:
    import torch
    import peers_torch as peers
except ImportError:
    torch = None

OPS = ("rmsnorm", "layernorm", "gated", "unary", "softmax", "add", "copy", "cast", "cross_entropy", "linear",
       "linear_cross_entropy", "embedding", "rope", "conv1d", "selective_scan", "grad_norm")


# ---- the rows of `ambi bench` --------------------------------------------------------------------------------

def ambi_rows(o):
    """What `ambi bench --json` says, or said to the file --rows, one dictionary a row."""
    if o.rows:
        with open(o.rows, encoding="utf-8") as f:
            rows = parse_rows(f.read())
        return [r for r in rows if r["op"] == (o.op or r["op"]) and r["dtype"] == (o.dtype or r["dtype"])]
    command = [o.ambi, "bench", o.device, "--json", "--seconds", str(o.seconds)]
    if o.device == "cpu":
        command += ["--threads", str(o.threads)]
    for name in ("op", "dtype"):
        if getattr(o, name):
            command += ["--" + name, getattr(o, name)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    done = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, env=clean)
    if done.returncode:
        print("peers.py: `{}` ended with {}".format(" ".join(command), done.returncode), file=sys.stderr)
    return parse_rows(done.stdout)


def parse_rows(text):
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [r for r in rows if r.get("ms") and r["op"] != "overhead"]


# ---- time ----------------------------------------------------------------------------------------------------

def median_ms(calls, seconds):
    """The median of at least five timed calls, after two that are not timed; calls take turns."""
    samples, spent, i = [], 0.0, 0
    for call in (calls * 2)[:2]:
        call()
    while len(samples) < 5 or (spent < seconds and len(samples) < 1000):
        begin = time.perf_counter()
        calls[i % len(calls)]()
        samples.append(time.perf_counter() - begin)
        spent += samples[-1]
        i += 1
    samples.sort()
    middle = len(samples) // 2
    return 1e3 * (samples[middle] if len(samples) % 2 else (samples[middle - 1] + samples[middle]) / 2)


def adamw_calls(tensors, sets):
    calls = []
    for _ in range(sets):
        p = torch.nn.Parameter(torch.rand(tensors["p"][0]))
        p.grad = torch.rand(tensors["p"][0])
        calls.append(torch.optim.AdamW([p], lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1).step)
    return calls


def torch_calls(row):
    """Callables that do once what the row says, or None when torch has no counterpart."""
    tensors, attributes = peers.parse_shape(row["shape"], row["dtype"])
    sets = peers.set_count(tensors) if row["op"] != "selective_scan" else 1  # its graph in plain torch is large
    if row["op"] == "adamw":
        return adamw_calls(tensors, sets) if row["dtype"] == "f32" else None
    if row["op"] in ("add", "copy", "grad_norm") and row["pass"] == "backward":
        return None  # torch hands the gradient on without touching it; clipping is another op
    function = peers.sdpa(None) if row["op"] == "attention" else getattr(peers, row["op"]) if row["op"] in OPS else None
    return function and [peers.op_call(row, function, tensors, attributes, "cpu") for _ in range(sets)]


def torch_ms(row, seconds):
    """Milliseconds, or None and why not."""
    try:
        calls = torch_calls(row)
        if calls is None:
            return None, "no counterpart"
        with torch.set_grad_enabled(row["pass"] == "backward" or " grad" in row["shape"]):
            return median_ms(calls, seconds), ""
    except (RuntimeError, KeyError, NotImplementedError, AttributeError) as e:  # a dtype this torch lacks on the CPU
        return None, str(e).splitlines()[0][:60]


# ---- the table -----------------------------------------------------------------------------------------------

def print_row(row, ms, why):
    number = "{:.3f}".format(ms) if ms else why
    ratio = "{:.2f}".format(ms / row["ms"]) if ms else ""
    print("| {} | {} | {} | {} | {:.3f} | {} | {} | {:.0%} |".format(
        row["op"], row["pass"], row["dtype"], row["shape"], row["ms"], number, ratio, row["of_copy"] or 0), flush=True)


def keep_memory():
    """Starts over with a malloc that neither maps nor returns memory."""
    settings = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}
    if "MALLOC_MMAP_MAX_" not in os.environ:
        os.execve(sys.executable, [sys.executable] + sys.argv, dict(os.environ, **settings))


def compare_cpu(o):
    keep_memory()
    torch.set_num_threads(o.threads)
    rows = ambi_rows(o)
    copy = rows[0].get("copy_gbps") if rows else None
    print("torch {}, {} threads, copy {} GB/s, medians in ms; ratio > 1: ambi is faster\n".format(
        torch.__version__, o.threads, "{:.1f}".format(copy) if copy else "?"))
    print("| op | pass | dtype | shape | ambi | torch | torch / ambi | ambi, of copy |\n" + "|---" * 8 + "|")
    for row in rows:
        print_row(row, *torch_ms(row, o.seconds))


def compare_gpu(o):
    import peers_gpu
    begin = time.time()
    if not torch.cuda.is_available():
        sys.exit("peers.py: torch {} sees no CUDA device".format(torch.__version__))

    def rows():
        timed = [r for r in ambi_rows(o) if not o.quick or peers_gpu.is_round(r)]
        return timed or sys.exit("peers.py: ambi timed nothing")
    device = torch.device("cuda", torch.device(o.device).index or 0)
    peers_gpu.print_table(rows, o.turns, device, o.seconds, lambda: time.time() - begin > o.limit * o.turns)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ambi", default=shutil.which("ambi") or "build/ambi", help="the program")
    p.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    p.add_argument("--threads", type=int, default=0, help="threads for both; 0: all cores")
    p.add_argument("--seconds", type=float, help="least time for the runs of one case; 0.3, on a GPU 0.1")
    p.add_argument("--op", help="only this op")
    p.add_argument("--dtype", help="only this dtype")
    p.add_argument("--quick", action="store_true", help="on a GPU: without the sizes that nothing divides")
    p.add_argument("--turns", type=int, default=1, help="on a GPU: ambi and its peers take so many turns; 1")
    p.add_argument("--limit", type=float, default=130, help="on a GPU: seconds, a turn, after which no more is compiled; 130")
    p.add_argument("--rows", metavar="FILE", help="ambi's rows, as `ambi bench DEVICE --json` printed them before")
    o = p.parse_args()
    if torch is None:
        sys.exit("peers.py: torch cannot be imported by " + sys.executable)
    if o.turns < 1 or (o.turns > 1 and (o.rows or o.device == "cpu")):
        p.error("--turns is at least 1, and for a GPU, without --rows")
    o.threads = o.threads or os.cpu_count() or 1
    if o.seconds is None:
        o.seconds = 0.3 if o.device == "cpu" else 0.1
    (compare_cpu if o.device == "cpu" else compare_gpu)(o)


if __name__ == "__main__":
    main()
