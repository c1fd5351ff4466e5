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
#include <type_traits>
#include <vector>

#include "engine/checks.h"
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
        double tau = 0.02;  // seconds per step
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
        auto [x, x_dot, theta, theta_dot] = s.state;
        move(x, x_dot, theta, theta_dot, p, push(action, p), sin, cos, uses_euler(p));
        s.state = {x, x_dot, theta, theta_dot};
        const bool falls = is_out(x, theta, p);
        const double reward = reward_of(falls, s.fallen, p);
        s.fallen |= falls;
        return {reward, falls};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {4 * sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        float* observation = out.leaf<float>(0);
        for (size_t i = 0; i < 4; ++i) observation[i] = static_cast<float>(s.state[i]);
    }

    static constexpr size_t block_rows = 64;

    // The same for many at once: each quantity in an array of its own, so that one instruction
    // moves several carts.
    static void step_block(State* states, const Params& params, const int64_t* actions,
                           size_t count, double* rewards, uint8_t* terminated,
                           float* observations) {
        double x[block_rows], x_dot[block_rows], theta[block_rows], theta_dot[block_rows];
        double sin[block_rows], cos[block_rows], force[block_rows];
        const Params p = params;  // a copy that no store can change
        for (size_t i = 0; i < count; ++i) {
            const auto& state = states[i].state;
            x[i] = state[0], x_dot[i] = state[1], theta[i] = state[2], theta_dot[i] = state[3];
            force[i] = push(actions[i], p);
        }
        numpy_math.sin(theta, sin, count);
        numpy_math.cos(theta, cos, count);
        const auto move_all = [&](auto euler) {
            for (size_t i = 0; i < count; ++i) {
                move(x[i], x_dot[i], theta[i], theta_dot[i], p, force[i], sin[i], cos[i], euler);
            }
        };
        uses_euler(p) ? move_all(std::true_type{}) : move_all(std::false_type{});
        for (size_t i = 0; i < count; ++i) {
            State& s = states[i];
            const bool falls = is_out(x[i], theta[i], p);
            rewards[i] = reward_of(falls, s.fallen, p);
            terminated[i] = falls;
            s = {{x[i], x_dot[i], theta[i], theta_dot[i]}, s.fallen || falls};
            float* observation = observations + 4 * i;
            for (size_t j = 0; j < 4; ++j) observation[j] = static_cast<float>(s.state[j]);
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
    static auto saved() {
        return std::tuple(field("state", &State::state), field("fallen", &State::fallen));
    }
    static void check(const State& s, const Params&) { check_finite("state", s.state); }

  private:
    static double push(int64_t action, const Params& p) {
        return action == 1 ? p.force_mag : -p.force_mag;
    }

    static bool uses_euler(const Params& p) { return p.kinematics_integrator == "euler"; }

    static void move(double& x, double& x_dot, double& theta, double& theta_dot, const Params& p,
                     double force, double sin, double cos, bool euler) {
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
        x_dot = x_dot_next;
        theta_dot = theta_dot_next;
    }

    static bool is_out(double x, double theta, const Params& p) {
        return (x < -p.x_threshold) | (x > p.x_threshold) | (theta < -p.theta_threshold_radians) |
               (theta > p.theta_threshold_radians);
    }

    static double reward_of(bool falls, bool fallen, const Params& p) {
        if (p.sutton_barto_reward) return falls ? -1.0 : 0.0;
        return falls & fallen ? 0.0 : 1.0;
    }
};

}  // namespace envfleet
