// The threads of a pool: who works is judged by time, all rows are done once, and nobody is pinned.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "engine/turns.h"
#include "tests/check.h"

using namespace envfleet;

// So many turns, each of which takes `alone` or `together` nanoseconds; returns how many were
// together.
int judged(Judge& judge, int turns, Nanoseconds alone, Nanoseconds together,
           int disturbed_every = 0) {
    int shared = 0;
    for (int turn = 0; turn < turns; ++turn) {
        shared += judge.together();
        const Nanoseconds took = judge.together() ? together : alone;
        const bool disturbed = disturbed_every != 0 && turn % disturbed_every == 0;
        if (judge.wants_time()) judge.note(disturbed ? 50 * took : took);
    }
    return shared;
}

void test_helpers_are_used_where_they_save_time() {
    Judge useful, useless, needless;
    check(judged(useful, 2'000, 1'000'000, 550'000) > 1'800);
    check(judged(useless, 2'000, 1'000'000, 990'000) < 500);
    check(judged(needless, 2'000, 5'000, 1'000) == 0);
}

void test_long_turns_are_not_tried_for_long() {
    Judge judge;
    check(judged(judge, 100, 10'000'000, 5'500'000) > 88);
}

void test_interruptions_do_not_decide() {
    Judge judge;
    check(judged(judge, 2'000, 1'000'000, 550'000, 5) > 1'700);
}

void test_a_wrong_verdict_is_soon_forgotten() {
    Judge judge;
    judged(judge, 60, 1'000'000, 3'000'000);
    check(!judge.together());
    check(judged(judge, 400, 1'000'000, 550'000) > 300);
    Judge content;
    judged(content, 4'000, 1'000'000, 550'000);
    check(content.together());
    check(judged(content, 1'000, 1'000'000, 3'000'000) < 300);
}

void test_every_row_is_worked_on_once(size_t rows, unsigned threads, bool adaptive) {
    Team team(threads, rows);
    Turns turns(team, rows, adaptive);
    std::vector<std::atomic<int>> visits(rows);
    for (int turn = 1; turn <= 300; ++turn) {
        turns.run([&](size_t first, size_t last) {
            for (size_t row = first; row < last; ++row) visits[row].fetch_add(1);
        });
        for (const auto& count : visits) check(count == turn);
    }
}

// Whoever works may use all cores again, though it was kept away from some while it slept.
void test_nobody_stays_pinned() {
    const Cores own = Cores::own().value();
    Team team(2, 8);
    Turns turns(team, 8, false);
    std::atomic<int> narrowed{0};
    for (int turn = 0; turn < 20; ++turn) {
        turns.run([&](size_t, size_t) {
            narrowed += Cores::own() != own;
            std::this_thread::sleep_for(std::chrono::microseconds(200));  // so that both take part
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // long enough to fall asleep
    }
    check(narrowed == 0);
}

void test_seats() {
    const Cores own = Cores::own().value();
    Cores here;
    Seat seat;
    seat.add_to(here);
    check(here.is_empty());
    seat.take();
    seat.add_to(here);
    check(here.size() == 1);
    if (own.size() > 1) {
        const int there = seat.core();
        const KeepAway away(here);
        check(present_core() != there);
    }
    {
        const KeepAway nowhere_to_go(own);
        check(Cores::own() == own);
    }
    check(Cores::own() == own);
}

int main() {
    test_helpers_are_used_where_they_save_time();
    test_long_turns_are_not_tried_for_long();
    test_interruptions_do_not_decide();
    test_a_wrong_verdict_is_soon_forgotten();
    for (const bool adaptive : {false, true}) {
        test_every_row_is_worked_on_once(1, 2, adaptive);
        test_every_row_is_worked_on_once(7, 3, adaptive);
        test_every_row_is_worked_on_once(100, 2, adaptive);
    }
    test_nobody_stays_pinned();
    test_seats();
}
