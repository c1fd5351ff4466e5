// MountainCar: an engine too weak for the hill; swing back and forth to get out of the valley.
// Moore (1990), in Gymnasium's order of operations.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/classic_control/reset_bounds.h"

namespace envfleet {

struct MountainCar {
    struct Params {
        double min_position = -1.2;
        double max_position = 0.6;
        double max_speed = 0.07;
        double goal_position = 0.5;
        double goal_velocity = 0.0;
        double force = 0.001;
        double gravity = 0.0025;
    };
    struct State {
        std::array<double, 2> state;  // position, velocity
    };
    using Action = int64_t;  // accelerate to the left, not at all, to the right
    static constexpr int64_t num_actions = 3;
    using ResetOptions = ResetBounds<-0.6, -0.4>;

    static void reset(State& s, Rng& rng, const Params&, const ResetOptions& bounds) {
        s.state = {rng.uniform(bounds.low, bounds.high), 0.0};
    }

    static Outcome step(State& s, Rng&, const Params& p, int64_t action) {
        auto [position, velocity] = s.state;
        velocity += static_cast<double>(action - 1) * p.force + std::cos(3 * position) * -p.gravity;
        velocity = std::min(std::max(velocity, -p.max_speed), p.max_speed);
        position += velocity;
        position = std::min(std::max(position, p.min_position), p.max_position);
        if (position == p.min_position && velocity < 0) velocity = 0.0;
        s.state = {position, velocity};
        return {-1.0, position >= p.goal_position && velocity >= p.goal_velocity};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {2 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        float* observation = out.leaf<float>(0);
        for (size_t i = 0; i < 2; ++i) observation[i] = static_cast<float>(s.state[i]);
    }

    static auto parameters() {
        return std::tuple(field("min_position", &Params::min_position),
                          field("max_position", &Params::max_position),
                          field("max_speed", &Params::max_speed),
                          field("goal_position", &Params::goal_position),
                          field("goal_velocity", &Params::goal_velocity),
                          field("force", &Params::force), field("gravity", &Params::gravity));
    }
    static auto variables() { return std::tuple(field("state", &State::state)); }
    static auto saved() { return variables(); }
    static void check(const State& s, const Params&) { check_finite("state", s.state); }
};

}  // namespace envfleet
