// An episode as what led to where it is: a world of Box2D cannot be copied, but it can be lived
// again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/fields.h"
#include "engine/random.h"
#include "engine/snapshot.h"

namespace envfleet {

// Takes a snapshot apart, never reading beyond its end.
class SnapshotReader {
  public:
    explicit SnapshotReader(std::span<const std::byte> bytes) : rest_(bytes) {}

    bool is_at_end() const { return rest_.empty(); }

    template <class T>
    void read(T& value) {
        if (rest_.size() < sizeof value) {
            throw std::invalid_argument("no snapshot of an environment of this type");
        }
        take(rest_.data(), value);
        rest_ = rest_.subspan(sizeof value);
    }

  private:
    std::span<const std::byte> rest_;
};

// What a reset and every step since went by. Parameters are kept because they may change on the
// way; `fields` names them.
template <class Params, class Action>
struct History {
    struct Turn {
        Params params;
        Action action;
    };

    bool begun = false;
    Rng start{};
    Params params{};
    std::vector<Turn> turns;

    void begin(const Rng& rng, const Params& used) {
        begun = true;
        start = rng;
        params = used;
        turns.clear();
    }

    void write(std::vector<std::byte>& bytes, const auto& fields) const {
        append(bytes, start);
        write_params(bytes, fields, params);
        for (const Turn& turn : turns) {
            write_params(bytes, fields, turn.params);
            append(bytes, turn.action);
        }
    }

    static History read(SnapshotReader& reader, const auto& fields) {
        History history;
        reader.read(history.start);
        read_params(reader, fields, history.params);
        while (!reader.is_at_end()) {
            Turn& turn = history.turns.emplace_back();
            read_params(reader, fields, turn.params);
            reader.read(turn.action);
        }
        return history;
    }

  private:
    static void write_params(std::vector<std::byte>& bytes, const auto& fields,
                             const Params& from) {
        std::apply([&](const auto&... each) { (append(bytes, from.*each.member), ...); }, fields);
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
