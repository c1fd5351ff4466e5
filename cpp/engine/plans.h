// Episodes that are planned ahead: what each environment's next ones are to be played with.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace envfleet {

// Without a seed the generator runs on.
template <class Params>
struct PlannedEpisode {
    Params params;
    int64_t time_limit;
    std::optional<uint32_t> seed;
};

// Rows that are out use their plans up while the caller adds others. But the first plan of all is
// to be added while none is out: from then on plans are used.
template <class Params>
class Plans {
  public:
    explicit Plans(size_t num_envs) : num_envs_(num_envs) {}

    bool are_used() const { return !queues_.empty(); }

    // Whether some environment has none, though plans are used.
    bool are_lacking() const { return are_lacking_.load(std::memory_order_relaxed); }

    // The same of the rows from `first` on and before `last`.
    bool lack_among(size_t first, size_t last) const {
        if (!are_lacking()) return false;
        const std::lock_guard lock(mutex_);
        return std::any_of(queues_.begin() + first, queues_.begin() + last,
                           [](const auto& episodes) { return episodes.empty(); });
    }

    void add(size_t env, PlannedEpisode<Params> episode) {
        const std::lock_guard lock(mutex_);
        queues_.resize(num_envs_);
        queues_[env].push_back(std::move(episode));
        note_lack();
    }
    void forget(size_t env) {
        const std::lock_guard lock(mutex_);
        if (are_used()) queues_[env].clear();
        note_lack();
    }
    size_t count(size_t env) const {
        const std::lock_guard lock(mutex_);
        return are_used() ? queues_[env].size() : 0;
    }

    // Takes the next one out; throws std::logic_error if there is none.
    PlannedEpisode<Params> take(size_t env) {
        const std::lock_guard lock(mutex_);
        if (queues_[env].empty()) throw std::logic_error("no episode was planned");
        PlannedEpisode<Params> next = std::move(queues_[env].front());
        queues_[env].pop_front();
        if (queues_[env].empty()) are_lacking_.store(true, std::memory_order_relaxed);
        return next;
    }

  private:
    void note_lack() {
        const auto none = [](const auto& episodes) { return episodes.empty(); };
        are_lacking_.store(std::any_of(queues_.begin(), queues_.end(), none),
                           std::memory_order_relaxed);
    }

    const size_t num_envs_;
    std::vector<std::deque<PlannedEpisode<Params>>> queues_;  // one per environment, or none at all
    mutable std::mutex mutex_;
    std::atomic<bool> are_lacking_{false};
};

}  // namespace envfleet
