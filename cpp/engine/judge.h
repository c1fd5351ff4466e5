// Whether the helpers of a team pay off, judged by what turns took with and without them.
#pragma once

#include <algorithm>
#include <array>

#include "engine/clock.h"

namespace envfleet {

// Trials and terms alternate: a trial looks at the other way, a term keeps the better one. A
// verdict that is repeated holds twice as long. So a wrong one, from a moment when the machine did
// something else, is soon forgotten, and a right one costs next to nothing.
class Judge {
  public:
    // Below this a turn is over before a helper has noticed that it began.
    static constexpr double worth_sharing = 15'000;
    // Helpers must save this share of the time: their cores may have other work.
    static constexpr double worth_a_core = 0.9;

    bool together() const { return together_; }
    // Reading the clock costs as much as stepping a small environment: not every turn is timed.
    bool wants_time() { return on_trial_ || ++untimed_ % 16 == 0; }

    void note(Nanoseconds took) {
        if (on_trial_) {
            note_trial(took);
            return;
        }
        double& average = usual_[together_];
        const auto sample = static_cast<double>(took);
        average += (std::min(sample, 2 * average) - average) / 8;
        const bool disappoints = together_ && average > usual_[false];
        if (--left_ <= 0 || disappoints) begin_trial();
    }

  private:
    // The first turns of a trial are not judged: rows have to come into another core's cache first.
    static constexpr int warm_up = 4;
    static constexpr int trial = 12;
    // Where turns are long a few tell enough, and more of the wrong kind would be felt.
    static constexpr int short_trial = 4;
    static constexpr Nanoseconds long_trial = 5'000'000;
    static constexpr int longest_term = 256;

    void begin_trial() {
        if (!together_ && usual_[false] < worth_sharing) {
            left_ = term_;
            return;
        }
        on_trial_ = true;
        together_ = !together_;
        noted_ = 0;
        spent_ = 0;
    }

    void note_trial(Nanoseconds took) {
        if (++noted_ <= warm_up) return;
        const int judged = noted_ - warm_up;
        samples_[judged - 1] = took;
        spent_ += took;
        if (judged < (spent_ < long_trial ? trial : short_trial)) return;
        // The median: a trial is short, and one interruption must not decide it.
        const auto middle = samples_.begin() + judged / 2;
        std::nth_element(samples_.begin(), middle, samples_.begin() + judged);
        usual_[together_] = static_cast<double>(*middle);
        on_trial_ = false;
        decide();
    }

    void decide() {
        if (usual_[true] == 0) return begin_trial();  // helpers have not been tried yet
        const bool verdict = usual_[true] < worth_a_core * usual_[false];
        const int first_term = verdict ? 8 : 1;  // the wrong verdict costs more the other way round
        term_ = verdict == verdict_ ? std::min(2 * term_, longest_term) : first_term;
        left_ = term_;
        together_ = verdict_ = verdict;
    }

    bool together_ = false;
    bool verdict_ = false;
    bool on_trial_ = true;
    int noted_ = 0;
    Nanoseconds spent_ = 0;  // in the turns of this trial that are judged
    int term_ = 1;
    int left_ = 0;
    unsigned untimed_ = 0;
    double usual_[2] = {0, 0};  // nanoseconds of a turn: alone, together
    std::array<Nanoseconds, trial> samples_{};
};

}  // namespace envfleet
