"""peers_torch.py -- what PyTorch does for each op of ambi's: functions of the slots' tensors t and the attributes a, by
name; two packages' kernels for such tensors; and the reading of the cases that `ambi bench` prints."""
import collections
import contextlib
import functools
import math

import torch
import torch.nn.functional as F

ROTATE_BYTES = 1 << 30
MAX_SETS = 32

ATTRIBUTES = ("softplus", "silu", "zoh", "a_log", "eps", "offset", "cast", "alpha", "beta", "theta", "dims")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64,
          "i32": torch.int32, "i64": torch.int64}

# Kernels that autograd does not see: forward(t, a) gives y and what backward(t, a, dy, ..) wants of it.
Kernels = collections.namedtuple("Kernels", "forward backward")


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


def is_true(a, name):
    return a.get(name) in ("true", "1")


# ---- inputs --------------------------------------------------------------------------------------------------

@functools.lru_cache(None)
def random(device):
    """A generator of our own: a capture that fails leaves torch's unusable."""
    return torch.Generator(device)


def make_inputs(tensors, device):
    """One set of inputs, between -1 and 1, A of a scan below 0; classes and tokens below how many there are."""
    t = {}
    is_scan = "delta" in tensors
    classes = tensors["logits"][0][-1] if "logits" in tensors else tensors.get("w", ((1,),))[0][0]
    for name, (shape, dtype, strides) in tensors.items():
        if name in ("target", "tokens"):
            t[name] = torch.randint(classes, shape, device=device, generator=random(device))
            continue
        values = torch.empty(shape, dtype=DTYPES[dtype], device=device)
        if strides:
            values = torch.empty_strided(shape, strides, dtype=DTYPES[dtype], device=device)
        low, high = (-1.1, -0.1) if name == "a" and is_scan else (-1, 1)
        t[name] = values.uniform_(low, high, generator=random(device))
    return t


def set_count(tensors):
    one = sum(torch.empty((), dtype=DTYPES[dtype]).element_size() * math.prod(shape) for shape, dtype, _ in tensors.values())
    return max(1, min(MAX_SETS, ROTATE_BYTES // max(one, 1) + 1))


def wanted(t, tensors, attributes):
    """The inputs whose gradients the case names (dx, dw ..), or all."""
    floats = [name for name in tensors if t[name].is_floating_point() and name != "y"]
    named = [name for name in floats if "d" + name in attributes]
    return [t[name].requires_grad_() for name in named or floats]


def op_call(row, function, tensors, attributes, device):
    """A callable that does once what the row says, on inputs of its own."""
    t = make_inputs(tensors, device)
    if row["op"] == "rope":
        t["cos"], t["sin"] = (table.to(device) for table in rope_tables(tensors["x"][0], attributes))
    if row["pass"] == "backward":
        x = wanted(t, tensors, attributes)
        y = function(t, attributes)
        dy = torch.ones_like(y) if y.dim() == 0 else torch.empty_like(y).uniform_(-1, 1, generator=random(device))
        return lambda: torch.autograd.grad(y, x, dy, retain_graph=True)
    if "grad" in attributes:  # the loss and its gradient in one
        x = wanted(t, tensors, attributes)
        return lambda: torch.autograd.grad(function(t, attributes), x)
    return lambda: function(t, attributes)


def kernels_call(row, kernels, tensors, attributes, device):
    """As op_call. Backward is given what one forward saved, and computes all gradients: they have no other way."""
    t = make_inputs(tensors, device)
    if row["pass"] == "forward":
        return lambda: kernels.forward(t, attributes)
    y, *saved = kernels.forward(t, attributes)
    dy = torch.empty_like(y).uniform_(-1, 1, generator=random(device))
    return lambda: kernels.backward(t, attributes, dy, *saved)


# ---- ops ----------------------------------------------------------------------------------------------------

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
    return F.silu(y) if is_true(a, "silu") else y


def selective_scan(t, a):
    """The plain recurrence, one step of time after another; u, delta, z (B, D, L), a (D, N), b, c (B, N, L)."""
    u, delta = t["u"].float(), t["delta"].float()
    if "delta_bias" in t:
        delta = delta + t["delta_bias"].float()[:, None]
    if is_true(a, "softplus"):
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


def linear(t, a):
    return F.linear(t["x"], t["w"], t.get("b"))


def softmax(t, a):
    return F.softmax(t["x"], -1)


def conv1d_taps(t, a):
    """conv1d as a sum of shifted products, which torch.compile makes one kernel of."""
    width, length = t["w"].shape[-1], t["x"].shape[-1]
    x, w = F.pad(t["x"], (width - 1, 0)).float(), t["w"].float()
    y = sum(w[:, k, None] * x[..., k:k + length] for k in range(width))
    if "b" in t:
        y = y + t["b"].float()[:, None]
    return (F.silu(y) if is_true(a, "silu") else y).to(t["x"].dtype)


def rope_tables(shape, a):
    """cos and sin of position times frequency, (L, D/2) in f32."""
    length, dims = shape[-2:]
    frequency = float(a.get("theta", 10000)) ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


def rope(t, a):
    x, cos, sin = t["x"].float(), t["cos"], t["sin"]
    if is_true(a, "interleaved"):
        x1, x2 = x[..., 0::2], x[..., 1::2]
        y = torch.stack((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1).flatten(-2)
    else:
        x1, x2 = x.chunk(2, -1)
        y = torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1)
    return y.to(t["x"].dtype)


def cross_entropy(t, a):
    return F.cross_entropy(t["logits"], t["target"])


def cross_entropy_f32(t, a):
    return F.cross_entropy(t["logits"].float(), t["target"])


def linear_cross_entropy(t, a):
    return F.cross_entropy(linear(t, a), t["target"])


def linear_cross_entropy_f32(t, a):
    return F.cross_entropy(linear(t, a).float(), t["target"])


def embedding(t, a):
    return F.embedding(t["tokens"], t["w"])


def grad_norm(t, a):
    return torch.linalg.vector_norm(t["g"], dtype=torch.float32)


def grad_norm_of_many(g):
    """As torch.nn.utils.clip_grad_norm_ finds it, over a list."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(g)))


def sdpa(backend):
    """Attention by one of torch.nn.attention.SDPBackend, which raises where it cannot; by any: None."""
    def run(t, a):
        q, k, v = t["q"], t["k"], t["v"]
        causal = is_true(a, "causal") and q.shape[2] > 1  # torch's one query would see the first key alone
        if causal and q.shape[2] != k.shape[2]:
            raise KeyError("its mask begins at the first key, ambi's ends at the last")
        shared = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
        chosen = torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)) if backend else None
        with chosen or contextlib.nullcontext():
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, **shared)
    return run


def add(t, a):
    return torch.add(t["a"], t["b"])


def copy(t, a):
    return t["x"].clone()


def cast(t, a):
    return t["x"].to(t["y"].dtype)


def adamw_fused(p, g, m, v, steps):
    """The kernel of torch.optim.AdamW(fused=True) over lists of tensors; as in ambi's op, others count the steps."""
    torch._fused_adamw_(p, g, m, v, [], steps, lr=1e-3, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8,
                        amsgrad=False, maximize=False)


def adamw_composed(p, g, m, v, _):
    """The first step in place, for torch.compile; its corrections are constants."""
    for p, g, m, v in zip(p, g, m, v):
        g = g.float()
        m.copy_(m * 0.9 + g * 0.1)
        v.copy_(v * 0.95 + g * g * 0.05)
        p.copy_(p * (1 - 1e-3 * 0.1) - 1e-3 / (1 - 0.9) * m / ((v / (1 - 0.95)).sqrt() + 1e-8))


# ---- packages ------------------------------------------------------------------------------------

def refuse(t, a, *names):
    """Raises where a case has what the kernels lack, lest they time something else."""
    for name in names:
        if name in t or a.get(name, "false") not in ("false", "0"):
            raise NotImplementedError("its kernels lack " + name)


def liger(functional):
    """What Liger's Triton kernels do, {op: function}; autograd sees them. They may write over what they are given."""
    gates = {"swiglu": "liger_swiglu", "geglu_tanh": "liger_geglu"}

    def gated(t, a):
        name = a.get("gate", "swiglu")
        if name not in gates:
            raise NotImplementedError("its kernels lack " + name)
        return getattr(functional, gates[name])(t["g"], t["v"])

    def linear_cross_entropy(t, a):
        return functional.liger_fused_linear_cross_entropy(t["x"], t["w"], t["target"], t.get("b"))
    return {"rmsnorm": lambda t, a: functional.liger_rms_norm(t["x"], t["w"], float(a.get("eps", 1e-6))),
            "layernorm": lambda t, a: functional.liger_layer_norm(t["x"], t["w"], t["b"], float(a.get("eps", 1e-5))),
            "softmax": lambda t, a: functional.liger_softmax(t["x"]), "gated": gated,
            "cross_entropy": lambda t, a: functional.liger_cross_entropy(t["logits"], t["target"]),
            "linear_cross_entropy": linear_cross_entropy}


def causal_conv1d(module):
    """causal-conv1d 1.7 by its compiled module, which checks dtypes, strides and widths itself. It adds up dw and db in
    f32; its package then rounds them to the weights' dtype, and so is that timed here."""
    def forward(t, a):
        refuse(t, a, "x0", "x_last")
        y = torch.empty_like(t["x"])
        module.causal_conv1d_fwd(t["x"], t["w"], t.get("b"), None, None, y, None, is_true(a, "silu"))
        return (y,)

    def backward(t, a, dy):
        x, w, b = t["x"], t["w"], t.get("b")
        dx, dw = torch.empty_like(x), torch.zeros_like(w, dtype=torch.float32)
        db = None if b is None else torch.zeros_like(b, dtype=torch.float32)
        module.causal_conv1d_bwd(x, w, b, dy, None, None, None, dx, dw, db, None, is_true(a, "silu"))
        return dx, dw.to(w.dtype), None if b is None else db.to(b.dtype)
    return Kernels(forward, backward)


def mamba_scan(module):
    """mamba_ssm's selective scan by its compiled module; a, d and delta_bias are f32 there, b and c have groups."""
    def inputs(t):
        b, c = (x.unsqueeze(1) if x.dim() == 3 else x for x in (t["b"], t["c"]))
        return t["u"], t["delta"], t["a"], b, c, t.get("d"), t.get("z"), t.get("delta_bias")

    def forward(t, a):
        """y, the states between chunks, and y before the gate (or y again, without one)."""
        refuse(t, a, "h0", "h_last", "seq_idx", "zoh", "a_log")
        ungated, states, *gated_too = module.fwd(*inputs(t), is_true(a, "softplus"))
        return gated_too[0] if gated_too else ungated, states, ungated

    def backward(t, a, dy, states, ungated):
        return module.bwd(*inputs(t), dy, states, ungated if "z" in t else None, None, is_true(a, "softplus"), False)
    return Kernels(forward, backward)
