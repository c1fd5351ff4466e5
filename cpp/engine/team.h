// The threads of a pool: its caller, and helpers that wait to be called.
//
// A pool has one team, whatever it is used for. Turns of all rows and tickets for single rows are
// two kinds of work that the same threads take part in.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/cores.h"
#include "engine/waiting.h"

namespace envfleet {

// How long threads that wait for each other stay awake: not at all where they share cores.
inline Patience fitting_patience(size_t threads) {
    const auto cores = Cores::own();
    const bool crowded = cores && cores->size() < threads;
    return crowded ? Patience{0, 0} : Patience{20'000, 50'000};
}

// Work that helpers take part in. It is asked from many threads at once.
class TeamWork {
  public:
    // Whether there is something for this helper.
    virtual bool calls(size_t helper) const = 0;
    // Takes part until nothing is left.
    virtual void help(size_t helper) = 0;

  protected:
    ~TeamWork() = default;
};

class Team {
  public:
    // `threads`: the caller and its helpers, counted in this order; more than rows are of no use.
    Team(unsigned threads, size_t rows)
        : size_(std::clamp<size_t>(threads, 1, std::max<size_t>(rows, 1))),
          seats_(size_),
          patience_(fitting_patience(size_)) {}
    ~Team() { end(); }
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    size_t size() const { return size_; }

    // To be said before helpers are there. The work ends the team before it is gone itself.
    void take_on(TeamWork& work) { works_.push_back(&work); }

    // Whether there are helpers to call; the first time they are started. Where the system gives
    // fewer, a limit of processes perhaps, those have to do: they help, and nobody needs them.
    bool has_helpers() {
        if (!has_started_) start();
        return !helpers_.empty() && getpid() == owner_;
    }

    // In a forked copy of the process that started the helpers only the forking thread exists. What
    // they held at that moment, a lock perhaps, is held for ever.
    bool is_elsewhere() const { return !helpers_.empty() && getpid() != owner_; }

    // Wakes the helpers that sleep, after the work has something for them.
    void call() { go_.ring(); }

    // To be said by the caller when it begins to work.
    void take_seat() { seats_.take(0); }

    // The caller's way to wait until `ready()` holds (true) or the deadline passes or a signal
    // arrives (false). Whoever makes it ready rings the bell.
    template <class Ready>
    bool wait(SharedBell& bell, const Ready& ready, Nanoseconds deadline) {
        auto before_sleep = [this] { return seats_.leave(0); };
        return wait_until(bell.sleeper(), ready, patience_, crowding_, deadline, before_sleep);
    }

    bool is_ending() const { return is_ending_.load(std::memory_order_seq_cst); }

    // Waits for the helpers to come to their end, where there is somebody to wait for.
    void end() {
        is_ending_.store(true, std::memory_order_seq_cst);
        go_.ring();
        // Elsewhere they are not even detached: their ids may be those of other threads here. So
        // they are kept for ever.
        if (is_elsewhere()) new std::vector<std::thread>(std::move(helpers_));
        for (std::thread& helper : helpers_) helper.join();
        helpers_.clear();
    }

  private:
    void start() {
        has_started_ = true;
        owner_ = getpid();  // a process may be forked before it has helpers
        try {
            for (size_t helper = 1; helper < size_; ++helper) {
                helpers_.emplace_back([this, helper] { wait_and_help(helper); });
            }
        } catch (const std::system_error&) {
        } catch (const std::bad_alloc&) {
        }
    }

    void wait_and_help(size_t helper) {
        constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();
        Crowding crowding;
        auto called = [&] {
            for (const TeamWork* work : works_) {
                if (work->calls(helper)) return true;
            }
            return is_ending();
        };
        auto before_sleep = [&] { return seats_.leave(helper); };
        for (;;) {
            if (!wait_until(go_.sleeper(), called, patience_, crowding, forever, before_sleep)) {
                continue;
            }
            if (is_ending()) return;
            seats_.sit_apart(helper, crowding);
            for (TeamWork* work : works_) {
                if (work->calls(helper)) work->help(helper);
            }
        }
    }

    const size_t size_;
    std::vector<TeamWork*> works_;
    Seats seats_;  // the caller's is the first
    const Patience patience_;
    Crowding crowding_;  // of the caller
    SharedBell go_;
    std::atomic<bool> is_ending_{false};
    bool has_started_ = false;
    pid_t owner_ = 0;
    std::vector<std::thread> helpers_;
};

}  // namespace envfleet
