// Random numbers against what NumPy 2 draws: numpy.random.Generator(PCG64(SeedSequence(seed))).
#include "engine/random.h"

#include <vector>

#include "tests/check.h"

using envfleet::Rng;

struct Expected {
    std::vector<uint32_t> entropy;  // of the seed, in words of 32 bits
    double random;
    std::vector<int64_t> integers;  // five below 13
    double uniform;                 // in [-0.05, 0.05)
    double normal;
    int64_t wide;  // from -9999 to 9998
};

int main() {
    const std::vector<Expected> cases = {
        {{0},
         0x1.461fd79fb3850p-1,
         {6, 3, 4, 0, 0},
         0x1.00a187e6f5faap-5,
         0x1.7245f95ced1e6p-2,
         -9669},
        {{7},
         0x1.400c8353e3ca9p-1,
         {8, 11, 7, 10, 10},
         -0x1.476855c60b6adp-6,
         -0x1.fbb918e5cd3f0p-1,
         -5496},
        {{5, 0, 0x40},
         0x1.8e4b945b84528p-3,
         {5, 3, 3, 7, 12},
         -0x1.79329a8851818p-8,
         0x1.24cf33805a95bp+0,
         -6916},
    };
    for (const Expected& expected : cases) {
        Rng rng;
        rng.seed(expected.entropy);
        check(rng.random() == expected.random);
        for (const int64_t number : expected.integers) check(rng.integers(0, 13) == number);
        check(rng.has_half());
        check(rng.uniform(-0.05, 0.05) == expected.uniform);
        check(rng.standard_normal() == expected.normal);
        check(rng.integers(-9999, 9999) == expected.wide);
        check(!rng.has_half());
    }
}
