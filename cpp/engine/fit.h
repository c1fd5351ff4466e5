// Whether what an environment writes fits into its row. All rows of an array are of one size, but
// parameters may differ from environment to environment, and some of them change what is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/environment.h"
#include "engine/rows.h"

namespace envfleet {

// Bytes of each part of a row, and below what the integers of an action must lie.
struct RowSizes {
    std::vector<size_t> observation, info;
    size_t action = 0;
    std::vector<int64_t> action_limits = {};
};

inline size_t info_bytes(const InfoColumn& column) {
    const std::string_view dtype = column.dtype;
    size_t bytes = dtype == "int8" || dtype == "bool" ? 1 : dtype == "float32" ? 4 : 8;
    for (const size_t length : column.shape) bytes *= length;
    return bytes;
}

template <Environment Env>
size_t action_size(const typename Env::Params& params) {
    if constexpr (std::is_pointer_v<typename Env::Action>) return Env::action_size(params);
    return 1;
}

template <Environment Env>
std::vector<int64_t> action_limits(const typename Env::Params& params) {
    if constexpr (requires { Env::action_limits(params); }) {
        return Env::action_limits(params);
    } else if constexpr (std::is_integral_v<typename Env::Action>) {
        return {Env::num_actions};
    } else {
        return {};
    }
}

// What an environment with these parameters reads and writes.
template <Environment Env>
RowSizes row_sizes(const typename Env::Params& params) {
    RowSizes sizes;
    sizes.observation = Env::observation_bytes(params);
    if constexpr (HasInfos<Env>) {
        for (const InfoColumn& column : Env::infos(params)) {
            sizes.info.push_back(info_bytes(column));
        }
    }
    sizes.action = action_size<Env>(params);
    sizes.action_limits = action_limits<Env>(params);
    return sizes;
}

inline std::vector<size_t> row_bytes(const std::vector<Leaf>& leaves) {
    std::vector<size_t> bytes;
    for (const Leaf& leaf : leaves) bytes.push_back(leaf.row_bytes);
    return bytes;
}

inline std::string in_words(const std::vector<size_t>& bytes) {
    std::string words;
    for (const size_t each : bytes) words += (words.empty() ? "" : " + ") + std::to_string(each);
    return words.empty() ? "0" : words;
}

inline void check_part(const char* part, const std::vector<size_t>& bytes,
                       const std::vector<size_t>& room) {
    if (bytes == room) return;
    throw std::invalid_argument(std::string("with these parameters its ") + part + " takes " +
                                in_words(bytes) + " bytes, and the fleet's rows have " +
                                in_words(room) + ".");
}

// Throws std::invalid_argument if rows of these sizes do not fit into these.
inline void check_fit(const RowSizes& sizes, const RowSizes& room) {
    check_part("observation", sizes.observation, room.observation);
    check_part("info", sizes.info, room.info);
    if (sizes.action != room.action || sizes.action_limits != room.action_limits) {
        throw std::invalid_argument(
            "with these parameters it takes other actions than the rest of the fleet.");
    }
}

// The same for each environment's parameters; says whose do not fit.
template <Environment Env>
void check_all_fit(const std::vector<typename Env::Params>& params, const RowSizes& room) {
    for (size_t env = 0; env < params.size(); ++env) {
        try {
            check_fit(row_sizes<Env>(params[env]), room);
        } catch (const std::invalid_argument& error) {
            throw std::invalid_argument("environment " + std::to_string(env) + ": " + error.what());
        }
    }
}

}  // namespace envfleet
