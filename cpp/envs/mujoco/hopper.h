// Hopper: one leg, to hop along x without falling.
#pragma once

#include <algorithm>
#include <array>
#include <limits>

#include "envs/mujoco/plane_walker.h"

namespace envfleet {

struct HopperParams : PlaneWalkerParams {
    HopperParams() {
        healthy_z_range = {0.7, std::numeric_limits<double>::infinity()};
        healthy_angle_range = {-0.2, 0.2};
    }
    std::array<double, 2> healthy_state_range = {-100.0, 100.0};

    bool is_healthy(const Simulation& sim) const {
        auto inside = [this](double x) {
            return healthy_state_range[0] < x && x < healthy_state_range[1];
        };
        const auto angles = sim.qpos.subspan(2);
        return std::all_of(angles.begin(), angles.end(), inside) &&
               std::all_of(sim.qvel.begin(), sim.qvel.end(), inside) && is_upright(sim);
    }

    static auto parameters() {
        return PlaneWalkerParams::parameters(
            field("_healthy_state_range", &HopperParams::healthy_state_range));
    }
};

using Hopper = PlaneWalker<HopperParams>;

}  // namespace envfleet
