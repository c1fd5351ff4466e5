// InvertedPendulum: a pole on a cart, to be kept upright.
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

struct InvertedPendulumStep {
    int64_t survive;
};

struct InvertedPendulum : MujocoEnv<InvertedPendulumStep> {
    struct Params : MujocoParams {
        double reset_noise_scale = 0.01;

        void prepare() const {
            const size_t state = simulation.qpos.size() + simulation.qvel.size();
            require(simulation.qpos.size() >= 2 && state == 4, "a model of two joints");
        }
    };

    static void reset(State&, Rng& rng, const Params& p) {
        start_episode(p, Noise::uniform, p.reset_noise_scale, rng);
    }

    static Outcome step(State& s, Rng&, const Params& p, const float* action) {
        const Simulation& sim = s.simulation;
        sim.advance(action, p.frame_skip);
        const bool fell =
            !all_finite(sim.qpos) || !all_finite(sim.qvel) || std::abs(sim.qpos[1]) > 0.2;
        s.last.survive = !fell;
        return {static_cast<double>(s.last.survive), fell};
    }

    static std::vector<size_t> observation_bytes(const Params&) { return {4 * sizeof(double)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        Writer observation(out.leaf<double>(0));
        observation.put(s.simulation.qpos);
        observation.put(s.simulation.qvel);
    }

    static std::vector<InfoColumn> infos(const Params&) {
        return {{"reward_survive", "int64", {}, true, false}};
    }
    static void inform(const State& s, const Params&, const Row& out) {
        *out.leaf<int64_t>(0) = s.last.survive;
    }

    static auto parameters() {
        return MujocoParams::parameters(field("_reset_noise_scale", &Params::reset_noise_scale));
    }
    static auto constants() { return MujocoParams::constants(); }
};

}  // namespace envfleet
