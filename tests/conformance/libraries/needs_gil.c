/* An environment that asks for Python's GIL in every step, as one that prints or calls back does. */
#include <envfleet_env.h>
#include <stddef.h>

int PyGILState_Ensure(void);
void PyGILState_Release(int state);

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    (void)random, (void)parameters;
    *(int64_t*)state = 0;
    return 0;
}

static int32_t step(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome) {
    const int held = PyGILState_Ensure();
    (void)random, (void)parameters, (void)action;
    PyGILState_Release(held);
    outcome->reward = (double)++*(int64_t*)state;
    return 0;
}

static int32_t observe(const void* state, const void* parameters, void* observation) {
    (void)parameters;
    *(int64_t*)observation = *(const int64_t*)state;
    return 0;
}

static const int64_t two[] = {2}, many[] = {1000};

static const envfleet_environment environment = {
    .abi_version = ENVFLEET_ABI_VERSION,
    .struct_size = sizeof(envfleet_environment),
    .name = "NeedsGil",
    .observation = {.kind = ENVFLEET_DISCRETE, .counts = many},
    .action = {.kind = ENVFLEET_DISCRETE, .counts = two},
    .state_size = sizeof(int64_t),
    .reset = reset,
    .step = step,
    .observe = observe,
};

const envfleet_environment* envfleet_get_environment(void) { return &environment; }
