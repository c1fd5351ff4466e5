// Rollouts: the numbers of steps one by one, whatever threads, deadlines, plans and failures do.
#include "engine/rollout.h"

#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/check.h"
#include "tests/fleet.h"

using namespace envfleet;

// A random walk that ends at either side, sooner the shorter its way is. Action 3 throws.
struct Walk {
    struct Params {
        int64_t length = 3;
    };
    struct State {
        double place = 0;
        int64_t steps = 0;
    };
    using Action = int64_t;
    static constexpr int64_t num_actions = 4;

    static void reset(State& s, Rng& rng, const Params&) { s = {rng.uniform(-1, 1), 0}; }
    static Outcome step(State& s, Rng& rng, const Params& p, int64_t action) {
        if (action == 3) throw std::runtime_error("told to");
        s.place += static_cast<double>(action - 1) + rng.uniform(-1, 1);
        ++s.steps;
        return {s.place, s.place > static_cast<double>(p.length), s.place < -5};
    }
    static std::vector<size_t> observation_bytes(const Params&) { return {sizeof(double)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        *out.leaf<double>(0) = s.place;
    }
    static std::vector<InfoColumn> infos(const Params&) { return {{"steps", "int64"}}; }
    static void inform(const State& s, const Params&, const Row& out) {
        *out.leaf<int64_t>(0) = s.steps;
    }
    static auto parameters() { return std::tuple(field("length", &Params::length)); }
    static auto variables() { return std::tuple(field("steps", &State::steps)); }
    static auto saved() {
        return std::tuple(field("place", &State::place), field("steps", &State::steps));
    }
};

// Chooses by noise and by what it sees; in one step and row what throws, or nothing at all.
struct Chooser final : RowPolicy {
    static constexpr size_t never = std::numeric_limits<size_t>::max();

    Chooser(size_t steps, size_t rows) : noise(steps * rows), steps_(steps), rows_(rows) {
        std::mt19937 generator(3);
        for (int64_t& each : noise) each = static_cast<int64_t>(generator() % 3);
    }
    Sizes sizes() const override { return {sizeof(double), sizeof(int64_t), 8, steps_, rows_}; }
    std::unique_ptr<Room> room() const override { return std::make_unique<Room>(); }
    bool act(Room&, size_t step, size_t first, size_t last, const std::byte* observations,
             std::byte* actions, std::byte* taken) const override {
        for (size_t row = first; row < last; ++row) {
            const double seen = reinterpret_cast<const double*>(observations)[row];
            int64_t action = seen < -2 ? 2 : noise[step * rows_ + row];
            if (step == fails_at && row == fails_in) action = 3;
            if (step == stops_at && row == fails_in) return false;
            reinterpret_cast<int64_t*>(actions)[row] = action;
            reinterpret_cast<int64_t*>(taken)[row] = action;
        }
        return true;
    }

    std::vector<int64_t> noise;
    size_t fails_at = never, stops_at = never, fails_in = 0;

  private:
    size_t steps_, rows_;
};

// What is kept of a rollout, and the rollout.
struct Kept {
    Kept(const Chooser& policy, Fleet<Walk>& fleet, size_t steps)
        : rows(fleet.rewards.size()),
          observations((steps + 1) * rows),
          rewards(steps * rows),
          actions(steps * rows),
          taken(rows),
          terminated(steps * rows),
          truncated(steps * rows),
          valid(steps * rows),
          rollout(policy,
                  {bytes(observations), sizeof(double), bytes(actions), sizeof(int64_t),
                   rewards.data(), terminated.data(), truncated.data(), valid.data(), bytes(taken)},
                  steps, rows, {0}) {
        std::memcpy(observations.data(), fleet.observations[0].data(), rows * sizeof(double));
    }
    template <class T>
    static std::byte* bytes(std::vector<T>& numbers) {
        return reinterpret_cast<std::byte*>(numbers.data());
    }
    std::pair<double, int64_t> end(const RolloutEnd& end) const {
        std::pair<double, int64_t> found;
        std::memcpy(&found.first, rollout.kept(end), sizeof(double));
        std::memcpy(&found.second, rollout.kept(end) + sizeof(double), sizeof(int64_t));
        return found;
    }

    size_t rows;
    std::vector<double> observations, rewards;
    std::vector<int64_t> actions, taken;
    std::vector<uint8_t> terminated, truncated, valid;
    Rollout rollout;
};

constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();

void check_same_as_single_steps(Autoreset mode, unsigned threads, Nanoseconds patience) {
    constexpr size_t steps = 200, rows = 13;
    Fleet<Walk> fleet(rows, mode, threads, false, {{}}, 20);
    Fleet<Walk> other(rows, mode, 1, false, {{}}, 20);
    fleet.reset();
    other.reset();
    const Chooser policy(steps, rows);
    Kept kept(policy, fleet, steps);
    while (!kept.rollout.is_over()) {
        fleet.pool.roll_out(kept.rollout, patience == forever ? forever : now() + patience);
    }
    check(kept.rollout.made() == steps && !fleet.pool.failure());
    const std::vector<RolloutEnd> ends = kept.rollout.ends();
    size_t next_end = 0;
    std::vector<int64_t> actions(rows), taken(rows);
    for (size_t step = 0; step < steps; ++step) {
        RowPolicy::Room room;
        policy.act(room, step, 0, rows, other.observations[0].data(), Kept::bytes(actions),
                   Kept::bytes(taken));
        other.step(actions);
        for (size_t row = 0; row < rows; ++row) {
            const size_t at = step * rows + row;
            check(kept.actions[at] == actions[row]);
            check(kept.rewards[at] == other.rewards[row]);
            check(kept.terminated[at] == other.terminated[row]);
            check(kept.truncated[at] == other.truncated[row]);
            check(kept.valid[at] == (other.turns[row] != Turn::reset));
            check(kept.observations[at + rows] == other.observation<double>(row));
            if (!other.terminated[row] && !other.truncated[row]) continue;
            const bool was_reset = mode == Autoreset::same_step;
            const auto& last = was_reset ? other.final_observations : other.observations;
            const auto& info = was_reset ? other.final_infos : other.infos;
            check(ends[next_end].step == step && ends[next_end].row == row);
            const auto [place, number] = kept.end(ends[next_end++]);
            check(place == reinterpret_cast<const double*>(last[0].data())[row]);
            check(number == reinterpret_cast<const int64_t*>(info[0].data())[row]);
        }
    }
    check(next_end == ends.size() && next_end > rows);
}

void test_same_as_single_steps() {
    for (const Autoreset mode : {Autoreset::same_step, Autoreset::next_step}) {
        for (const unsigned threads : {1, 2, 4}) {
            for (const Nanoseconds patience : {Nanoseconds{0}, Nanoseconds{20'000}, forever}) {
                check_same_as_single_steps(mode, threads, patience);
            }
        }
    }
}

// The first failure in time is told, though others came further and failed later.
void test_failures() {
    constexpr size_t steps = 50, rows = 8;
    for (const unsigned threads : {1, 3}) {
        Fleet<Walk> fleet(rows, Autoreset::same_step, threads, false);
        fleet.reset();
        Chooser policy(steps, rows);
        policy.fails_at = 30;
        policy.fails_in = 5;
        policy.noise[40 * rows + 1] = 3;
        Kept kept(policy, fleet, steps);
        while (!kept.rollout.is_over()) fleet.pool.roll_out(kept.rollout, now() + 1'000);
        check(kept.rollout.made() == 30);
        const auto failure = fleet.pool.failure_among(kept.rollout.last_rows());
        check(failure && failure->env == 5 && failure->message == "told to");
        for (const RolloutEnd& end : kept.rollout.ends()) check(end.step < 30);
    }
}

void test_no_action() {
    constexpr size_t steps = 50, rows = 8;
    Fleet<Walk> fleet(rows, Autoreset::same_step, 2, false);
    fleet.reset();
    Chooser policy(steps, rows);
    policy.stops_at = 7;
    Kept kept(policy, fleet, steps);
    while (!kept.rollout.is_over()) fleet.pool.roll_out(kept.rollout, forever);
    check(kept.rollout.made() == 7 && !fleet.pool.failure());
}

void test_actions_are_checked() {
    Fleet<Walk> fleet(2, Autoreset::same_step, 1, false);
    fleet.reset();
    Chooser policy(5, 2);
    policy.noise[3] = 4;
    Kept kept(policy, fleet, 5);
    fleet.pool.roll_out(kept.rollout, forever);
    check(kept.rollout.made() == 1 && fleet.pool.failure()->env == 1);
}

// Rows whose plans have run out wait for others; the rest goes on.
void test_plans() {
    constexpr size_t steps = 100, rows = 6;
    Fleet<Walk> fleet(rows, Autoreset::same_step, 2, false, {{}}, 10);
    const auto plan = [&](size_t row, uint32_t seed) {
        fleet.pool.plan_episode(row, {{{"length", int64_t{2}}}, 5 + seed % 4, seed});
    };
    for (uint32_t row = 0; row < rows; ++row) plan(row, row);
    fleet.reset();
    for (uint32_t row = 0; row < rows; ++row) plan(row, row);
    const Chooser policy(steps, rows);
    Kept kept(policy, fleet, steps);
    uint32_t seed = 0;
    size_t calls = 0;
    for (; !kept.rollout.is_over(); ++calls) {
        fleet.pool.roll_out(kept.rollout, forever);
        for (size_t row = 0; row < rows; ++row) {
            if (fleet.pool.plans(row) == 0) plan(row, seed++);
        }
    }
    check(kept.rollout.made() == steps && !fleet.pool.failure() && calls > 3);
}

int main() {
    test_same_as_single_steps();
    test_failures();
    test_no_action();
    test_actions_are_checked();
    test_plans();
}
