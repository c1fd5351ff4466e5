// MountainCarContinuous: the mountain car with a throttle, and fuel that costs.
//
// Gymnasium keeps its state in single precision, except right after a reset, and lets NumPy mix
// single and double as it will. The same happens here: `drive` is compiled for both.
#pragma once

#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/numpy_math.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/classic_control/reset_bounds.h"

namespace envfleet {

struct MountainCarContinuous {
    struct Params {
        double min_action = -1.0;
        double max_action = 1.0;
        double min_position = -1.2;
        double max_position = 0.6;
        double max_speed = 0.07;
        double goal_position = 0.45;
        double goal_velocity = 0.0;
        double power = 0.0015;
    };
    struct State {
        std::array<double, 2> state;  // position, velocity
        bool just_reset;
    };
    using Action = const float*;
    static size_t action_size(const Params&) { return 1; }
    using ResetOptions = ResetBounds<-0.6, -0.4>;

    static void reset(State& s, Rng& rng, const Params&, const ResetOptions& bounds) {
        s.state = {rng.uniform(bounds.low, bounds.high), 0.0};
        s.just_reset = true;
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const bool arrives =
            s.just_reset ? drive<double>(s.state, p, *action) : drive<float>(s.state, p, *action);
        s.just_reset = false;
        return {(arrives ? 100.0 : 0.0) - squared(double{*action}) * 0.1, arrives};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {2 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        float* observation = out.leaf<float>(0);
        for (size_t i = 0; i < 2; ++i) observation[i] = static_cast<float>(s.state[i]);
    }

    static auto parameters() {
        return std::tuple(
            field("min_action", &Params::min_action), field("max_action", &Params::max_action),
            field("min_position", &Params::min_position),
            field("max_position", &Params::max_position), field("max_speed", &Params::max_speed),
            field("goal_position", &Params::goal_position),
            field("goal_velocity", &Params::goal_velocity), field("power", &Params::power));
    }
    static auto variables() { return std::tuple(field("state", &State::state)); }
    static auto saved() {
        return std::tuple(field("state", &State::state), field("just_reset", &State::just_reset));
    }
    static void check(const State& s, const Params&) { check_finite("state", s.state); }

  private:
    template <class Real>
    static bool drive(std::array<double, 2>& state, const Params& p, float action) {
        auto position = static_cast<Real>(state[0]);
        auto velocity = static_cast<Real>(state[1]);
        const double pull = 0.0025 * std::cos(static_cast<double>(Real{3} * position));
        velocity += static_cast<Real>(acceleration(action, p, pull));
        const auto max_speed = static_cast<Real>(p.max_speed);
        if (velocity > max_speed) velocity = max_speed;
        if (velocity < -max_speed) velocity = -max_speed;
        position += velocity;
        const auto left = static_cast<Real>(p.min_position);
        const auto right = static_cast<Real>(p.max_position);
        if (position > right) position = right;
        if (position < left) position = left;
        if (position == left && velocity < 0) velocity = 0;
        state = {static_cast<float>(position), static_cast<float>(velocity)};
        return position >= static_cast<Real>(p.goal_position) &&
               velocity >= static_cast<Real>(p.goal_velocity);
    }

    // An action within the bounds is a NumPy number of single precision and makes all it meets so;
    // one beyond them is replaced by a bound, a Python number.
    static double acceleration(float action, const Params& p, double pull) {
        if (action < static_cast<float>(p.min_action)) return p.min_action * p.power - pull;
        if (action > static_cast<float>(p.max_action)) return p.max_action * p.power - pull;
        return action * static_cast<float>(p.power) - static_cast<float>(pull);
    }
};

}  // namespace envfleet
