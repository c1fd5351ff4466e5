// Pendulum: swing it up and keep it there with a torque too weak to lift it straight.
// In Gymnasium's order of operations; the torque is in single precision, all else in double.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/numpy_math.h"
#include "engine/random.h"
#include "engine/rows.h"

namespace envfleet {

struct Pendulum {
    struct Params {
        double max_speed = 8.0;
        double max_torque = 2.0;
        double dt = 0.05;
        double g = 10.0;
        double m = 1.0;
        double l = 1.0;
    };
    struct State {
        std::array<double, 2> state;  // angle from upright, its velocity
        std::optional<double> last_u;
    };
    using Action = const float*;
    static size_t action_size(const Params&) { return 1; }

    // How far from upright and how fast it may start.
    struct ResetOptions {
        double x_init = std::numbers::pi;
        double y_init = 1.0;

        static auto fields() {
            return std::tuple(field("x_init", &ResetOptions::x_init),
                              field("y_init", &ResetOptions::y_init));
        }
        void check() const {
            if (!std::isfinite(2 * x_init) || !std::isfinite(2 * y_init)) {
                throw std::invalid_argument("reset options x_init and y_init must be finite.");
            }
        }
    };

    static void reset(State& s, Rng& rng, const Params&, const ResetOptions& most) {
        s.state[0] = rng.uniform(-most.x_init, most.x_init);
        s.state[1] = rng.uniform(-most.y_init, most.y_init);
        s.last_u.reset();
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const auto [angle, speed] = s.state;
        const auto most = static_cast<float>(p.max_torque);
        const float u = std::min(std::max(*action, -most), most);
        s.last_u = u;
        const double cost = squared(normalised(angle)) + 0.1 * squared(speed) + 0.001f * squared(u);
        const double gravity = 3 * p.g / (2 * p.l) * numpy_math.sin(angle);
        const float drive = static_cast<float>(3.0 / (p.m * squared(p.l))) * u;
        double next = speed + (gravity + drive) * p.dt;
        next = std::min(std::max(next, -p.max_speed), p.max_speed);
        s.state = {angle + next * p.dt, next};
        return {-cost};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {3 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        float* observation = out.leaf<float>(0);
        observation[0] = static_cast<float>(numpy_math.cos(s.state[0]));
        observation[1] = static_cast<float>(numpy_math.sin(s.state[0]));
        observation[2] = static_cast<float>(s.state[1]);
    }

    static auto parameters() {
        return std::tuple(field("max_speed", &Params::max_speed),
                          field("max_torque", &Params::max_torque), field("dt", &Params::dt),
                          field("g", &Params::g), field("m", &Params::m), field("l", &Params::l));
    }
    static auto variables() {
        return std::tuple(field("state", &State::state), field("last_u", &State::last_u));
    }
    static auto saved() { return variables(); }
    static void check(const State& s, const Params&) {
        check_finite("state", s.state);
        if (s.last_u) check_finite("last_u", *s.last_u);
    }

  private:
    // Into [-pi, pi), by Python's remainder, which has the sign of the divisor.
    static double normalised(double angle) {
        constexpr double turn = 2 * std::numbers::pi;
        double rest = std::fmod(angle + std::numbers::pi, turn);
        if (rest < 0) rest += turn;
        return rest - std::numbers::pi;
    }
};

}  // namespace envfleet
