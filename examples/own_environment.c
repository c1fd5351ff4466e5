/* The pond of own_environment.py in C: same seeds, same ducklings. How to build it is written in
 * envfleet_env.h. */
#include <envfleet_env.h>
#include <math.h>

#define PI 3.14159265358979323846

typedef struct {
    double duck[2], fox;
} pond;

typedef struct {
    double fox_speed;
} settings;

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    pond* s = state;
    (void)parameters;
    s->duck[0] = random->normal(random, 0.0, 0.1);
    s->duck[1] = random->normal(random, 0.0, 0.1);
    s->fox = random->uniform(random, -PI, PI);
    return 0;
}

/* Into [0, b), as Python's a % b. */
static double modulo(double a, double b) {
    const double rest = fmod(a, b);
    return rest < 0 ? rest + b : rest;
}

static int32_t step(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome) {
    pond* s = state;
    const double reach = 0.02 * ((const settings*)parameters)->fox_speed;
    const double heading = (double)*(const int64_t*)action * PI / 4;
    (void)random;
    s->duck[0] += 0.02 * cos(heading);
    s->duck[1] += 0.02 * sin(heading);
    const double gap = modulo(atan2(s->duck[1], s->duck[0]) - s->fox + PI, 2 * PI) - PI;
    s->fox += fmin(fmax(gap, -reach), reach);
    if (s->duck[0] * s->duck[0] + s->duck[1] * s->duck[1] < 1.0) return 0;
    outcome->reward = fabs(gap) <= reach ? -1.0 : 1.0;
    outcome->terminated = 1;
    return 0;
}

static int32_t observe(const void* state, const void* parameters, void* observation) {
    const pond* s = state;
    float* seen = observation;
    (void)parameters;
    seen[0] = (float)s->duck[0];
    seen[1] = (float)s->duck[1];
    seen[2] = (float)cos(s->fox);
    seen[3] = (float)sin(s->fox);
    return 0;
}

static const int64_t four[] = {4}, directions[] = {8};
static const envfleet_parameter parameters[] = {{"fox_speed", ENVFLEET_FLOAT64, 4.0}};

static const envfleet_environment environment = {
    .abi_version = ENVFLEET_ABI_VERSION,
    .struct_size = sizeof(envfleet_environment),
    .name = "Pond",
    .observation = {.kind = ENVFLEET_BOX,
                    .type = ENVFLEET_FLOAT32,
                    .ndim = 1,
                    .shape = four,
                    .low = -1.1,
                    .high = 1.1},
    .action = {.kind = ENVFLEET_DISCRETE, .counts = directions},
    .state_size = sizeof(pond),
    .max_episode_steps = 400,
    .num_parameters = 1,
    .parameters = parameters,
    .reset = reset,
    .step = step,
    .observe = observe,
};

const envfleet_environment* envfleet_get_environment(void) { return &environment; }
