"""Puts known kinds of faults into the sources, one at a time, and counts the random programs until one shows.

mutate.py --check                        each edit of fuzz/mutations.toml still applies (part of CI)
mutate.py --list
mutate.py [NAME...] [--count N] [--seed S] [--jobs N] [--seconds S]

Each mutation is built in a scratch worktree of HEAD below build/mutants, whose build folder is kept, so a mutation costs an
incremental build. Without NAMEs all are tried. A mutation counts as found where the fuzzer exits non-zero; the graph that
showed it is the last seed that it printed. The last line is `N passed, N failed`.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "fuzz" / "mutations.toml"
SCRATCH = ROOT / "build" / "mutants"


def read_table() -> tuple[dict, list[dict]]:
    table = tomllib.loads(TABLE.read_text())
    return table["run"], table["mutation"]


def applied(text: str, mutation: dict) -> str:
    """The text of the mutation's file with the fault in it; ValueError where the edit does not fit exactly once."""
    count = text.count(mutation["find"])
    if count != 1:
        raise ValueError(f"{mutation['name']}: its text stands {count} times in {mutation['file']}, expected once")
    return text.replace(mutation["find"], mutation["replace"])


def check(mutations: list[dict]) -> int:
    failed = 0
    names = [m["name"] for m in mutations]
    for mutation in mutations:
        try:
            if names.count(mutation["name"]) != 1:
                raise ValueError(f"{mutation['name']}: the name stands twice")
            applied((ROOT / mutation["file"]).read_text(), mutation)
        except (OSError, ValueError) as error:
            print(error)
            failed += 1
    print(f"{len(mutations) - failed} passed, {failed} failed")
    return 1 if failed else 0


def make_worktree() -> pathlib.Path:
    tree = SCRATCH / "tree"
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    if not (tree / ".git").exists():
        SCRATCH.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), head], cwd=ROOT, check=True)
    subprocess.run(["git", "checkout", "--quiet", "--force", head], cwd=tree, check=True)
    environment = tree / ".env"
    if not environment.exists():
        environment.symlink_to(pathlib.Path(os.environ.get("HEDDLE_ENV_DIR", ROOT / ".env")).resolve())
    if not (tree / "build" / "dev" / "build.ninja").exists():
        configure = ["cmake", "--preset", "dev", f"-DHEDDLE_ENV_DIR={environment}"]
        subprocess.run(configure, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return tree


def build(tree: pathlib.Path, targets: list[str], jobs: int) -> str:
    """Empty, or the end of what the compiler said."""
    command = ["ninja", "-C", str(tree / "build" / "dev"), "--quiet", "-j", str(jobs), *targets]
    result = subprocess.run(command, capture_output=True, text=True)
    return "" if result.returncode == 0 else (result.stdout + result.stderr)[-2000:]


def fuzz(tree: pathlib.Path, run: dict, mutation: dict, args) -> tuple[bool, str]:
    """Whether a program showed the fault, and the line that says which."""
    values = {"count": str(args.count), "seed": str(args.seed), "build": str(tree / "build" / "dev")}
    command = [part.format(**values) for part in [*run["command"], *mutation.get("arguments", run["arguments"])]]
    environment = dict(os.environ)
    for name, value in {**run.get("environment", {}), **mutation.get("environment", {})}.items():
        environment[name] = value.format(**values)
    try:
        result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=args.seconds)
    except subprocess.TimeoutExpired:
        return False, f"no difference within {args.seconds:.0f} s"
    lines = [line for line in result.stdout.splitlines() if re.match(r"seed \d+: ", line)]
    if result.returncode == 0:
        return False, f"no difference in {args.count} programs"
    if not lines:
        return True, (result.stdout + result.stderr).strip().splitlines()[-1:][
            0
        ] if result.stdout + result.stderr else "crash"
    first = int(re.match(r"seed (\d+): ", lines[0])[1])
    return True, f"by program {first - args.seed + 1}: {lines[0][:200]}"


def try_one(tree: pathlib.Path, run: dict, mutation: dict, args) -> bool:
    path = tree / mutation["file"]
    text = path.read_text()
    start = time.monotonic()
    path.write_text(applied(text, mutation))
    try:
        error = build(tree, run["targets"], args.jobs)
        if error:
            print(f"{mutation['name']:28} DOES NOT BUILD\n{error}", flush=True)
            return False
        found, said = fuzz(tree, run, mutation, args)
    finally:
        path.write_text(text)
    word = "found" if found else "NOT FOUND"
    print(f"{mutation['name']:28} {word} {said} ({time.monotonic() - start:.0f} s)", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=900, help="for the programs of one mutation")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    run, mutations = read_table()
    if args.check:
        return check(mutations)
    if args.list:
        for mutation in mutations:
            print(f"{mutation['name']:28} {mutation['what']}")
        return 0
    unknown = set(args.names) - {m["name"] for m in mutations}
    if unknown:
        parser.error(f"there is no mutation {', '.join(sorted(unknown))}; --list shows all")
    chosen = [m for m in mutations if not args.names or m["name"] in args.names]
    tree = make_worktree()
    found = sum(try_one(tree, run, mutation, args) for mutation in chosen)
    print(f"{found} passed, {len(chosen) - found} failed")
    return 0 if found == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
