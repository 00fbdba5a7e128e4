"""What it costs to alternate with PyTorch in one process: alternate.py --library build/release/lib/libheddle.so
[--device cpu] [--threads N] [--passes 7]

For three sizes, µs: a Heddle executable alone, PyTorch alone, both in turn, and in turn / (Heddle alone + PyTorch alone);
then the same where PyTorch reads Heddle's result (through DLPack), which other threads' caches hold. PyTorch works in its
own threads and on its own stream. Both do elementwise work over all elements and a row sum. Medians of interleaved passes.
"""

import argparse
import ctypes
import os
import pathlib
import statistics
import time

GRAPH = """graph 1 {{
  body(%0 "x": f32[{rows},{columns}]) {{
    %1 = tanh(%0)
    %2 = multiply(%1, %0)
    %3 = sum(%2) {{axes = ints[1], keep_axes = true}}
    %4 = divide(%2, %3)
    %5 = add(%4, %0)
    yield %5
  }}
}}
"""


class Heddle:
    """The C interface, as far as it is needed here."""

    def __init__(self, library, device):
        self.lib = ctypes.CDLL(str(library))
        self.lib.hd_last_error.restype = ctypes.c_char_p
        self.device = device.encode()
        self.inputs, self.outputs, self.one = (ctypes.c_void_p * 1)(), (ctypes.c_void_p * 1)(), ctypes.c_size_t(1)
        self.pointer, self.capsule = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
        self.pointer.restype, self.pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.capsule.restype = ctypes.py_object
        self.capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {self.lib.hd_last_error().decode()}")

    def compile(self, text):
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("hd_graph_from_text", text.encode(), ctypes.byref(graph))
        feeds, targets = (ctypes.c_uint32 * 1)(), (ctypes.c_uint32 * 1)()
        count = ctypes.c_size_t()
        self.call("hd_graph_placeholders", graph, feeds, ctypes.c_size_t(1), ctypes.byref(count))
        self.call("hd_graph_find", graph, b"y", targets)
        one = self.one
        self.call("hd_graph_compile", graph, feeds, one, targets, one, self.device, ctypes.byref(executable))
        return executable

    def run(self, executable, tensor):
        """A PyTorch tensor with the result of one run on one PyTorch tensor."""
        capsule = torch.utils.dlpack.to_dlpack(tensor)
        self.inputs[0] = self.pointer(capsule, b"dltensor")
        self.call("hd_executable_run", executable, self.inputs, self.one, self.outputs, self.one)
        return torch.utils.dlpack.from_dlpack(self.capsule(self.outputs[0], b"dltensor", None))


def torch_work(x):
    y = torch.tanh(x) * x
    return y / y.sum(1, keepdim=True) + x


def timed(calls, seconds):
    """µs a call of the function over about `seconds`."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds or count < 3:
        calls()
        count += 1
    return (time.perf_counter() - start) / count * 1e6


def measure(heddle, args, rows, columns):
    text = GRAPH.format(rows=rows, columns=columns).replace("%5 =", '%5 "y" =')
    executable = heddle.compile(text)
    x = torch.rand(rows, columns, device=args.device) + 0.5
    wait = torch.cuda.synchronize if args.device.startswith("cuda") else lambda: None
    wait()

    def of_heddle(value):
        return heddle.run(executable, value)

    def of_torch(value):
        result = torch_work(value)
        wait()  # Heddle's side waits for its result as well
        return result

    error = (of_heddle(x) - of_torch(x)).abs().max().item()
    if not error < 1e-4:
        raise RuntimeError(f"{rows} x {columns}: the results differ by {error}")
    forms = {
        "heddle": lambda: of_heddle(x),
        "torch": lambda: of_torch(x),
        "in turn": lambda: (of_heddle(x), of_torch(x)),
        "chained": lambda: of_torch(of_heddle(x)),
    }
    samples = {name: [] for name in forms}
    for function in forms.values():
        timed(function, args.seconds / 2)
    for _ in range(args.passes):
        for name, function in forms.items():
            samples[name].append(timed(function, args.seconds))
    middle = {name: statistics.median(values) for name, values in samples.items()}
    line = f"{rows:6} x {columns:<6} heddle {middle['heddle']:9.1f}  torch {middle['torch']:9.1f}"
    for name in ("in turn", "chained"):
        alone = zip(samples["heddle"], samples["torch"], samples[name], strict=True)
        ratios = sorted(both / (h + t) for h, t, both in alone)
        line += (
            f"  {name} {middle[name]:9.1f} ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} .. {ratios[-1]:.2f})"
        )
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(prog="alternate.py")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libheddle.so")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one sample")
    args = parser.parse_args()
    os.environ["HEDDLE_THREADS"] = str(args.threads)
    torch.set_num_threads(args.threads)
    heddle = Heddle(args.library, args.device)
    print(f"# {args.device}, {args.threads} threads, PyTorch {torch.__version__}, us a call")
    for rows, columns in ((16, 64), (512, 512), (4096, 4096)):
        measure(heddle, args, rows, columns)


if __name__ == "__main__":
    import torch

    main()
