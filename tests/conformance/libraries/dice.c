/* Two hands of dice, as Dice in own_environments.py: MULTI_DISCRETE actions, INT64 and BOOL
 * parameters, errors. */
#include <envfleet_env.h>
#include <stddef.h>

typedef struct {
    int64_t dice[2], rolls;
    double luck;
} table;

typedef struct {
    int64_t sides, loaded;
    double bonus;
} rules;

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    table* t = state;
    const rules* r = parameters;
    for (int i = 0; i < 2; ++i) t->dice[i] = random->integers(random, 1, r->sides + 1);
    t->rolls = 0;
    t->luck = random->next_double(random->generator);
    return 0;
}

static int32_t step(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome) {
    table* t = state;
    const rules* r = parameters;
    const int64_t* hands = action;
    if (hands[0] == 2 && hands[1] == 3) return 7;
    for (int i = 0; i < 2; ++i) {
        if (hands[i]) t->dice[i] = random->integers(random, 1, r->sides + 1);
    }
    t->luck = t->luck * 0.5 + random->normal(random, 0.0, 1.0);
    t->rolls += 1;
    outcome->reward = (double)(t->dice[0] + t->dice[1]) + r->bonus * t->luck;
    outcome->terminated = t->dice[0] == t->dice[1] && !r->loaded;
    return 0;
}

static int32_t observe(const void* state, const void* parameters, void* observation) {
    const table* t = state;
    uint8_t* seen = observation;
    (void)parameters;
    seen[0] = (uint8_t)t->dice[0];
    seen[1] = (uint8_t)t->dice[1];
    seen[2] = (uint8_t)t->rolls;
    return 0;
}

static const char* error_message(int32_t code) {
    return code == 7 ? "the dice fell off the table" : NULL;
}

static const int64_t three[] = {3}, two[] = {2}, hands[] = {3, 4};
static const double low[] = {0, 0, 0}, high[] = {20, 20, 255};
static const envfleet_parameter parameters[] = {
    {"sides", ENVFLEET_INT64, 6}, {"loaded", ENVFLEET_BOOL, 0}, {"bonus", ENVFLEET_FLOAT64, 0.25}};

static const envfleet_environment environment = {
    .abi_version = ENVFLEET_ABI_VERSION,
    .struct_size = sizeof(envfleet_environment),
    .name = "Dice",
    .observation = {.kind = ENVFLEET_BOX,
                    .type = ENVFLEET_UINT8,
                    .ndim = 1,
                    .shape = three,
                    .lows = low,
                    .highs = high},
    .action = {.kind = ENVFLEET_MULTI_DISCRETE, .ndim = 1, .shape = two, .counts = hands},
    .state_size = sizeof(table),
    .max_episode_steps = 40,
    .num_parameters = 3,
    .parameters = parameters,
    .reset = reset,
    .step = step,
    .observe = observe,
    .error_message = error_message,
};

const envfleet_environment* envfleet_get_environment(void) { return &environment; }
