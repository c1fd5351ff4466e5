// Reacher: an arm of two links, to touch a target with its tip.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "envs/mujoco/arithmetic.h"
#include "envs/mujoco/simulation.h"

namespace envfleet {

struct ReacherStep {
    double distance;
    float control;
};

struct Reacher : MujocoEnv<ReacherStep> {
    struct Params : MujocoParams {
        double reward_dist_weight = 1;
        double reward_control_weight = 1;
        int64_t fingertip = 0;
        int64_t target = 0;

        void prepare() const {
            const bool fits = simulation.qpos.size() == 4 && simulation.qvel.size() >= 2;
            require(fits, "a model of two joints and a target with two");
        }
    };

    static void reset(State& s, Rng& rng, const Params& p) {
        const Simulation& sim = s.simulation;
        sim.clear();
        disturb(sim.qpos, p.init_qpos, Noise::uniform, 0.1, rng);
        std::array<double, 2> goal;
        do {
            for (double& coordinate : goal) coordinate = rng.uniform(-0.2, 0.2);
        } while (!(norm(goal.data(), 2) < 0.2));
        std::copy(goal.begin(), goal.end(), sim.qpos.last(2).begin());
        disturb(sim.qvel, p.init_qvel, Noise::uniform, 0.005, rng);
        std::fill_n(sim.qvel.last(2).begin(), 2, 0.0);
        sim.settle();
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        sim.advance(action, p.frame_skip);
        const auto apart = difference(sim.body(p.fingertip), sim.body(p.target));
        s.last.distance = -norm(apart.data(), 3) * p.reward_dist_weight;
        s.last.control =
            -sum_of_squares(action, sim.ctrl.size()) * static_cast<float>(p.reward_control_weight);
        return {s.last.distance + s.last.control};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {10 * sizeof(double)}; }
    static void observe(const State& s, const Params& p, const Row& out) {
        const Simulation& sim = s.simulation;
        double* observation = out.leaf<double>(0);
        numpy_math.cos(sim.qpos.data(), observation, 2);
        numpy_math.sin(sim.qpos.data(), observation + 2, 2);
        Writer rest(observation + 4);
        rest.put(sim.qpos.subspan(2));
        rest.put(sim.qvel.first(2));
        const auto apart = difference(sim.body(p.fingertip), sim.body(p.target));
        rest.put(std::span(apart).first(2));
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{"reward_dist", "float64", {}, true, false},
                {"reward_ctrl", "float32", {}, true, false}};
    }
    static void inform(const State& s, const Params&, const Row& out) {
        *out.leaf<double>(0) = s.last.distance;
        *out.leaf<float>(1) = s.last.control;
    }

    static auto parameters() {
        return MujocoParams::parameters(
            field("_reward_dist_weight", &Params::reward_dist_weight),
            field("_reward_control_weight", &Params::reward_control_weight));
    }
    static auto constants() {
        return MujocoParams::constants(field("fingertip", &Params::fingertip),
                                       field("target", &Params::target));
    }
};

}  // namespace envfleet
