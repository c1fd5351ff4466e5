// How threads and processes wait for each other: pause, then yield, then sleep.
//
// This file and cores.h hold all that depends on the operating system's way to run threads: here it
// is futexes, and what tells one process of the end of another.
//
// A blocking wake-up across cores costs tens of microseconds, a hand-over between two awake sides
// a tenth of one. So a waiter stays awake for as long as the other side is likely to answer, and
// only then sleeps. Staying awake must not steal the core the other side needs: hence the budgets
// in `Patience`, chosen by whoever knows how many processes share how many cores; and other
// programs may need it, which `Crowding` notices.
#pragma once

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
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
// other programs (false).
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

// Has the kernel continue this process, should it be stopped (SIGSTOP), when the thread ends that
// started it. To be called by the main thread: the kernel forgets what another one asked for when
// that one ends. SIGCONT does nothing to a process that was not stopped.
inline void be_continued_at_parents_end() { prctl(PR_SET_PDEATHSIG, SIGCONT); }

// The end of another process, to be waited for. A thread that sleeps on a pidfd costs nothing.
// Where the kernel has none, or a sandbox forbids them, it looks now and then.
class ProcessEnd {
  public:
    explicit ProcessEnd(int pid)
        : pid_(pid), pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
        is_past_ = pidfd_ == -1 && errno == ESRCH;
        is_parents_ = getppid() == pid;
    }

    // Whether it was there before anybody could wait for it.
    bool is_past() const { return is_past_; }

    void wait() const {
        if (pidfd_ == -1) {
            while (seems_alive()) poll(nullptr, 0, look_every);
            return;
        }
        pollfd watched{pidfd_, POLLIN, 0};
        while (poll(&watched, 1, -1) == -1 && errno == EINTR) {
        }
    }

  private:
    static constexpr int look_every = 500;  // milliseconds

    // A child sees its parent's end by having another parent; anybody else by there being no such
    // process.
    bool seems_alive() const {
        return is_parents_ ? getppid() == pid_ : kill(pid_, 0) == 0 || errno == EPERM;
    }

    int pid_;
    int pidfd_;
    bool is_past_;
    bool is_parents_;
};

}  // namespace envfleet
