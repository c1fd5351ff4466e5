// A state as bytes and back. Bytes may come from anywhere: what cannot be a state is refused, with
// std::invalid_argument, before anything changes.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "engine/environment.h"
#include "engine/random.h"

namespace envfleet {

[[noreturn]] inline void refuse_snapshot(const char* why) {
    throw std::invalid_argument(std::string("the bytes are no state of this environment: ") + why +
                                ".");
}

template <class T>
concept PlainNumber = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

// -- writing

template <class T>
    requires std::is_trivially_copyable_v<T>
void append(std::vector<std::byte>& bytes, const T& value) {
    const size_t size = bytes.size();
    bytes.resize(size + sizeof value);
    std::memcpy(bytes.data() + size, &value, sizeof value);
}

inline void write(std::vector<std::byte>& bytes, bool value) { append(bytes, uint8_t{value}); }
template <PlainNumber T>
void write(std::vector<std::byte>& bytes, T value) {
    append(bytes, value);
}
template <PlainNumber T, size_t size>
void write(std::vector<std::byte>& bytes, const std::array<T, size>& values) {
    append(bytes, values);
}
template <class T>
void write(std::vector<std::byte>& bytes, const std::optional<T>& value) {
    write(bytes, value.has_value());
    if (value) write(bytes, *value);
}
inline void write(std::vector<std::byte>& bytes, const Rng& rng) {
    append(bytes, rng.state());
    append(bytes, rng.increment());
    write(bytes, rng.has_half());
    append(bytes, rng.half());
}

// -- reading

// Takes a snapshot apart, never reading beyond its end.
class SnapshotReader {
  public:
    explicit SnapshotReader(std::span<const std::byte> bytes) : rest_(bytes) {}

    bool is_at_end() const { return rest_.empty(); }
    std::span<const std::byte> rest() const { return rest_; }
    void expect_end() const {
        if (!is_at_end()) refuse_snapshot("there are too many");
    }

    void read(bool& value) {
        uint8_t byte = 0;
        take(byte);
        if (byte > 1) refuse_snapshot("a flag is neither true nor false");
        value = byte == 1;
    }
    template <PlainNumber T>
    void read(T& value) {
        take(value);
    }
    template <PlainNumber T, size_t size>
    void read(std::array<T, size>& values) {
        take(values);
    }
    template <class T>
    void read(std::optional<T>& value) {
        bool there = false;
        read(there);
        value.reset();
        if (there) read(value.emplace());
    }
    void read(Rng& rng) {
        Rng::Wide state = 0, increment = 0;
        bool has_half = false;
        uint32_t half = 0;
        take(state);
        take(increment);
        read(has_half);
        take(half);
        if (increment % 2 == 0) refuse_snapshot("the random generator cannot be in this state");
        rng = Rng::at(state, increment, has_half, half);
    }
    // Whatever reads itself.
    template <class T>
        requires requires(T& value, SnapshotReader& reader) { value.read_from(reader); }
    void read(T& value) {
        value.read_from(*this);
    }

  private:
    template <class T>
    void take(T& value) {
        if (rest_.size() < sizeof value) refuse_snapshot("some are missing");
        std::memcpy(static_cast<void*>(&value), rest_.data(), sizeof value);
        rest_ = rest_.subspan(sizeof value);
    }

    std::span<const std::byte> rest_;
};

// -- states

template <class Env>
concept HasSaved = requires { Env::saved(); };

template <class Env>
std::vector<std::byte> save_state(const typename Env::State& state) {
    if constexpr (HasSave<Env>) {
        return Env::save(state);
    } else if constexpr (HasSaved<Env>) {
        std::vector<std::byte> bytes;
        std::apply([&](const auto&... each) { (write(bytes, state.*each.member), ...); },
                   Env::saved());
        return bytes;
    } else {
        throw std::runtime_error("this environment's state cannot be copied");
    }
}

// Throws for a state that cannot be with these parameters.
template <class Env>
void check_state(const typename Env::State& state, const typename Env::Params& params) {
    if constexpr (requires { Env::check(state, params); }) Env::check(state, params);
}

template <class Env>
void load_state(typename Env::State& state, const typename Env::Params& params,
                std::span<const std::byte> bytes) {
    if constexpr (HasSave<Env>) {
        Env::load(state, bytes);
    } else if constexpr (HasSaved<Env>) {
        typename Env::State loaded{};
        SnapshotReader reader(bytes);
        std::apply([&](const auto&... each) { (reader.read(loaded.*each.member), ...); },
                   Env::saved());
        reader.expect_end();
        check_state<Env>(loaded, params);
        state = loaded;
    } else {
        throw std::runtime_error("this environment's state cannot be restored");
    }
}

}  // namespace envfleet
