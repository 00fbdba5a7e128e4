"""Takes named photos out of a downloaded wheel: extract_photos.py WHEEL_DIR OUT_DIR NAME..."""

import pathlib
import sys
import zipfile


def main() -> int:
    wheel_dir, out_dir, *names = sys.argv[1:]
    wheel = next(pathlib.Path(wheel_dir).glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        members = {pathlib.PurePosixPath(m).name: m for m in archive.namelist() if "/data/" in m}
        for name in names:
            target = pathlib.Path(out_dir) / name
            partial = target.with_suffix(target.suffix + ".part")
            partial.write_bytes(archive.read(members[name]))
            partial.replace(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
