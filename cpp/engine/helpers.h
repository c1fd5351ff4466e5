// Threads that help the caller, in a process that may be forked.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstddef>
#include <thread>
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
    Helpers() : owner_(getpid()) {}
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;

    // Starts so many, once; each runs work(number), counted from 1.
    template <class Work>
    void hire(size_t count, const Work& work) {
        if (!threads_.empty()) return;
        for (size_t number = 1; number <= count; ++number) threads_.emplace_back(work, number);
    }

    // Waits for them to end. After a fork only the forking thread exists: nobody to wait for then.
    void let_go() {
        for (std::thread& thread : threads_) are_here() ? thread.join() : thread.detach();
        threads_.clear();
    }

    // False in a forked copy of the process that hired them.
    bool are_here() const { return getpid() == owner_; }

  private:
    const pid_t owner_;
    std::vector<std::thread> threads_;
};

}  // namespace envfleet
