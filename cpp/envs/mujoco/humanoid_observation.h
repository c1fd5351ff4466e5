// What the humanoids observe: all that MuJoCo knows of their bodies, or what is asked for of it.
#pragma once

#include <cstddef>

#include "engine/fields.h"
#include "engine/rows.h"
#include "envs/mujoco/arithmetic.h"
#include "envs/mujoco/simulation.h"

namespace envfleet {

struct HumanoidParams : MujocoParams {
    bool exclude_current_positions = true;
    bool include_cinert = true;
    bool include_cvel = true;
    bool include_qfrc_actuator = true;
    bool include_cfrc_ext = true;

    void prepare() const {
        const bool fits = simulation.qpos.size() >= 3 && simulation.qvel.size() >= 6;
        require(fits, "a model whose first joint is free");
    }

    // What is said of the world itself, the first body, and of its place is left out.
    size_t observation_size() const {
        const Simulation& sim = simulation;
        return sim.qpos.size() + sim.qvel.size() - 2 * exclude_current_positions +
               include_cinert * (sim.cinert.size() - 10) + include_cvel * (sim.cvel.size() - 6) +
               include_qfrc_actuator * (sim.qvel.size() - 6) +
               include_cfrc_ext * (sim.cfrc_ext.size() - 6);
    }
    void observe(const Simulation& sim, double* out) const {
        Writer observation(out);
        observation.put(sim.qpos.subspan(2 * exclude_current_positions));
        observation.put(sim.qvel);
        if (include_cinert) observation.put(sim.cinert.subspan(10));
        if (include_cvel) observation.put(sim.cvel.subspan(6));
        if (include_qfrc_actuator) observation.put(sim.qfrc_actuator.subspan(6));
        if (include_cfrc_ext) observation.put(sim.cfrc_ext.subspan(6));
    }

    template <class... More>
    static auto constants(More... more) {
        return MujocoParams::constants(
            field("_exclude_current_positions_from_observation",
                  &HumanoidParams::exclude_current_positions),
            field("_include_cinert_in_observation", &HumanoidParams::include_cinert),
            field("_include_cvel_in_observation", &HumanoidParams::include_cvel),
            field("_include_qfrc_actuator_in_observation", &HumanoidParams::include_qfrc_actuator),
            field("_include_cfrc_ext_in_observation", &HumanoidParams::include_cfrc_ext), more...);
    }
};

}  // namespace envfleet
