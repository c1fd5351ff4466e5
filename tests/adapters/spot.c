/* A bright spot that the actions move over a picture of 36 by 36 pixels. The episode ends where it
 * leaves the right side. */
#include <envfleet_env.h>
#include <string.h>

enum { SIDE = 36 };

typedef struct {
    int64_t row, column;
} spot;

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    spot* at = state;
    (void)parameters;
    at->row = random->integers(random, 0, SIDE);
    at->column = random->integers(random, 0, SIDE - 6);
    return 0;
}

static int32_t step(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome) {
    spot* at = state;
    (void)parameters;
    at->row = (at->row + *(const int64_t*)action + SIDE - 1) % SIDE;
    at->column += random->integers(random, 0, 2);
    outcome->reward = (double)at->column / SIDE;
    outcome->terminated = at->column >= SIDE - 2;
    return 0;
}

static int32_t observe(const void* state, const void* parameters, void* observation) {
    const spot* at = state;
    (void)parameters;
    memset(observation, 0, SIDE * SIDE);
    ((uint8_t*)observation)[at->row * SIDE + at->column] = 255;
    return 0;
}

static const int64_t shape[] = {SIDE, SIDE, 1}, directions[] = {3};

static const envfleet_environment environment = {
    .abi_version = ENVFLEET_ABI_VERSION,
    .struct_size = sizeof(envfleet_environment),
    .name = "Spot",
    .observation = {.kind = ENVFLEET_BOX,
                    .type = ENVFLEET_UINT8,
                    .ndim = 3,
                    .shape = shape,
                    .low = 0,
                    .high = 255},
    .action = {.kind = ENVFLEET_DISCRETE, .counts = directions},
    .state_size = sizeof(spot),
    .max_episode_steps = 12,
    .reset = reset,
    .step = step,
    .observe = observe,
};

const envfleet_environment* envfleet_get_environment(void) { return &environment; }
