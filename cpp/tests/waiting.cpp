// Waiting awake: for as long as nobody else needs the core, and not again soon after.
#include "engine/waiting.h"

#include <chrono>
#include <thread>

#include "tests/check.h"

using namespace envfleet;

constexpr Patience patient{200'000, 700'000};
constexpr Nanoseconds no_gap = 1'000;

bool is_patient(Crowding& crowding) { return crowding.fitting(patient).yield == patient.yield; }

// So many waits without a gap; returns how many of them were patient.
int calm_waits(Crowding& crowding, int waits) {
    int count = 0;
    for (int wait = 0; wait < waits; ++wait) {
        count += is_patient(crowding);
        crowding.note(no_gap);
    }
    return count;
}

int hasty_waits(Crowding& crowding) {
    int count = 0;
    while (!is_patient(crowding)) ++count;
    return count;
}

void test_one_gap_may_be_anything() {
    Crowding crowding;
    for (int i = 0; i < 5; ++i) {
        crowding.note(Crowding::gap);
        check(calm_waits(crowding, 40) == 40);
    }
}

void test_two_gaps_are_a_crowd() {
    Crowding crowding;
    crowding.note(Crowding::gap);
    check(is_patient(crowding));
    crowding.note(Crowding::gap);
    check(crowding.is_hasty());
    const Patience hasty = crowding.fitting(patient);
    check(hasty.yield == 0 && hasty.pause > 0 && hasty.pause < patient.pause);
}

void test_a_crowd_that_stays_is_looked_for_ever_less() {
    Crowding crowding;
    crowding.note(Crowding::gap);
    int last = 0;
    for (int look = 0; look < 12; ++look) {
        crowding.note(Crowding::gap);
        const int hasty = hasty_waits(crowding);
        check(hasty > last || hasty == 1024);
        last = hasty;
    }
    check(last == 1024);
}

void test_a_crowd_that_has_gone_is_forgotten() {
    Crowding crowding;
    for (int look = 0; look < 8; ++look) {
        crowding.note(Crowding::gap);
        hasty_waits(crowding);
    }
    check(calm_waits(crowding, 100) == 100);
    crowding.note(Crowding::gap);
    check(is_patient(crowding));
}

void test_staying_awake_notices_a_gap_and_ends() {
    Crowding crowding;
    for (int wait = 0; wait < 2; ++wait) {
        int looks = 0;
        auto without_core = [&] {
            ++looks;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return false;
        };
        check(!stay_awake(without_core, Patience{0, 1'000'000'000}, crowding));
        check(looks == 1);
    }
    check(crowding.is_hasty());
}

// Other programs may really be there: then waiting ends early, and begins again.
void test_what_was_waited_for_is_found() {
    for (const Patience patience : {Patience{1'000'000'000, 0}, Patience{0, 1'000'000'000}}) {
        Crowding crowding;
        int looks = 0;
        while (!stay_awake([&] { return ++looks >= 40; }, patience, crowding)) {
        }
        check(looks == 40);
    }
    Crowding crowding;
    check(!stay_awake([] { return true; }, Patience{0, 0}, crowding));
}

int main() {
    test_one_gap_may_be_anything();
    test_two_gaps_are_a_crowd();
    test_a_crowd_that_stays_is_looked_for_ever_less();
    test_a_crowd_that_has_gone_is_forgotten();
    test_staying_awake_notices_a_gap_and_ends();
    test_what_was_waited_for_is_found();
}
