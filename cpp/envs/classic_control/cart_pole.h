// CartPole: keep a pole upright on a cart by pushing the cart left or right.
// Barto, Sutton and Anderson (1983); equations by Florian (2007), in Gymnasium's order of
// operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string>
#include <tuple>
#include <vector>

#include "engine/fields.h"
#include "engine/numpy_math.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/classic_control/reset_bounds.h"

namespace envfleet {

struct CartPole {
    struct Params {
        double gravity = 9.8;
        double masscart = 1.0;
        double masspole = 0.1;
        double total_mass = 0.1 + 1.0;
        double length = 0.5;  // half the pole's
        double polemass_length = 0.1 * 0.5;
        double force_mag = 10.0;
        double tau = 0.02;  // seconds a step
        std::string kinematics_integrator = "euler";
        double theta_threshold_radians = 12 * 2 * std::numbers::pi / 360;
        double x_threshold = 2.4;
        bool sutton_barto_reward = false;
    };
    struct State {
        std::array<double, 4> state;  // x, its velocity, the pole's angle theta, its velocity
        bool fallen;
    };
    using Action = int64_t;
    static constexpr int64_t num_actions = 2;
    using ResetOptions = ResetBounds<-0.05, 0.05>;

    static void reset(State& s, Rng& rng, const Params&, const ResetOptions& bounds) {
        for (double& value : s.state) value = rng.uniform(bounds.low, bounds.high);
        s.fallen = false;
    }

    static Outcome step(State& s, Rng&, const Params& p, int64_t action) {
        const double sin = numpy_math.sin(s.state[2]), cos = numpy_math.cos(s.state[2]);
        move(s.state, p, action, sin, cos, p.kinematics_integrator == "euler");
        const bool falls = is_out(s.state, p);
        const double reward = reward_of(falls, s.fallen, p);
        s.fallen |= falls;
        return {reward, falls};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {4 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        float* observation = out.leaf<float>(0);
        for (size_t i = 0; i < 4; ++i) observation[i] = static_cast<float>(s.state[i]);
    }

    // The same for many at once: sines and cosines in one go, and no branches.
    static void step_block(State* states, const Params& p, const int64_t* actions, size_t count,
                           double* rewards, uint8_t* terminated, float* observations) {
        constexpr size_t most = 64;
        double theta[most], sin[most], cos[most];
        for (size_t i = 0; i < count; ++i) theta[i] = states[i].state[2];
        numpy_math.sin(theta, sin, count);
        numpy_math.cos(theta, cos, count);
        const bool euler = p.kinematics_integrator == "euler";
        for (size_t i = 0; i < count; ++i) {
            State& s = states[i];
            move(s.state, p, actions[i], sin[i], cos[i], euler);
            const bool falls = is_out(s.state, p);
            rewards[i] = reward_of(falls, s.fallen, p);
            s.fallen |= falls;
            terminated[i] = falls;
            for (size_t j = 0; j < 4; ++j) {
                observations[4 * i + j] = static_cast<float>(s.state[j]);
            }
        }
    }

    static auto parameters() {
        return std::tuple(
            field("gravity", &Params::gravity), field("masscart", &Params::masscart),
            field("masspole", &Params::masspole), field("total_mass", &Params::total_mass),
            field("length", &Params::length), field("polemass_length", &Params::polemass_length),
            field("force_mag", &Params::force_mag), field("tau", &Params::tau),
            field("kinematics_integrator", &Params::kinematics_integrator),
            field("theta_threshold_radians", &Params::theta_threshold_radians),
            field("x_threshold", &Params::x_threshold),
            field("_sutton_barto_reward", &Params::sutton_barto_reward));
    }
    static auto variables() { return std::tuple(field("state", &State::state)); }

  private:
    static void move(std::array<double, 4>& state, const Params& p, int64_t action, double sin,
                     double cos, bool euler) {
        auto [x, x_dot, theta, theta_dot] = state;
        const double force = action == 1 ? p.force_mag : -p.force_mag;
        const double temp =
            (force + p.polemass_length * (theta_dot * theta_dot) * sin) / p.total_mass;
        const double theta_acc = (p.gravity * sin - cos * temp) /
                                 (p.length * (4.0 / 3.0 - p.masspole * (cos * cos) / p.total_mass));
        const double x_acc = temp - p.polemass_length * theta_acc * cos / p.total_mass;
        const double x_dot_next = x_dot + p.tau * x_acc;
        const double theta_dot_next = theta_dot + p.tau * theta_acc;
        // Euler's method moves with the old velocities, the semi-implicit one with the new.
        x = x + p.tau * (euler ? x_dot : x_dot_next);
        theta = theta + p.tau * (euler ? theta_dot : theta_dot_next);
        state = {x, x_dot_next, theta, theta_dot_next};
    }

    static bool is_out(const std::array<double, 4>& state, const Params& p) {
        const double x = state[0], theta = state[2];
        return (x < -p.x_threshold) | (x > p.x_threshold) | (theta < -p.theta_threshold_radians) |
               (theta > p.theta_threshold_radians);
    }

    static double reward_of(bool falls, bool fallen, const Params& p) {
        if (p.sutton_barto_reward) return falls ? -1.0 : 0.0;
        return falls & fallen ? 0.0 : 1.0;
    }
};

}  // namespace envfleet
