// A pool and the arrays it writes to, for tests without Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "engine/pool.h"

namespace envfleet {

template <class Env>
struct Fleet {
    Fleet(size_t n, Autoreset mode, unsigned threads, bool adaptive,
          std::vector<typename Env::Params> params = {typename Env::Params{}},
          int64_t limit = std::numeric_limits<int64_t>::max())
        : leaves(Env::observation_bytes(params.front())),
          observations(arrays(leaves, n)),
          final_observations(arrays(leaves, n)),
          infos(arrays(info_bytes(params.front()), n)),
          final_infos(arrays(info_bytes(params.front()), n)),
          rewards(n),
          rewards_copied(n),
          terminated(n),
          truncated(n),
          finished(n),
          turns(n),
          everyone(n, 1),
          pool({n,
                mode,
                std::vector<int64_t>(n, limit),
                threads,
                adaptive,
                {rows(observations, n), rows(final_observations, n), rows(infos, n),
                 rows(final_infos, n), rewards.data(), terminated.data(), truncated.data(),
                 finished.data(), turns.data()}},
               params) {
        for (uint32_t env = 0; env < n; ++env) pool.rng(env).seed(std::span(&env, 1));
    }

    using Arrays = std::vector<std::vector<std::byte>>;

    void reset() { pool.reset(everyone, {}); }

    void send_resets() {
        std::vector<int64_t> rows(everyone.size());
        std::iota(rows.begin(), rows.end(), 0);
        pool.send_resets(rows, {});
    }

    template <class T>
    void step(const std::vector<T>& actions) {
        const Twin twin{reinterpret_cast<const std::byte*>(rewards.data()),
                        reinterpret_cast<std::byte*>(rewards_copied.data()), sizeof(double)};
        pool.step(reinterpret_cast<const std::byte*>(actions.data()), std::span(&twin, 1));
    }

    template <class T>
    T observation(size_t env, size_t leaf = 0, size_t number = 0) const {
        return reinterpret_cast<const T*>(observations[leaf].data() + env * leaves[leaf])[number];
    }

    static std::vector<size_t> info_bytes(const typename Env::Params& params) {
        std::vector<size_t> bytes;
        if constexpr (HasInfos<Env>) {
            for (const InfoColumn& column : Env::infos(params)) {
                size_t count = 1;
                for (const size_t length : column.shape) count *= length;
                bytes.push_back(count * (column.dtype == "int8" ? 1 : 8));
            }
        }
        return bytes;
    }
    static Arrays arrays(const std::vector<size_t>& bytes, size_t n) {
        Arrays result;
        for (const size_t row : bytes) result.emplace_back(n * row);
        return result;
    }
    static std::vector<Leaf> rows(Arrays& arrays, size_t n) {
        std::vector<Leaf> result;
        for (auto& array : arrays) result.push_back({array.data(), array.size() / n});
        return result;
    }

    std::vector<size_t> leaves;
    Arrays observations, final_observations, infos, final_infos;
    std::vector<double> rewards, rewards_copied;
    std::vector<uint8_t> terminated, truncated, finished;
    std::vector<Turn> turns;
    std::vector<uint8_t> everyone;
    Pool<Env> pool;
};

}  // namespace envfleet
