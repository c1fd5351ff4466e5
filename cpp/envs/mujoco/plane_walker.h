// Legs in a plane, to move along x without falling: what Hopper and Walker2d share.
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

struct PlaneWalkerParams : MujocoParams {
    double forward_reward_weight = 1;
    double ctrl_cost_weight = 1e-3;
    PythonNumber healthy_reward{1, false};
    bool terminate_when_unhealthy = true;
    std::array<double, 2> healthy_z_range = {};
    std::array<double, 2> healthy_angle_range = {};
    double reset_noise_scale = 5e-3;
    bool exclude_current_positions = true;

    void prepare() const {
        require(simulation.qpos.size() >= 3, "a model with at least three positions");
    }

    bool is_upright(const Simulation& sim) const {
        return healthy_z_range[0] < sim.qpos[1] && sim.qpos[1] < healthy_z_range[1] &&
               healthy_angle_range[0] < sim.qpos[2] && sim.qpos[2] < healthy_angle_range[1];
    }

    template <class... More>
    static auto parameters(More... more) {
        using Self = PlaneWalkerParams;
        return MujocoParams::parameters(
            field("_forward_reward_weight", &Self::forward_reward_weight),
            field("_ctrl_cost_weight", &Self::ctrl_cost_weight),
            field("_healthy_reward", &Self::healthy_reward),
            field("_terminate_when_unhealthy", &Self::terminate_when_unhealthy),
            field("_healthy_z_range", &Self::healthy_z_range),
            field("_healthy_angle_range", &Self::healthy_angle_range),
            field("_reset_noise_scale", &Self::reset_noise_scale), more...);
    }
    static auto constants() {
        using Self = PlaneWalkerParams;
        return MujocoParams::constants(
            field("_exclude_current_positions_from_observation", &Self::exclude_current_positions));
    }
};

struct PlaneWalkerStep {
    double x_velocity, forward, survive;
    float control;
};

// `Params_` are PlaneWalkerParams that say who is healthy.
template <class Params_>
struct PlaneWalker : MujocoEnv<PlaneWalkerStep> {
    using Params = Params_;

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::uniform, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        const double x = sim.qpos[0];
        sim.advance(action, p.frame_skip);
        const bool healthy = p.is_healthy(sim);
        LastStep& last = s.last;
        last.x_velocity = (sim.qpos[0] - x) / p.dt();
        last.forward = p.forward_reward_weight * last.x_velocity;
        last.survive = healthy * p.healthy_reward.value;
        last.control = control_cost(p.ctrl_cost_weight, action, sim.ctrl.size());
        const double reward = (last.forward + last.survive) - last.control;
        return {reward, !healthy && p.terminate_when_unhealthy};
    }

    static std::vector<size_t> observation_bytes(const Params& p) {
        const Simulation& sim = p.simulation;
        const size_t state = sim.qpos.size() + sim.qvel.size() - p.exclude_current_positions;
        return {state * sizeof(double)};
    }
    static void observe(const State& s, const Params& p, const Row& out) {
        Writer observation(out.leaf<double>(0));
        observation.put(s.simulation.qpos.subspan(p.exclude_current_positions));
        observation.put_clipped(s.simulation.qvel, -10, 10);
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{"x_position", "float64"},
                {"z_distance_from_origin", "float64"},
                {"x_velocity", "float64", {}, true, false},
                {"reward_forward", "float64", {}, true, false},
                {"reward_ctrl", "float32", {}, true, false},
                survival(),
                survival_mark()};
    }
    static void inform(const State& s, const Params& p, const Row& out) {
        *out.leaf<double>(0) = s.simulation.qpos[0];
        *out.leaf<double>(1) = s.simulation.qpos[1] - p.init_qpos[1];
        *out.leaf<double>(2) = s.last.x_velocity;
        *out.leaf<double>(3) = s.last.forward;
        *out.leaf<float>(4) = -s.last.control;
        write_survival(out, 5, s.last.survive, p.healthy_reward.is_integer);
    }

    static auto parameters() { return Params::parameters(); }
    static auto constants() { return Params::constants(); }
};

}  // namespace envfleet
