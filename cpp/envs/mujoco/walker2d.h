// Walker2d: two legs in a plane, to walk along x without falling.
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

struct Walker2d {
    struct Params : MujocoParams {
        double forward_reward_weight = 1;
        double ctrl_cost_weight = 1e-3;
        double healthy_reward = 1;
        bool terminate_when_unhealthy = true;
        std::array<double, 2> healthy_z_range = {0.8, 2.0};
        std::array<double, 2> healthy_angle_range = {-1.0, 1.0};
        double reset_noise_scale = 5e-3;
        bool exclude_current_positions = true;
        bool whole_healthy_reward = false;

        void prepare() const {
            require(simulation.qpos.size() >= 3, "a model with at least three positions");
        }
    };
    struct LastStep {
        double x_velocity, forward, survive;
        float control;
    };
    using State = MujocoState<LastStep>;
    using Action = const float*;
    static size_t action_size(const Params& p) { return p.simulation.ctrl.size(); }

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::uniform, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        const double x = sim.qpos[0];
        sim.advance(action, p.frame_skip);
        const bool healthy = is_healthy(sim, p);
        LastStep& last = s.last;
        last.x_velocity = (sim.qpos[0] - x) / p.dt();
        last.forward = p.forward_reward_weight * last.x_velocity;
        last.survive = healthy * p.healthy_reward;
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

    static std::vector<InfoColumn> infos(const Params& p) {
        return {{"x_position", "float64"},
                {"z_distance_from_origin", "float64"},
                {"x_velocity", "float64", {}, true, false},
                {"reward_forward", "float64", {}, true, false},
                {"reward_ctrl", "float32", {}, true, false},
                {"reward_survive", survival_type(p.whole_healthy_reward), {}, true, false}};
    }
    static void inform(const State& s, const Params& p, const Row& out) {
        *out.leaf<double>(0) = s.simulation.qpos[0];
        *out.leaf<double>(1) = s.simulation.qpos[1] - p.init_qpos[1];
        *out.leaf<double>(2) = s.last.x_velocity;
        *out.leaf<double>(3) = s.last.forward;
        *out.leaf<float>(4) = -s.last.control;
        write_survival(out, 5, s.last.survive, p.whole_healthy_reward);
    }

    static bool is_healthy(const Simulation& sim, const Params& p) {
        return p.healthy_z_range[0] < sim.qpos[1] && sim.qpos[1] < p.healthy_z_range[1] &&
               p.healthy_angle_range[0] < sim.qpos[2] && sim.qpos[2] < p.healthy_angle_range[1];
    }

    static auto parameters() {
        return MujocoParams::parameters(
            field("_forward_reward_weight", &Params::forward_reward_weight),
            field("_ctrl_cost_weight", &Params::ctrl_cost_weight),
            field("_healthy_reward", &Params::healthy_reward),
            field("_terminate_when_unhealthy", &Params::terminate_when_unhealthy),
            field("_healthy_z_range", &Params::healthy_z_range),
            field("_healthy_angle_range", &Params::healthy_angle_range),
            field("_reset_noise_scale", &Params::reset_noise_scale));
    }
    static auto constants() {
        return MujocoParams::constants(
            field("_exclude_current_positions_from_observation",
                  &Params::exclude_current_positions),
            field("whole_healthy_reward", &Params::whole_healthy_reward));
    }

    static auto variables() { return std::tuple(); }
    static std::vector<std::byte> save(const State& s) { return save_simulation(s); }
    static void load(State& s, std::span<const std::byte> bytes) { load_simulation(s, bytes); }
};

}  // namespace envfleet
