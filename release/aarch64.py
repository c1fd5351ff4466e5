"""Builds a manylinux wheel for 64-bit ARM with Debian's cross-compiler, and tests it in an emulator.

python release/aarch64.py          build, and run release/conformance: what `make aarch64-wheel` does
python release/aarch64.py --train  train there, too, with the oldest PyTorch that is supported

It needs g++-aarch64-linux-gnu, qemu-user, and a CPython here of the minor version that Debian has. Headers, and the
interpreter that runs in the emulator, are Debian's; the build itself runs in ours. It builds from the source
distribution in dist/, which `make wheels` leaves there.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from building import BUILD, BUILD_REQUIRES, DIST, ROOT, run, the_only, virtual_environment
from debian_arm64 import unpacked, version_of
from old_glibc import linker_flags
from pythons import Python, pythons
from wheels import OFFLINE, SETTINGS, TOOLS, size

FOLDER = ROOT / "build" / "aarch64"
PLATFORMS = ("manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, 36)))
TESTED_WITH = ("gymnasium==1.4.0", "pygame-ce", "pytest>=8", "hypothesis")
# The oldest PyTorch that the extra asks for; for ARM its wheels are without CUDA.
TRAINED_WITH = "torch==2.3.0"


def main() -> None:
    """Build, test, and say what came out; with --train, also train on the oldest PyTorch."""
    root = unpacked(FOLDER)
    python = matching(root)
    wheel = repaired(cross_built(python, root), python)
    print(f"{wheel.name:72} {size(wheel)}, Debian's CPython {'.'.join(map(str, version_of(root)))}", flush=True)
    extra, versions = ("[train]", [TRAINED_WITH]) if "--train" in sys.argv else ("", [])
    site = installed(wheel, extra, versions, python)
    print(conformance(root, site), flush=True)


def matching(root: Path) -> Python:
    """The interpreter of this machine that has the minor version of Debian's."""
    wanted = version_of(root)
    found = [python for python in pythons() if python.version[:2] == wanted]
    if not found:
        raise SystemExit(f"There is no CPython {wanted[0]}.{wanted[1]} here, the version of Debian's for ARM.")
    return found[0]


def cross_built(python: Python, root: Path) -> Path:
    """The wheel as the cross-compiler made it."""
    interpreter = virtual_environment(BUILD / f"{python.tag}-build", python.path, BUILD_REQUIRES)
    numpy = numpy_headers(interpreter, python)
    include = root / "usr" / "include"
    definitions = {
        "CMAKE_TOOLCHAIN_FILE": ROOT / "release" / "aarch64.cmake",
        "Python_INCLUDE_DIR": include / f"python{python.version[0]}.{python.version[1]}",
        "Python_NumPy_INCLUDE_DIR": numpy,
        "CMAKE_CXX_FLAGS": f"-idirafter {include}",  # pyconfig.h lies beside libc's headers, which are not to be taken
    }
    settings = [f"--config-settings=cmake.define.{name}={value}" for name, value in definitions.items()]
    folder = FOLDER / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", *SETTINGS, *settings, "--wheel-dir", str(folder)]
    sdist = the_only(DIST, "envfleet-*.tar.gz")
    portable = {"LDFLAGS": linker_flags("aarch64", "aarch64-linux-gnu-gcc", FOLDER / "old_glibc")}
    run([interpreter, "-m", "pip", "wheel", *options, sdist], {**OFFLINE, **portable, **as_debians(root)})
    return the_only(folder, "*.whl")


def as_debians(root: Path) -> dict[str, str]:
    """What has our Python say of itself what Debian's for ARM would: above all, how its modules are called."""
    name = "_sysconfigdata__aarch64-linux-gnu"
    (source,) = sorted((root / "usr" / "lib").glob(f"python3*/{name}.py"))
    folder = FOLDER / "sysconfig"
    folder.mkdir(exist_ok=True)
    shutil.copy(source, folder)
    return {
        "_PYTHON_SYSCONFIGDATA_NAME": name,
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "PYTHONPATH": str(folder),
    }


def numpy_headers(interpreter: Path, python: Python) -> Path:
    """Those of NumPy's package for ARM, which also has its random numbers as a library."""
    version = run([interpreter, "-c", "import numpy; print(numpy.__version__)"]).strip()
    target = FOLDER / f"numpy-{version}-{python.tag}"
    if not target.exists():
        install_for_arm(python, target, "--no-deps", f"numpy=={version}")
    return target / "numpy" / "_core" / "include"


def install_for_arm(python: Python, target: Path, *requirements: str) -> None:
    """Has our pip install packages for ARM into a folder."""
    interpreter = virtual_environment(BUILD / f"{python.tag}-build", python.path, BUILD_REQUIRES)
    version = f"{python.version[0]}.{python.version[1]}"
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}", *platforms]
    # What a package asks for on ARM only, or not on ARM, is otherwise decided by the machine that pip runs on.
    folder = FOLDER / "machine"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text("import platform\n\nplatform.machine = lambda: 'aarch64'\n")
    command = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *options]
    run([*command, "--target", target, *requirements], {"PYTHONPATH": str(folder)})


def repaired(wheel: Path, python: Python) -> Path:
    """The wheel in dist/, with the oldest manylinux tag that its symbols allow."""
    tools = virtual_environment(BUILD / "tools", Path(sys.executable), TOOLS)
    for older in DIST.glob(f"envfleet-*-{python.tag}-*aarch64.whl"):
        older.unlink()
    path = os.pathsep.join([str(tools.parent), os.environ["PATH"]])
    run([tools, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel], {"PATH": path})
    return the_only(DIST, f"envfleet-*-{python.tag}-*manylinux*aarch64.whl")


def installed(wheel: Path, extra: str, versions: list[str], python: Python) -> Path:
    """A folder with the wheel and all that it needs, for ARM."""
    site = FOLDER / ("site-train" if extra else "site")
    shutil.rmtree(site, ignore_errors=True)
    install_for_arm(python, site, f"{wheel}{extra}", *TESTED_WITH, *versions)
    return site


def conformance(root: Path, site: Path) -> str:
    """What the short conformance suite says under the emulator, in its last line."""
    folder = ROOT / "release" / "conformance"
    python = ["qemu-aarch64", "-L", str(root), str(root / "usr" / "bin" / "python3")]
    pytest = ["-m", "pytest", "-q", "-c", f"{folder / 'pytest.ini'}", "--rootdir", f"{folder}", f"{folder}"]
    one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS")}
    said = run([*python, *pytest], {"PYTHONPATH": str(site), **one_thread})
    return said.strip().splitlines()[-1].strip("= ")


if __name__ == "__main__":
    main()
