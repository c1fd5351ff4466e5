// The cores of the machine: which this process may use, and who works on which.
//
// This file and waiting.h hold all that depends on the operating system's way to run threads. A
// port to another system changes these two.
//
// Why anybody should know who works where: left alone, the kernel often wakes a sleeper on the core
// of whoever woke it, even while another core idles. (This was seen on a virtual machine; perhaps a
// halted virtual core looks busy.) Two threads that then both stay awake share that core for tens
// of milliseconds. To pin every thread would be worse: two fleets on one machine would fight for
// the same cores. So nobody is pinned. But whoever goes to sleep asks not to be woken where another
// works, and whoever finds another on its core moves away, once.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "engine/clock.h"
#include "engine/crowding.h"

namespace envfleet {

// A set of cores.
class Cores {
  public:
    Cores() { CPU_ZERO(&set_); }

    // Those that this thread may use; nothing if the system does not tell.
    static std::optional<Cores> own() {
        Cores cores;
        if (sched_getaffinity(0, sizeof cores.set_, &cores.set_) != 0) return {};
        return cores;
    }
    // From now on this thread uses no others; false if that is not allowed.
    bool use() const { return sched_setaffinity(0, sizeof set_, &set_) == 0; }

    void add(int core) {
        if (exists(core)) CPU_SET(core, &set_);
    }
    bool contains(int core) const { return exists(core) && CPU_ISSET(core, &set_); }
    size_t size() const { return static_cast<size_t>(CPU_COUNT(&set_)); }
    bool is_empty() const { return size() == 0; }

    Cores without(const Cores& others) const {
        Cores common, rest;
        CPU_AND(&common.set_, &set_, &others.set_);
        CPU_XOR(&rest.set_, &set_, &common.set_);
        return rest;
    }

    bool operator==(const Cores& other) const { return CPU_EQUAL(&set_, &other.set_); }

  private:
    static bool exists(int core) { return core >= 0 && core < CPU_SETSIZE; }

    cpu_set_t set_;
};

// The core that this thread runs on at the moment; negative if the system does not tell.
inline int present_core() { return sched_getcpu(); }

// Lets others run on this core first, if there are any.
inline void offer_core() { sched_yield(); }

// Gives a thread a name for those who look at the process from outside: 15 letters at most.
inline void name_thread(std::thread& thread, const char* name) {
    pthread_setname_np(thread.native_handle(), name);
}

// The core that somebody works on; none while it sleeps or nothing is known of it. It may lie in
// memory that processes share.
class Seat {
  public:
    void take() { core_.store(present_core(), std::memory_order_relaxed); }
    void leave() { core_.store(none, std::memory_order_relaxed); }
    int core() const { return core_.load(std::memory_order_relaxed); }
    void add_to(Cores& cores) const { cores.add(core()); }

  private:
    static constexpr int32_t none = -1;
    std::atomic<int32_t> core_{none};
};

// While it lives, this thread runs on other cores than those taken; on any of its own if all are
// taken, or if the system does not allow it.
class KeepAway {
  public:
    explicit KeepAway(const Cores& taken) {
        if (taken.is_empty()) return;
        own_ = Cores::own();
        if (!own_) return;
        narrowed_ = own_->without(taken);
        if (narrowed_ == *own_ || narrowed_.is_empty()) return;
        active_ = narrowed_.use();
    }
    ~KeepAway() {
        // Somebody else may have chosen other cores for this thread meanwhile.
        if (active_ && Cores::own() == narrowed_) own_->use();
    }
    KeepAway(const KeepAway&) = delete;
    KeepAway& operator=(const KeepAway&) = delete;

  private:
    std::optional<Cores> own_;
    Cores narrowed_;
    bool active_ = false;
};

// Takes the seat. If others work on this core, and there is one that nobody is known to work on,
// this thread moves there first.
inline void sit_apart(Seat& seat, const Cores& others, Crowding& crowding) {
    if (others.contains(present_core()) && !crowding.is_hasty()) {
        const Nanoseconds start = now();
        {
            const KeepAway once(others);
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
    Cores leave(size_t number) {
        seats_[number].leave();
        return others_of(number);
    }
    void sit_apart(size_t number, Crowding& crowding) {
        envfleet::sit_apart(seats_[number], others_of(number), crowding);
    }

  private:
    Cores others_of(size_t number) const {
        Cores cores;
        for (size_t other = 0; other < seats_.size(); ++other) {
            if (other != number) seats_[other].add_to(cores);
        }
        return cores;
    }

    std::vector<Seat> seats_;
};

}  // namespace envfleet
