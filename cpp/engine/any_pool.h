// A pool of environments whose type is not known: what a binding talks to, once per batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/failures.h"
#include "engine/fields.h"
#include "engine/random.h"
#include "engine/rollout.h"
#include "engine/rows.h"

namespace envfleet {

// What an episode yet to come is to be played with; without a seed the generator runs on.
struct EpisodePlan {
    NamedValues parameters;
    int64_t time_limit;
    std::optional<uint32_t> seed;
};

// Where the rows of an array are to be copied to once they are written.
struct Twin {
    const std::byte* rows;
    std::byte* copy;
    size_t row_bytes;
    // Copies so many numbers into as many of another type; none if the types are the same.
    void (*convert)(const std::byte* from, std::byte* to, size_t count) = nullptr;
    size_t numbers_a_row = 0;
    size_t copy_row_bytes = 0;

    void copy_rows(size_t first, size_t last) const {
        if (convert == nullptr) {
            std::memcpy(copy + first * row_bytes, rows + first * row_bytes,
                        (last - first) * row_bytes);
        } else {
            convert(rows + first * row_bytes, copy + first * copy_row_bytes,
                    (last - first) * numbers_a_row);
        }
    }
};

struct PoolSetup {
    size_t num_envs;
    Autoreset autoreset;
    std::vector<int64_t> time_limits;  // steps per episode, one per environment
    unsigned threads;
    bool adaptive;  // threads only where they pay off
    Buffers buffers;
    // Called in step() and reset() before a long wait for threads; see Turns.
    std::function<void()> before_long_wait = nullptr;
};

// In a forked copy of the process, where the threads that rows were sent to are missing,
// everything that works on rows throws std::runtime_error.
class AnyPool {
  public:
    virtual ~AnyPool() = default;

    // Bytes of one environment's action, and of each part of its observation.
    virtual size_t action_bytes() const = 0;
    virtual std::vector<size_t> observation_bytes() const = 0;

    // Of actions that are integers, from 0 on: below what each number in an action must lie.
    virtual const std::vector<int64_t>& action_limits() const = 0;

    // Whether environments read numbers that are limited themselves: then those must not change any
    // more once they were checked. Else each is looked at once more where it is read.
    virtual bool reads_limited_actions() const = 0;

    // Steps all rows; `actions` holds one after another. Each thread copies the rows it has
    // written, which it has at hand, to their twins, and before the rows of actions that it is
    // about to read, if they lie elsewhere. For what environments throw see failure().
    virtual void step(const std::byte* actions, std::span<const Twin> twins,
                      const Twin* elsewhere = nullptr) = 0;

    // Takes all rows further in a rollout until it is over, the deadline passes, or plans are
    // lacking. For what environments throw see failure_among() of those that are behind. There must
    // be one array of observations.
    virtual void roll_out(Rollout& rollout, Nanoseconds deadline) = 0;

    // Throws std::invalid_argument for options that reset() would refuse.
    virtual void check_options(const std::vector<NamedValues>& options) const = 0;

    // Resets the rows in the mask. Refuses options before anything changes.
    virtual void reset(std::span<const uint8_t> mask, const std::vector<NamedValues>& options) = 0;

    // Sets some rows to work, none of which may be out yet: steps, whose actions stay where they
    // are until received, or resets. There are options for every row or none at all; they are
    // refused before anything changes.
    virtual void send(std::span<const int64_t> rows, const std::byte* actions) = 0;
    virtual void send_resets(std::span<const int64_t> rows,
                             const std::vector<NamedValues>& options) = 0;

    // Waits for the first results, and works meanwhile. False, and nothing happens, if the deadline
    // passed or a signal arrived first.
    virtual bool receive(std::span<int64_t> rows, int64_t deadline) = 0;

    // Whether threads have a part in the next so many results, which receive() may wait for.
    virtual bool may_wait_for(size_t count) const = 0;

    // Waits for rows that are being worked on, and forgets all that are out. False if the deadline
    // passed or a signal arrived first: those that are being worked on are still out then.
    virtual bool recall(int64_t deadline) = 0;
    virtual size_t rows_out() const = 0;
    virtual std::vector<int64_t> rows_under_way() = 0;

    // The first environment that failed in the last step or reset, or of these rows.
    virtual std::optional<Failure> failure() const = 0;
    virtual std::optional<Failure> failure_among(std::span<const int64_t> rows) const = 0;

    // Adds an episode to those planned for a row. From the first plan on every reset of any row
    // begins the next episode planned for it, so that each must have one: see lacks_plans().
    virtual void plan_episode(size_t env, const EpisodePlan& plan) = 0;
    virtual void forget_plans(size_t env) = 0;
    virtual size_t plans(size_t env) const = 0;
    virtual bool lacks_plans() const = 0;

    // Gives a row the parameters and the time limit of its next episode without a reset, and shows
    // its state with them.
    virtual void adopt_plan(size_t env) = 0;

    virtual Rng& rng(size_t env) = 0;
    virtual int64_t& elapsed(size_t env) = 0;
    virtual int64_t& time_limit(size_t env) = 0;

    virtual std::vector<std::string> parameter_names() const = 0;
    virtual std::vector<std::string> variable_names() const = 0;
    virtual std::optional<Value> get(size_t env, std::string_view name) const = 0;

    // Sets a parameter or variable; false if there is none of this name.
    virtual bool set(size_t env, std::string_view name, const Value& value) = 0;
    virtual bool set_everywhere(std::string_view name, const Value& value) = 0;

    // Everything about one environment but its parameters, to be put back later. Bytes that are no
    // state of it are refused with std::invalid_argument, and nothing changes.
    virtual std::vector<std::byte> snapshot(size_t env) const = 0;
    virtual void restore(size_t env, std::span<const std::byte> snapshot) = 0;
};

}  // namespace envfleet
