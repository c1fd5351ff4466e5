// Gymnasium's reset options of classic control: between which bounds the first state is drawn.
#pragma once

#include <stdexcept>
#include <tuple>

#include "engine/fields.h"

namespace envfleet {

template <double default_low, double default_high>
struct ResetBounds {
    double low = default_low;
    double high = default_high;

    static auto fields() {
        return std::tuple(field("low", &ResetBounds::low), field("high", &ResetBounds::high));
    }
    void check() const {
        if (low > high) throw std::invalid_argument("reset option low must not be above high.");
    }
};

}  // namespace envfleet
