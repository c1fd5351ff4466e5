// HalfCheetah: two legs and a long back, to run along x.
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

struct HalfCheetahStep {
    double x_velocity, forward;
    float control;
};

struct HalfCheetah : MujocoEnv<HalfCheetahStep> {
    struct Params : MujocoParams {
        double forward_reward_weight = 1;
        double ctrl_cost_weight = 0.1;
        double reset_noise_scale = 0.1;
        bool exclude_current_positions = true;

        void prepare() const { require(!simulation.qpos.empty(), "a model that has a position"); }
    };

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::normal, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        const double x = sim.qpos[0];
        sim.advance(action, p.frame_skip);
        LastStep& last = s.last;
        last.x_velocity = (sim.qpos[0] - x) / p.dt();
        last.forward = p.forward_reward_weight * last.x_velocity;
        last.control = control_cost(p.ctrl_cost_weight, action, sim.ctrl.size());
        return {last.forward - last.control};
    }

    static std::vector<size_t> observation_bytes(const Params& p) {
        const Simulation& sim = p.simulation;
        const size_t state = sim.qpos.size() + sim.qvel.size() - p.exclude_current_positions;
        return {state * sizeof(double)};
    }
    static void observe(const State& s, const Params& p, const Row& out) {
        Writer observation(out.leaf<double>(0));
        observation.put(s.simulation.qpos.subspan(p.exclude_current_positions));
        observation.put(s.simulation.qvel);
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{"x_position", "float64"},
                {"x_velocity", "float64", {}, true, false},
                {"reward_forward", "float64", {}, true, false},
                {"reward_ctrl", "float32", {}, true, false}};
    }
    static void inform(const State& s, const Params&, const Row& out) {
        *out.leaf<double>(0) = s.simulation.qpos[0];
        *out.leaf<double>(1) = s.last.x_velocity;
        *out.leaf<double>(2) = s.last.forward;
        *out.leaf<float>(3) = -s.last.control;
    }

    static auto parameters() {
        return MujocoParams::parameters(
            field("_forward_reward_weight", &Params::forward_reward_weight),
            field("_ctrl_cost_weight", &Params::ctrl_cost_weight),
            field("_reset_noise_scale", &Params::reset_noise_scale));
    }
    static auto constants() {
        return MujocoParams::constants(field("_exclude_current_positions_from_observation",
                                             &Params::exclude_current_positions));
    }
};

}  // namespace envfleet
