"""Makes a folder that runs on another machine without building there.

pack.py --build DIR --out DIR --env DIR [--with-cpu] [--tests A,B] [--kernels N] [--tar]

bin/, lib/, tests/, bench/, fuzz/ with stripped files whose library path is relative, the shared libraries that the other
machine may lack, the test data, the kernels compiled beforehand, and a script `run`.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

LIMIT_MB = 40
# Libraries that every Linux with a C++ run time has; what else is needed is copied.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so)")

RUN = """#!/usr/bin/env bash
# ./run test [FILTER] [--device cuda] | heddle ARGS | bench [--name N] ARGS | fuzz [--name N] ARGS
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# Kernels compiled beforehand; a cache of one's own is used if it is set.
if [ -z "${HEDDLE_CACHE_DIR:-}" ] && [ -f "$here/kernels.tar.xz" ]; then
  if [ ! -d "$here/kernels" ]; then  # aside first: two may begin at once
    aside=$(mktemp -d "$here/unpacked.XXXXXX")
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$here/kernels.tar.xz" "$aside"
    mv -T "$aside/kernels" "$here/kernels" 2>/dev/null || true
    rm -rf "$aside"
  fi
  export HEDDLE_CACHE_DIR=$here/kernels
fi
export HEDDLE_TEST_DATA=$here/tests/data HEDDLE_PHOTOS=$here/photos HEDDLE_CLI=$here/bin/heddle
command=${1:-}; shift || true
case $command in
  test) exec python3 "$here/tools/run_tests.py" --build "$here" "$@" ;;
  heddle) exec "$here/bin/heddle" "$@" ;;
  bench|fuzz)
    name=heddle-$command
    if [ "${1:-}" = --name ]; then name+=-$2; shift 2; fi
    exec "$here/$command/$name" "$@" ;;
  *) sed -n 2p "$0" >&2; exit 2 ;;
esac
"""


def is_elf(path: pathlib.Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"


def copy_stripped(source: pathlib.Path, target: pathlib.Path):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    target.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)


def relative_rpath(path: pathlib.Path):
    """Replaces the build's library path; the linker left room for it."""
    dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    if "RUNPATH" not in dynamic and "RPATH" not in dynamic:
        return
    origin = "\\$ORIGIN" if path.parent.name == "lib" else "\\$ORIGIN/../lib"
    script = path.with_suffix(".cmake")
    script.write_text(f'file(RPATH_SET FILE "{path}" NEW_RPATH "{origin}")\n')
    subprocess.run(["cmake", "-P", script], check=True)
    script.unlink()


def needed(path: pathlib.Path, search: str) -> dict[str, str]:
    listing = subprocess.run(
        ["ldd", path], capture_output=True, text=True, env=dict(os.environ, LD_LIBRARY_PATH=search)
    ).stdout
    found = re.findall(r"^\s*(\S+) => (\S+) \(", listing, re.M)
    missing = re.findall(r"^\s*(\S+) => not found", listing, re.M)
    if missing:
        sys.exit(f"pack: {path.name} needs {', '.join(missing)}: not found")
    return dict(found)


def copy_outputs(build: pathlib.Path, out: pathlib.Path, with_cpu: bool, only: list[str]):
    skip = () if with_cpu else ("libheddle_cpu.so", "backend_cpu_test")
    for library in sorted((build / "lib").glob("libheddle*.so*")):
        if library.name in skip:
            continue
        if library.is_symlink():
            if library.name.count(".") > 1:  # libheddle.so.0.1, the name that is looked up; .so itself is for linking
                copy_stripped(library.resolve(), out / "lib" / library.name)
        elif "_" in library.name:
            copy_stripped(library, out / "lib" / library.name)
    tests = [name for name in (build / "tests" / "binaries.txt").read_text().split() if name not in skip]
    tests = [name for name in tests if not only or name in only]
    for name in tests:
        copy_stripped(build / "tests" / name, out / "tests" / name)
    (out / "tests" / "binaries.txt").write_text("\n".join(tests))
    for folder in ("bin", "bench", "fuzz"):
        for binary in sorted((build / folder).glob("heddle*")):
            if is_elf(binary):
                copy_stripped(binary, out / folder / binary.name)


def copy_needed_libraries(out: pathlib.Path, env: pathlib.Path):
    search = f"{out / 'lib'}:{env / 'lib'}"
    for path in [p for p in out.rglob("*") if is_elf(p)]:
        for name, source in needed(path, search).items():
            target = out / "lib" / name
            if not SYSTEM.match(name) and not target.exists():
                copy_stripped(pathlib.Path(source).resolve(), target)


def copy_data(root: pathlib.Path, out: pathlib.Path):
    (out / "tools").mkdir()
    (out / "bench").mkdir(exist_ok=True)
    for script in ("alternate.py", "compare.py", "peers.py"):
        shutil.copy2(root / "bench" / script, out / "bench")
    shutil.copy2(root / "tools" / "run_tests.py", out / "tools")
    (out / "tests").mkdir(exist_ok=True)
    for source, target in (
        (root / "tests" / "data", "tests/data"),
        (root / ".cache" / "photos", "photos"),
    ):
        if source.is_dir():
            shutil.copytree(source, out / target)
    for name in ("LICENSE", "NOTICE"):
        shutil.copy2(root / name, out)
    run = out / "run"
    run.write_text(RUN)
    run.chmod(0o755)


def compile_kernels(build: pathlib.Path, out: pathlib.Path, sample: int):
    """kernels.tar.xz: what the benchmarks, and the tests with each sample-th case of the operation matrix, ask an H200 for.

    They run on a driver without a device (tests/stub_driver), which writes no results: that they fail says nothing.
    """
    cache = out / "kernels"
    env = dict(
        os.environ,
        HEDDLE_CUDA_DRIVER=str((build / "tests" / "libstub_driver.so").resolve()),
        HEDDLE_CACHE_DIR=str(cache),
        HEDDLE_TEST_SAMPLE=str(sample),
        HEDDLE_WAIT_LIMIT="5",
    )
    tests = [sys.executable, out / "tools" / "run_tests.py", "--build", build, "--device", "cuda", "--timeout", "600"]
    for command in (
        [build / "bench" / "heddle-bench", "--device", "cuda", "--seconds", "0.001"],
        [*tests, "--area", "matrix", "--area", "plan", "--area", "runtime"],
    ):
        subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    count = sum(1 for p in cache.rglob("*") if p.is_file())
    if count == 0:
        sys.exit("pack: no kernel was compiled; is this a build with the CUDA backend and tests?")
    with tarfile.open(out / "kernels.tar.xz", "w:xz", preset=3) as tar:
        tar.add(cache, arcname="kernels")
    shutil.rmtree(cache)
    print(f"{count} kernels compiled")


def megabytes(paths) -> float:
    return sum(p.stat().st_size for p in paths) / 2**20


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--env", type=pathlib.Path, required=True)
    parser.add_argument("--with-cpu", action="store_true", help="the CPU backend too, with LLVM and oneDNN inside")
    parser.add_argument("--tests", default="", help="only these test binaries, separated by commas")
    parser.add_argument("--kernels", type=int, default=10, metavar="N", help="compile each N-th case's; 0: none")
    parser.add_argument("--tar", action="store_true", help="also OUT.tar.xz")
    args = parser.parse_args()

    out = args.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    copy_outputs(args.build, out, args.with_cpu, [t for t in args.tests.split(",") if t])
    copy_needed_libraries(out, args.env)
    for path in [p for p in out.rglob("*") if is_elf(p)]:
        relative_rpath(path)
    copy_data(pathlib.Path(__file__).resolve().parent.parent, out)
    if args.kernels:
        compile_kernels(args.build, out, args.kernels)

    size = megabytes(p for p in out.rglob("*") if p.is_file())
    print(f"{args.out}: {size:.1f} MB")
    if args.tar:
        archive = out.with_name(out.name + ".tar.xz")
        with tarfile.open(archive, "w:xz", preset=3) as tar:
            tar.add(out, arcname=out.name)
        print(f"{archive.relative_to(pathlib.Path.cwd())}: {megabytes([archive]):.1f} MB")
    if size > LIMIT_MB and not args.with_cpu:
        sys.exit(f"pack: {size:.1f} MB, at most {LIMIT_MB}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
