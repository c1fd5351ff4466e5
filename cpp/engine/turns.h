// The threads of a pool: the caller, and helpers that each have their rows.
//
// Each thread's rows lie in a few pieces, always the same ones, which stay in its core's cache.
// Whoever has done his own takes pieces that others have not begun. So resets that fall into one
// thread's rows are evened out, and a turn never waits for a thread that sleeps or has no core.
// Each piece is half of what is left: few to claim, and nobody waits long for the last.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "engine/cores.h"
#include "engine/team.h"
#include "engine/waiting.h"

namespace envfleet {

// Whether helpers pay off, decided by what turns took with and without them.
//
// Trials and terms alternate: a trial looks at the other way, a term keeps the better one. A
// verdict that is repeated holds twice as long: a wrong one, from a moment when the machine did
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

class Crew {
  public:
    // `adaptive`: helpers are used where they pay off, otherwise in every turn. `before_long_wait`
    // is called by whoever calls run(), at most once a turn, when helpers keep him waiting: they
    // may wait in turn for something that he holds.
    Crew(size_t rows, unsigned threads, bool adaptive,
         std::function<void()> before_long_wait = nullptr)
        : rows_(rows),
          shares_(std::clamp<size_t>(threads, 1, std::max<size_t>(rows, 1))),
          pieces_a_share_(std::clamp<size_t>(std::bit_width(rows / shares_), 1, most_pieces)),
          adaptive_(adaptive),
          claims_(new Claim[shares_ * pieces_a_share_]),
          seats_(shares_),
          patience_(fitting_patience(shares_)),
          before_long_wait_(std::move(before_long_wait)) {}

    ~Crew() {
        stopping_.store(true, std::memory_order_seq_cst);
        go_.ring();
        helpers_.let_go();
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    size_t threads() const { return shares_; }

    // Calls work(first, last) for all rows; it must not throw.
    template <class Work>
    void run(const Work& work) {
        if (shares_ == 1) return work(size_t{0}, rows_);
        if (!adaptive_) return run_together(work);
        const bool timed = judge_.wants_time();
        const Nanoseconds start = timed ? now() : 0;
        judge_.together() ? run_together(work) : work(size_t{0}, rows_);
        if (timed) judge_.note(now() - start);
    }

  private:
    static constexpr size_t most_pieces = 6;
    // Longer than a turn that is short enough for its caller to keep what others may want.
    static constexpr Nanoseconds long_wait = 100'000;

    // The last turn in which somebody began this piece.
    struct alignas(64) Claim {
        std::atomic<uint64_t> turn{0};
    };

    template <class Work>
    void run_together(const Work& work) {
        if (helpers_.are_elsewhere()) return work(size_t{0}, rows_);
        helpers_.hire(shares_ - 1, [this](size_t share) { help(share); });
        if (helpers_.are_none()) return work(size_t{0}, rows_);
        work_ = &work;
        call_ = [](const void* w, size_t first, size_t last) {
            (*static_cast<const Work*>(w))(first, last);
        };
        const uint64_t turn = turn_.load(std::memory_order_relaxed) + 1;
        left_.store(shares_ * pieces_a_share_, std::memory_order_relaxed);
        turn_.store(turn, std::memory_order_seq_cst);
        seats_.take(0);
        go_.ring();
        take_part(0, turn);
        wait_for_helpers();
    }

    // Sequentially consistent, as all that sleepers and those who wake them look at.
    bool is_done() const { return left_.load(std::memory_order_seq_cst) == 0; }

    void wait_for_helpers() {
        if (is_done()) return;
        auto done = [&] { return is_done(); };
        auto before_sleep = [&] { return seats_.leave(0); };
        auto wait = [&](Nanoseconds deadline) {
            return wait_until(done_.sleeper(), done, patience_, crowding_, deadline, before_sleep);
        };
        if (before_long_wait_) {
            if (wait(now() + long_wait)) return;
            if (!is_done()) before_long_wait_();
        }
        while (!wait(std::numeric_limits<Nanoseconds>::max())) {
        }
    }

    // His own pieces from the first on, then the others' from the last on: they meet late.
    void take_part(size_t share, uint64_t turn) {
        for (size_t piece = 0; piece < pieces_a_share_; ++piece) try_piece(share, piece, turn);
        for (size_t other = 1; other < shares_; ++other) {
            for (size_t piece = pieces_a_share_; piece-- > 0;) {
                try_piece((share + other) % shares_, piece, turn);
            }
        }
    }

    void try_piece(size_t share, size_t piece, uint64_t turn) {
        const size_t number = share * pieces_a_share_ + piece;
        uint64_t before = turn - 1;
        if (!claims_[number].turn.compare_exchange_strong(before, turn)) return;
        call_(work_, first_row(share, piece), first_row(share, piece + 1));
        if (left_.fetch_sub(1, std::memory_order_seq_cst) == 1) done_.ring();
    }

    size_t first_row(size_t share, size_t piece) const {
        const size_t first = rows_ * share / shares_;
        const size_t last = rows_ * (share + 1) / shares_;
        return piece < pieces_a_share_ ? last - ((last - first) >> piece) : last;
    }

    void help(size_t share) {
        uint64_t seen = 0;
        Crowding crowding;
        auto called = [&] {
            return turn_.load(std::memory_order_seq_cst) != seen ||
                   stopping_.load(std::memory_order_seq_cst);
        };
        for (;;) {
            constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();
            auto before_sleep = [&] { return seats_.leave(share); };
            if (!wait_until(go_.sleeper(), called, patience_, crowding, forever, before_sleep)) {
                continue;
            }
            if (stopping_.load(std::memory_order_seq_cst)) return;
            seats_.sit_apart(share, crowding);
            seen = turn_.load(std::memory_order_seq_cst);
            take_part(share, seen);
        }
    }

    const size_t rows_;
    const size_t shares_;
    const size_t pieces_a_share_;
    const bool adaptive_;
    Judge judge_;
    std::unique_ptr<Claim[]> claims_;
    Seats seats_;  // of the threads; the caller's is the first
    const Patience patience_;
    Crowding crowding_;  // of the caller
    const std::function<void()> before_long_wait_;
    Helpers helpers_;
    const void* work_ = nullptr;
    void (*call_)(const void*, size_t, size_t) = nullptr;
    SharedBell go_;
    SharedBell done_;
    alignas(64) std::atomic<uint64_t> turn_{0};
    alignas(64) std::atomic<size_t> left_{0};
    std::atomic<bool> stopping_{false};
};

}  // namespace envfleet
