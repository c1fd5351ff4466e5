// Threads that help the caller, in a process that may be forked.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/waiting.h"

namespace envfleet {

// How long threads that wait for each other stay awake: not at all where they share cores.
inline Patience fitting_patience(size_t threads) {
    cpu_set_t cores;
    const bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
    const bool crowded = known && static_cast<size_t>(CPU_COUNT(&cores)) < threads;
    return crowded ? Patience{0, 0} : Patience{20'000, 50'000};
}

class Helpers {
  public:
    Helpers() = default;
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;

    // Starts so many, once; each runs work(number), counted from 1. Where the system gives fewer, a
    // limit of processes perhaps, those have to do: they help, and nobody needs them.
    template <class Work>
    void hire(size_t count, const Work& work) {
        if (has_hired_) return;
        has_hired_ = true;
        owner_ = getpid();  // a process may be forked before it hires
        try {
            for (size_t number = 1; number <= count; ++number) threads_.emplace_back(work, number);
        } catch (const std::system_error&) {
        } catch (const std::bad_alloc&) {
        }
    }

    // Waits for them to end, where there is somebody to wait for.
    void let_go() {
        // Elsewhere not even detached: their ids may be those of other threads here. So they are
        // kept for ever.
        if (are_elsewhere()) new std::vector<std::thread>(std::move(threads_));
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
    }

    bool are_none() const { return threads_.empty(); }

    // In a forked copy of the process that hired them only the forking thread exists. What they
    // held at that moment, a lock perhaps, is held for ever.
    bool are_elsewhere() const { return !threads_.empty() && getpid() != owner_; }

  private:
    bool has_hired_ = false;
    pid_t owner_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace envfleet
