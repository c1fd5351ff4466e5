// Gymnasium's categorical_sample: the first outcome whose cumulated probability exceeds a draw.
#pragma once

#include <algorithm>
#include <span>

#include "engine/random.h"

namespace envfleet {

// `cumulated` must not decrease. If rounding leaves its end below the draw, the first is taken.
inline size_t categorical_sample(std::span<const double> cumulated, Rng& rng) {
    const auto found = std::upper_bound(cumulated.begin(), cumulated.end(), rng.random());
    return found == cumulated.end() ? 0 : static_cast<size_t>(found - cumulated.begin());
}

}  // namespace envfleet
