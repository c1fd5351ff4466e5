// Many steps of all rows in one go: a policy chooses actions, environments are stepped with them,
// what came of it is kept.
//
// Rows do not depend on each other. So a thread takes some of them through step after step and
// waits for nobody: rows are at different steps while a rollout is under way, and each row gets the
// numbers that it would have got if all had been stepped together.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "engine/clock.h"
#include "engine/rows.h"

namespace envfleet {

// Who chooses actions. It is asked by many threads at once, each for rows of its own; what it
// chooses for a row depends on nothing but that row.
class RowPolicy {
  public:
    // What it reads and writes: the bytes of a row, and how many steps and rows it knows about.
    struct Sizes {
        size_t observation, action, taken, steps, rows;
    };

    // What a thread works in while it asks.
    class Room {
      public:
        virtual ~Room() = default;
    };

    virtual ~RowPolicy() = default;
    virtual Sizes sizes() const = 0;
    virtual std::unique_ptr<Room> room() const = 0;

    // Chooses for the rows from `first` on and before `last` in a step of a rollout. Each array
    // begins with row 0: what the rows show, the actions to be kept, and the same as environments
    // take them. False if some row has no action that an environment could take.
    virtual bool act(Room& room, size_t step, size_t first, size_t last,
                     const std::byte* observations, std::byte* actions, std::byte* taken) const = 0;
};

// Where a rollout is kept, one step after another, and in each one row after another.
struct RolloutArrays {
    std::byte* observations;   // of one step more: what the first step begins with is there already
    size_t observation_bytes;  // of a row
    std::byte* actions;
    size_t action_bytes;
    double* rewards;
    uint8_t *terminated, *truncated;
    uint8_t* valid;    // false where a row's turn was only its reset
    std::byte* taken;  // of one step: actions as environments take them
};

// An episode that ended: when, whose, and where among the bytes kept for its row its last
// observation begins, with the infos asked for behind it.
struct RolloutEnd {
    size_t step, row, place;
};

class Rollout {
  public:
    // `infos`: which columns of an episode's last info to keep. Policy and arrays outlive this.
    Rollout(const RowPolicy& policy, const RolloutArrays& arrays, size_t steps, size_t rows,
            std::vector<size_t> infos)
        : policy_(policy),
          arrays_(arrays),
          rows_(rows),
          infos_(std::move(infos)),
          last_step_(steps),
          made_(rows),
          ends_(rows),
          kept_(rows) {}

    // Steps that all rows have made.
    size_t made() const { return *std::min_element(made_.begin(), made_.end()); }
    bool has_begun() const { return has_begun_; }
    void begin() { has_begun_ = true; }

    // Whether no row has anything left to do: all steps are made, or the first that cannot be made
    // as usual is known, and every row has come that far.
    bool is_over() const { return made() >= last_step_.load(std::memory_order_relaxed); }

    // The rows that wait at the first step that not all have made.
    std::vector<int64_t> last_rows() const {
        std::vector<int64_t> found;
        for (size_t row = 0; row < rows_; ++row) {
            if (made_[row] == made()) found.push_back(static_cast<int64_t>(row));
        }
        return found;
    }

    // Takes rows further until the deadline, at least by a step. `may_step(first, last)`: whether
    // environments are ready; if not, these rows wait. `step(first, last)` steps them with the
    // actions to be taken; false if one failed.
    template <class MayStep, class Step>
    void run(size_t first, size_t last, Nanoseconds deadline, const Buffers& out, Autoreset mode,
             const MayStep& may_step, const Step& step) {
        const std::unique_ptr<RowPolicy::Room> room = policy_.room();
        for (size_t end = first; first < last; first = end) {
            // Rows that threads shared differently before may be at different steps.
            while (end < last && made_[end] == made_[first]) ++end;
            const auto choose = [&](size_t step) { return chosen(*room, step, first, end); };
            run_together(first, end, deadline, out, mode, may_step, choose, step);
        }
    }

    const std::byte* taken() const { return arrays_.taken; }

    // Episodes that ended in steps that all rows have made, by step and then by row.
    std::vector<RolloutEnd> ends() const {
        std::vector<RolloutEnd> all;
        const size_t steps = made();
        for (const auto& of_row : ends_) {
            std::copy_if(of_row.begin(), of_row.end(), std::back_inserter(all),
                         [steps](const RolloutEnd& end) { return end.step < steps; });
        }
        std::sort(all.begin(), all.end(), [](const RolloutEnd& one, const RolloutEnd& other) {
            return std::pair(one.step, one.row) < std::pair(other.step, other.row);
        });
        return all;
    }
    const std::byte* kept(const RolloutEnd& end) const { return kept_[end.row].data() + end.place; }

  private:
    template <class MayStep, class Choose, class Step>
    void run_together(size_t first, size_t last, Nanoseconds deadline, const Buffers& out,
                      Autoreset mode, const MayStep& may_step, const Choose& choose,
                      const Step& step) {
        size_t number = made_[first];
        while (number < last_step_.load(std::memory_order_relaxed) && may_step(first, last)) {
            if (!choose(number) || !step(first, last)) {
                stop_before(number);
                break;
            }
            keep(number, first, last, out, mode);
            ++number;
            if (now() >= deadline) break;
        }
        std::fill(made_.begin() + first, made_.begin() + last, number);
    }

    bool chosen(RowPolicy::Room& room, size_t step, size_t first, size_t last) const {
        const size_t before = step * rows_;
        return policy_.act(room, step, first, last,
                           arrays_.observations + before * arrays_.observation_bytes,
                           arrays_.actions + before * arrays_.action_bytes, arrays_.taken);
    }

    // Nobody needs to go further: this step, or one before it, has to be looked at.
    void stop_before(size_t step) {
        size_t known = last_step_.load(std::memory_order_relaxed);
        while (step < known && !last_step_.compare_exchange_weak(known, step)) {
        }
    }

    void keep(size_t step, size_t first, size_t last, const Buffers& out, Autoreset mode) {
        const size_t at = step * rows_ + first, count = last - first;
        const auto& [observations, bytes] = out.observations.front();
        std::memcpy(arrays_.observations + (at + rows_) * bytes, observations + first * bytes,
                    count * bytes);
        std::copy_n(out.rewards + first, count, arrays_.rewards + at);
        std::copy_n(out.terminated + first, count, arrays_.terminated + at);
        std::copy_n(out.truncated + first, count, arrays_.truncated + at);
        for (size_t i = 0; i < count; ++i) {
            arrays_.valid[at + i] = out.turns[first + i] != Turn::reset;
            if (arrays_.terminated[at + i] | arrays_.truncated[at + i]) {
                keep_end(step, first + i, out, mode == Autoreset::same_step);
            }
        }
    }

    void keep_end(size_t step, size_t row, const Buffers& out, bool was_reset) {
        std::vector<std::byte>& kept = kept_[row];
        ends_[row].push_back({step, row, kept.size()});
        const auto append = [&](const Leaf& leaf) {
            const std::byte* from = leaf.data + row * leaf.row_bytes;
            kept.insert(kept.end(), from, from + leaf.row_bytes);
        };
        append((was_reset ? out.final_observations : out.observations).front());
        for (const size_t info : infos_) append((was_reset ? out.final_infos : out.infos)[info]);
    }

    const RowPolicy& policy_;
    const RolloutArrays arrays_;
    const size_t rows_;
    const std::vector<size_t> infos_;
    std::atomic<size_t> last_step_;  // that is to be made, plus one
    std::vector<size_t> made_;       // steps, of each row
    std::vector<std::vector<RolloutEnd>> ends_;
    std::vector<std::vector<std::byte>> kept_;
    bool has_begun_ = false;
};

}  // namespace envfleet
