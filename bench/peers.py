#!/usr/bin/env python3
"""peers.py -- ambi and PyTorch's CPU kernels on the same shapes, dtypes and threads, as a Markdown table of ratios.

    python3 bench/peers.py [--ambi build/ambi] [--threads N] [--op OP] [--dtype f32] [--seconds 0.3]

Runs `ambi bench --json` and, for each of its rows that torch has a counterpart of, times that. Runs on torch 1.13 and
2.x. torch allocates its results; malloc is told to keep freed memory, so that this costs no page faults.
Backward is torch.autograd.grad alone, on a graph built before the clock starts. Inputs rotate over 1 GiB for both."""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = None

ROTATE_BYTES = 1 << 30
MAX_SETS = 32
ATTRIBUTES = ("softplus", "silu", "zoh", "a_log", "eps", "offset", "cast", "alpha", "beta")


# ---- the rows of `ambi bench` --------------------------------------------------------------------------------

def ambi_rows(o):
    """What `ambi bench --json` says, one dictionary a row."""
    command = [o.ambi, "bench", "--json", "--threads", str(o.threads), "--seconds", str(o.seconds)]
    for name in ("op", "dtype"):
        if getattr(o, name):
            command += ["--" + name, getattr(o, name)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, universal_newlines=True, env=clean).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def parse_shape(text, default):
    """'x=4x8@1,4 w=8:f32 eps=1e-5' -> tensors {name: (shape, dtype, strides or None)}, attributes {name: text}."""
    tensors, attributes = {}, {}
    for word in text.split():
        name, _, value = word.partition("=")
        described, _, strides = value.partition("@")
        head, _, dtype = described.partition(":")
        parts = head.split("x")
        if value and all(p.isdigit() for p in parts) and name not in ATTRIBUTES:
            tensors[name] = (tuple(int(p) for p in parts), dtype or default,
                             tuple(int(s) for s in strides.split(",")) if strides else None)
        else:
            attributes[name] = value
    return tensors, attributes


# ---- what torch does for each op -----------------------------------------------------------------------------

def rmsnorm(t, a):
    eps = float(a.get("eps", 1e-6))
    if hasattr(F, "rms_norm"):
        return F.rms_norm(t["x"], t["w"].shape, t["w"], eps)
    return t["x"] * torch.rsqrt(t["x"].pow(2).mean(-1, keepdim=True) + eps) * t["w"]


def layernorm(t, a):
    return F.layer_norm(t["x"], t["w"].shape, t["w"], t["b"], float(a.get("eps", 1e-5)))


def gated(t, a):
    gates = {"swiglu": F.silu, "glu": torch.sigmoid, "reglu": F.relu, "geglu": F.gelu,
             "geglu_tanh": lambda g: F.gelu(g, approximate="tanh"), "bilinear": lambda g: g}
    return t["v"] * gates[a.get("gate", "swiglu")](t["g"])


def unary(t, a):
    functions = {"silu": F.silu, "gelu": F.gelu, "relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
                 "softplus": F.softplus, "mish": F.mish, "exp": torch.exp,
                 "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}
    return functions[a.get("function", "silu")](t["x"])


def conv1d(t, a):
    width = t["w"].shape[-1]
    y = F.conv1d(t["x"], t["w"].unsqueeze(1), t.get("b"), padding=width - 1, groups=t["w"].shape[0])
    y = y[..., :t["x"].shape[-1]]
    return F.silu(y) if a.get("silu") in ("true", "1") else y


def selective_scan(t, a):
    """The plain recurrence, one step of time after another; u, delta, z (B, D, L), a (D, N), b, c (B, N, L)."""
    u, delta = t["u"].float(), t["delta"].float()
    if "delta_bias" in t:
        delta = delta + t["delta_bias"].float()[:, None]
    if a.get("softplus") in ("true", "1"):
        delta = F.softplus(delta)
    b, c = t["b"].float(), t["c"].float()
    du = delta * u
    h = u.new_zeros(u.shape[0], u.shape[1], t["a"].shape[1])
    ys = []
    for i in range(u.shape[2]):
        h = torch.exp(delta[:, :, i, None] * t["a"]) * h + du[:, :, i, None] * b[:, None, :, i]
        ys.append((h * c[:, None, :, i]).sum(-1))
    y = torch.stack(ys, 2)
    if "d" in t:
        y = y + u * t["d"].float()[:, None]
    if "z" in t:
        y = y * F.silu(t["z"].float())
    return y.to(t["u"].dtype)


FORWARD = {"rmsnorm": rmsnorm, "layernorm": layernorm, "gated": gated, "unary": unary, "conv1d": conv1d,
           "selective_scan": selective_scan,
           "linear": lambda t, a: F.linear(t["x"], t["w"], t.get("b")),
           "softmax": lambda t, a: F.softmax(t["x"], -1),
           "add": lambda t, a: torch.add(t["a"], t["b"]),
           "copy": lambda t, a: t["x"].clone(),
           "cast": lambda t, a: t["x"].to(t["y"].dtype)}


# ---- time ----------------------------------------------------------------------------------------------------

def dtype_of(name):
    return {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64,
            "i32": torch.int32, "i64": torch.int64}[name]


def make_inputs(tensors, attributes):
    """One set of inputs; A is negative, so that the scan decays."""
    t = {}
    for name, (shape, dtype, strides) in tensors.items():
        values = torch.rand(shape) * 2 - 1 if "i" not in dtype else torch.ones(shape)
        if name == "a" and "delta" in tensors:
            values = -values.abs() - 0.1
        t[name] = values.to(dtype_of(dtype))
        if strides:
            t[name] = torch.empty_strided(shape, strides, dtype=dtype_of(dtype)).copy_(values)
    return t


def set_count(tensors):
    if "delta" in tensors:
        return 1  # the graph of a scan in plain torch is large, and its time is not the memory's
    size = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4}
    one = sum(size[d] * math.prod(s) for s, d, _ in tensors.values())
    return max(1, min(MAX_SETS, ROTATE_BYTES // max(one, 1) + 1))


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
    tensors, attributes = parse_shape(row["shape"], row["dtype"])
    if row["op"] == "adamw":
        return adamw_calls(tensors, set_count(tensors)) if row["dtype"] == "f32" else None
    if row["op"] not in FORWARD or (row["op"] in ("add", "copy") and row["pass"] == "backward"):
        return None  # torch hands the gradient on without touching it
    forward, calls = FORWARD[row["op"]], []
    for _ in range(set_count(tensors)):
        t = make_inputs(tensors, attributes)
        if row["pass"] == "forward":
            calls.append(lambda t=t: forward(t, attributes))
            continue
        inputs = [v.requires_grad_() for k, v in t.items() if v.is_floating_point() and k != "y"]
        y = forward(t, attributes)
        dy = torch.rand_like(y)
        calls.append(lambda y=y, x=inputs, dy=dy: torch.autograd.grad(y, x, dy, retain_graph=True))
    return calls


def torch_ms(row, seconds):
    """Milliseconds, or None and why not."""
    try:
        calls = torch_calls(row)
        if calls is None:
            return None, "no counterpart"
        if row["pass"] == "forward":
            with torch.no_grad():
                return median_ms(calls, seconds), ""
        return median_ms(calls, seconds), ""
    except (RuntimeError, KeyError, NotImplementedError) as e:  # a dtype this torch lacks on the CPU
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


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ambi", default=shutil.which("ambi") or "build/ambi", help="the program")
    p.add_argument("--threads", type=int, default=0, help="threads for both; 0: all cores")
    p.add_argument("--seconds", type=float, default=0.3, help="least time for the runs of one case")
    p.add_argument("--op", help="only this op")
    p.add_argument("--dtype", help="only this dtype")
    o = p.parse_args()
    if torch is None:
        sys.exit("peers.py: torch cannot be imported by " + sys.executable)
    keep_memory()
    o.threads = o.threads or os.cpu_count() or 1
    torch.set_num_threads(o.threads)
    rows = [r for r in ambi_rows(o) if r.get("ms") and r["op"] != "overhead"]
    copy = rows[0].get("copy_gbps") if rows else None
    print("torch {}, {} threads, copy {} GB/s, medians in ms; ratio > 1: ambi is faster\n".format(
        torch.__version__, o.threads, "{:.1f}".format(copy) if copy else "?"))
    print("| op | pass | dtype | shape | ambi | torch | torch / ambi | ambi, of copy |\n|---|---|---|---|---|---|---|---|")
    for row in rows:
        print_row(row, *torch_ms(row, o.seconds))


if __name__ == "__main__":
    main()
