// HumanoidStandup: the humanoid on its back, to get up.
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

struct HumanoidStandupStep {
    double up, control, impact;
};

struct HumanoidStandup : MujocoEnv<HumanoidStandupStep> {
    struct Params : HumanoidParams {
        double uph_cost_weight = 1;  // which Gymnasium takes and does not use
        double ctrl_cost_weight = 0.1;
        double impact_cost_weight = 5e-7;
        std::array<double, 2> impact_cost_range = {-std::numeric_limits<double>::infinity(), 10.0};
        double reset_noise_scale = 0.01;
    };

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::uniform, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        sim.advance(action, p.frame_skip);
        sim.find_forces();
        LastStep& last = s.last;
        last.up = sim.qpos[2] / p.timestep;
        last.control = p.ctrl_cost_weight * sum_of_squares(sim.ctrl.data(), sim.ctrl.size());
        const auto [low, high] = p.impact_cost_range;
        const double forces = sum_of_squares(sim.cfrc_ext.data(), sim.cfrc_ext.size());
        last.impact = clip(p.impact_cost_weight * forces, low, high);
        return {last.up - last.control - last.impact + 1};
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
                {"z_distance_from_origin", "float64"},
                {"tendon_length", "float64", {tendons}},
                {"tendon_velocity", "float64", {tendons}},
                {"reward_linup", "float64", {}, true, false},
                {"reward_quadctrl", "float64", {}, true, false},
                {"reward_impact", "float64", {}, true, false}};
    }
    static void inform(const State& s, const Params& p, const Row& out) {
        const Simulation& sim = s.simulation;
        *out.leaf<double>(0) = sim.qpos[0];
        *out.leaf<double>(1) = sim.qpos[1];
        *out.leaf<double>(2) = sim.qpos[2] - p.init_qpos[2];
        Writer(out.leaf<double>(3)).put(sim.ten_length);
        Writer(out.leaf<double>(4)).put(sim.ten_velocity);
        *out.leaf<double>(5) = s.last.up;
        *out.leaf<double>(6) = -s.last.control;
        *out.leaf<double>(7) = -s.last.impact;
    }

    static auto parameters() {
        return MujocoParams::parameters(field("_uph_cost_weight", &Params::uph_cost_weight),
                                        field("_ctrl_cost_weight", &Params::ctrl_cost_weight),
                                        field("_impact_cost_weight", &Params::impact_cost_weight),
                                        field("_impact_cost_range", &Params::impact_cost_range),
                                        field("_reset_noise_scale", &Params::reset_noise_scale));
    }
    static auto constants() { return HumanoidParams::constants(); }
};

}  // namespace envfleet
