"""Has the linker take functions in the versions that older C libraries have, so that wheels run there too.

A program that is linked with a new glibc asks for the newest version of each function, also where an old one would do.
Three things alone would bind our wheels to glibc 2.35, and none is needed:

- glibc 2.34 moved threads from libpthread into libc and gave their functions a new version. The old version is still
  there: here is a libpthread that has nothing but these names, for the linker to find first.
- libstdc++ looks at a variable of glibc 2.32 to save atomic operations in programs without threads. Here is one that
  says that there are threads.
- libgcc, linked in, calls a function of glibc 2.35 to find handlers of exceptions. So it is not linked in: every system
  has libgcc_s.

What remains is what exp, log and pow ask for, glibc 2.29, and a lock that is waited for with a limit, glibc 2.30. The
oldest tag that allows it is manylinux_2_31.
"""

from __future__ import annotations

from pathlib import Path

from building import run

# The version that a function has had from the beginning, or since it was added.
FIRST = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
THREADS = ("__pthread_key_create", "pthread_create", "pthread_detach", "pthread_join", "pthread_once")
NAMES = {"x86_64": "GLIBC_2.12", "aarch64": "GLIBC_2.17"}
CLOCKS = "GLIBC_2.30"

SINGLE_THREADED = '__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;\n'


def linker_flags(machine: str, compiler: str, folder: Path) -> str:
    """What to tell the linker; the two files it needs are left in the folder.

    Args:
        machine: x86_64 or aarch64.
        compiler: The C compiler for that machine.
        folder: Where to build them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    versions: dict[str, list[str]] = {}
    for name in THREADS:
        versions.setdefault(FIRST[machine], []).append(name)
    versions.setdefault(NAMES[machine], []).append("pthread_setname_np")
    versions.setdefault(CLOCKS, []).append("pthread_mutex_clocklock")
    names = [name for group in versions.values() for name in group]
    source, script, library = folder / "threads.c", folder / "threads.map", folder / "libpthread.so.0"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    script.write_text("".join(f"{version} {{ {'; '.join(group)}; }};\n" for version, group in versions.items()))
    options = ["-shared", "-nostdlib", "-fno-builtin", f"-Wl,--version-script={script},-soname={library.name}"]
    run([compiler, *options, source, "-o", library])
    single = folder / "single_threaded.c"
    single.write_text(SINGLE_THREADED)
    run([compiler, "-fPIC", "-c", single, "-o", single.with_suffix(".o")])
    # Names of what is linked in stay inside: PyTorch brings another libstdc++.
    first = f"-Wl,--push-state,--no-as-needed {library} -Wl,--pop-state"
    return f"-static-libstdc++ -Wl,--exclude-libs,ALL {single.with_suffix('.o')} {first}"
