// How one process waits for another: pause, then yield, then sleep.
//
// A blocking wake-up across cores costs tens of microseconds, a hand-over between two awake sides
// a tenth of one. So a waiter stays awake for as long as the other side is likely to answer, and
// only then sleeps. Staying awake must not steal the core the other side needs: hence the budgets
// in `Patience`, chosen by whoever knows how many processes share how many cores.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

namespace envfleet {

using Nanoseconds = int64_t;

inline Nanoseconds now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return Nanoseconds{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// How long to stay awake before sleeping: first on the core, then offering it to others.
struct Patience {
    Nanoseconds pause;
    Nanoseconds yield;
};

// A futex word in shared memory, and how many sleep on it: nobody asleep, no system call.
struct alignas(64) Bell {
    std::atomic<uint32_t> rings{0};
    std::atomic<uint32_t> sleepers{0};

    void ring() {
        rings.fetch_add(1, std::memory_order_seq_cst);
        if (sleepers.load(std::memory_order_seq_cst) != 0) {
            syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
        }
    }
};

// Sleeps until `ready()` holds, the deadline passes or a signal arrives; returns `ready()`.
// A signal ends the sleep so that the caller can run its handlers.
template <class Ready>
bool sleep_until(Bell& bell, Ready ready, Nanoseconds deadline) {
    bell.sleepers.fetch_add(1, std::memory_order_seq_cst);
    bool is_ready;
    for (;;) {
        const uint32_t seen = bell.rings.load(std::memory_order_seq_cst);
        is_ready = ready();
        const Nanoseconds left = deadline - now();
        if (is_ready || left <= 0) break;
        const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
        const long woken = syscall(SYS_futex, &bell.rings, FUTEX_WAIT, seen, &timeout, nullptr, 0);
        if (woken == -1 && errno == EINTR) {
            is_ready = ready();
            break;
        }
    }
    bell.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    return is_ready;
}

// Waits until `ready()` holds (true) or the deadline passes or a signal arrives (false).
template <class Ready>
bool wait_until(Bell& bell, Ready ready, Patience patience, Nanoseconds deadline) {
    if (ready()) return true;
    const Nanoseconds start = now();
    const Nanoseconds pause_end = start + patience.pause;
    while (now() < pause_end) {
        for (int i = 0; i < 16; ++i) {
            if (ready()) return true;
            cpu_pause();
        }
    }
    const Nanoseconds yield_end = pause_end + patience.yield;
    while (now() < yield_end) {
        if (ready()) return true;
        sched_yield();
    }
    return sleep_until(bell, ready, deadline);
}

}  // namespace envfleet
