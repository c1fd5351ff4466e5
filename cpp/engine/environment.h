// What an environment is to the pool.
//
// An environment is a plain struct with static functions:
//
//     struct Game {
//         struct Params { ... };                      // constants of one environment
//         struct State { ... };                       // what changes
//         using Action = int64_t;                     // or const float*, a row of an array
//         static constexpr int64_t num_actions = 2;   // of integer actions
//
//         static void reset(State&, Rng&, const Params&);
//         static Outcome step(State&, Rng&, const Params&, Action);
//         static void observe(const State&, const Params&, const Row& out);
//         static std::vector<size_t> observation_bytes(const Params&);   // of each leaf of `out`
//         static auto parameters();                   // tuple of field("name", &Params::name)
//         static auto variables();                    // the same of State
//     };
//
// and, where it has any of these:
//
//     static size_t action_size(const Params&);       // numbers in an action that is a row
//     struct ResetOptions { static auto fields(); void check() const; };   reset(..., options)
//     static auto constants();                        // fields of Params fixed when it is made
//     set_parameter(...), get_parameter(...), parameter_names(...)   instead of parameters(), where
//                                                     only a value of Params knows which there are
//     static std::vector<int64_t> action_limits(const Params&);   // of integers in a row: each is
//                                                     at least 0 and below its limit
//     void Params::prepare();                         // called once all fields are set
//     void Params::check() const;                     // called when one was changed later
//     static std::vector<InfoColumn> infos(const Params&);
//     static void inform(const State&, const Params&, const Row& out);
//     State(const Params&);                           // a state that needs building
//     static auto saved();                            // fields of State, all that a snapshot holds
//     static void check(const State&, const Params&); // throws std::invalid_argument for a state
//                                                     that cannot be: from a snapshot, or set
//     static std::vector<std::byte> save(const State&);  static void load(State&, span);
//                                                     instead of saved(); load() changes nothing
//                                                     if it throws
//     static void step_block(...);                    // many rows at once, see HasBlock
//     static constexpr size_t block_rows = 64;        // how many at most: goes with step_block()
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"

namespace envfleet {

template <class Env>
concept HasOptions = requires { typename Env::ResetOptions; };

template <class Env>
concept HasInfos = requires(const typename Env::State& state, const typename Env::Params& params,
                            const Row& out) { Env::inform(state, params, out); };

template <class Env>
concept HasConstants = requires { Env::constants(); };

template <class Env>
concept NamesParameters =
    requires(typename Env::Params& params, std::string_view name, const Value& value) {
        { Env::set_parameter(params, name, value) } -> std::same_as<bool>;
        { Env::get_parameter(params, name) } -> std::same_as<std::optional<Value>>;
        { Env::parameter_names(params) } -> std::same_as<std::vector<std::string>>;
    };

template <class Env>
concept HasSave = requires(const typename Env::State& state) { Env::save(state); };

// Steps `count` environments with equal parameters, block_rows of them at most. Rows awaiting a
// reset are stepped too and the result thrown away, so it must accept any state, and draw no random
// numbers.
template <class Env>
concept HasBlock = requires(typename Env::State* states, const typename Env::Params& params,
                            const typename Env::Action* actions, double* rewards,
                            uint8_t* terminated, float* observations) {
    Env::step_block(states, params, actions, size_t{}, rewards, terminated, observations);
};

// How many rows step_block() is called with at most. The environment says it, since it may keep
// arrays of this size.
template <HasBlock Env>
constexpr size_t rows_of_a_block() {
    static_assert(requires { Env::block_rows; }, "step_block() needs block_rows beside it");
    static_assert(Env::block_rows > 0 && Env::block_rows % 8 == 0,
                  "flags of a block are looked at eight at a time");
    return Env::block_rows;
}

template <class Env>
concept Environment = requires(typename Env::State& state, Rng& rng,
                               const typename Env::Params& params, typename Env::Action action,
                               const Row& out) {
    { Env::step(state, rng, params, action) } -> std::same_as<Outcome>;
    Env::observe(std::as_const(state), params, out);
    Env::variables();
} && (NamesParameters<Env> || requires { Env::parameters(); });

// -- parameters by name, whichever way the environment declares them

template <Environment Env>
bool set_parameter(typename Env::Params& params, std::string_view name, const Value& value) {
    if constexpr (NamesParameters<Env>) {
        return Env::set_parameter(params, name, value);
    } else {
        return set_field(Env::parameters(), params, name, value);
    }
}

template <Environment Env>
std::optional<Value> get_parameter(const typename Env::Params& params, std::string_view name) {
    if constexpr (NamesParameters<Env>) {
        return Env::get_parameter(params, name);
    } else {
        return get_field(Env::parameters(), params, name);
    }
}

template <Environment Env>
std::vector<std::string> parameter_names(const typename Env::Params& params) {
    if constexpr (NamesParameters<Env>) {
        return Env::parameter_names(params);
    } else {
        return field_names(Env::parameters());
    }
}

// The parameters of one environment; std::invalid_argument says which cannot be.
template <Environment Env>
typename Env::Params params_from(const NamedValues& values) {
    typename Env::Params params{};
    for (const auto& [name, value] : values) {
        bool known = set_parameter<Env>(params, name, value);
        if constexpr (HasConstants<Env>) {
            known = known || set_field(Env::constants(), params, name, value);
        }
        if (!known) throw std::invalid_argument("there is no parameter '" + name + "'");
    }
    if constexpr (requires { params.prepare(); }) params.prepare();
    return params;
}

}  // namespace envfleet
