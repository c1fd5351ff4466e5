// Pusher: an arm of seven joints, to push a cylinder to a goal.
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

struct PusherStep {
    double near, distance;
    float control;
};

struct Pusher : MujocoEnv<PusherStep> {
    struct Params : MujocoParams {
        double reward_near_weight = 0.5;
        double reward_dist_weight = 1;
        double reward_control_weight = 0.1;
        int64_t tips_arm = 0;
        int64_t object = 0;
        int64_t goal = 0;

        void prepare() const {
            const bool fits = simulation.qpos.size() >= 7 && simulation.qvel.size() >= 7;
            require(fits, "a model of at least seven joints");
        }
    };

    static void reset(State& s, Rng& rng, const Params& p) {
        const Simulation& sim = s.simulation;
        sim.clear();
        if (p.init_qpos.size() != sim.qpos.size()) {
            throw std::invalid_argument("init_qpos must be of the model's size.");
        }
        std::copy(p.init_qpos.begin(), p.init_qpos.end(), sim.qpos.begin());
        std::array<double, 2> cylinder;
        do {
            cylinder[0] = rng.uniform(-0.3, 0);
            cylinder[1] = rng.uniform(-0.2, 0.2);
        } while (!(norm(cylinder.data(), 2) > 0.17));
        const auto places = sim.qpos.last(4);  // of the cylinder, and of the goal
        std::copy(cylinder.begin(), cylinder.end(), places.begin());
        std::fill_n(places.begin() + 2, 2, 0.0);
        disturb(sim.qvel, p.init_qvel, Noise::uniform, 0.005, rng);
        std::fill_n(sim.qvel.last(4).begin(), 4, 0.0);
        sim.settle();
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        sim.advance(action, p.frame_skip);
        const double* object = sim.body(p.object);
        const auto to_tip = difference(object, sim.body(p.tips_arm));
        const auto to_goal = difference(object, sim.body(p.goal));
        LastStep& last = s.last;
        last.near = -norm(to_tip.data(), 3) * p.reward_near_weight;
        last.distance = -norm(to_goal.data(), 3) * p.reward_dist_weight;
        last.control =
            -sum_of_squares(action, sim.ctrl.size()) * static_cast<float>(p.reward_control_weight);
        return {last.distance + last.control + last.near};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {23 * sizeof(double)}; }
    static void observe(const State& s, const Params& p, const Row& out) {
        const Simulation& sim = s.simulation;
        Writer observation(out.leaf<double>(0));
        observation.put(sim.qpos.first(7));
        observation.put(sim.qvel.first(7));
        for (const int64_t body : {p.tips_arm, p.object, p.goal}) {
            observation.put({sim.body(body), 3});
        }
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{"reward_dist", "float64", {}, true, false},
                {"reward_ctrl", "float32", {}, true, false},
                {"reward_near", "float64", {}, true, false}};
    }
    static void inform(const State& s, const Params&, const Row& out) {
        *out.leaf<double>(0) = s.last.distance;
        *out.leaf<float>(1) = s.last.control;
        *out.leaf<double>(2) = s.last.near;
    }

    static auto parameters() {
        return MujocoParams::parameters(
            field("_reward_near_weight", &Params::reward_near_weight),
            field("_reward_dist_weight", &Params::reward_dist_weight),
            field("_reward_control_weight", &Params::reward_control_weight));
    }
    static auto constants() {
        return MujocoParams::constants(field("tips_arm", &Params::tips_arm),
                                       field("object", &Params::object),
                                       field("goal", &Params::goal));
    }
};

}  // namespace envfleet
