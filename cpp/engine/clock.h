// Time.
#pragma once

#include <time.h>

#include <cstdint>

namespace envfleet {

using Nanoseconds = int64_t;

inline Nanoseconds now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Nanoseconds{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace envfleet
