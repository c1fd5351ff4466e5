// The kernels for processors with AVX2 and multiply-add; compiled with -mavx2 -mfma.
#if defined(__x86_64__)
#define ENVFLEET_KERNELS avx2_kernels
#define ENVFLEET_KERNELS_SPACE avx2
#define ENVFLEET_LANES 8
#define ENVFLEET_KERNELS_NAME "avx2"
#include "learner/kernels_code.h"
#endif
