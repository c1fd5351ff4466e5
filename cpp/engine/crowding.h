// How long to stay awake, and when not to: on a core that other programs need as well.
//
// A thread that waits awake uses up its share of a crowded core. A thread that offers its core, by
// sched_yield(), tells the kernel that it is in no hurry: it gets the core back when the other
// program's time is over, milliseconds later. A thread that sleeps is owed something, and goes
// first when it is woken. So on a crowded core waiting awake is the slowest way to wait.
#pragma once

#include <algorithm>

#include "engine/clock.h"

namespace envfleet {

// How long to stay awake before sleeping: first on the core, then offering it to others.
struct Patience {
    Nanoseconds pause;
    Nanoseconds yield;
};

// What a thread that waits has noticed of other programs on its core: that they had it while the
// thread wanted it.
//
// One such gap may be anything. After a second one soon after, the thread is hasty for a term: it
// pauses briefly, then sleeps. Then it looks again, and each term that follows at once is twice as
// long.
class Crowding {
  public:
    // Threads that work together have the core back sooner; other programs use up what the kernel
    // gives them.
    static constexpr Nanoseconds gap = 500'000;

    bool is_hasty() const { return left_ > 0; }

    // To be asked once a wait.
    Patience fitting(Patience wanted) {
        if (left_ == 0) return wanted;
        --left_;
        return {std::min(wanted.pause, brief), 0};
    }

    // How long the thread was without a look at what it waits for, at most.
    void note(Nanoseconds longest) {
        if (is_hasty()) return;  // it did not stay to see
        if (longest < gap) {
            if (calm_ < enough && ++calm_ == enough) term_ = first_term;
            return;
        }
        if (calm_ < enough) {
            left_ = term_;
            term_ = std::min(2 * term_, longest_term);
        }
        calm_ = 0;
    }

  private:
    static constexpr Nanoseconds brief = 20'000;
    static constexpr int enough = 32;  // waits without a gap
    static constexpr int first_term = 16;
    static constexpr int longest_term = 1024;

    int calm_ = enough;
    int term_ = first_term;
    int left_ = 0;
};

}  // namespace envfleet
