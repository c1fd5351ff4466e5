// Who works on which core, so that those who work together do not wait for each other on one of
// them.
//
// Left alone, the kernel often wakes a sleeper on the core of whoever woke it, on the virtual
// machine where this was traced even while the other core idled (perhaps because a halted virtual
// core looks busy). Two who then both stay awake share that core for tens of milliseconds. Pinning
// everyone would be worse: two fleets on one machine would fight for the same cores. So nobody is
// pinned, but whoever goes to sleep asks not to be woken where another works, and whoever finds
// another on his core moves away, once.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/clock.h"
#include "engine/crowding.h"

namespace envfleet {

// The core that somebody works on; none while it sleeps or nothing is known of it.
class Seat {
  public:
    void take() { core_.store(sched_getcpu(), std::memory_order_relaxed); }
    void leave() { core_.store(none, std::memory_order_relaxed); }
    int core() const { return core_.load(std::memory_order_relaxed); }
    void add_to(cpu_set_t& cores) const {
        if (const int core = this->core(); core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &cores);
    }

  private:
    static constexpr int32_t none = -1;
    std::atomic<int32_t> core_{none};
};

inline cpu_set_t no_cores() {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    return cores;
}

// While it lives, this thread runs on other cores than those taken; on any of its own if all are,
// or if that is not allowed.
class KeepAway {
  public:
    explicit KeepAway(const cpu_set_t& taken) {
        if (CPU_COUNT(&taken) == 0 || sched_getaffinity(0, sizeof own_, &own_) != 0) return;
        cpu_set_t common;
        CPU_AND(&common, &own_, &taken);
        CPU_XOR(&narrowed_, &own_, &common);
        if (CPU_COUNT(&common) == 0 || CPU_COUNT(&narrowed_) == 0) return;
        active_ = sched_setaffinity(0, sizeof narrowed_, &narrowed_) == 0;
    }
    ~KeepAway() {
        if (!active_) return;
        cpu_set_t present;
        // Somebody else may have chosen other cores for this thread meanwhile.
        const bool ours =
            sched_getaffinity(0, sizeof present, &present) == 0 && CPU_EQUAL(&present, &narrowed_);
        if (ours) sched_setaffinity(0, sizeof own_, &own_);
    }
    KeepAway(const KeepAway&) = delete;
    KeepAway& operator=(const KeepAway&) = delete;

  private:
    cpu_set_t own_;
    cpu_set_t narrowed_;
    bool active_ = false;
};

// Takes the seat; moves to another core first if `others` work on this one and there is one that
// nobody is known to work on.
inline void sit_apart(Seat& seat, const cpu_set_t& others, Crowding& crowding) {
    const int core = sched_getcpu();
    const bool shared = core >= 0 && core < CPU_SETSIZE && CPU_ISSET(core, &others);
    if (shared && !crowding.is_hasty()) {
        const Nanoseconds start = now();
        {
            KeepAway once(others);
        }
        crowding.note(now() - start);
    }
    seat.take();
}

// The seats of those who work together.
class Seats {
  public:
    explicit Seats(size_t count) : seats_(count) {}

    void take(size_t number) { seats_[number].take(); }
    // The core is free for others; returns those that are not.
    cpu_set_t leave(size_t number) {
        seats_[number].leave();
        return others_of(number);
    }
    void sit_apart(size_t number, Crowding& crowding) {
        envfleet::sit_apart(seats_[number], others_of(number), crowding);
    }

  private:
    cpu_set_t others_of(size_t number) const {
        cpu_set_t cores = no_cores();
        for (size_t other = 0; other < seats_.size(); ++other) {
            if (other != number) seats_[other].add_to(cores);
        }
        return cores;
    }

    std::vector<Seat> seats_;
};

}  // namespace envfleet
