// One simulation of MuJoCo's: the model, and the data of which environments read and write arrays.
// Python made both and keeps them alive.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/checks.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/snapshot.h"
#include "envs/mujoco/library.h"

namespace envfleet {

struct Simulation {
    using Array = std::span<double>;

    const void* model = nullptr;
    void* data = nullptr;
    Array qpos, qvel, ctrl, xpos, xipos, site_xpos, cinert, cvel, cfrc_ext, qfrc_actuator,
        qfrc_constraint, ten_length, ten_velocity;

    // The arrays by MuJoCo's names for them, in the order in which Python passes them.
    static constexpr auto arrays() {
        using Entry = std::pair<const char*, Array Simulation::*>;
        return std::array{Entry("qpos", &Simulation::qpos),
                          Entry("qvel", &Simulation::qvel),
                          Entry("ctrl", &Simulation::ctrl),
                          Entry("xpos", &Simulation::xpos),
                          Entry("xipos", &Simulation::xipos),
                          Entry("site_xpos", &Simulation::site_xpos),
                          Entry("cinert", &Simulation::cinert),
                          Entry("cvel", &Simulation::cvel),
                          Entry("cfrc_ext", &Simulation::cfrc_ext),
                          Entry("qfrc_actuator", &Simulation::qfrc_actuator),
                          Entry("qfrc_constraint", &Simulation::qfrc_constraint),
                          Entry("ten_length", &Simulation::ten_length),
                          Entry("ten_velocity", &Simulation::ten_velocity)};
    }

    // The place of a body's frame.
    const double* body(int64_t number) const { return &xpos[3 * static_cast<size_t>(number)]; }
    size_t num_bodies() const { return xpos.size() / 3; }

    void advance(const float* action, int64_t frames) const {
        std::copy_n(action, ctrl.size(), ctrl.begin());
        MujocoErrors::call(mujoco.step, model, data, frames);
    }
    // Forces on bodies, cfrc_ext among them, which a step leaves out.
    void find_forces() const { MujocoErrors::call(mujoco.rne_post_constraint, model, data, 1); }
    void clear() const { MujocoErrors::call(mujoco.reset_data, model, data, 1); }
    // All that follows from positions and velocities.
    void settle() const { MujocoErrors::call(mujoco.forward, model, data, 1); }
};

inline Value as_value(const Simulation&) { return {}; }
// Addresses of model and data, then address and length of each array.
inline void assign(std::string_view name, const Value& value, Simulation& target) {
    constexpr auto arrays = Simulation::arrays();
    std::vector<int64_t> numbers;
    assign(name, value, numbers);
    if (numbers.size() != 2 + 2 * arrays.size()) refuse_value(name, "left alone");
    target.model = reinterpret_cast<const void*>(numbers[0]);
    target.data = reinterpret_cast<void*>(numbers[1]);
    for (size_t i = 0; i < arrays.size(); ++i) {
        auto* first = reinterpret_cast<double*>(numbers[2 + 2 * i]);
        target.*arrays[i].second = {first, static_cast<size_t>(numbers[3 + 2 * i])};
    }
}

// What all of these environments are made with.
struct MujocoParams {
    Simulation simulation;
    double timestep = 0;
    int64_t frame_skip = 0;
    std::vector<double> init_qpos, init_qvel;

    double dt() const { return timestep * static_cast<double>(frame_skip); }

    // Environments read some arrays at fixed places: a model of the user's own must have them.
    void require(bool fits, const char* what) const {
        if (!fits) throw std::invalid_argument(std::string("this environment needs ") + what + ".");
    }

    void check() const {
        if (frame_skip < 1) refuse_value("frame_skip", "at least 1");
    }

    template <class... More>
    static auto parameters(More... more) {
        return std::tuple(field("frame_skip", &MujocoParams::frame_skip), more...);
    }
    template <class... More>
    static auto constants(More... more) {
        return std::tuple(field("simulation", &MujocoParams::simulation),
                          field("timestep", &MujocoParams::timestep),
                          field("init_qpos", &MujocoParams::init_qpos),
                          field("init_qvel", &MujocoParams::init_qvel), more...);
    }
};

// The simulation, and what an environment remembers of its last step.
template <class LastStep>
struct MujocoState {
    explicit MujocoState(const MujocoParams& p) : simulation(p.simulation) {}

    Simulation simulation;
    LastStep last{};
};

// -- starting an episode
// ---------------------------------------------------------------------------

enum class Noise : uint8_t { uniform, normal };

// start + noise of this size, into an array of the simulation.
inline void disturb(Simulation::Array out, const std::vector<double>& start, Noise kind,
                    double scale, Rng& rng) {
    if (start.size() != out.size()) {
        throw std::invalid_argument("init_qpos and init_qvel must be of the model's sizes.");
    }
    if (!(scale >= 0)) throw std::invalid_argument("the noise of a reset must not be negative.");
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = start[i] + (kind == Noise::normal ? scale * rng.standard_normal()
                                                   : rng.uniform(-scale, scale));
    }
}

// From about where the model starts.
inline void start_episode(const MujocoParams& p, Noise of_velocities, double scale, Rng& rng) {
    const Simulation& sim = p.simulation;
    sim.clear();
    disturb(sim.qpos, p.init_qpos, Noise::uniform, scale, rng);
    disturb(sim.qvel, p.init_qvel, of_velocities, scale, rng);
    sim.settle();
}

// -- an environment
// --------------------------------------------------------------------------------

// What all of them share, whatever they remember of their last step.
template <class LastStep_>
struct MujocoEnv {
    using LastStep = LastStep_;
    using State = MujocoState<LastStep>;
    using Action = const float*;
    static size_t action_size(const MujocoParams& p) { return p.simulation.ctrl.size(); }
    static auto variables() { return std::tuple(); }

    // A snapshot: the state of the physics, the arrays that environments read (after a step they
    // are of a moment before, so they do not follow from the state), and the last step.
    static std::vector<std::byte> save(const State& s) {
        static_assert(std::is_trivially_copyable_v<LastStep>);
        const Simulation& sim = s.simulation;
        const int parts = mujoco.whole_state;
        std::vector<double> state(static_cast<size_t>(mujoco.state_size(sim.model, parts)));
        mujoco.get_state(sim.model, sim.data, state.data(), parts);
        for (const auto& [name, array] : Simulation::arrays()) {
            state.insert(state.end(), (sim.*array).begin(), (sim.*array).end());
        }
        const auto numbers = std::as_bytes(std::span(state));
        std::vector<std::byte> bytes(numbers.begin(), numbers.end());
        append(bytes, s.last);
        return bytes;
    }
    static void load(State& s, std::span<const std::byte> bytes) {
        const Simulation& sim = s.simulation;
        const int parts = mujoco.whole_state;
        const auto size = static_cast<size_t>(mujoco.state_size(sim.model, parts));
        size_t expected = size;
        for (const auto& [name, array] : Simulation::arrays()) expected += (sim.*array).size();
        if (bytes.size() != expected * sizeof(double) + sizeof s.last) {
            refuse_snapshot("another model has as many numbers");
        }
        std::vector<double> numbers(expected);
        std::memcpy(numbers.data(), bytes.data(), expected * sizeof(double));
        // Time comes first in MuJoCo's state, positions and velocities in our arrays. What else is
        // not finite, forces or actions, MuJoCo looks after itself.
        check_finite("time", numbers[0]);
        check_finite("qpos", std::span(numbers).subspan(size, sim.qpos.size()));
        check_finite("qvel", std::span(numbers).subspan(size + sim.qpos.size(), sim.qvel.size()));
        mujoco.set_state(sim.model, sim.data, numbers.data(), parts);
        const double* next = numbers.data() + size;
        for (const auto& [name, array] : Simulation::arrays()) {
            std::copy_n(next, (sim.*array).size(), (sim.*array).begin());
            next += (sim.*array).size();
        }
        std::memcpy(&s.last, bytes.data() + expected * sizeof(double), sizeof s.last);
    }
};

}  // namespace envfleet
