// A state as bytes and back.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "engine/environment.h"

namespace envfleet {

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
    const size_t size = bytes.size();
    bytes.resize(size + sizeof value);
    std::memcpy(bytes.data() + size, &value, sizeof value);
}

template <class T>
const std::byte* take(const std::byte* bytes, T& value) {
    std::memcpy(static_cast<void*>(&value), bytes, sizeof value);
    return bytes + sizeof value;
}

template <class Env>
std::vector<std::byte> save_state(const typename Env::State& state) {
    if constexpr (HasSave<Env>) {
        return Env::save(state);
    } else if constexpr (std::is_trivially_copyable_v<typename Env::State>) {
        const auto bytes = std::as_bytes(std::span(&state, 1));
        return {bytes.begin(), bytes.end()};
    } else {
        throw std::runtime_error("this environment's state cannot be copied");
    }
}

template <class Env>
void load_state(typename Env::State& state, std::span<const std::byte> bytes) {
    if constexpr (HasSave<Env>) {
        Env::load(state, bytes);
    } else if constexpr (std::is_trivially_copyable_v<typename Env::State>) {
        if (bytes.size() != sizeof state) {
            throw std::invalid_argument("no snapshot of an environment of this type");
        }
        std::memcpy(static_cast<void*>(&state), bytes.data(), sizeof state);
    } else {
        throw std::runtime_error("this environment's state cannot be restored");
    }
}

}  // namespace envfleet
