"""The failing environment in C, for the pool of compiled environments, with the faults that exist there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from envfleet import native
from fault_matrix.failing_env import FAIL_AT, FAILING

FAULTS = {"none": 0, "exception": 1, "hang": 2, "caller-killed-hang": 2, "nan": 3, "nan-checked": 3, "fork": 4}

SOURCE = """
#include <envfleet_env.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

typedef struct { double seen[4], reward; } episode;
typedef struct { int64_t index; } settings;
static atomic_int failed;

static void observe_all(episode* e, envfleet_random* random, const settings* s) {
    e->seen[0] = (double)s->index;
    e->seen[2] = random->next_double(random->generator);
    e->seen[3] = random->next_double(random->generator);
}

static void note(void) {
    struct timespec now;
    FILE* file = fopen(MARKER, "w");
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(file, "%ld.%09ld", (long)now.tv_sec, now.tv_nsec);
    fclose(file);
}

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    episode* e = state;
    e->seen[1] = 0;
    observe_all(e, random, parameters);
    return 0;
}

static int32_t step(void* state, envfleet_random* random, const void* parameters, const void* action,
                    envfleet_outcome* outcome) {
    episode* e = state;
    const settings* s = parameters;
    (void)action;
    e->seen[1] += 1;
    observe_all(e, random, s);
    outcome->reward = random->next_double(random->generator);
    if (!FAULT || s->index != FAILING || e->seen[1] != FAIL_AT || atomic_exchange(&failed, 1)) return 0;
    note();
    if (FAULT == 1) return 1;
    if (FAULT == 2) sleep(100000);
    if (FAULT == 3) e->seen[2] = outcome->reward = NAN;
    if (FAULT == 4 && fork() < 0) return 2;
    return 0;
}

static int32_t observe(const void* state, const void* parameters, void* observation) {
    (void)parameters;
    for (int i = 0; i < 4; ++i) ((float*)observation)[i] = (float)((const episode*)state)->seen[i];
    return 0;
}

static const char* message(int32_t code) { return code == 1 ? "the simulator has failed" : "no fork"; }

static const int64_t four[] = {4}, two[] = {2};
static const envfleet_parameter parameters[] = {{"index", ENVFLEET_INT64, 0}};
static const envfleet_environment environment = {
    .abi_version = ENVFLEET_ABI_VERSION,
    .struct_size = sizeof(envfleet_environment),
    .name = "Failing",
    .observation = {.kind = ENVFLEET_BOX, .type = ENVFLEET_FLOAT32, .ndim = 1, .shape = four, .low = -1e6, .high = 1e6},
    .action = {.kind = ENVFLEET_DISCRETE, .counts = two},
    .state_size = sizeof(episode),
    .num_parameters = 1,
    .parameters = parameters,
    .reset = reset,
    .step = step,
    .observe = observe,
    .error_message = message,
};

const envfleet_environment* envfleet_get_environment(void) { return &environment; }
"""


def build(folder: Path, fault: str, marker: str) -> Path:
    """Compile it with the system's `cc`; returns the library."""
    source, library = folder / "failing.c", folder / "failing.so"
    defined = {"FAULT": FAULTS.get(fault, 0), "FAILING": FAILING, "FAIL_AT": FAIL_AT, "MARKER": f'"{marker}"'}
    source.write_text(SOURCE)
    command = ["cc", "-O2", "-fPIC", "-shared", f"-I{native.include_dir()}"]
    command += [f"-D{name}={value}" for name, value in defined.items()]
    subprocess.run([*command, str(source), "-o", str(library), "-lm"], check=True)
    return library
