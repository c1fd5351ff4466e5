// Whether a turn of compiled work keeps the GIL, decided by how long turns take.
#pragma once

#include <cstdint>
#include <optional>

#include "bindings/gil.h"
#include "engine/clock.h"

namespace envfleet {

class GilTurns {
  public:
    // To get the GIL back can take milliseconds where other threads run Python: a turn of a few
    // microseconds does not give it away, unless it has to wait.
    template <class Work>
    void run(const Work& work) {
        constexpr Nanoseconds brief = 10'000;
        const bool timed = turns_++ % 16 == 0;
        const Nanoseconds start = timed ? now() : 0;
        is_long_ ? let_others_run(work) : keep_gil(work);
        if (timed) is_long_ = now() - start > brief;
    }

    // Helpers keep the caller waiting, perhaps because an environment needs the GIL.
    void give_away() {
        if (may_give_away_) others_run_.emplace();
    }

    // Other Python threads run meanwhile.
    template <class Work>
    static void let_others_run(const Work& work) {
        const WithoutGil others_run;
        work();
    }

  private:
    template <class Work>
    void keep_gil(const Work& work) {
        struct Back {
            GilTurns& turns;
            ~Back() {
                turns.may_give_away_ = false;
                if (turns.others_run_) turns.others_run_.reset();
            }
        } back{*this};
        may_give_away_ = true;
        work();
    }

    uint64_t turns_ = 0;
    bool is_long_ = false;
    bool may_give_away_ = false;  // the GIL, which is held meanwhile
    std::optional<WithoutGil> others_run_;
};

}  // namespace envfleet
