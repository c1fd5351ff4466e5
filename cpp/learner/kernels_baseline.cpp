// The kernels every processor of its kind can run: SSE2 on x86-64, NEON on aarch64.
#define ENVFLEET_KERNELS baseline_kernels
#define ENVFLEET_KERNELS_SPACE baseline
#define ENVFLEET_LANES 4
#if defined(__x86_64__)
#define ENVFLEET_KERNELS_NAME "sse2"
#elif defined(__aarch64__)
#define ENVFLEET_KERNELS_NAME "neon"
#else
#define ENVFLEET_KERNELS_NAME "plain"
#endif
#include "learner/kernels_code.h"
