"""Checks of the whole tree that no compiler makes. Prints one line a finding, exits 1 if one is an error.

Lengths of files, size of binaries, paths and addresses that only hold on one machine, vendor headers outside their backend,
includes that climb out of their folder.
"""

import pathlib
import re
import subprocess
import sys

CODE = {".cpp", ".h", ".py", ".cu", ".cuh"}
WARN_LINES, MAX_LINES, MAX_BYTES = 800, 1200, 200 * 1024
# Written so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(wor[k]|roo[t]|hom[e]|Use[r]s)/[A-Za-z.]")
REGISTRY = re.compile(r"https?://[^\s\"')]*(pyp[i]|pythonhoste[d]|deb\.debia[n]|archive\.ubunt[u])")
VENDOR = re.compile(r'^\s*#\s*include\s*[<"](llvm/|llvm-c/|dnnl|cuda|nvrtc|cublas|cudnn)', re.M)
CLIMBING = re.compile(r'^\s*#\s*include\s*"\.\./', re.M)


def tracked() -> list[pathlib.Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True).stdout.decode()
    return [p for p in map(pathlib.Path, listing.split("\0")) if p.is_file()]


def first_line(text: str, match: re.Match) -> int:
    return text.count("\n", 0, match.start()) + 1


def check(path: pathlib.Path) -> tuple[list[str], list[str]]:
    errors, warnings = [], []
    size = path.stat().st_size
    if size > MAX_BYTES:
        errors.append(f"{path}: {size // 1024} KB, at most {MAX_BYTES // 1024}")
    text = path.read_bytes().decode(errors="replace")
    if path.suffix in CODE:
        lines = text.count("\n")
        if lines > MAX_LINES:
            errors.append(f"{path}: {lines} lines, at most {MAX_LINES}")
        elif lines > WARN_LINES:
            warnings.append(f"{path}: {lines} lines, better below {WARN_LINES}")
    rules = [(MACHINE_PATH, "a path of one machine"), (REGISTRY, "an address of a package registry")]
    if path.suffix in CODE:
        rules.append((CLIMBING, "an include that climbs out of its folder"))
        if path.parts[:2] != ("src", "backend") and path.parts[0] not in ("tests", "bench"):
            rules.append((VENDOR, "a vendor header outside src/backend"))
    for pattern, what in rules:
        match = pattern.search(text)
        if match:
            errors.append(f"{path}:{first_line(text, match)}: {what}: {match.group(0).strip()}")
    return errors, warnings


def main() -> int:
    bad = 0
    for path in tracked():
        errors, warnings = check(path)
        for finding in errors:
            print(f"error: {finding}")
        for finding in warnings:
            print(f"warning: {finding}")
        bad += len(errors)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
