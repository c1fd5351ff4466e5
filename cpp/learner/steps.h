// A step of an optimiser that looks before it leaps.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "learner/trainable.h"

namespace envfleet::learner {

// A loss or the length of a gradient that is not finite; nothing has moved because of it.
struct NotFinite {
    std::string what;  // "actor loss"
    double value;
};

// How long gradients may be, and what Adam does with them.
struct StepSettings {
    AdamSettings adam;
    double max_grad_norm;
};

// Adam's step with the gradient of a loss, if both are finite.
inline std::optional<NotFinite> careful_step(Adam& adam, double loss, const StepSettings& settings,
                                             const char* of) {
    if (!std::isfinite(loss)) return NotFinite{std::string(of) + " loss", loss};
    const double norm = adam.gradient_norm();
    if (!std::isfinite(norm)) return NotFinite{std::string(of) + " gradient", norm};
    adam.step(settings.adam, shortening(norm, settings.max_grad_norm));
    return std::nullopt;
}

}  // namespace envfleet::learner
