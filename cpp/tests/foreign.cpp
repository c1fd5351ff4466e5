// The pool on an environment behind the C interface: parameters, random numbers, errors, snapshots,
// threads.
#include "abi/foreign.h"

#include <string>

#include "tests/check.h"
#include "tests/fleet.h"

using namespace envfleet;

namespace {

struct Walk {
    double position, step;
};
struct Settings {
    double width;
    int64_t shy;
};

int32_t reset(void* state, envfleet_random* random, const void*) {
    auto* s = static_cast<Walk*>(state);
    s->position = random->uniform(random, -1.0, 1.0) + random->normal(random, 0.0, 1.0);
    s->step = static_cast<double>(random->integers(random, 1, 3));
    return 0;
}
int32_t step(void* state, envfleet_random*, const void* parameters, const void* action,
             envfleet_outcome* outcome) {
    auto* s = static_cast<Walk*>(state);
    const auto* p = static_cast<const Settings*>(parameters);
    const int64_t* hands = static_cast<const int64_t*>(action);
    if (hands[1] == 3) return p->shy ? 5 : 6;
    s->position += s->step * static_cast<double>(hands[0]);
    outcome->reward = s->position;
    outcome->terminated = s->position > p->width;
    return 0;
}
int32_t observe(const void* state, const void*, void* observation) {
    *static_cast<float*>(observation) =
        static_cast<float>(static_cast<const Walk*>(state)->position);
    return 0;
}
const char* error_message(int32_t code) { return code == 5 ? "too shy" : nullptr; }

constexpr int64_t one[] = {1}, two[] = {2}, counts[] = {3, 4};
constexpr envfleet_parameter parameters[] = {{"width", ENVFLEET_FLOAT64, 10.0},
                                             {"shy", ENVFLEET_BOOL, 1.0}};

envfleet_environment walk() {
    envfleet_environment environment{};
    environment.name = "Walk";
    environment.observation = {ENVFLEET_BOX, ENVFLEET_FLOAT32, 1, one, -1, 1, {}, {}, {}};
    environment.action = {ENVFLEET_MULTI_DISCRETE, 0, 1, two, 0, 0, {}, {}, counts};
    environment.state_size = sizeof(Walk);
    environment.num_parameters = 2;
    environment.parameters = parameters;
    environment.reset = reset;
    environment.step = step;
    environment.observe = observe;
    environment.error_message = error_message;
    return environment;
}

const envfleet_environment environment = walk();

Foreign::Params params() {
    Foreign::Params p;
    check(set_parameter<Foreign>(p, "_environment", reinterpret_cast<int64_t>(&environment)));
    p.prepare();
    return p;
}

using Walks = Fleet<Foreign>;

void test_it_steps_and_says_what_it_takes() {
    Walks fleet(2, Autoreset::next_step, 1, false, {params()});
    check(fleet.pool.action_bytes() == 16);
    check(fleet.pool.action_limits() == std::vector<int64_t>{3, 4});
    fleet.reset();
    const float before = fleet.observation<float>(1);
    fleet.step<int64_t>({0, 0, 2, 0});
    check(fleet.observation<float>(1) > before + 1.5f);
    check(static_cast<float>(fleet.rewards[1]) == fleet.observation<float>(1));
}

void test_parameters_of_single_environments() {
    Walks fleet(2, Autoreset::next_step, 1, false, {params()});
    check(fleet.pool.parameter_names() == std::vector<std::string>{"width", "shy"});
    check(fleet.pool.set(1, "width", -100.0) && !fleet.pool.set(1, "_environment", int64_t{1}));
    check(std::get<double>(*fleet.pool.get(0, "width")) == 10.0);
    check(std::get<bool>(*fleet.pool.get(0, "shy")));
    fleet.reset();
    fleet.step<int64_t>({0, 0, 0, 0});
    check(!fleet.terminated[0] && fleet.terminated[1]);
}

void test_errors() {
    Walks fleet(40, Autoreset::next_step, 4, false, {params()});
    fleet.reset();
    std::vector<int64_t> actions(80);
    actions[2 * 17 + 1] = 3;
    fleet.step(actions);
    check(fleet.pool.failure()->env == 17 && fleet.pool.failure()->message == "too shy");
    check(fleet.pool.set_everywhere("shy", false));
    fleet.step(actions);
    check(fleet.pool.failure()->message == "error 6");
}

void test_snapshots() {
    Walks fleet(1, Autoreset::next_step, 1, false, {params()});
    fleet.reset();
    const auto kept = fleet.pool.snapshot(0);
    const float seen = fleet.observation<float>(0);
    fleet.step<int64_t>({1, 0});
    fleet.pool.restore(0, kept);
    check(fleet.observation<float>(0) == seen && fleet.pool.snapshot(0) == kept);
    bool refused = false;
    try {
        fleet.pool.restore(0, std::span(kept).first(kept.size() - 1));
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    check(refused);
}

}  // namespace

int main() {
    test_it_steps_and_says_what_it_takes();
    test_parameters_of_single_environments();
    test_errors();
    test_snapshots();
}
