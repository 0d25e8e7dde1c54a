"""peers_gpu.py -- the peers of `ambi bench cuda`: torch's own kernels, torch.compile of the composed op and, where they
are installed, Liger's, causal-conv1d's and mamba_ssm's kernels, timed as ambi times itself. Each peer's calls are
captured in a graph and replayed, inputs and results rotate over 1 GiB, and the median of the replays counts. What
cannot be captured is timed by events. Backward is torch.autograd.grad alone, on a graph of autograd's that was built
before; of causal-conv1d and mamba_ssm their backward kernels alone. Everything runs on one side stream: autograd runs
backward on the stream of the forward, and a capture may not meet any other."""
import collections
import gc
import importlib
import math
import statistics
import sys
import time
import warnings

import torch

from peers_torch import (Kernels, adamw_composed, adamw_fused, causal_conv1d, conv1d, conv1d_taps, cross_entropy,
                         cross_entropy_f32, embedding, gated, grad_norm, grad_norm_of_many, kernels_call, layernorm,
                         liger, linear, linear_cross_entropy, linear_cross_entropy_f32, make_inputs, mamba_scan,
                         op_call, parse_shape, rmsnorm, rope, sdpa, set_count, softmax, unary)

SAMPLE_SECONDS = 10e-3  # of calls in one sample
MAX_TURNS = 500
MANY, SMALL = 148, 1 << 22  # a case of adamw or grad_norm with less than SMALL elements is one tensor of that many
TFLOPS = ("linear", "attention", "linear_cross_entropy")  # shown by arithmetic, not by bytes

# A peer: name, what it calls, and whether that is compiled first.
Peer = collections.namedtuple("Peer", "name function compiled")
# What is timed: callables that take turns, whether autograd watches, tensors a call does at once, may it be captured.
Work = collections.namedtuple("Work", "calls grad tensors capture")


def eager(f):
    return [Peer("eager", f, False)]


def both(f, compiled=None):
    return eager(f) + [Peer("compile", compiled or f, True)]


def packaged(name, module, kernels):
    """kernels(a package's module) where that is, else None; the rest of the package is not needed."""
    try:
        return kernels(importlib.import_module(module))
    except ModuleNotFoundError:
        return None
    except ImportError as e:  # it is there, and was built for another torch
        print("peers: no {}: {}".format(name, e), file=sys.stderr)
        return None


def package_peer(name, module, kernels):
    found = packaged(name, module, kernels)
    return [Peer(name, found, False)] if found else []


PEERS = {"rmsnorm": both(rmsnorm), "layernorm": both(layernorm), "gated": both(gated), "unary": both(unary),
         "softmax": both(softmax), "rope": both(rope), "cross_entropy": both(cross_entropy, cross_entropy_f32),
         "linear_cross_entropy": both(linear_cross_entropy, linear_cross_entropy_f32),
         "conv1d": both(conv1d) + [Peer("compile, taps", conv1d_taps, True)] +
                   package_peer("causal-conv1d", "causal_conv1d_cuda", causal_conv1d),
         "selective_scan": package_peer("mamba_ssm", "selective_scan_cuda", mamba_scan),
         "linear": eager(linear), "embedding": eager(embedding), "grad_norm": eager(grad_norm),
         "attention": [Peer("flash", sdpa("FLASH_ATTENTION"), False), Peer("cuDNN", sdpa("CUDNN_ATTENTION"), False)],
         "adamw": [Peer("fused", adamw_fused, False), Peer("compile", adamw_composed, True)]}
for op, function in (packaged("Liger", "liger_kernel.transformers.functional", liger) or {}).items():
    PEERS[op].append(Peer("Liger", function, False))
MANY_PEERS = {"adamw": PEERS["adamw"][:1], "grad_norm": eager(grad_norm_of_many)}  # compiled they would take minutes
ATTENTION_F32 = [Peer("efficient", sdpa("EFFICIENT_ATTENTION"), False)]  # the others take 16 bits only
NO_PEER = {"selective_scan": "mamba_ssm is not installed; step after step in PyTorch is no peer on a GPU",
           "ssd": "torch has no such op"}
NO_CAPTURE = (("embedding", "backward"),)  # its sort of the tokens waits for the GPU


def peers_of(row):
    if row["op"] == "attention" and row["dtype"] in ("f32", "f64"):
        return ATTENTION_F32
    if tensors_of(row) > 1:
        return [] if " partial=" in row["shape"] else MANY_PEERS[row["op"]]
    return PEERS.get(row["op"], [])


def tensors_of(row):
    """How many a call of a peer takes at once"""
    is_small = row["op"] in MANY_PEERS and math.prod(parse_shape(row["shape"], row["dtype"])[0]["g"][0]) < SMALL
    return MANY if is_small else 1


# ---- work ----------------------------------------------------------------------------------------------------

def op_work(row, function, tensors, attributes, device):
    make_call = kernels_call if isinstance(function, Kernels) else op_call
    calls = [make_call(row, function, tensors, attributes, device) for _ in range(set_count(tensors))]
    return Work(calls, row["pass"] == "backward" or "grad" in attributes, 1, (row["op"], row["pass"]) not in NO_CAPTURE)


def list_work(row, function, tensors, attributes, device):
    """Small tensors are many at once, as they are for an optimizer."""
    many, is_adamw = tensors_of(row), row["op"] == "adamw"
    names = ("p", "g", "m", "v") if is_adamw else ("g",)
    sets = set_count({i: tensors[names[0]] for i in range(len(names) * many)})

    def one_set():
        inputs = [make_inputs(tensors, device) for _ in range(many)]
        lists = [[t[name].abs_() for t in inputs] for name in names]  # v is a mean of squares
        steps = [torch.ones((), device=device) for _ in range(many)]
        return (lambda: function(*lists, steps)) if is_adamw else (lambda: function(*lists))
    return Work([one_set() for _ in range(sets)], False, many, True)


# ---- time ----------------------------------------------------------------------------------------------------

failed_captures = []  # kept: the allocator goes on asking a graph whose capture failed


def captured(calls, turns):
    """A graph of the calls in turns; as many results live at once as there are sets of inputs."""
    graph, kept = torch.cuda.CUDAGraph(), collections.deque(maxlen=len(calls))
    try:
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
            for i in range(turns):
                kept.append(calls[i % len(calls)]())
    except Exception:
        failed_captures.append(graph)
        raise
    return graph


def timed(run, turns):
    """Seconds of a call, from the host's clock around run() and the wait for it."""
    def sample():
        begin = time.perf_counter()
        run()
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        return (time.perf_counter() - begin) / turns
    return sample


def timed_by_events(calls, turns):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample():
        begin.record()
        for i in range(turns):
            calls[i % len(calls)]()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / turns
    return sample


def make_sample(work, device):
    """A function that times a call, and what to say of how: '' for graphs."""
    calls = work.calls
    timed(calls[0], 1)()  # compiles, and chooses kernels
    once = timed(calls[-1], 1)()
    turns = max(math.ceil(min(SAMPLE_SECONDS / max(once, 1e-7), MAX_TURNS)), len(calls))
    if device.type != "cuda":
        return timed(lambda: [calls[i % len(calls)]() for i in range(turns)], turns), ""
    try:
        if work.capture:
            return timed(captured(calls, turns).replay, turns), ""
    except Exception as e:  # its context is what broke the capture; itself may only say that it is broken
        return timed_by_events(calls, turns), "by events, as its capture failed: " + reason(e.__context__ or e)
    return timed_by_events(calls, turns), "by events"


def median_ms(work, device, seconds):
    """Milliseconds of one tensor's call, and a remark."""
    with torch.set_grad_enabled(work.grad):
        sample, remark = make_sample(work, device)
        sample()
        samples, spent = [], 0.0
        while len(samples) < 5 or (spent < seconds and len(samples) < 1000):
            begin = time.perf_counter()
            samples.append(sample())
            spent += time.perf_counter() - begin
    samples.sort()
    middle = (samples[(len(samples) - 1) // 2] + samples[len(samples) // 2]) / 2
    return 1e3 * middle / work.tensors, remark


def copy_gbps(device, seconds, size=1 << 30):
    """Bytes read and written a second by a kernel that does next to nothing (dst.copy_ is none in a graph: slower)."""
    src, dst = (torch.zeros(size // 4, device=device) for _ in range(2))
    return 2 * size / median_ms(Work([lambda: torch.neg(src, out=dst)], False, 1, True), device, seconds)[0] / 1e6


# ---- the peers of a row --------------------------------------------------------------------------------------

def reason(e):
    lines = [line for line in str(e).splitlines() if line.strip()]
    return "{}: {}".format(type(e).__name__, lines[0][:120] if lines else "")


def peer_ms(row, peer, device, seconds):
    tensors, attributes = parse_shape(row["shape"], row["dtype"])
    function, make = peer.function, list_work if row["op"] == "adamw" or tensors_of(row) > 1 else op_work
    if peer.compiled:
        torch.compiler.reset()  # or the next shape would be compiled as one of many
        function = torch.compile(function, dynamic=False, fullgraph=True)
    return median_ms(make(row, function, tensors, attributes, device), device, seconds)


def time_row(row, device, seconds, late, notes):
    """{name: ms} of the peers that ran, and whether any did not; remarks go to the notes."""
    found, missing = {}, False
    if not PEERS.get(row["op"]):
        notes["no peer: " + NO_PEER.get(row["op"], "no counterpart")].add(row["op"])
    for peer in peers_of(row):
        remark = ""
        try:
            if peer.compiled and late():
                remark = "absent, as the time for compiling was up (--limit)"
            else:
                found[peer.name], remark = peer_ms(row, peer, device, seconds)
        except Exception as e:  # whatever torch raises, the table goes on
            remark = "absent: " + reason(e)
        missing |= peer.name not in found
        if remark:
            notes[peer.name + ": " + remark].add(" ".join((row["op"], row["pass"], row["dtype"])))
    if missing:
        gc.collect()  # what the exception held
    return found, missing


# ---- the table -----------------------------------------------------------------------------------------------

def is_round(row):
    """No size above 8 that 8 does not divide, in tensors of more than one axis."""
    tensors, _ = parse_shape(row["shape"], row["dtype"])
    return all(len(shape) < 2 or all(n <= 8 or n % 8 == 0 for n in shape) for shape, _, _ in tensors.values())


def number(ms):
    return "{:.{}f}".format(ms, 4 if ms < 0.05 else 3)


def figure(row, ms):
    """'0.066 (95%)': ms and the share of the copy; or TFLOP/s."""
    if row["op"] in TFLOPS and row.get("gflops"):
        return "{} ({:.0f} TFLOP/s)".format(number(ms), row["gflops"] * row["ms"] / ms / 1e3)
    return "{} ({:.0%})".format(number(ms), (row.get("of_copy") or 0) * row["ms"] / ms)


def print_row(row, found, missing):
    best = min(found, key=found.get) if found else None
    rest = ", ".join(name + " " + number(ms) for name, ms in found.items() if name != best)
    together = ", together" if (row.get("kernel") or "").endswith(", together") else ""
    print("| {} | {} | {} | {}{} | {} | {} | {} | {} | {} |".format(
        row["op"], row["pass"], row["dtype"], row["shape"], together, figure(row, row["ms"]),
        figure(row, found[best]) if best else "", best or "", rest,
        "{:.2f}{}".format(found[best] / row["ms"], " *" if missing else "") if best else ""), flush=True)


def settle(device):
    """One side stream for all, true f32 in convolutions as in products, and autograd graphs that may be run again."""
    warnings.filterwarnings("ignore")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.set_stream(torch.cuda.Stream(device))
        torch.backends.cudnn.allow_tf32 = False
    import torch._functorch.config as compiled
    compiled.donated_buffer = False  # or torch.compile's backward refuses retain_graph


def key_of(row):
    return row["op"], row["pass"], row["dtype"], row["shape"], row.get("kernel")


def middle_of(turns):
    """(ambi's ms, {peer: ms}) of several turns: the median of each, a peer's over the turns in which it ran."""
    names = dict.fromkeys(name for _, found in turns for name in found)
    return (statistics.median(ms for ms, _ in turns),
            {n: statistics.median(found[n] for _, found in turns if n in found) for n in names})


def rows_again(ambi_rows, first, notes):
    """Those of another turn in the order of the first; what is not in both is left out."""
    torch.cuda.empty_cache()  # memory that ambi may need
    again = {key_of(r): r for r in ambi_rows()}
    for row in first:
        if key_of(row) not in again:
            notes["left out: ambi did not time it in every turn"].add(" ".join(key_of(row)[:4]))
    return [again[key_of(r)] for r in first if key_of(r) in again]


def print_table(ambi_rows, turns, device, seconds, late):
    """ambi_rows() times ambi's, then each row's peers are timed: `turns` times, as clocks move with what ran before."""
    begin, notes, ahead, compared = time.time(), collections.defaultdict(set), 0, 0
    rows = ambi_rows()
    settle(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    print("{}, torch {}; copy {:.0f} GB/s by torch, {:.0f} by ambi; medians in ms, in brackets the share of ambi's "
          "copy or TFLOP/s; ratio > 1: ambi is faster\n".format(name, torch.__version__, copy_gbps(device, seconds),
                                                           rows[0].get("copy_gbps") or 0))
    print("| op | pass | dtype | case | ambi | best peer | which | others | peer / ambi |\n" + "|---" * 9 + "|")
    times, absent = collections.defaultdict(list), set()
    for turn in range(turns):
        rows = rows if turn == 0 else rows_again(ambi_rows, rows, notes)
        for row in rows:
            key = key_of(row)
            found, missing = time_row(row, device, seconds, late, notes)
            times[key].append((row["ms"], found))
            if missing:
                absent.add(key)
            if turn < turns - 1:
                continue
            ms, found = middle_of(times[key])
            row = dict(row, ms=ms, **{k: row[k] * row["ms"] / ms for k in ("of_copy", "gflops") if row.get(k)})
            print_row(row, found, key in absent)
            compared += bool(found)
            ahead += bool(found) and min(found.values()) >= ms
    print("\nambi is at least as fast in {} of {} rows; {:.0f} s".format(ahead, compared, time.time() - begin))
    if notes:
        print("\nNotes (* a peer is absent):")
    for note, where in notes.items():
        print("- {} ({})".format(note, ", ".join(sorted(where))))
