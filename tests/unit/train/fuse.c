/* A walk with two choices a step: MULTI_DISCRETE actions, FLOAT64 observations. At its step number `fuse` it fails, at
 * its step number `odd` it shows NaN, and a step takes `nap` microseconds. */
#define _POSIX_C_SOURCE 199309L
#include <envfleet_env.h>
#include <math.h>
#include <stddef.h>
#include <time.h>

typedef struct {
    double at[2];
    int64_t steps;
} walk;

typedef struct {
    int64_t fuse, odd, nap;
    double pull;
} rules;

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    walk* w = state;
    (void)parameters;
    for (int i = 0; i < 2; ++i) w->at[i] = random->normal(random, 0.0, 1.0);
    w->steps = 0;
    return 0;
}

static int32_t step(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome) {
    walk* w = state;
    const rules* r = parameters;
    const int64_t* choices = action;
    if (++w->steps == r->fuse) return 7;
    if (r->nap > 0) {
        const struct timespec nap = {0, r->nap * 1000};
        nanosleep(&nap, NULL);
    }
    w->at[0] += (double)choices[0] - r->pull + random->normal(random, 0.0, 0.3);
    w->at[1] += (double)choices[1] - 1.0 + random->normal(random, 0.0, 0.3);
    outcome->reward = w->at[0] * w->at[1];
    outcome->terminated = fabs(w->at[0]) + fabs(w->at[1]) > 4.0;
    return 0;
}

static int32_t observe(const void* state, const void* parameters, void* observation) {
    const walk* w = state;
    const rules* r = parameters;
    double* seen = observation;
    for (int i = 0; i < 2; ++i) seen[i] = w->steps == r->odd ? NAN : w->at[i];
    return 0;
}

static const char* error_message(int32_t code) { return code == 7 ? "the fuse has blown" : NULL; }

static const int64_t two[] = {2}, choices[] = {2, 3};
static const double low[] = {-100, -100}, high[] = {100, 100};
static const envfleet_parameter parameters[] = {{"fuse", ENVFLEET_INT64, 0},
                                                {"odd", ENVFLEET_INT64, -1},
                                                {"nap", ENVFLEET_INT64, 0},
                                                {"pull", ENVFLEET_FLOAT64, 0.5}};

static const envfleet_environment environment = {
    .abi_version = ENVFLEET_ABI_VERSION,
    .struct_size = sizeof(envfleet_environment),
    .name = "Fuse",
    .observation = {.kind = ENVFLEET_BOX,
                    .type = ENVFLEET_FLOAT64,
                    .ndim = 1,
                    .shape = two,
                    .lows = low,
                    .highs = high},
    .action = {.kind = ENVFLEET_MULTI_DISCRETE, .ndim = 1, .shape = two, .counts = choices},
    .state_size = sizeof(walk),
    .max_episode_steps = 30,
    .num_parameters = 4,
    .parameters = parameters,
    .reset = reset,
    .step = step,
    .observe = observe,
    .error_message = error_message,
};

const envfleet_environment* envfleet_get_environment(void) { return &environment; }
