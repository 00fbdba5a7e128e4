"""A peer's side of the benchmark: peers.py PEER DEVICE THREADS; peers.py --list names the peers and their modules.

Reads `prep ROW`, `time SECONDS`, `drop` on stdin and answers one JSON line each. The rows do exactly the work of
bench/rows.cpp; on a GPU a sample is a batch of calls queued back to back and waited for once.
"""

import json
import os
import sys
import time

# The peers, and the module that shows that one is installed.
MODULES = {
    "torch": "torch",
    "torch_compile": "torch",
    "jax": "jax",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
}
if sys.argv[1:] == ["--list"]:
    print(*[f"{peer} {module}" for peer, module in MODULES.items()], sep="\n")
    sys.exit()

import numpy as np  # noqa: E402

PEER, DEVICE, THREADS = sys.argv[1], sys.argv[2], int(sys.argv[3])
GPU = DEVICE.startswith("cuda")
RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape, dtype=np.float32).astype(dtype)


ROW_SHAPE = (16384, 4096) if GPU else (4096, 4096)
ROW_TYPE = np.float16 if GPU else np.float32
SUM_SHAPE = (16384, 8192) if GPU else (8192, 4096)
CHAIN = (64 if GPU else 16) << 20
LRN = (128 if GPU else 16, 96, 55, 55)
NCHW = (64 if GPU else 16, 128, 56, 56)
SCAN = (16 if GPU else 4) << 20
LAPLACIAN = 4096 if GPU else 2048
GATHER = (100000, 1024, 65536) if GPU else (100000, 64, 1 << 20)
ITERATIONS = 1000 if GPU else 80


def poisson_inputs():
    return (
        RNG.random((3, 512, 512), dtype=np.float32),
        RNG.random((3, 512, 512), dtype=np.float32),
        RNG.random((512, 512)) > 0.3,
    )


def mlp_inputs():
    scale = np.float32(0.05)
    return (
        normal(784, 128) * scale,
        normal(128) * 0,
        normal(128, 10) * scale,
        normal(10) * 0,
        normal(32, 784),
        RNG.integers(0, 10, 32),
    )


class Case:
    """A callable, how to wait for it, and how many iterations one call stands for."""

    def __init__(self, call, divisor=1, inner=1):
        self.call, self.divisor, self.inner = call, divisor, inner


def torch_cases(compiled):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if GPU else "cpu"

    def put(a):
        return torch.from_numpy(np.ascontiguousarray(a)).to(device)

    def make(f, *arrays):
        tensors = [put(a) for a in arrays]
        torch._dynamo.reset()
        g = torch.compile(f) if compiled else f
        return Case(lambda: g(*tensors))

    def laplacian(x):
        p = F.pad(x * x if GPU else x, (1, 1, 1, 1))
        around = p[..., :-2, 1:-1] + p[..., 2:, 1:-1] + p[..., 1:-1, :-2] + p[..., 1:-1, 2:]
        if not GPU:
            return around - 4 * x
        corners = p[..., :-2, :-2] + p[..., :-2, 2:] + p[..., 2:, :-2] + p[..., 2:, 2:]
        return (around + corners - 8 * x * x).abs()

    def poisson():
        u, b, m = map(put, poisson_inputs())

        def step(x):
            t = (torch.roll(x, 1, 1) + torch.roll(x, -1, 1) + torch.roll(x, 1, 2) + torch.roll(x, -1, 2) + b) * 0.25
            v = torch.where(m, t, x)
            return v, (v - x).abs().max()

        torch._dynamo.reset()
        g = torch.compile(step) if compiled else step
        count = 100 if GPU else ITERATIONS

        def loop():
            x = u
            for _ in range(count):
                x, r = g(x)
                if r.item() < -1:
                    break
            return x

        return Case(loop, divisor=count if GPU else 1)

    def mlp():
        w1, b1, w2, b2, x, y = mlp_inputs()
        state = [put(a) for a in (w1, b1, w2, b2)]
        x, y = put(x * 0.05), put(y)

        def loss(p):
            return F.cross_entropy(F.relu(torch.addmm(p[1], x, p[0])) @ p[2] + p[3], y)

        def step(*p):
            grads, _ = torch.func.grad_and_value(loss)(p)
            return [a - 0.01 * g for a, g in zip(p, grads, strict=True)]

        torch._dynamo.reset()
        g = torch.compile(step) if compiled else step

        def call():
            state[:] = g(*state)

        return Case(call)

    def new_size():
        weights = [put(normal(*s) * np.float32(0.05)) for s in ((784, 512), (512, 512), (512, 10))]
        x = put(normal(64, 784))

        def net(v):
            return torch.softmax(torch.relu(torch.relu(v @ weights[0]) @ weights[1]) @ weights[2], -1)

        torch._dynamo.reset()
        g = torch.compile(net, dynamic=True) if compiled else net
        size = [5]

        def call():
            size[0] = 6 if size[0] >= 30 else size[0] + 1  # as rows.cpp; kept plans of earlier rounds help the peer
            g(x[: size[0]])

        return Case(call)

    def tiny():
        a, b = put(normal(4)), put(normal(4))
        g = torch.compile(lambda p, q: p + q) if compiled else (lambda p, q: p + q)

        def call():
            for _ in range(100):
                g(a, b)

        return Case(call, inner=100)

    def sums(axis):
        return lambda: make((lambda x: x.sum()) if axis is None else (lambda x: x.sum(axis)), normal(*SUM_SHAPE))

    w = (normal(4096, dtype=ROW_TYPE), normal(4096, dtype=ROW_TYPE))
    cases = {
        "chain": lambda: make(
            lambda x: (1 - torch.tanh(torch.exp(x * x * -0.5) * 1.5 + x).square()) * x + 0.5, normal(CHAIN)
        ),
        "lrn": lambda: make(lambda x: F.local_response_norm(x, 5, 1e-4, 0.75, 1.0), normal(*LRN)),
        "softmax": lambda: make(lambda x: F.softmax(x, -1), normal(*ROW_SHAPE, dtype=ROW_TYPE)),
        "layer_norm": lambda: make(
            lambda x, g, b: F.layer_norm(x, (4096,), g, b), normal(*ROW_SHAPE, dtype=ROW_TYPE), *w
        ),
        "nhwc": lambda: make(lambda x: x.permute(0, 2, 3, 1).contiguous(), normal(*NCHW)),
        "sum_axis0": sums(0),
        "sum_axis1": sums(1),
        "sum_all": sums(None),
        "cumsum": lambda: make(lambda x: torch.cumsum(x, 0), normal(SCAN)),
        "laplacian": lambda: make(laplacian, normal(3, LAPLACIAN, LAPLACIAN)),
        "gather": lambda: make(
            lambda t, i: F.embedding(i, t), normal(*GATHER[:2]), RNG.integers(0, GATHER[0], GATHER[2])
        ),
        "poisson": poisson,
        "mlp": mlp,
        "tiny_fresh": tiny,
        "new_size": new_size,
    }
    return cases, (torch.cuda.synchronize if GPU else lambda: None)


def jax_cases():
    import jax
    import jax.numpy as jnp
    from jax import lax

    def make(f, *arrays):
        values, g = [jnp.asarray(a) for a in arrays], jax.jit(f)
        return Case(lambda: g(*values))

    def lrn(x):
        s = lax.reduce_window(x * x, 0.0, lax.add, (1, 5, 1, 1), (1, 1, 1, 1), [(0, 0), (2, 2), (0, 0), (0, 0)])
        return x * (1 + 1e-4 / 5 * s) ** -0.75

    def layer_norm(x, w, b):
        m, v = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - m) * lax.rsqrt(v + 1e-5) * w + b

    def laplacian(x):
        p = jnp.pad(x * x if GPU else x, ((0, 0), (1, 1), (1, 1)))
        around = p[:, :-2, 1:-1] + p[:, 2:, 1:-1] + p[:, 1:-1, :-2] + p[:, 1:-1, 2:]
        if not GPU:
            return around - 4 * x
        return jnp.abs(around + p[:, :-2, :-2] + p[:, :-2, 2:] + p[:, 2:, :-2] + p[:, 2:, 2:] - 8 * x * x)

    def poisson():
        u, b, m = map(jnp.asarray, poisson_inputs())

        def step(x):
            t = (jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) + jnp.roll(x, 1, 2) + jnp.roll(x, -1, 2) + b) * 0.25
            v = jnp.where(m, t, x)
            return v, jnp.abs(v - x).max()

        def more(c):
            return (c[1] >= -1) & (c[2] < ITERATIONS)

        run = jax.jit(lambda x: lax.while_loop(more, lambda c: (*step(c[0]), c[2] + 1), (x, jnp.float32(1), 0))[0])
        return Case(lambda: run(u), divisor=ITERATIONS if GPU else 1)

    def scalar_while():
        run = jax.jit(
            lambda x: lax.while_loop(
                lambda c: (c[0] < 10000) & (c[1] < 10), lambda c: (c[0] + 1, c[1] * 1.0001), (0, x)
            )[1]
        )
        x = jnp.float32(1)
        return Case(lambda: run(x), divisor=10000 if GPU else 1)

    def mlp():
        w1, b1, w2, b2, x, y = mlp_inputs()
        state = [jnp.asarray(a) for a in (w1, b1, w2, b2)]
        x, y = jnp.asarray(x * 0.05), jnp.asarray(y)

        def loss(p):
            z = jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]
            return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1).mean()

        step = jax.jit(lambda p: [a - 0.01 * g for a, g in zip(p, jax.grad(loss)(p), strict=True)])

        def call():
            state[:] = step(state)
            return state

        return Case(call)

    def tiny():
        a, b = jnp.asarray(normal(4)), jnp.asarray(normal(4))
        g = jax.jit(lambda p, q: p + q)

        def call():
            for _ in range(100):
                r = jax.block_until_ready(g(a, b))
            return r

        return Case(call, inner=100)

    def sums(axis):
        return lambda: make(lambda x: x.sum(axis), normal(*SUM_SHAPE))

    w = (normal(4096, dtype=ROW_TYPE), normal(4096, dtype=ROW_TYPE))
    cases = {
        "chain": lambda: make(
            lambda x: (1 - jnp.square(jnp.tanh(jnp.exp(x * x * -0.5) * 1.5 + x))) * x + 0.5, normal(CHAIN)
        ),
        "lrn": lambda: make(lrn, normal(*LRN)),
        "softmax": lambda: make(lambda x: jax.nn.softmax(x, -1), normal(*ROW_SHAPE, dtype=ROW_TYPE)),
        "layer_norm": lambda: make(layer_norm, normal(*ROW_SHAPE, dtype=ROW_TYPE), *w),
        "nhwc": lambda: make(lambda x: x.transpose(0, 2, 3, 1), normal(*NCHW)),
        "sum_axis0": sums(0),
        "sum_axis1": sums(1),
        "sum_all": sums(None),
        "cumsum": lambda: make(jnp.cumsum, normal(SCAN)),
        "laplacian": lambda: make(laplacian, normal(3, LAPLACIAN, LAPLACIAN)),
        "gather": lambda: make(
            lambda t, i: jnp.take(t, i, axis=0, mode="clip"),
            normal(*GATHER[:2]),
            RNG.integers(0, GATHER[0], GATHER[2]).astype(np.int32),
        ),
        "poisson": poisson,
        "scalar_while": scalar_while,
        "mlp": mlp,
        "tiny_fresh": tiny,
    }
    return cases, jax.block_until_ready


def numpy_cases():
    def tiny():
        a, b = normal(4), normal(4)

        def call():
            for _ in range(100):
                a + b

        return Case(call, inner=100)

    def sums(axis):
        def make():
            x = normal(*SUM_SHAPE)
            return Case(lambda: x.sum(axis))

        return make

    def gather():
        table, rows = normal(*GATHER[:2]), RNG.integers(0, GATHER[0], GATHER[2])
        return Case(lambda: np.take(table, rows, axis=0))

    def cumsum():
        x = normal(SCAN)
        return Case(lambda: np.cumsum(x))

    cases = {
        "sum_axis0": sums(0),
        "sum_axis1": sums(1),
        "sum_all": sums(None),
        "gather": gather,
        "cumsum": cumsum,
        "tiny_fresh": tiny,
    }
    return ({} if GPU else cases), (lambda *_: None)


def onnxruntime_cases():
    import onnxruntime as ort
    from onnx import TensorProto, helper

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS

    def make(nodes, feeds, constants=()):
        types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
        inputs = [helper.make_tensor_value_info(k, types[v.dtype], v.shape) for k, v in feeds.items()]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        initial = [
            helper.make_tensor(k, types[v.dtype], v.shape, v.tobytes(), raw=True) for k, v in dict(constants).items()
        ]
        graph = helper.make_graph([helper.make_node(*n[:3], **n[3]) for n in nodes], "g", inputs, [output], initial)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 9
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for k, v in feeds.items():
            binding.bind_cpu_input(k, v)
        first = session.run(None, feeds)[0]
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(first))
        return Case(lambda: session.run_with_iobinding(binding))

    def sums(axes):
        return lambda: make(
            [("ReduceSum", ["x", "a"], ["y"], {"keepdims": 0})],
            {"x": normal(*SUM_SHAPE)},
            {"a": np.array(axes, np.int64)},
        )

    norm = {"w": normal(4096), "b": normal(4096)}
    cases = {
        "lrn": lambda: make(
            [("LRN", ["x"], ["y"], {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0})], {"x": normal(*LRN)}
        ),
        "softmax": lambda: make([("Softmax", ["x"], ["y"], {"axis": -1})], {"x": normal(*ROW_SHAPE)}),
        "layer_norm": lambda: make(
            [("LayerNormalization", ["x", "w", "b"], ["y"], {"axis": -1})], {"x": normal(*ROW_SHAPE)}, norm
        ),
        "nhwc": lambda: make([("Transpose", ["x"], ["y"], {"perm": [0, 2, 3, 1]})], {"x": normal(*NCHW)}),
        "sum_axis0": sums([0]),
        "sum_axis1": sums([1]),
        "sum_all": sums([0, 1]),
        "gather": lambda: make(
            [("Gather", ["w", "i"], ["y"], {})], {"w": normal(*GATHER[:2]), "i": RNG.integers(0, GATHER[0], GATHER[2])}
        ),
    }
    return ({} if GPU else cases), (lambda *_: None)


def sample(case, wait):
    """Microseconds of one call."""
    calls = 20 if GPU and case.divisor == 1 and case.inner == 1 else 1
    start = time.perf_counter()
    for _ in range(calls):
        result = case.call()
    if PEER == "jax":
        wait(result)
    else:
        wait()
    return (time.perf_counter() - start) * 1e6 / (calls * case.divisor * case.inner)


def serve(cases, wait):
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    case = None
    for line in sys.stdin:
        words, reply = line.split(), {}
        try:
            if words[0] == "prep":
                case = cases[words[1]]()
                for _ in range(3):
                    sample(case, wait)
            elif words[0] == "time":
                end, us = time.perf_counter() + float(words[1]), []
                while len(us) < 5 or (time.perf_counter() < end and len(us) < 2000):
                    us.append(sample(case, wait))
                reply["us"] = us
            else:
                case = None
        except Exception as error:
            reply["error"] = repr(error)[:200]
        channel.write(json.dumps(reply) + "\n")
        channel.flush()


def main():
    made = {
        "torch": lambda: torch_cases(False),
        "torch_compile": lambda: torch_cases(True),
        "jax": jax_cases,
        "numpy": lambda: (numpy_cases()[0], lambda: None),
        "onnxruntime": lambda: (onnxruntime_cases()[0], lambda: None),
    }[PEER]
    cases, wait = made()
    serve(cases, wait)


if __name__ == "__main__":
    main()
