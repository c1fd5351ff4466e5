// Turns of all rows, shared by the threads of a team.
//
// Each thread's rows lie in a few pieces, always the same ones, which stay in its core's cache.
// Whoever has done its own takes pieces that others have not begun. So resets that fall into one
// thread's rows are evened out, and a turn never waits for a thread that sleeps or has no core.
// Each piece is half of what is left: few to claim, and nobody waits long for the last.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "engine/judge.h"
#include "engine/team.h"
#include "engine/waiting.h"

namespace envfleet {

class Turns final : public TeamWork {
  public:
    // `adaptive`: helpers are used where they pay off, otherwise in every turn. `before_long_wait`
    // is called by whoever calls run(), at most once per turn, when helpers keep it waiting: they
    // may wait in turn for something that it holds. `most_pieces`: of a thread's rows.
    Turns(Team& team, size_t rows, bool adaptive, std::function<void()> before_long_wait = nullptr,
          size_t most_pieces = 6)
        : team_(team),
          rows_(rows),
          shares_(team.size()),
          pieces_a_share_(std::clamp<size_t>(std::bit_width(rows / shares_), 1, most_pieces)),
          adaptive_(adaptive),
          claims_(new Claim[shares_ * pieces_a_share_]),
          seen_(new Claim[shares_]),
          before_long_wait_(std::move(before_long_wait)) {
        team_.take_on(*this);
    }
    ~Turns() { team_.end(); }
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

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

    // The same for work that takes long as a rule: helpers are called unless the last such work was
    // over in the time that this takes.
    template <class Work>
    void run_long(const Work& work) {
        const bool together = shares_ > 1 && !is_short_;
        const Nanoseconds start = now();
        together ? run_together(work) : work(size_t{0}, rows_);
        is_short_ = adaptive_ && now() - start < (together ? worth_calling / 2 : worth_calling);
    }

    bool calls(size_t helper) const override {
        return turn_.load(std::memory_order_seq_cst) !=
               seen_[helper].turn.load(std::memory_order_relaxed);
    }
    void help(size_t helper) override {
        const uint64_t turn = turn_.load(std::memory_order_seq_cst);
        seen_[helper].turn.store(turn, std::memory_order_relaxed);
        take_part(helper, turn);
    }

  private:
    // Longer than a turn that is short enough for its caller to keep what others may want.
    static constexpr Nanoseconds long_wait = 100'000;
    static constexpr Nanoseconds worth_calling = 30'000;

    // The last turn in which somebody began a piece, or that a helper has seen.
    struct alignas(64) Claim {
        std::atomic<uint64_t> turn{0};
    };

    template <class Work>
    void run_together(const Work& work) {
        if (!team_.has_helpers()) return work(size_t{0}, rows_);
        work_ = &work;
        call_ = [](const void* w, size_t first, size_t last) {
            (*static_cast<const Work*>(w))(first, last);
        };
        const uint64_t turn = turn_.load(std::memory_order_relaxed) + 1;
        left_.store(shares_ * pieces_a_share_, std::memory_order_relaxed);
        turn_.store(turn, std::memory_order_seq_cst);
        team_.take_seat();
        team_.call();
        take_part(0, turn);
        wait_for_helpers();
    }

    // Sequentially consistent, as all that sleepers and those who wake them look at.
    bool is_done() const { return left_.load(std::memory_order_seq_cst) == 0; }

    void wait_for_helpers() {
        if (is_done()) return;
        const auto done = [this] { return is_done(); };
        if (before_long_wait_) {
            if (team_.wait(done_, done, now() + long_wait)) return;
            if (!is_done()) before_long_wait_();
        }
        while (!team_.wait(done_, done, std::numeric_limits<Nanoseconds>::max())) {
        }
    }

    // One's own pieces from the first on, then the others' from the last on: they meet late.
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

    Team& team_;
    const size_t rows_;
    const size_t shares_;
    const size_t pieces_a_share_;
    const bool adaptive_;
    bool is_short_ = false;  // what run_long() did last
    Judge judge_;
    std::unique_ptr<Claim[]> claims_;
    std::unique_ptr<Claim[]> seen_;  // one per thread
    const std::function<void()> before_long_wait_;
    const void* work_ = nullptr;
    void (*call_)(const void*, size_t, size_t) = nullptr;
    SharedBell done_;
    alignas(64) std::atomic<uint64_t> turn_{0};
    alignas(64) std::atomic<size_t> left_{0};
};

}  // namespace envfleet
