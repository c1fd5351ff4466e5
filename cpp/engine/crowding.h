// How long to stay awake, and when not to: on a core that strangers need as well.
//
// To the kernel, whoever waits awake uses up his share of a crowded core, and whoever offers it by
// sched_yield() is in no hurry: he gets it back when the stranger's time is over, milliseconds
// later. Whoever sleeps is owed something, and goes first when he is woken. So on a crowded core
// waiting awake is the slowest way to wait.
#pragma once

#include <algorithm>

#include "engine/clock.h"

namespace envfleet {

// How long to stay awake before sleeping: first on the core, then offering it to others.
struct Patience {
    Nanoseconds pause;
    Nanoseconds yield;
};

// What one who waits has noticed of strangers on his core: that they had it while he wanted it.
//
// One such gap may be anything. After a second one soon after he is hasty for a term: he pauses
// briefly, then sleeps. Then he looks again, and each term that follows at once is twice as long.
class Crowding {
  public:
    // Those who work together have the core back sooner; strangers use up what the kernel gives
    // them.
    static constexpr Nanoseconds gap = 500'000;

    bool is_hasty() const { return left_ > 0; }

    // To be asked once a wait.
    Patience fitting(Patience wanted) {
        if (left_ == 0) return wanted;
        --left_;
        return {std::min(wanted.pause, brief), 0};
    }

    // How long he was without a look at what he waits for, at most.
    void note(Nanoseconds longest) {
        if (is_hasty()) return;  // he did not stay to see
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
