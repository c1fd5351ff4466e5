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
    Helpers() = default;
    Helpers(const Helpers&) = delete;
    Helpers& operator=(const Helpers&) = delete;

    // Starts so many, once; each runs work(number), counted from 1.
    template <class Work>
    void hire(size_t count, const Work& work) {
        if (!threads_.empty()) return;
        owner_ = getpid();  // a process may be forked before it hires
        for (size_t number = 1; number <= count; ++number) threads_.emplace_back(work, number);
    }

    // Waits for them to end, where there is somebody to wait for.
    void let_go() {
        const bool elsewhere = are_elsewhere();
        for (std::thread& thread : threads_) elsewhere ? thread.detach() : thread.join();
        threads_.clear();
    }

    // In a forked copy of the process that hired them only the forking thread exists. What they
    // held at that moment, a lock perhaps, is held for ever.
    bool are_elsewhere() const { return !threads_.empty() && getpid() != owner_; }

  private:
    pid_t owner_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace envfleet
