// Walker2d: two legs, to walk along x without falling.
#pragma once

#include "envs/mujoco/plane_walker.h"

namespace envfleet {

struct Walker2dParams : PlaneWalkerParams {
    Walker2dParams() {
        healthy_z_range = {0.8, 2.0};
        healthy_angle_range = {-1.0, 1.0};
    }

    bool is_healthy(const Simulation& sim) const { return is_upright(sim); }
};

using Walker2d = PlaneWalker<Walker2dParams>;

}  // namespace envfleet
