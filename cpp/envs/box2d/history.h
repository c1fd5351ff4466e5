// An episode as what led to where it is: a world of Box2D cannot be copied, but it can be lived
// again.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"

namespace envfleet {

// What a reset and every step since went by. Parameters are kept because they may change on the
// way.
template <class Params, class Action>
struct History {
    struct Turn {
        Params params;
        Action action;
    };

    Rng start{};
    Params params{};
    std::vector<Turn> turns;

    void begin(const Rng& rng, const Params& used) {
        start = rng;
        params = used;
        turns.clear();
    }

    std::vector<std::byte> bytes() const {
        std::vector<std::byte> result;
        append(result, &start, 1);
        append(result, &params, 1);
        append(result, turns.data(), turns.size());
        return result;
    }

    static History from(std::span<const std::byte> bytes) {
        constexpr size_t head = sizeof(Rng) + sizeof(Params);
        if (bytes.size() < head || (bytes.size() - head) % sizeof(Turn) != 0) {
            throw std::invalid_argument("no snapshot of an environment of this type");
        }
        History history;
        history.turns.resize((bytes.size() - head) / sizeof(Turn));
        std::memcpy(static_cast<void*>(&history.start), bytes.data(), sizeof(Rng));
        std::memcpy(static_cast<void*>(&history.params), bytes.data() + sizeof(Rng),
                    sizeof(Params));
        if (!history.turns.empty()) {
            std::memcpy(static_cast<void*>(history.turns.data()), bytes.data() + head,
                        bytes.size() - head);
        }
        return history;
    }

  private:
    static_assert(std::is_trivially_copyable_v<Turn> && std::is_trivially_copyable_v<Rng>);

    template <class T>
    static void append(std::vector<std::byte>& bytes, const T* values, size_t count) {
        const auto added = std::as_bytes(std::span(values, count));
        bytes.insert(bytes.end(), added.begin(), added.end());
    }
};

// The random generator at the reset, as NumPy's PCG64 shows it in halves: from this Gymnasium
// builds the same scenery.
template <class Params, class Action>
Value as_value(const History<Params, Action>& history) {
    const Rng& rng = history.start;
    auto half = [](Rng::Wide wide) { return static_cast<int64_t>(static_cast<uint64_t>(wide)); };
    return std::vector<int64_t>{
        half(rng.state() >> 64), half(rng.state()), half(rng.increment() >> 64),
        half(rng.increment()),   rng.has_half(),    int64_t{rng.half()}};
}
template <class Params, class Action>
void assign(std::string_view name, const Value&, History<Params, Action>&) {
    refuse_value(name, "left alone: what was is over");
}

}  // namespace envfleet
