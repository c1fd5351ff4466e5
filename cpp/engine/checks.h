// Sentences about numbers that cannot be part of a state.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace envfleet {

// One of 0, ..., count - 1.
inline void check_index(const char* name, int64_t value, int64_t count) {
    if (value >= 0 && value < count) return;
    throw std::invalid_argument(std::string(name) + " must lie in 0 to " +
                                std::to_string(count - 1) + ", not be " + std::to_string(value) +
                                ".");
}
inline void check_index(const char* name, const std::optional<int64_t>& value, int64_t count) {
    if (value) check_index(name, *value, count);
}

inline void check_finite(const char* name, std::span<const double> numbers) {
    for (const double number : numbers) {
        if (!std::isfinite(number)) {
            throw std::invalid_argument(std::string(name) + " must hold finite numbers, not " +
                                        std::to_string(number) + ".");
        }
    }
}
inline void check_finite(const char* name, double number) { check_finite(name, {&number, 1}); }

}  // namespace envfleet
