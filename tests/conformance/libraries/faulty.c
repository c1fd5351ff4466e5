/* An environment that does nothing, with one mistake: -DMISTAKE='environment.state_size = ...'. */
#include <envfleet_env.h>
#include <stddef.h>

static int32_t reset(void* state, envfleet_random* random, const void* parameters) {
    (void)state, (void)random, (void)parameters;
    return 0;
}
static int32_t step(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome) {
    (void)state, (void)random, (void)parameters, (void)outcome;
    return (int32_t)(*(const int64_t*)action); /* an error for all actions but the first */
}
#ifdef MESSAGE
static const char* error_message(int32_t code) { return code == 1 ? MESSAGE : NULL; }
#endif
static int32_t observe(const void* state, const void* parameters, void* observation) {
    (void)state, (void)parameters, (void)observation;
    return 0;
}

#ifndef EXPORTED
#define EXPORTED envfleet_get_environment
#endif

const envfleet_environment* EXPORTED(void);

const envfleet_environment* EXPORTED(void) {
    static int64_t shape[] = {2, 2}, counts[] = {3, 3};
    static envfleet_parameter parameters[] = {{"speed", ENVFLEET_FLOAT64, 1.0},
                                              {"mass", ENVFLEET_FLOAT64, 1.0}};
    static envfleet_environment environment;
    environment.abi_version = ENVFLEET_ABI_VERSION;
    environment.struct_size = sizeof environment;
    environment.name = "Faulty";
    environment.observation.kind = ENVFLEET_BOX;
    environment.observation.type = ENVFLEET_FLOAT64;
    environment.observation.ndim = 1;
    environment.observation.shape = shape;
    environment.observation.low = -1;
    environment.observation.high = 1;
    environment.action.kind = ENVFLEET_DISCRETE;
    environment.action.counts = counts;
    environment.state_size = 8;
    environment.num_parameters = 2;
    environment.parameters = parameters;
    environment.reset = reset;
    environment.step = step;
    environment.observe = observe;
#ifdef MESSAGE
    environment.error_message = error_message;
#endif
    MISTAKE;
    return &environment;
}
