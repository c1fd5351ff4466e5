// Ant: four legs of two joints each, to run along x.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/mujoco/arithmetic.h"
#include "envs/mujoco/simulation.h"

namespace envfleet {

struct AntStep {
    double x_velocity, y_velocity, forward, survive, contact;
    float control;
};

struct Ant : MujocoEnv<AntStep> {
    struct Params : MujocoParams {
        double forward_reward_weight = 1;
        double ctrl_cost_weight = 0.5;
        double contact_cost_weight = 5e-4;
        PythonNumber healthy_reward{1, false};
        bool terminate_when_unhealthy = true;
        std::array<double, 2> healthy_z_range = {0.2, 1.0};
        std::array<double, 2> contact_force_range = {-1.0, 1.0};
        double reset_noise_scale = 0.1;
        int64_t main_body = 1;
        bool exclude_current_positions = true;
        bool include_cfrc_ext = true;

        void prepare() const {
            const auto bodies = static_cast<int64_t>(simulation.num_bodies());
            require(simulation.qpos.size() >= 3, "a model with at least three positions");
            require(main_body >= 0 && main_body < bodies, "a main body that the model has");
        }
    };

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::normal, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        const double* place = sim.body(p.main_body);
        const double x = place[0], y = place[1];
        sim.advance(action, p.frame_skip);
        sim.find_forces();
        const bool healthy = is_healthy(sim, p);
        LastStep& last = s.last;
        last.x_velocity = (place[0] - x) / p.dt();
        last.y_velocity = (place[1] - y) / p.dt();
        last.forward = last.x_velocity * p.forward_reward_weight;
        last.survive = healthy * p.healthy_reward.value;
        last.control = control_cost(p.ctrl_cost_weight, action, sim.ctrl.size());
        last.contact = contact_cost(sim, p);
        const double reward = (last.forward + last.survive) - (last.control + last.contact);
        return {reward, !healthy && p.terminate_when_unhealthy};
    }

    static std::vector<size_t> observation_bytes(const Params& p) {
        const Simulation& sim = p.simulation;
        const size_t state = sim.qpos.size() + sim.qvel.size() - 2 * p.exclude_current_positions;
        return {(state + p.include_cfrc_ext * (sim.cfrc_ext.size() - 6)) * sizeof(double)};
    }
    static void observe(const State& s, const Params& p, const Row& out) {
        const Simulation& sim = s.simulation;
        Writer observation(out.leaf<double>(0));
        observation.put(sim.qpos.subspan(2 * p.exclude_current_positions));
        observation.put(sim.qvel);
        if (p.include_cfrc_ext) {
            const auto [low, high] = p.contact_force_range;
            observation.put_clipped(sim.cfrc_ext.subspan(6), low, high);
        }
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{"x_position", "float64"},
                {"y_position", "float64"},
                {"distance_from_origin", "float64"},
                {"x_velocity", "float64", {}, true, false},
                {"y_velocity", "float64", {}, true, false},
                {"reward_forward", "float64", {}, true, false},
                {"reward_ctrl", "float32", {}, true, false},
                {"reward_contact", "float64", {}, true, false},
                survival(),
                survival_mark()};
    }
    static void inform(const State& s, const Params& p, const Row& out) {
        const Simulation& sim = s.simulation;
        *out.leaf<double>(0) = sim.qpos[0];
        *out.leaf<double>(1) = sim.qpos[1];
        *out.leaf<double>(2) = norm(sim.qpos.data(), 2);
        *out.leaf<double>(3) = s.last.x_velocity;
        *out.leaf<double>(4) = s.last.y_velocity;
        *out.leaf<double>(5) = s.last.forward;
        *out.leaf<float>(6) = -s.last.control;
        *out.leaf<double>(7) = -s.last.contact;
        write_survival(out, 8, s.last.survive, p.healthy_reward.is_integer);
    }

    static bool is_healthy(const Simulation& sim, const Params& p) {
        const auto [low, high] = p.healthy_z_range;
        return all_finite(sim.qpos) && all_finite(sim.qvel) && low <= sim.qpos[2] &&
               sim.qpos[2] <= high;
    }
    static double contact_cost(const Simulation& sim, const Params& p) {
        const auto [low, high] = p.contact_force_range;
        auto square = [&, low = low, high = high](size_t i) {
            const double force = clip(sim.cfrc_ext[i], low, high);
            return force * force;
        };
        return p.contact_cost_weight * numpy_sum<double>(square, 0, sim.cfrc_ext.size());
    }

    static auto parameters() {
        return MujocoParams::parameters(
            field("_forward_reward_weight", &Params::forward_reward_weight),
            field("_ctrl_cost_weight", &Params::ctrl_cost_weight),
            field("_contact_cost_weight", &Params::contact_cost_weight),
            field("_healthy_reward", &Params::healthy_reward),
            field("_terminate_when_unhealthy", &Params::terminate_when_unhealthy),
            field("_healthy_z_range", &Params::healthy_z_range),
            field("_contact_force_range", &Params::contact_force_range),
            field("_reset_noise_scale", &Params::reset_noise_scale));
    }
    static auto constants() {
        return MujocoParams::constants(
            field("_main_body", &Params::main_body),
            field("_exclude_current_positions_from_observation",
                  &Params::exclude_current_positions),
            field("_include_cfrc_ext_in_observation", &Params::include_cfrc_ext));
    }
};

}  // namespace envfleet
