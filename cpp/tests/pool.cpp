// The pool on an environment that counts: autoreset, time limits, failures, snapshots, threads.
#include "engine/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/fleet.h"

using namespace envfleet;

std::atomic<bool> takes_its_time{false};

// Its state lives on the heap and cannot be copied, as that of a physics engine. Action 9 throws,
// action 8 takes its time.
struct Counter {
    struct Params {
        int64_t length = 3;
    };
    struct State {
        explicit State(const Params& p) : steps(std::make_unique<int64_t>(0)), length(p.length) {}
        std::unique_ptr<int64_t> steps;
        int64_t length;
        int64_t episodes = 0;
    };
    using Action = int64_t;
    static constexpr int64_t num_actions = 10;

    static void reset(State& s, Rng&, const Params& p) {
        *s.steps = 0;
        s.length = p.length;
        ++s.episodes;
    }
    static Outcome step(State& s, Rng&, const Params&, int64_t action) {
        if (action == 9) throw std::runtime_error("told to");
        if (action == 8) {
            takes_its_time = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        ++*s.steps;
        return {static_cast<double>(action), *s.steps >= s.length};
    }
    static std::vector<size_t> observation_bytes(const Params&) { return {2 * sizeof(int64_t)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        out.leaf<int64_t>(0)[0] = s.episodes;
        out.leaf<int64_t>(0)[1] = *s.steps;
    }
    static std::vector<std::byte> save(const State& s) {
        std::vector<std::byte> bytes;
        append(bytes, *s.steps);
        append(bytes, s.episodes);
        return bytes;
    }
    static void load(State& s, std::span<const std::byte> bytes) {
        if (bytes.size() != 16) throw std::invalid_argument("no snapshot of a counter");
        SnapshotReader reader(bytes);
        reader.read(*s.steps);
        reader.read(s.episodes);
    }
    static auto parameters() { return std::tuple(field("length", &Params::length)); }
    static auto variables() { return std::tuple(field("episodes", &State::episodes)); }
};

using Counters = Fleet<Counter>;

void check_row(const Counters& fleet, size_t env, int64_t episode, int64_t step) {
    check(fleet.observation<int64_t>(env, 0, 0) == episode);
    check(fleet.observation<int64_t>(env, 0, 1) == step);
}

void test_next_step() {
    Counters fleet(2, Autoreset::next_step, 1, false);
    fleet.reset();
    for (int i = 1; i <= 3; ++i) {
        fleet.step<int64_t>({1, 2});
        check_row(fleet, 1, 1, i);
        check(fleet.rewards[1] == 2.0);
        check(fleet.terminated[1] == (i == 3));
    }
    fleet.step<int64_t>({9, 9});  // ignored: this turn is the reset
    check(!fleet.pool.failure());
    check_row(fleet, 0, 2, 0);
    check(fleet.rewards[0] == 0.0 && !fleet.terminated[0] && fleet.turns[0] == Turn::reset);
}

void test_same_step() {
    Counters fleet(1, Autoreset::same_step, 1, false);
    fleet.reset();
    for (int i = 0; i < 3; ++i) fleet.step<int64_t>({1});
    check_row(fleet, 0, 2, 0);
    check(fleet.terminated[0] && fleet.turns[0] == Turn::ended_and_reset);
    check(reinterpret_cast<int64_t*>(fleet.final_observations[0].data())[1] == 3);
    fleet.step<int64_t>({1});
    check_row(fleet, 0, 2, 1);
}

void test_time_limit_and_mask() {
    Counters fleet(2, Autoreset::disabled, 1, false, {{.length = 100}}, 2);
    fleet.reset();
    fleet.step<int64_t>({1, 1});
    check(!fleet.truncated[0]);
    fleet.step<int64_t>({1, 1});
    check(fleet.truncated[0] && !fleet.terminated[0] && fleet.finished[1]);
    fleet.pool.reset(std::vector<uint8_t>{0, 1}, {});
    check_row(fleet, 0, 1, 2);
    check_row(fleet, 1, 2, 0);
    check(fleet.finished[0] && !fleet.finished[1] && fleet.turns[0] == Turn::none);
}

void test_failures_name_the_first_and_spare_the_others() {
    Counters fleet(40, Autoreset::next_step, 4, false, {{.length = 100}});
    fleet.reset();
    std::vector<int64_t> actions(40, 1);
    actions[33] = actions[17] = 9;
    fleet.step(actions);
    check(fleet.pool.failure() && fleet.pool.failure()->env == 17);
    check(fleet.pool.failure()->message == "told to");
    check_row(fleet, 39, 1, 1);
    check_row(fleet, 17, 1, 0);
    fleet.reset();
    check(!fleet.pool.failure());
}

void test_fields() {
    Counters fleet(2, Autoreset::next_step, 1, false);
    fleet.reset();
    check(fleet.pool.set(1, "length", int64_t{7}));
    check(std::get<int64_t>(*fleet.pool.get(1, "length")) == 7);
    check(std::get<int64_t>(*fleet.pool.get(0, "length")) == 3);
    check(fleet.pool.set(0, "episodes", int64_t{5}));
    check_row(fleet, 0, 5, 0);
    check(!fleet.pool.set(0, "nothing", 1.0) && !fleet.pool.get(0, "nothing"));
    bool refused = false;
    try {
        fleet.pool.set(0, "length", std::string("long"));
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    check(refused);
}

void test_snapshots() {
    Counters fleet(2, Autoreset::next_step, 1, false, {{.length = 100}});
    fleet.reset();
    fleet.step<int64_t>({1, 1});
    const auto kept = fleet.pool.snapshot(0);
    for (int i = 0; i < 5; ++i) fleet.step<int64_t>({1, 1});
    check_row(fleet, 0, 1, 6);
    fleet.pool.restore(0, kept);
    check_row(fleet, 0, 1, 1);
    check(fleet.pool.elapsed(0) == 1 && fleet.pool.elapsed(1) == 6);
}

EpisodePlan planned(int64_t length, std::optional<uint32_t> seed = {}) {
    return {{{"length", length}}, 1000, seed};
}

void test_planned_episodes() {
    Counters fleet(40, Autoreset::next_step, 4, false);
    const std::vector<int64_t> actions(40, 1);
    const auto steps_of_an_episode = [&] {
        int64_t steps = 0;
        do {
            fleet.step(actions);
            ++steps;
        } while (!fleet.terminated[7]);
        return steps;
    };
    check(!fleet.pool.lacks_plans());
    for (size_t env = 0; env < 40; ++env) {
        for (const int64_t length : {2, 5, 1}) fleet.pool.plan_episode(env, planned(length));
    }
    check(!fleet.pool.lacks_plans() && fleet.pool.plans(7) == 3);
    fleet.reset();
    check(steps_of_an_episode() == 2);
    check(steps_of_an_episode() == 1 + 5);  // the reset is a step of its own
    check(!fleet.pool.lacks_plans());
    check(steps_of_an_episode() == 1 + 1);
    check(fleet.pool.lacks_plans() && fleet.pool.plans(7) == 0);
    fleet.step(actions);  // nothing was planned
    check(fleet.pool.failure().has_value());

    for (size_t env = 0; env < 40; ++env) fleet.pool.plan_episode(env, planned(4, 11));
    check(!fleet.pool.lacks_plans());
    fleet.reset();
    Rng seeded;
    const uint32_t eleven = 11;
    seeded.seed({&eleven, 1});
    check(fleet.pool.rng(3).random() == seeded.random());
    check(std::get<int64_t>(*fleet.pool.get(3, "length")) == 4);

    fleet.pool.plan_episode(3, planned(6));
    fleet.pool.adopt_plan(3);
    check(std::get<int64_t>(*fleet.pool.get(3, "length")) == 6);
    fleet.pool.plan_episode(3, planned(7));
    fleet.pool.forget_plans(3);
    check(fleet.pool.plans(3) == 0 && fleet.pool.lacks_plans());
}

// Under the thread sanitizer this is the test: helpers come late, lose their rows, get new work.
void test_threads(bool adaptive) {
    for (const unsigned threads : {2u, 3u, 8u}) {
        Counters fleet(100, Autoreset::next_step, threads, adaptive);
        fleet.reset();
        const std::vector<int64_t> actions(100, 1);
        for (int turn = 1; turn <= 2000; ++turn) {
            fleet.step(actions);
            for (size_t env = 0; env < 100; ++env) check_row(fleet, env, 1 + turn / 4, turn % 4);
            check(fleet.rewards_copied == fleet.rewards);
        }
    }
}

void test_pools_that_are_made_and_ended_in_a_hurry() {
    const std::vector<int64_t> actions(8, 1);
    for (int i = 0; i < 200; ++i) {
        Counters fleet(8, Autoreset::next_step, 4, false);
        fleet.reset();
        if (i % 2) fleet.step(actions);
    }
}

constexpr Nanoseconds forever = std::numeric_limits<Nanoseconds>::max();

std::vector<int64_t> received(Counters& fleet, size_t count) {
    std::vector<int64_t> rows(count);
    check(fleet.pool.receive(rows, forever));
    return rows;
}

// Under the thread sanitizer too: rows go out in batches and come back in any order, each as often
// as it was sent, and none sees a step of another.
void test_tickets(bool adaptive) {
    for (const unsigned threads : {1u, 2u, 3u, 8u}) {
        Counters fleet(20, Autoreset::next_step, threads, adaptive);
        const std::vector<int64_t> actions(20, 1);
        const auto* bytes = reinterpret_cast<const std::byte*>(actions.data());
        std::vector<int> steps(20);
        fleet.send_resets();
        auto fewest = [&] { return *std::min_element(steps.begin(), steps.end()); };
        // A helper that has no core for a while keeps the rows that it has begun: those come later.
        for (int turn = 0; turn < 3000 || fewest() <= 300; ++turn) {
            check(turn < (threads == 1 ? 3000 : 1'000'000));
            const auto rows =
                received(fleet, std::min<size_t>(1 + turn % 7, fleet.pool.rows_out()));
            for (const int64_t row : rows) {
                check_row(fleet, row, 1 + steps[row] / 4, steps[row] % 4);
                check(fleet.rewards[row] == (steps[row] % 4 != 0));
                ++steps[row];
            }
            fleet.pool.send(rows, bytes);
        }
        check(fleet.pool.recall(forever) && fleet.pool.rows_out() == 0);
        fleet.step(actions);
        fleet.reset();
        fleet.pool.send(std::vector<int64_t>{3}, bytes);
        check(received(fleet, 1).front() == 3);
    }
}

// Some rows are reset while others are out, each with options of its own where there are any.
void test_single_rows_are_reset_between_steps() {
    for (const unsigned threads : {1u, 3u}) {
        Counters fleet(9, Autoreset::disabled, threads, false, {{.length = 1'000'000}});
        const std::vector<int64_t> actions(9, 1);
        const auto* bytes = reinterpret_cast<const std::byte*>(actions.data());
        std::vector<int> episodes(9, 1), steps(9);
        fleet.send_resets();
        for (int turn = 0; turn < 2000; ++turn) {
            const auto rows = received(fleet, 1 + turn % 4);
            for (const int64_t row : rows) check_row(fleet, row, episodes[row], steps[row]);
            const std::span all(rows);
            const auto to_reset = all.first(turn % 3 == 0 ? 1 : 0),
                       to_step = all.subspan(to_reset.size());
            for (const int64_t row : to_reset) ++episodes[row], steps[row] = 0;
            for (const int64_t row : to_step) ++steps[row];
            if (!to_reset.empty()) fleet.pool.send_resets(to_reset, {});
            fleet.pool.send(to_step, bytes);
        }
        check(fleet.pool.recall(forever));
    }
}

void test_tickets_that_fail_tell_of_their_own_rows() {
    Counters fleet(8, Autoreset::next_step, 2, false, {{.length = 100}});
    std::vector<int64_t> actions(8, 1);
    actions[5] = 9;
    const auto* bytes = reinterpret_cast<const std::byte*>(actions.data());
    fleet.send_resets();
    fleet.pool.send(received(fleet, 8), bytes);
    const auto rows = received(fleet, 8);
    check(fleet.pool.failure_among(rows)->env == 5);
    check(!fleet.pool.failure_among(std::vector<int64_t>{1, 2}));
    fleet.send_resets();
    check(!fleet.pool.failure_among(received(fleet, 8)));
}

void test_tickets_are_waited_for_until_a_deadline() {
    Counters fleet(2, Autoreset::next_step, 2, false);
    fleet.reset();
    const std::vector<int64_t> actions(2, 8);
    fleet.pool.send(std::vector<int64_t>{0}, reinterpret_cast<const std::byte*>(actions.data()));
    while (!takes_its_time) std::this_thread::yield();  // else it would be done here
    std::vector<int64_t> rows(1);
    check(!fleet.pool.receive(rows, now() + 1'000'000));
    check(fleet.pool.rows_out() == 1);
    check(fleet.pool.receive(rows, forever) && rows.front() == 0);
}

// Sends rows, all of which take their time, and waits until one is begun.
void send_slow(Counters& fleet, const std::vector<int64_t>& rows) {
    static const std::vector<int64_t> actions(8, 8);
    takes_its_time = false;
    fleet.pool.send(rows, reinterpret_cast<const std::byte*>(actions.data()));
    while (!takes_its_time) std::this_thread::yield();
}

void test_tickets_are_recalled_until_a_deadline() {
    Counters fleet(8, Autoreset::next_step, 2, false, {{.length = 100}});
    fleet.reset();
    for (int64_t turn = 1; turn <= 3; ++turn) {
        send_slow(fleet, {5, 1, 2});
        check(!fleet.pool.recall(now() + 1'000'000));
        check(fleet.pool.rows_out() == 1);  // what nobody has begun is not out any more
        check(fleet.pool.rows_under_way() == std::vector<int64_t>{5});
        check(fleet.pool.may_wait_for(1));
        check(fleet.pool.recall(forever) && fleet.pool.rows_out() == 0);
        check(fleet.pool.rows_under_way().empty());
        check_row(fleet, 5, 1, turn);
        check_row(fleet, 1, 1, 0);
    }
    fleet.send_resets();
    check(received(fleet, 8).size() == 8);
    check_row(fleet, 5, 2, 0);
}

size_t num_threads() {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
}

void test_turns_and_tickets_share_one_team() {
    const std::vector<int64_t> actions(8, 1);
    const size_t before = num_threads();
    Counters fleet(8, Autoreset::next_step, 2, false);
    check(num_threads() == before);  // none before there is work
    for (int turn = 0; turn < 3; ++turn) {
        fleet.reset();
        fleet.step(actions);
        check(num_threads() == before + 1);
        fleet.pool.send(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7},
                        reinterpret_cast<const std::byte*>(actions.data()));
        check(received(fleet, 8).size() == 8);
        check(num_threads() == before + 1);
        check_row(fleet, 3, 1 + turn, 2);
    }
}

void test_who_works_alone_does_not_wait() {
    Counters fleet(8, Autoreset::next_step, 1, false);
    fleet.send_resets();
    check(!fleet.pool.may_wait_for(8));
    check(received(fleet, 8).size() == 8);
}

void test_pools_that_end_while_tickets_are_out() {
    const std::vector<int64_t> actions(8, 1);
    for (int i = 0; i < 200; ++i) {
        Counters fleet(8, Autoreset::next_step, 4, false);
        fleet.send_resets();
        if (i % 2) {
            const auto rows = received(fleet, 1 + i % 8);
            fleet.pool.send(rows, reinterpret_cast<const std::byte*>(actions.data()));
        }
    }
    Counters fleet(8, Autoreset::next_step, 3, false);
    fleet.reset();
    send_slow(fleet, {0, 1, 2, 3});
}

// What is out uses planned episodes up while others are planned.
void test_tickets_of_planned_episodes() {
    const std::vector<int64_t> actions(6, 1);  // which outlive the fleet: rows are out at its end
    Counters fleet(6, Autoreset::next_step, 3, false);
    const auto plan_ahead = [&] {
        for (size_t env = 0; env < 6; ++env) {
            while (fleet.pool.plans(env) < 4) fleet.pool.plan_episode(env, planned(2));
        }
    };
    plan_ahead();
    fleet.send_resets();
    for (int turn = 0; turn < 500; ++turn) {
        const auto rows = received(fleet, 2);
        check(!fleet.pool.failure_among(rows));
        plan_ahead();
        fleet.pool.send(rows, reinterpret_cast<const std::byte*>(actions.data()));
    }
}

int main() {
    test_next_step();
    test_same_step();
    test_time_limit_and_mask();
    test_failures_name_the_first_and_spare_the_others();
    test_fields();
    test_snapshots();
    test_planned_episodes();
    test_threads(false);
    test_threads(true);
    test_pools_that_are_made_and_ended_in_a_hurry();
    test_tickets(false);
    test_tickets(true);
    test_single_rows_are_reset_between_steps();
    test_tickets_that_fail_tell_of_their_own_rows();
    test_tickets_are_waited_for_until_a_deadline();
    test_tickets_are_recalled_until_a_deadline();
    test_turns_and_tickets_share_one_team();
    test_who_works_alone_does_not_wait();
    test_pools_that_end_while_tickets_are_out();
    test_tickets_of_planned_episodes();
}
