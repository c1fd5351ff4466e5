/* envfleet_env.h: an environment for envfleet's pool, in C or what can be called like C.
 *
 * Describe the environment in a constant, write three functions, export a fourth that returns the
 * constant, and build a shared library, here with GCC or Clang and FOLDER being what
 * envfleet.native.include_dir() says:
 *
 *     cc -O2 -fPIC -shared -IFOLDER pond.c -o pond.so -lm
 *
 *     envs = envfleet.make_vec(envfleet.native.load("./pond.so"), num_envs=64)
 *
 * Autoreset, time limits, threads, seeds, snapshots and errors are the pool's. Functions are called
 * from several threads at once, never two at a time for the same environment: keep everything that
 * changes in the state.
 */
#ifndef ENVFLEET_ENV_H
#define ENVFLEET_ENV_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every change that old libraries would not survive; those of another version are
 * refused. */
#define ENVFLEET_ABI_VERSION 1

/* The environment's random numbers: the stream of Gymnasium's np_random with the same seed, number
 * for number.
 *
 * The first five members are NumPy's bitgen_t, so its C functions take a pointer to this, cast to
 * one to that. */
typedef struct envfleet_random {
    void* generator;
    uint64_t (*next_uint64)(void* generator);
    uint32_t (*next_uint32)(void* generator);
    double (*next_double)(void* generator); /* Generator.random() */
    uint64_t (*next_raw)(void* generator);
    /* As the methods of numpy.random.Generator; integers() gives low, ..., high - 1. */
    double (*uniform)(struct envfleet_random* random, double low, double high);
    double (*normal)(struct envfleet_random* random, double mean, double deviation);
    int64_t (*integers)(struct envfleet_random* random, int64_t low, int64_t high);
} envfleet_random;

enum envfleet_type {
    ENVFLEET_FLOAT32 = 1,
    ENVFLEET_FLOAT64 = 2,
    ENVFLEET_INT8 = 3,
    ENVFLEET_INT16 = 4,
    ENVFLEET_INT32 = 5,
    ENVFLEET_INT64 = 6,
    ENVFLEET_UINT8 = 7,
    ENVFLEET_BOOL = 8 /* of parameters only */
};

enum envfleet_space_kind { ENVFLEET_BOX = 1, ENVFLEET_DISCRETE = 2, ENVFLEET_MULTI_DISCRETE = 3 };

/* A space of Gymnasium's.
 *
 * BOX              numbers of `type` in an array of `shape`, each between `low` and `high`
 * (INFINITY for no bound); where bounds differ, `lows` and `highs` hold one for each number.
 * DISCRETE         one int64_t, 0 to counts[0] - 1. Of the members only `kind` and `counts` are
 * read. MULTI_DISCRETE   shape[0] of them, number i from 0 to counts[i] - 1; ndim is 1. */
typedef struct envfleet_space {
    uint32_t kind;
    uint32_t type;
    uint32_t ndim;
    const int64_t* shape;
    double low, high;
    const double *lows, *highs;
    const int64_t* counts;
} envfleet_space;

/* A constructor argument, which may differ between environments: FLOAT64, INT64 or BOOL.
 *
 * All parameters of an environment lie one after another, eight bytes each, in the order in which
 * they are declared: a double, or an int64_t, which for BOOL is 0 or 1. */
typedef struct envfleet_parameter {
    const char* name;
    uint32_t type;
    double initial;
} envfleet_parameter;

/* All zero before step() is called. */
typedef struct envfleet_outcome {
    double reward;
    uint8_t terminated;
    uint8_t truncated; /* time limits apart, which the pool watches */
} envfleet_outcome;

/* `state` is `state_size` bytes, zero at first and aligned to 16; it must make sense as plain
 * bytes, because a snapshot is a copy of them. Functions return 0, or another number if something
 * went wrong: error_message(), which may be NULL, says what that number means. */
typedef struct envfleet_environment {
    uint32_t abi_version; /* ENVFLEET_ABI_VERSION */
    uint32_t struct_size; /* sizeof(envfleet_environment) */
    const char* name;
    envfleet_space observation;
    envfleet_space action;
    uint64_t state_size;
    int64_t max_episode_steps; /* 0: no limit */
    uint32_t num_parameters;
    const envfleet_parameter* parameters;

    /* Begins an episode. */
    int32_t (*reset)(void* state, envfleet_random* random, const void* parameters);
    int32_t (*step)(void* state, envfleet_random* random, const void* parameters,
                    const void* action, envfleet_outcome* outcome);
    /* Writes the observation that follows from the state, all of it. */
    int32_t (*observe)(const void* state, const void* parameters, void* observation);
    const char* (*error_message)(int32_t code);
} envfleet_environment;

#if defined(__GNUC__)
#define ENVFLEET_EXPORT __attribute__((visibility("default")))
#else
#define ENVFLEET_EXPORT
#endif

/* The one function that a library exports. What it returns must stay where it is. */
ENVFLEET_EXPORT const envfleet_environment* envfleet_get_environment(void);

#ifdef __cplusplus
}
#endif

#endif
