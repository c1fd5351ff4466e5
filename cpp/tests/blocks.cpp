// Environments that step many rows at once: as many as they say, with the results of single steps.
#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "engine/pool.h"
#include "envs/classic_control/cart_pole.h"
#include "tests/check.h"
#include "tests/fleet.h"

using namespace envfleet;

// Adds its actions up. Steps of so many rows at once take an array of just that size.
template <size_t most>
struct Sums {
    struct Params {
        int64_t limit = 9;
    };
    struct State {
        int64_t sum;
    };
    using Action = int64_t;
    static constexpr int64_t num_actions = 4;
    static constexpr size_t block_rows = most;
    static inline size_t largest_block = 0;

    static void reset(State& s, Rng&, const Params&) { s.sum = 0; }
    static Outcome step(State& s, Rng&, const Params& p, int64_t action) {
        s.sum += action;
        return {static_cast<double>(s.sum), s.sum > p.limit};
    }
    static void step_block(State* states, const Params& p, const int64_t* actions, size_t count,
                           double* rewards, uint8_t* terminated, float* observations) {
        int64_t sums[most];
        for (size_t i = 0; i < count; ++i) sums[i] = states[i].sum + actions[i];
        for (size_t i = 0; i < count; ++i) {
            states[i].sum = sums[i];
            rewards[i] = static_cast<double>(sums[i]);
            terminated[i] = sums[i] > p.limit;
            observations[i] = static_cast<float>(sums[i]);
        }
        largest_block = std::max(largest_block, count);
    }
    static std::vector<size_t> observation_bytes(const Params&) { return {sizeof(float)}; }
    static void observe(const State& s, const Params&, const Row& out) {
        *out.leaf<float>(0) = static_cast<float>(s.sum);
    }
    static auto parameters() { return std::tuple(field("limit", &Params::limit)); }
    static auto variables() { return std::tuple(field("sum", &State::sum)); }
    static auto saved() { return variables(); }
};

// Parameters of one's own mean single steps; equal ones mean blocks.
template <class Env>
void test_blocks_are_single_steps(size_t rows) {
    for (const auto mode : {Autoreset::next_step, Autoreset::same_step}) {
        Fleet<Env> together(rows, mode, 1, false, {{}}, 20);
        Fleet<Env> singly(rows, mode, 1, false, std::vector<typename Env::Params>(rows), 20);
        together.reset();
        singly.reset();
        std::vector<int64_t> actions(rows);
        for (size_t turn = 0; turn < 100; ++turn) {
            for (size_t env = 0; env < rows; ++env) {
                actions[env] = static_cast<int64_t>((env * 7 + turn * 3) % Env::num_actions);
            }
            together.step(actions);
            singly.step(actions);
            check(together.observations == singly.observations);
            check(together.rewards == singly.rewards && together.turns == singly.turns);
            check(together.terminated == singly.terminated);
            check(together.truncated == singly.truncated);
        }
    }
}

template <size_t most>
void test_size(size_t rows) {
    Sums<most>::largest_block = 0;
    test_blocks_are_single_steps<Sums<most>>(rows);
    check(Sums<most>::largest_block == std::min(most, rows));
}

int main() {
    test_size<8>(100);
    test_size<64>(7);
    test_size<64>(200);
    test_size<128>(300);
    test_blocks_are_single_steps<CartPole>(CartPole::block_rows + 3);
}
