"""Times Heddle and the installed peers side by side: one worker process each, interleaved pass by pass.

compare.py --bench build/release/bench/heddle-bench [--device cpu] [--passes 5] [--seconds 0.4] [--peers torch,jax]
           [--python PYTHON]... [--json FILE] [ROW ...]

A row's ratio is the median over passes of heddle / best peer of that pass (below 1: Heddle is faster). The floor is the
machine's copying and reading speed, measured in every pass; the share is floor / heddle. Peers that are not installed are
left out by name; without any, Heddle and the floor are measured alone. --json appends one line to FILE.
With fewer --threads than processors all programs run on the first so many of them (which may be hyperthreads of one
core): not every peer can be told.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE / "peers.py"


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
        try:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev bench --compare")
    parser.add_argument("--bench", type=pathlib.Path, required=True, help="the heddle-bench program")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one burst")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peers", help="names, separated by commas; default: all that are installed")
    parser.add_argument("--python", action="append", help="an interpreter to look for peers in; may be given often")
    parser.add_argument("--json", type=pathlib.Path, help="append the result to this file, one line a run")
    parser.add_argument("rows", nargs="*")
    return parser.parse_args()


def find_peers(args):
    """(name, python) of each peer that one of the interpreters has, and the names of the others."""
    modules = dict(
        line.split() for line in subprocess.check_output([sys.executable, PEERS, "--list"], text=True).splitlines()
    )
    wanted = args.peers.split(",") if args.peers is not None else list(modules)
    wanted = [peer for peer in wanted if peer]
    if unknown := [peer for peer in wanted if peer not in modules]:
        sys.exit(f"compare.py: no such peer: {', '.join(unknown)} (there are {', '.join(modules)})")
    probe = "import importlib.util as u, sys; print(*[m for m in sys.argv[1:] if u.find_spec(m)])"
    found = {}
    for python in args.python or [sys.executable]:
        names = sorted({modules[peer] for peer in wanted})
        have = subprocess.run([python, "-c", probe, *names], capture_output=True, text=True, check=False).stdout.split()
        for peer in wanted:
            if modules[peer] in have:
                found.setdefault(peer, python)
    return found, [peer for peer in wanted if peer not in found]


def start_workers(args):
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), PYTHONUNBUFFERED="1")
    env.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found, missing = find_peers(args)
    if missing:
        print(f"# not installed: {', '.join(missing)}", flush=True)
    workers = [Worker("heddle", [str(args.bench), "--device", args.device, "--serve"], env)]
    for peer, python in found.items():
        workers.append(Worker(peer, [python, str(PEERS), peer, args.device, str(args.threads)], env))
    return workers


def quantile(values, q):
    return sorted(values)[round(q * (len(values) - 1))]


def prepare(row, workers):
    """The workers that have the row, Heddle's answer, and what the others said."""
    ready, facts, errors = [], {}, {}
    for worker in workers:
        answer = worker.ask(f"prep {row}")
        if "error" in answer:
            errors[worker.name] = answer["error"]
        else:
            ready.append(worker)
        if worker.name == "heddle":
            facts = answer
    return ready, facts, errors


def floor_us(speed, read, written):
    """As floor.cpp: what is both read and written at the copy's speed, the rest at its own."""
    rest = max(read - written, 0) / speed["read"] + max(written - read, 0) / speed["copy"]
    return 2 * min(read, written) / speed["copy"] + rest


def compare_row(row, workers, args):
    ready, facts, errors = prepare(row, workers)
    samples = {w.name: [] for w in ready}  # per pass
    floors = []
    read, written = facts.get("read", 0), facts.get("written", 0)
    for _ in range(args.passes):
        if read + written > 0 and "heddle" in samples:
            floors.append(floor_us(workers[0].ask("floor"), read, written))
        for worker in ready:
            answer = worker.ask(f"time {args.seconds}")
            if answer.get("us"):
                samples[worker.name].append(answer["us"])
            else:
                errors[worker.name] = answer.get("error", "no sample")
    for worker in ready:
        worker.ask("drop")
    return finish_row(row, samples, floors, errors, read + written, facts.get("kernels"))


def cold_row(row, args):
    """A fresh process a pass, no disk cache; peers have no such row."""
    samples, errors = [], {}
    env = dict(os.environ, HEDDLE_CACHE_DIR="")
    for _ in range(args.passes):
        command = [str(args.bench), "--device", args.device, "--json", row]
        out = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        answer = json.loads(out.stdout)[0] if out.returncode == 0 else {"error": out.stderr.strip()[:200]}
        if "us" in answer:
            samples.append([answer["us"]])
        else:
            errors["heddle"] = answer["error"]
    return finish_row(row, {"heddle": samples}, [], errors, 0, None)


def finish_row(row, samples, floors, errors, size, kernels):
    """Medians by pass; spread of all samples; ratios pass by pass."""
    passes = {name: [statistics.median(us) for us in each] for name, each in samples.items() if each}
    result = {"row": row, "bytes": size, "kernels": kernels, "errors": errors, "programs": {}}
    for name, us in passes.items():
        every = [v for each in samples[name] for v in each]
        result["programs"][name] = {
            "us": statistics.median(us),
            "p10": quantile(every, 0.1),
            "p90": quantile(every, 0.9),
            "passes": us,
        }
    if "heddle" not in passes:
        return result
    if floors:
        result["floor_us"] = statistics.median(floors)
        result["share"] = statistics.median(f / h for f, h in zip(floors, passes["heddle"], strict=False))
    peers = {name: result["programs"][name]["us"] for name in passes if name != "heddle"}
    if peers:
        result["best"] = min(peers, key=peers.get)
        pairs = zip(passes["heddle"], passes[result["best"]], strict=False)
        result["ratio"] = statistics.median(h / p for h, p in pairs)
    return result


def summary(result):
    programs = result["programs"]
    if "heddle" not in programs:
        return f"{result['row']:16s} heddle: {result['errors'].get('heddle', 'no figure')}"
    own = programs["heddle"]
    line = f"{result['row']:16s} {own['us']:11.2f} us ({own['p10']:.2f} .. {own['p90']:.2f})"
    if "share" in result:
        line += f"  floor {result['floor_us']:.1f} us, share {100 * result['share']:.0f} %"
    if "ratio" in result:
        line += f"  {result['best']} {programs[result['best']]['us']:.2f} us, ratio {result['ratio']:.2f}"
    others = {n: p for n, p in programs.items() if n not in ("heddle", result.get("best"))}
    if others:
        line += "  (" + ", ".join(f"{n} {p['us']:.2f}" for n, p in others.items()) + ")"
    return line


def machine(args):
    model = ""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else ""
    git = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": git.stdout.strip(),
        "processor": model or platform.processor(),
        "threads": args.threads,
        "device": args.device,
        "passes": args.passes,
        "seconds": args.seconds,
    }


def main():
    args = parse_arguments()
    listed = subprocess.run([args.bench, "--list"], capture_output=True, text=True, check=True).stdout
    known = [line.split()[0] for line in listed.splitlines()]
    if unknown := [row for row in args.rows if row not in known]:
        sys.exit(f"compare.py: no such row: {', '.join(unknown)} (there are {', '.join(known)})")
    processors = sorted(os.sched_getaffinity(0))
    if args.device == "cpu" and args.threads < len(processors):
        os.sched_setaffinity(0, processors[: args.threads])
    workers = start_workers(args)
    results = []
    for row in args.rows or known:
        results.append(cold_row(row, args) if row.startswith("cold") else compare_row(row, workers, args))
        print(summary(results[-1]), flush=True)
    for worker in workers:
        worker.close()
    ratios = [r["ratio"] for r in results if "ratio" in r]
    memory = [r["ratio"] for r in results if "ratio" in r and "share" in r]
    for what, values in (("all rows", ratios), ("rows bound by memory", memory)):
        if values:
            mean = statistics.geometric_mean(values)
            print(f"# geometric mean of heddle / best peer over {len(values)} {what}: {mean:.3f}")
    if args.json:
        with args.json.open("a") as out:
            out.write(json.dumps({**machine(args), "rows": results}) + "\n")


if __name__ == "__main__":
    main()
