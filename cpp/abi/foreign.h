// An environment behind the C interface, as the pool takes it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "abi/envfleet_env.h"
#include "abi/error_text.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rows.h"
#include "engine/snapshot.h"

namespace envfleet {

// The members of envfleet_random that draw from a distribution. They read nothing of it but what is
// also a bitgen_t.
struct ForeignRandom {
    static double uniform(envfleet_random* random, double low, double high) {
        return random_uniform(reinterpret_cast<bitgen_t*>(random), low, high - low);
    }
    static double normal(envfleet_random* random, double mean, double deviation) {
        return random_normal(reinterpret_cast<bitgen_t*>(random), mean, deviation);
    }
    static int64_t integers(envfleet_random* random, int64_t low, int64_t high) {
        if (high <= low) return low;
        return bounded_integer(reinterpret_cast<bitgen_t*>(random), low, high);
    }
    static envfleet_random from(Rng& rng) {
        const bitgen_t bits = rng.interface();
        return {bits.state,    bits.next_uint64, bits.next_uint32, bits.next_double,
                bits.next_raw, &uniform,         &normal,          &integers};
    }
};

// The bytes of a state, which Python may look at.
struct StateBytes {
    std::vector<int64_t> words;

    std::byte* data() { return reinterpret_cast<std::byte*>(words.data()); }
    const std::byte* data() const { return reinterpret_cast<const std::byte*>(words.data()); }
};
inline Value as_value(const StateBytes& bytes) { return bytes.words; }
inline void assign(std::string_view name, const Value&, StateBytes&) {
    refuse_value(name, "left alone: only the environment knows which bytes make sense");
}

struct Foreign {
    struct Params {
        const envfleet_environment* environment = nullptr;
        std::vector<int64_t> slots;  // as the environment sees them

        void prepare() const {
            if (environment == nullptr) throw std::invalid_argument("there is no environment");
        }
    };
    struct State {
        explicit State(const Params& p) : bytes{std::vector<int64_t>(words(p))} {}
        StateBytes bytes;

        static size_t words(const Params& p) {
            return (p.environment->state_size + sizeof(int64_t) - 1) / sizeof(int64_t);
        }
    };
    using Action = const std::byte*;

    static size_t action_size(const Params& p) { return space_bytes(p.environment->action); }
    static std::vector<int64_t> action_limits(const Params& p) {
        const envfleet_space& space = p.environment->action;
        if (space.kind == ENVFLEET_BOX) return {};
        return {space.counts, space.counts + count(space)};
    }

    static void reset(State& s, Rng& rng, const Params& p) {
        envfleet_random random = ForeignRandom::from(rng);
        check(p.environment->reset(s.bytes.data(), &random, p.slots.data()), p);
    }
    static Outcome step(State& s, Rng& rng, const Params& p, const std::byte* action) {
        envfleet_random random = ForeignRandom::from(rng);
        envfleet_outcome outcome{};
        check(p.environment->step(s.bytes.data(), &random, p.slots.data(), action, &outcome), p);
        return {outcome.reward, outcome.terminated != 0, outcome.truncated != 0};
    }
    static std::vector<size_t> observation_bytes(const Params& p) {
        return {space_bytes(p.environment->observation)};
    }
    static void observe(const State& s, const Params& p, const Row& out) {
        check(p.environment->observe(s.bytes.data(), p.slots.data(), out.leaf<std::byte>(0)), p);
    }

    static std::vector<std::byte> save(const State& s) {
        const auto bytes = std::as_bytes(std::span(s.bytes.words));
        return {bytes.begin(), bytes.end()};
    }
    static void load(State& s, std::span<const std::byte> bytes) {
        // Which bytes make sense only the environment knows: they are its own, and it gets them.
        if (bytes.size() != s.bytes.words.size() * sizeof(int64_t)) {
            refuse_snapshot("its state has another size");
        }
        if (!bytes.empty()) std::memcpy(s.bytes.data(), bytes.data(), bytes.size());
    }

    // First of all, and once, "_environment": the address of the description.
    static bool set_parameter(Params& p, std::string_view name, const Value& value) {
        if (p.environment == nullptr && name == "_environment") {
            int64_t address = 0;
            assign(name, value, address);
            p.environment = reinterpret_cast<const envfleet_environment*>(address);
            for (const auto& each : declared(p)) {
                p.slots.push_back(slot(each.type, each.initial));
            }
            return true;
        }
        const auto index = find(p, name);
        if (!index) return false;
        p.slots[*index] = converted(declared(p)[*index], value);
        return true;
    }
    static std::optional<Value> get_parameter(const Params& p, std::string_view name) {
        const auto index = find(p, name);
        if (!index) return std::nullopt;
        const int64_t bits = p.slots[*index];
        switch (declared(p)[*index].type) {
            case ENVFLEET_FLOAT64:
                return Value{std::bit_cast<double>(bits)};
            case ENVFLEET_BOOL:
                return Value{bits != 0};
            default:
                return Value{bits};
        }
    }
    static std::vector<std::string> parameter_names(const Params& p) {
        std::vector<std::string> names;
        for (const auto& each : declared(p)) names.emplace_back(each.name);
        return names;
    }
    static auto variables() { return std::tuple(field("_state_words", &State::bytes)); }

  private:
    static void check(int32_t code, const Params& p) {
        if (code == 0) return;
        const auto* environment = p.environment;
        const char* text = environment->error_message ? environment->error_message(code) : nullptr;
        throw std::runtime_error(error_text(text, code));
    }

    static std::span<const envfleet_parameter> declared(const Params& p) {
        if (p.environment == nullptr) return {};
        return {p.environment->parameters, p.environment->num_parameters};
    }
    static std::optional<size_t> find(const Params& p, std::string_view name) {
        const auto all = declared(p);
        for (size_t i = 0; i < all.size(); ++i) {
            if (all[i].name == name) return i;
        }
        return std::nullopt;
    }
    static int64_t slot(uint32_t type, double number) {
        return type == ENVFLEET_FLOAT64 ? std::bit_cast<int64_t>(number)
                                        : static_cast<int64_t>(number);
    }
    static int64_t converted(const envfleet_parameter& parameter, const Value& value) {
        double number = 0;
        int64_t integer = 0;
        bool flag = false;
        switch (parameter.type) {
            case ENVFLEET_FLOAT64:
                assign(parameter.name, value, number);
                return std::bit_cast<int64_t>(number);
            case ENVFLEET_BOOL:
                assign(parameter.name, value, flag);
                return flag;
            default:
                assign(parameter.name, value, integer);
                return integer;
        }
    }

    static size_t count(const envfleet_space& space) {
        size_t product = 1;
        for (uint32_t i = 0; i < space.ndim && space.kind != ENVFLEET_DISCRETE; ++i) {
            product *= static_cast<size_t>(space.shape[i]);
        }
        return product;
    }
    static size_t space_bytes(const envfleet_space& space) {
        const uint32_t type = space.kind == ENVFLEET_BOX ? space.type : uint32_t{ENVFLEET_INT64};
        return count(space) * type_bytes(type);
    }
    static size_t type_bytes(uint32_t type) {
        switch (type) {
            case ENVFLEET_INT8:
            case ENVFLEET_UINT8:
                return 1;
            case ENVFLEET_INT16:
                return 2;
            case ENVFLEET_INT32:
            case ENVFLEET_FLOAT32:
                return 4;
            default:
                return 8;
        }
    }
};

}  // namespace envfleet
