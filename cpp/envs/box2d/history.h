// An episode as what led to where it is: a world of Box2D cannot be copied, but it can be lived
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"
#include "engine/snapshot.h"

namespace envfleet {

// What a reset and every step since went by. Parameters are kept because they may change on the
// way; `fields` names them.
template <class Params, class Action>
struct History {
    struct Turn {
        Params params;
        Action action;
    };

    // To play more again would take seconds, and keeping them megabytes.
    static constexpr size_t most_turns = 20'000;

    bool begun = false;
    bool is_too_long = false;
    Rng start{};
    Params params{};
    std::vector<Turn> turns;

    void begin(const Rng& rng, const Params& used) {
        begun = true;
        is_too_long = false;
        start = rng;
        params = used;
        turns.clear();
    }

    void add(const Params& used, const Action& action) {
        if (turns.size() < most_turns) {
            turns.push_back({used, action});
        } else {
            is_too_long = true;
        }
    }

    void write_to(std::vector<std::byte>& bytes, const auto& fields) const {
        if (is_too_long) {
            throw std::runtime_error(
                "its episode is longer than " + std::to_string(most_turns) +
                " steps, and a world of Box2D can only be kept as the steps that led to it.");
        }
        write(bytes, start);
        write_params(bytes, fields, params);
        for (const Turn& turn : turns) {
            write_params(bytes, fields, turn.params);
            write(bytes, turn.action);
        }
    }

    // `check` throws for parameters and actions that cannot have been.
    static History read(SnapshotReader& reader, const auto& fields, const auto& check) {
        History history;
        reader.read(history.start);
        read_params(reader, fields, history.params);
        check(history.params, Action{});
        while (!reader.is_at_end()) {
            if (history.turns.size() == most_turns) refuse_snapshot("no episode is kept so long");
            Turn& turn = history.turns.emplace_back();
            read_params(reader, fields, turn.params);
            reader.read(turn.action);
            check(turn.params, turn.action);
        }
        return history;
    }

  private:
    static void write_params(std::vector<std::byte>& bytes, const auto& fields,
                             const Params& from) {
        std::apply([&](const auto&... each) { (write(bytes, from.*each.member), ...); }, fields);
    }
    static void read_params(SnapshotReader& reader, const auto& fields, Params& to) {
        std::apply([&](const auto&... each) { (reader.read(to.*each.member), ...); }, fields);
    }
};

// The random generator at the reset, as NumPy's PCG64 shows it, in halves: from this Gymnasium
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
