"""Times Heddle and the installed peers side by side: one worker process each, interleaved pass by pass.

compare.py --bench build/release/bench/heddle-bench [--device cuda] [--passes 5] [--seconds 0.4] [--peers torch,jax]
           [--json FILE] [ROW ...]

A row's ratio is the median over passes of heddle / best peer of that pass (below 1: Heddle is faster). Peers that are not
installed are left out by name. The floor is a copy measured in the same run.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ("torch", "torch_compile", "jax", "numpy", "onnxruntime")


class Worker:
    """A process that answers one JSON line to each of `prep ROW`, `time SECONDS`, `drop`."""

    def __init__(self, name, command, env):
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env
        )

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        return json.loads(answer) if answer else {"error": "the process ended"}

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one burst")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("rows", nargs="*")
    return parser.parse_args()


def installed(peer):
    return importlib.util.find_spec({"torch_compile": "torch"}.get(peer, peer)) is not None


def start_workers(args):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), PYTHONUNBUFFERED="1")
    env.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    workers = [Worker("heddle", [str(args.bench), "--device", args.device, "--serve"], env)]
    for peer in [p for p in args.peers.split(",") if p]:
        if installed(peer):
            command = [sys.executable, str(HERE / "peers.py"), peer, args.device, str(args.threads)]
            workers.append(Worker(peer, command, env))
        else:
            print(f"# {peer} is not installed", flush=True)
    return workers


def burst(worker, seconds):
    answer = worker.ask(f"time {seconds}")
    return statistics.median(answer["us"]) if answer.get("us") else None


def compare_row(row, workers, args):
    ready, errors, size = [], {}, 0
    for worker in workers:
        answer = worker.ask(f"prep {row}")
        if "error" in answer:
            errors[worker.name] = answer["error"]
        else:
            ready.append(worker)
            size = size or answer.get("bytes", 0)
    figures = {w.name: [] for w in ready}
    for _ in range(args.passes):
        for worker in ready:
            us = burst(worker, args.seconds)
            if us is not None:
                figures[worker.name].append(us)
    for worker in ready:
        worker.ask("drop")
    return {"row": row, "bytes": size, "us": figures, "errors": errors}


def summary(result):
    figures = {name: us for name, us in result["us"].items() if us}
    medians = {name: statistics.median(us) for name, us in figures.items()}
    peers = {name: us for name, us in medians.items() if name != "heddle"}
    line = f"{result['row']:16s}"
    if "heddle" not in medians:
        return line + " heddle: " + result["errors"].get("heddle", "no figure")
    us = figures["heddle"]
    line += f" heddle {medians['heddle']:11.2f} us ({min(us):.2f}..{max(us):.2f})"
    if result["bytes"]:
        line += f" {result['bytes'] / medians['heddle'] / 1e3:8.1f} GB/s"
    if peers:
        best = min(peers, key=peers.get)
        ratios = [h / p for h, p in zip(us, figures[best], strict=False)]
        result["best"], result["ratio"] = best, statistics.median(ratios)
        line += f"  best peer {best} {peers[best]:.2f} us  ratio {result['ratio']:.2f}"
    return line


def main():
    args = parse_arguments()
    listed = subprocess.run([args.bench, "--list"], capture_output=True, text=True, check=True).stdout
    rows = args.rows or [line.split()[0] for line in listed.splitlines() if not line.startswith("cold")]
    workers = start_workers(args)
    results = []
    for row in rows:
        results.append(compare_row(row, workers, args))
        print(summary(results[-1]), flush=True)
    for worker in workers:
        worker.close()
    ratios = [r["ratio"] for r in results if "ratio" in r]
    if ratios:
        print(
            f"# geometric mean of heddle / best peer over {len(ratios)} rows: {statistics.geometric_mean(ratios):.3f}"
        )
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
