// How one process waits for another: pause, then yield, then sleep.
//
// A blocking wake-up across cores costs tens of microseconds, a hand-over between two awake sides
// a tenth of one. So a waiter stays awake for as long as the other side is likely to answer, and
// only then sleeps. Staying awake must not steal the core the other side needs: hence the budgets
// in `Patience`, chosen by whoever knows how many processes share how many cores; and strangers
// may need it, which `Crowding` notices.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "engine/clock.h"
#include "engine/cores.h"
#include "engine/crowding.h"

namespace envfleet {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// A futex word in shared memory on which several may sleep, each under a bit of its own, so that
// one call wakes exactly those it is meant for.
struct alignas(64) Bell {
    std::atomic<uint32_t> rings{0};

    void ring(uint32_t whom) {
        rings.fetch_add(1, std::memory_order_seq_cst);
        syscall(SYS_futex, &rings, FUTEX_WAKE_BITSET, INT_MAX, nullptr, nullptr, whom);
    }
};

// One who may sleep: the bell it listens to, under which bit, and where it is counted while it
// sleeps. Whoever has something for it looks there first: nobody asleep, no system call. A process
// that may be killed in its sleep needs a count of its own, which can be set right.
struct Sleeper {
    Bell& bell;
    uint32_t bit;
    std::atomic<uint32_t>& asleep;
};

// A bell for those who cannot be killed one by one, such as threads: they share a count.
struct SharedBell {
    Bell bell;
    std::atomic<uint32_t> asleep{0};

    Sleeper sleeper() { return {bell, ~0u, asleep}; }
    void ring() {
        if (asleep.load(std::memory_order_seq_cst) != 0) bell.ring(~0u);
    }
};

// Sleeps until `ready()` holds, the deadline passes or a signal arrives; returns `ready()`.
// A signal ends the sleep so that the caller can run its handlers.
template <class Ready>
bool sleep_until(Sleeper sleeper, Ready ready, Nanoseconds deadline, const Cores& taken) {
    const KeepAway elsewhere(taken);
    sleeper.asleep.fetch_add(1, std::memory_order_seq_cst);
    const timespec until{deadline / 1'000'000'000, deadline % 1'000'000'000};
    bool is_ready;
    for (;;) {
        const uint32_t seen = sleeper.bell.rings.load(std::memory_order_seq_cst);
        is_ready = ready();
        if (is_ready || now() >= deadline) break;
        const long woken = syscall(SYS_futex, &sleeper.bell.rings, FUTEX_WAIT_BITSET, seen, &until,
                                   nullptr, sleeper.bit);
        if (woken == -1 && errno == EINTR) {
            is_ready = ready();
            break;
        }
    }
    sleeper.asleep.fetch_sub(1, std::memory_order_relaxed);
    return is_ready;
}

// Waits awake until `ready()` holds (true) or patience ends, which it does at the first sign of
// strangers (false).
template <class Ready>
bool stay_awake(Ready ready, Patience patience, Crowding& crowding) {
    if (patience.pause + patience.yield <= 0) return false;
    Nanoseconds last = now();
    const Nanoseconds pause_end = last + patience.pause;
    const Nanoseconds yield_end = pause_end + patience.yield;
    Nanoseconds longest = 0;
    bool is_ready = false;
    while (!is_ready && last < yield_end && longest < Crowding::gap) {
        if (last < pause_end) {
            for (int i = 0; i < 16 && !(is_ready = ready()); ++i) cpu_pause();
        } else {
            offer_core();
            is_ready = ready();
        }
        const Nanoseconds look = now();
        longest = std::max(longest, look - last);
        last = look;
    }
    crowding.note(longest);
    return is_ready;
}

// Waits until `ready()` holds (true) or the deadline passes or a signal arrives (false).
// `before_sleep()` tells which cores to wake up away from.
template <class Ready, class BeforeSleep>
bool wait_until(Sleeper sleeper, Ready ready, Patience patience, Crowding& crowding,
                Nanoseconds deadline, BeforeSleep before_sleep) {
    if (ready()) return true;
    if (stay_awake(ready, crowding.fitting(patience), crowding)) return true;
    const Cores taken = before_sleep();
    // On crowded cores nobody knows better than the kernel which to wake up on.
    return sleep_until(sleeper, ready, deadline, crowding.is_hasty() ? Cores() : taken);
}

}  // namespace envfleet
