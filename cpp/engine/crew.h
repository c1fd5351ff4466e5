// The threads of a pool: the caller, and helpers that each have their rows.
//
// A helper whose rows are not begun when the caller has done its own loses them to the caller for
// this turn. So a turn never waits for a thread that sleeps or has no core, and nothing can hang.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "engine/waiting.h"

namespace envfleet {

// Whether helpers pay off, decided by what turns took with and without them.
class Judge {
  public:
    // Below this a turn is over before a helper has noticed that it began.
    static constexpr double worth_sharing = 15'000;

    bool together() const { return together_; }
    // Reading the clock costs as much as stepping a small environment: not every turn is timed.
    bool wants_time() { return turns_to_judge_ <= trial || ++untimed_ % 16 == 0; }

    void note(Nanoseconds took) {
        double& average = together_ ? shared_ : alone_;
        const auto sample = static_cast<double>(took);
        average = average == 0 ? sample : average + (std::min(sample, 4 * average) - average) / 8;
        if (--turns_to_judge_ == 0) decide();
    }

  private:
    static constexpr int trial = 16;
    static constexpr int term = 256;

    // Trials and terms alternate: a trial looks at the other way, a term keeps the better one.
    void decide() {
        if (on_trial_) {
            on_trial_ = false;
            together_ = shared_ < 0.9 * alone_;
            turns_to_judge_ = term;
        } else if (together_ || alone_ > worth_sharing) {
            on_trial_ = true;
            together_ = !together_;
            turns_to_judge_ = trial;
        } else {
            turns_to_judge_ = term;
        }
    }

    bool together_ = false;
    bool on_trial_ = false;
    int turns_to_judge_ = trial;
    unsigned untimed_ = 0;
    double alone_ = 0;
    double shared_ = 0;
};

class Crew {
  public:
    // `adaptive`: helpers are used where they pay off, otherwise in every turn.
    Crew(size_t rows, unsigned threads, bool adaptive)
        : rows_(rows),
          shares_(std::clamp<size_t>(threads, 1, std::max<size_t>(rows, 1))),
          adaptive_(adaptive),
          claims_(new Claim[shares_]),
          patience_(fitting_patience(shares_)),
          owner_(getpid()) {}

    ~Crew() {
        stopping_.store(true, std::memory_order_seq_cst);
        go_.ring();
        for (std::thread& helper : helpers_) {
            // After a fork only the forking thread exists: there is nobody to wait for.
            getpid() == owner_ ? helper.join() : helper.detach();
        }
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    size_t threads() const { return shares_; }

    // Calls work(first, last) for all rows; it must not throw.
    template <class Work>
    void run(const Work& work) {
        if (shares_ == 1) return work(size_t{0}, rows_);
        if (!adaptive_) return run_together(work);
        const bool timed = judge_.wants_time();
        const Nanoseconds start = timed ? now() : 0;
        judge_.together() ? run_together(work) : work(size_t{0}, rows_);
        if (timed) judge_.note(now() - start);
    }

  private:
    // The last turn in which somebody began this share.
    struct alignas(64) Claim {
        std::atomic<uint64_t> turn{0};
    };

    static Patience fitting_patience(size_t threads) {
        cpu_set_t cores;
        const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
        const bool crowded = known && static_cast<size_t>(CPU_COUNT(&cores)) < threads;
        return crowded ? Patience{0, 0} : Patience{20'000, 50'000};
    }

    template <class Work>
    void run_together(const Work& work) {
        hire();
        work_ = &work;
        call_ = [](const void* w, size_t first, size_t last) {
            (*static_cast<const Work*>(w))(first, last);
        };
        const uint64_t turn = turn_.load(std::memory_order_relaxed) + 1;
        left_.store(shares_, std::memory_order_relaxed);
        turn_.store(turn, std::memory_order_seq_cst);
        go_.ring();
        for (size_t share = 0; share < shares_; ++share) try_share(share, turn);
        auto done = [&] { return left_.load(std::memory_order_acquire) == 0; };
        constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();
        while (!wait_until(done_.sleeper(), done, patience_, forever)) {
        }
    }

    void try_share(size_t share, uint64_t turn) {
        uint64_t before = turn - 1;
        if (!claims_[share].turn.compare_exchange_strong(before, turn)) return;
        call_(work_, rows_ * share / shares_, rows_ * (share + 1) / shares_);
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) done_.ring();
    }

    void hire() {
        if (!helpers_.empty()) return;
        for (size_t share = 1; share < shares_; ++share) {
            helpers_.emplace_back([this, share] { help(share); });
        }
    }

    void help(size_t share) {
        uint64_t seen = 0;
        auto called = [&] {
            return turn_.load(std::memory_order_seq_cst) != seen ||
                   stopping_.load(std::memory_order_seq_cst);
        };
        for (;;) {
            constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();
            if (!wait_until(go_.sleeper(), called, patience_, forever)) continue;
            if (stopping_.load(std::memory_order_seq_cst)) return;
            seen = turn_.load(std::memory_order_seq_cst);
            try_share(share, seen);
        }
    }

    const size_t rows_;
    const size_t shares_;
    const bool adaptive_;
    Judge judge_;
    std::unique_ptr<Claim[]> claims_;
    const Patience patience_;
    const pid_t owner_;
    std::vector<std::thread> helpers_;
    const void* work_ = nullptr;
    void (*call_)(const void*, size_t, size_t) = nullptr;
    SharedBell go_;
    SharedBell done_;
    alignas(64) std::atomic<uint64_t> turn_{0};
    alignas(64) std::atomic<size_t> left_{0};
    std::atomic<bool> stopping_{false};
};

}  // namespace envfleet
