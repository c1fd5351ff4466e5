// How long a call of Python's waits, and how often it looks around meanwhile.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>

#include "engine/clock.h"

namespace envfleet {

// The moment that is so many seconds away; without any, never.
inline Nanoseconds deadline_in(std::optional<double> seconds) {
    constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();
    constexpr double many = 1e9;  // whoever waits for thirty years waits for ever
    if (!seconds || !(*seconds < many)) return forever;
    return now() + static_cast<Nanoseconds>(std::max(*seconds, 0.0) * 1e9);
}

// Whoever waits looks around so often: another thread may want to close the fleet.
inline constexpr Nanoseconds look_interval = 50'000'000;

inline Nanoseconds next_look(Nanoseconds deadline) {
    return std::min(deadline, now() + look_interval);
}
// How long the program was stopped since it looked around last: a far longer gap tells. That is
// not the environments' time.
inline Nanoseconds lost_since(Nanoseconds last_look) {
    const Nanoseconds gap = now() - last_look;
    return gap < 4 * look_interval ? 0 : gap - look_interval;
}

}  // namespace envfleet
