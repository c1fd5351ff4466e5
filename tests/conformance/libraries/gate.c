/* An environment that, told to by action 1, does not return from its step before it is let out; action 2 fails. */
#define _POSIX_C_SOURCE 200809L
#include <envfleet_env.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

static atomic_int inside, is_open;

int gate_inside(void);
void gate_set(int open);

int gate_inside(void) { return atomic_load(&inside); }
void gate_set(int open) { atomic_store(&is_open, open); }

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    (void)random, (void)parameters;
    *(int64_t*)state = 0;
    return 0;
}

static int32_t step(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome) {
    const struct timespec a_moment = {0, 100000};
    (void)random, (void)parameters;
    if (*(const int64_t*)action == 2) return 1;
    if (*(const int64_t*)action == 1) {
        atomic_fetch_add(&inside, 1);
        while (!atomic_load(&is_open)) nanosleep(&a_moment, NULL);
        atomic_fetch_sub(&inside, 1);
    }
    outcome->reward = (double)++*(int64_t*)state;
    return 0;
}

static int32_t observe(const void* state, const void* parameters, void* observation) {
    (void)parameters;
    *(int64_t*)observation = *(const int64_t*)state;
    return 0;
}

static const int64_t three[] = {3}, many[] = {1000};

static const envfleet_environment environment = {
    .abi_version = ENVFLEET_ABI_VERSION,
    .struct_size = sizeof(envfleet_environment),
    .name = "Gate",
    .observation = {.kind = ENVFLEET_DISCRETE, .counts = many},
    .action = {.kind = ENVFLEET_DISCRETE, .counts = three},
    .state_size = sizeof(int64_t),
    .reset = reset,
    .step = step,
    .observe = observe,
};

const envfleet_environment* envfleet_get_environment(void) { return &environment; }
