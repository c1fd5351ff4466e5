// What environments threw, noted by whichever thread met it.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace envfleet {

// An environment threw. The others went on.
struct Failure {
    size_t env;
    std::string message;
};

// Those of the last turn, or of all rows that are out. That there are none is known without a lock.
class Failures {
  public:
    void note(size_t env, const char* message) {
        const std::lock_guard lock(mutex_);
        all_.push_back({env, message});
        are_any_.store(true, std::memory_order_release);
    }

    void forget() {
        if (!are_any_.load(std::memory_order_acquire)) return;
        const std::lock_guard lock(mutex_);
        all_.clear();
        are_any_.store(false, std::memory_order_release);
    }

    // The one with the lowest number among environments for which counts(env) holds.
    template <class Counts>
    std::optional<Failure> first(const Counts& counts) const {
        if (!are_any_.load(std::memory_order_acquire)) return {};
        const std::lock_guard lock(mutex_);
        const Failure* first = nullptr;
        for (const Failure& failure : all_) {
            if (counts(failure.env) && (!first || failure.env < first->env)) first = &failure;
        }
        return first ? std::optional(*first) : std::nullopt;
    }

  private:
    std::vector<Failure> all_;
    mutable std::mutex mutex_;
    std::atomic<bool> are_any_{false};
};

}  // namespace envfleet
