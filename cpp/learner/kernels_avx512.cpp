// The kernels for processors with AVX-512; compiled with -mavx512f and its usual companions.
#if defined(__x86_64__)
#define ENVFLEET_KERNELS avx512_kernels
#define ENVFLEET_KERNELS_SPACE avx512
#define ENVFLEET_LANES 16
#define ENVFLEET_KERNELS_NAME "avx512"
#include "learner/kernels_code.h"
#endif
