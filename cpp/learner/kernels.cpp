#include "learner/kernels.h"

#include <stdexcept>

namespace envfleet::learner {

extern const Kernels baseline_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels, avx512_kernels;
#endif

namespace {

// What this processor has, the best one last.
std::vector<const Kernels*> available() {
    std::vector<const Kernels*> found{&baseline_kernels};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        found.push_back(&avx2_kernels);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        found.push_back(&avx512_kernels);
    }
#endif
    return found;
}

}  // namespace

const Kernels& best_kernels() {
    static const Kernels* best = available().back();
    return *best;
}

const Kernels& kernels_named(const std::string& name) {
    std::string names;
    for (const Kernels* kernels : available()) {
        if (name == kernels->name) return *kernels;
        names += (names.empty() ? "" : ", ") + std::string(kernels->name);
    }
    throw std::invalid_argument("This processor has no kernels called \"" + name + "\", but " +
                                names + ".");
}

std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (const Kernels* kernels : available()) names.emplace_back(kernels->name);
    return names;
}

}  // namespace envfleet::learner
