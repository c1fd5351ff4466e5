// InvertedDoublePendulum: a pole on a pole on a cart, to be kept upright.
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

struct InvertedDoublePendulumStep {
    double survive, distance_penalty, velocity_penalty;
};

struct InvertedDoublePendulum : MujocoEnv<InvertedDoublePendulumStep> {
    struct Params : MujocoParams {
        PythonNumber healthy_reward{10, false};
        double reset_noise_scale = 0.1;

        void prepare() const {
            const bool fits = simulation.qpos.size() == 3 && simulation.qvel.size() == 3;
            require(fits && simulation.site_xpos.size() >= 3, "a model of three joints and a site");
        }
    };

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::normal, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        sim.advance(action, p.frame_skip);
        const double x = sim.site_xpos[0], height = sim.site_xpos[2];
        const bool fell = height <= 1;
        LastStep& last = s.last;
        last.distance_penalty = 0.01 * squared(x) + squared(height - 2);
        last.velocity_penalty = 0.001 * squared(sim.qvel[1]) + 0.005 * squared(sim.qvel[2]);
        last.survive = p.healthy_reward.value * !fell;
        return {last.survive - last.distance_penalty - last.velocity_penalty, fell};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {9 * sizeof(double)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        const Simulation& sim = s.simulation;
        double* observation = out.leaf<double>(0);
        observation[0] = sim.qpos[0];
        numpy_math.sin(&sim.qpos[1], observation + 1, 2);
        numpy_math.cos(&sim.qpos[1], observation + 3, 2);
        Writer rest(observation + 5);
        rest.put_clipped(sim.qvel, -10, 10);
        rest.put(clip(sim.qfrc_constraint[0], -10, 10));
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {survival(),
                survival_mark(),
                {"distance_penalty", "float64", {}, true, false},
                {"velocity_penalty", "float64", {}, true, false}};
    }
    static void inform(const State& s, const Params& p, const Row& out) {
        write_survival(out, 0, s.last.survive, p.healthy_reward.is_integer);
        *out.leaf<double>(2) = -s.last.distance_penalty;
        *out.leaf<double>(3) = -s.last.velocity_penalty;
    }

    static auto parameters() {
        return MujocoParams::parameters(field("_healthy_reward", &Params::healthy_reward),
                                        field("_reset_noise_scale", &Params::reset_noise_scale));
    }
    static auto constants() { return MujocoParams::constants(); }
};

}  // namespace envfleet
