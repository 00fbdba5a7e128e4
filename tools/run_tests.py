"""Runs every test binary of a build in shards and counts what gtest reports.

run_tests.py --build DIR [--jobs N] [--device NAME] [--area A]... [--share FILE] [--timeout S] [FILTER]

The last line is `N passed, N failed` (`, N skipped` may follow). A binary that crashes, hangs or reports nothing counts as
one failure, named after the test that was running.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time


@dataclasses.dataclass
class Result:
    passed: int = 0
    skipped: int = 0
    failures: list = dataclasses.field(default_factory=list)  # (test, text)


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="", help="of the device tests; simulated-gpu: cuda:0 on the host")
    parser.add_argument("--area", action="append", default=[], help="only tests/<area>; may be given several times")
    parser.add_argument("--share", type=pathlib.Path, help="file of lines `preset area filter`: run just those")
    parser.add_argument("--print-areas", action="store_true", help="print the areas of --share, run nothing")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one shard")
    parser.add_argument("--shards", type=int, default=0, help="shards a binary (default: as many as jobs)")
    parser.add_argument("--list-slow", type=int, default=0, metavar="N", help="also print the N slowest tests")
    parser.add_argument("filter", nargs="?", default="*", help="gtest filter, or a part of a test's name")
    return parser.parse_args()


def gtest_filter(text: str) -> str:
    return text if any(c in text for c in "*?:") or text.startswith("-") else f"*{text}*"


def share_of(file: pathlib.Path, preset: str) -> dict[str, str]:
    """What FILE chooses for a preset: area -> gtest filter. Later lines win; area `*` is every area without a line."""
    lines = [line.split() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    share = {area: pattern for name, area, pattern in lines if name == preset}
    every = share.pop("*", None)
    areas = {p.parent.relative_to(file.parent).parts[0] for p in file.parent.glob("*/**/*.cpp")} - {"support"}
    return {a: share.get(a, every) for a in sorted(areas) if share.get(a, every)}


def choose(args, env: dict) -> list[tuple[pathlib.Path, str]]:
    """The binaries to run, each with its gtest filter."""
    folder = args.build / "tests"
    found = [folder / name for name in (folder / "binaries.txt").read_text().split()]
    found = [b for b in found if os.access(b, os.X_OK)]
    chosen = {b.name.removesuffix("_test"): (b, gtest_filter(args.filter)) for b in found}
    if args.share:
        share = share_of(args.share, args.build.name)
        chosen = {a: (chosen[a][0], pattern) for a, pattern in share.items() if a in chosen}
    if args.area:
        missing = [a for a in args.area if a not in chosen]
        if missing:
            sys.exit(f"no such test area: {', '.join(missing)}; there are: {', '.join(chosen)}")
        chosen = {a: chosen[a] for a in args.area}
    return [pair for pair in chosen.values() if selects_any(*pair, env)]


def test_environment(args) -> dict:
    root = pathlib.Path(__file__).resolve().parent.parent
    env = dict(os.environ)
    env.setdefault("HEDDLE_CLI", str((args.build / "bin" / "heddle").resolve()))
    env.setdefault("HEDDLE_TEST_DATA", str(root / "tests" / "data"))
    env.setdefault("HEDDLE_PHOTOS", str(root / ".cache" / "photos"))
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0:strict_string_checks=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
    env.setdefault("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1")
    if args.device == "simulated-gpu":
        env["HEDDLE_CUDA_DRIVER"] = str((args.build / "tests" / "libsimulated_gpu.so").resolve())
        env["HEDDLE_TEST_DEVICE"] = "cuda"
    elif args.device:
        env["HEDDLE_TEST_DEVICE"] = args.device
    return env


def selects_any(binary: pathlib.Path, pattern: str, env: dict) -> bool:
    command = [str(binary), "--gtest_list_tests", f"--gtest_filter={pattern}"]
    listing = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace", timeout=120)
    return listing.returncode != 0 or any(line.startswith("  ") for line in listing.stdout.splitlines())


def last_running(output: str) -> str:
    started = [line for line in output.splitlines() if line.startswith("[ RUN      ]")]
    return started[-1].split("]", 1)[1].strip() if started else "(before the first test)"


def how_it_ended(code) -> str:
    if code is None:
        return "timed out"
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"exited with {code}"


def run_shard(binary, pattern, index, count, timeout, env, times):
    """One process: returns what its JSON says, plus a failure if it ended badly without saying which test failed."""
    result = Result()
    with tempfile.TemporaryDirectory() as tmp:
        report = pathlib.Path(tmp) / "report.json"
        shard_env = env | {
            "GTEST_TOTAL_SHARDS": str(count),
            "GTEST_SHARD_INDEX": str(index),
            "GTEST_OUTPUT": f"json:{report}",
            "GTEST_COLOR": "no",
        }
        command = [str(binary), f"--gtest_filter={pattern}"]
        try:
            done = subprocess.run(
                command,
                env=shard_env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout,
            )
            code, output = done.returncode, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as expired:
            code, output = None, (expired.stdout or b"").decode(errors="replace")
        if report.exists():
            count_report(json.loads(report.read_text(errors="replace")), binary.name, result, times)
    if code != 0 and not result.failures:
        tail = "\n".join(output.splitlines()[-60:])
        result.passed += output.count("[       OK ]") if not result.passed else 0
        result.failures.append((f"{binary.name}: {last_running(output)}", f"{how_it_ended(code)}\n{tail}"))
    return result


def count_report(report, name, result, times):
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            if test.get("status") == "NOTRUN":
                continue
            full = f"{name}: {suite['name']}.{test['name']}"
            times.append((float(test.get("time", "0s").rstrip("s")), full))
            if "failures" in test:
                result.failures.append((full, "\n".join(f["failure"] for f in test["failures"])))
            elif test.get("result") == "SKIPPED":
                result.skipped += 1
            else:
                result.passed += 1


def main() -> int:
    args = parse_arguments()
    env = test_environment(args)
    if args.print_areas:
        print("\n".join(share_of(args.share, args.build.name)))
        return 0
    binaries = choose(args, env)
    count = args.shards or max(args.jobs, 1)

    start, total, times = time.monotonic(), Result(), []
    with concurrent.futures.ThreadPoolExecutor(max_workers=args.jobs) as pool:
        futures = [
            pool.submit(run_shard, b, f, i, count, args.timeout, env, times) for b, f in binaries for i in range(count)
        ]
        for future in concurrent.futures.as_completed(futures):
            result = future.result()
            total.passed += result.passed
            total.skipped += result.skipped
            total.failures += result.failures
            for test, text in result.failures:
                print(f"FAILED {test}\n{text}\n", flush=True)

    for seconds, test in sorted(times, reverse=True)[: args.list_slow]:
        print(f"{seconds:8.2f} s  {test}")
    for test, _ in sorted(total.failures):
        print(f"FAILED {test}")
    print(f"{len(binaries)} binaries, {time.monotonic() - start:.1f} s")
    skipped = f", {total.skipped} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {len(total.failures)} failed{skipped}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
