"""clang-tidy over the changed sources, newest change first, within a time limit.

clang_tidy.py --build DIR [--base COMMIT] [--seconds S] [--jobs N] [--all | FILE...]
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def default_base() -> str:
    """Where this branch left main; on main itself, the tree of four hours ago."""
    head = git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        base = git("merge-base", "HEAD", main)
        if base and base != head:
            return base[0]
    return (git("rev-list", "-1", "--before=4 hours ago", "HEAD") or git("rev-list", "--max-parents=0", "HEAD"))[0]


def changed(base: str) -> list[str]:
    """Changed C++ sources, the most recently committed first; uncommitted ones before all."""
    dirty = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    committed = git("log", "--format=", "--name-only", f"{base}..HEAD")
    ordered = dict.fromkeys(dirty + committed)
    return [f for f in ordered if f.endswith(".cpp") and pathlib.Path(f).is_file()]


def database(build: pathlib.Path, out: pathlib.Path) -> set[str]:
    """The build's compile commands as clang can read them: g++'s precompiled header becomes the header that it was made of,
    and warnings stay warnings, since those of the compiler are the build's business."""
    entries = json.loads((build / "compile_commands.json").read_text())
    root = pathlib.Path.cwd()
    files = set()
    for entry in entries:
        entry["command"] = re.sub(r"-include \S*cmake_pch\.hxx", f"-include {root}/cmake/pch.h", entry["command"])
        entry["command"] = re.sub(r"-Winvalid-pch|-Werror |\S*ccache ", "", entry["command"])
        words = shlex.split(entry["command"])
        start = next((i for i, w in enumerate(words) if re.search(r"(c|g)\+\+(-\d+)?$|/cc$|/gcc$", w)), 0)
        entry["command"] = shlex.join(words[start:])
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(root):
            files.add(str(path.relative_to(root)))
    out.mkdir(parents=True, exist_ok=True)
    (out / "compile_commands.json").write_text(json.dumps(entries))
    return files


def tidy(path: str, out: pathlib.Path) -> tuple[str, bool, str]:
    command = ["clang-tidy-19", "-p", str(out), "--quiet", "--extra-arg=-Wno-unknown-warning-option", path]
    done = subprocess.run(command, capture_output=True, text=True)
    return path, done.returncode == 0, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--base", default="")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()

    out = args.build / "tidy"
    known = database(args.build, out)
    wanted = args.files or (sorted(known) if args.all else changed(args.base or default_base()))
    wanted = [f for f in wanted if f in known]
    deadline, bad, checked = time.monotonic() + args.seconds, 0, 0

    def one(path: str):
        return tidy(path, out) if time.monotonic() < deadline else None

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for result in pool.map(one, wanted):
            if result is None:
                continue
            checked += 1
            bad += not result[1]
            if result[2].strip():
                print(result[2], flush=True)
    print(f"clang-tidy: {checked} of {len(wanted)} changed files checked, {bad} with errors")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
