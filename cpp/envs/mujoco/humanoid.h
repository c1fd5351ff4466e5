// Humanoid: two legs, two arms, to walk along x without falling.
#pragma once

#include <array>
#include <limits>
#include <tuple>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/mujoco/arithmetic.h"
#include "envs/mujoco/humanoid_observation.h"
#include "envs/mujoco/simulation.h"

namespace envfleet {

struct HumanoidStep {
    double x_velocity, y_velocity, forward, survive, control, contact;
};

struct Humanoid : MujocoEnv<HumanoidStep> {
    struct Params : HumanoidParams {
        double forward_reward_weight = 1.25;
        double ctrl_cost_weight = 0.1;
        double contact_cost_weight = 5e-7;
        std::array<double, 2> contact_cost_range = {-std::numeric_limits<double>::infinity(), 10.0};
        PythonNumber healthy_reward{5, false};
        bool terminate_when_unhealthy = true;
        std::array<double, 2> healthy_z_range = {1.0, 2.0};
        double reset_noise_scale = 0.01;
        std::vector<double> body_mass;

        void prepare() const {
            HumanoidParams::prepare();
            require(body_mass.size() == simulation.num_bodies(), "a mass for every body");
        }
    };

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::uniform, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        const auto before = mass_center(sim, p.body_mass);
        sim.advance(action, p.frame_skip);
        sim.find_forces();
        const auto after = mass_center(sim, p.body_mass);
        const bool healthy =
            p.healthy_z_range[0] < sim.qpos[2] && sim.qpos[2] < p.healthy_z_range[1];
        LastStep& last = s.last;
        last.x_velocity = (after[0] - before[0]) / p.dt();
        last.y_velocity = (after[1] - before[1]) / p.dt();
        last.forward = p.forward_reward_weight * last.x_velocity;
        last.survive = healthy * p.healthy_reward.value;
        last.control = p.ctrl_cost_weight * sum_of_squares(sim.ctrl.data(), sim.ctrl.size());
        const auto [low, high] = p.contact_cost_range;
        const double forces = sum_of_squares(sim.cfrc_ext.data(), sim.cfrc_ext.size());
        last.contact = clip(p.contact_cost_weight * forces, low, high);
        const double reward = (last.forward + last.survive) - (last.control + last.contact);
        return {reward, !healthy && p.terminate_when_unhealthy};
    }

    static std::vector<size_t> observation_bytes(const Params& p) {
        return {p.observation_size() * sizeof(double)};
    }
    static void observe(const State& s, const Params& p, const Row& out) {
        p.observe(s.simulation, out.leaf<double>(0));
    }

    static std::vector<InfoColumn> infos(const Params& p) {
        const size_t tendons = p.simulation.ten_length.size();
        return {{"x_position", "float64"},
                {"y_position", "float64"},
                {"tendon_length", "float64", {tendons}},
                {"tendon_velocity", "float64", {tendons}},
                {"distance_from_origin", "float64"},
                {"x_velocity", "float64", {}, true, false},
                {"y_velocity", "float64", {}, true, false},
                survival(),
                survival_mark(),
                {"reward_forward", "float64", {}, true, false},
                {"reward_ctrl", "float64", {}, true, false},
                {"reward_contact", "float64", {}, true, false}};
    }
    static void inform(const State& s, const Params& p, const Row& out) {
        const Simulation& sim = s.simulation;
        *out.leaf<double>(0) = sim.qpos[0];
        *out.leaf<double>(1) = sim.qpos[1];
        Writer(out.leaf<double>(2)).put(sim.ten_length);
        Writer(out.leaf<double>(3)).put(sim.ten_velocity);
        *out.leaf<double>(4) = norm(sim.qpos.data(), 2);
        *out.leaf<double>(5) = s.last.x_velocity;
        *out.leaf<double>(6) = s.last.y_velocity;
        write_survival(out, 7, s.last.survive, p.healthy_reward.is_integer);
        *out.leaf<double>(9) = s.last.forward;
        *out.leaf<double>(10) = -s.last.control;
        *out.leaf<double>(11) = -s.last.contact;
    }

    // Of the bodies' centres, weighed by their masses: x and y.
    static std::array<double, 2> mass_center(const Simulation& sim,
                                             const std::vector<double>& masses) {
        std::array<double, 2> center{};
        for (size_t body = 0; body < masses.size(); ++body) {
            for (size_t axis = 0; axis < 2; ++axis) {
                center[axis] += masses[body] * sim.xipos[3 * body + axis];
            }
        }
        const double whole =
            numpy_sum<double>([&](size_t i) { return masses[i]; }, 0, masses.size());
        return {center[0] / whole, center[1] / whole};
    }

    static auto parameters() {
        return MujocoParams::parameters(
            field("_forward_reward_weight", &Params::forward_reward_weight),
            field("_ctrl_cost_weight", &Params::ctrl_cost_weight),
            field("_contact_cost_weight", &Params::contact_cost_weight),
            field("_contact_cost_range", &Params::contact_cost_range),
            field("_healthy_reward", &Params::healthy_reward),
            field("_terminate_when_unhealthy", &Params::terminate_when_unhealthy),
            field("_healthy_z_range", &Params::healthy_z_range),
            field("_reset_noise_scale", &Params::reset_noise_scale));
    }
    static auto constants() {
        return HumanoidParams::constants(field("body_mass", &Params::body_mass));
    }
};

}  // namespace envfleet
