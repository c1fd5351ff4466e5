#include "bindings/mujoco.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "envs/mujoco/ant.h"
#include "envs/mujoco/half_cheetah.h"
#include "envs/mujoco/hopper.h"
#include "envs/mujoco/humanoid.h"
#include "envs/mujoco/humanoid_standup.h"
#include "envs/mujoco/inverted_double_pendulum.h"
#include "envs/mujoco/inverted_pendulum.h"
#include "envs/mujoco/pusher.h"
#include "envs/mujoco/reacher.h"
#include "envs/mujoco/swimmer.h"
#include "envs/mujoco/walker2d.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace envfleet {

namespace {

std::vector<std::string> array_names() {
    std::vector<std::string> names;
    for (const auto& [name, array] : Simulation::arrays()) names.emplace_back(name);
    return names;
}

template <class Pointer>
void find(const nb::dict& addresses, const char* name, Pointer& target) {
    target = reinterpret_cast<Pointer>(nb::cast<uintptr_t>(addresses[name]));
}

void use_library(const nb::dict& addresses, int whole_state) {
    MujocoLibrary found;
    find(addresses, "mj_step", found.step);
    find(addresses, "mj_resetData", found.reset_data);
    find(addresses, "mj_forward", found.forward);
    find(addresses, "mj_rnePostConstraint", found.rne_post_constraint);
    find(addresses, "mj_stateSize", found.state_size);
    find(addresses, "mj_getState", found.get_state);
    find(addresses, "mj_setState", found.set_state);
    find(addresses, "mju_user_error", found.error_handler);
    found.whole_state = whole_state;
    mujoco = found;
    MujocoErrors::install();
}

}  // namespace

void add_mujoco(Catalogue& catalogue) {
    catalogue["Ant"] = kind<Ant>();
    catalogue["HalfCheetah"] = kind<HalfCheetah>();
    catalogue["Hopper"] = kind<Hopper>();
    catalogue["Humanoid"] = kind<Humanoid>();
    catalogue["HumanoidStandup"] = kind<HumanoidStandup>();
    catalogue["InvertedDoublePendulum"] = kind<InvertedDoublePendulum>();
    catalogue["InvertedPendulum"] = kind<InvertedPendulum>();
    catalogue["Pusher"] = kind<Pusher>();
    catalogue["Reacher"] = kind<Reacher>();
    catalogue["Swimmer"] = kind<Swimmer>();
    catalogue["Walker2d"] = kind<Walker2d>();
}

void bind_mujoco(nb::module_& m) {
    m.def("mujoco_arrays", &array_names, "The arrays of an MjData that environments use.");
    m.def(
        "use_mujoco", &use_library, "addresses"_a, "whole_state"_a,
        "Takes the addresses of MuJoCo's functions; the parts of a state as mj_getState has them.");
}

}  // namespace envfleet
