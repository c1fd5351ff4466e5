// Every environment for a while on random actions, in all modes, on one thread and on several: the
// results agree, and sanitizers find nothing. That the numbers are Gymnasium's is tested in Python.
#include "envs/classic_control/acrobot.h"
#include "envs/classic_control/cart_pole.h"
#include "envs/classic_control/mountain_car.h"
#include "envs/classic_control/mountain_car_continuous.h"
#include "envs/classic_control/pendulum.h"
#include "envs/toy_text/blackjack.h"
#include "envs/toy_text/cliff_walking.h"
#include "envs/toy_text/frozen_lake.h"
#include "envs/toy_text/taxi.h"
#include "tests/check.h"
#include "tests/fleet.h"

using namespace envfleet;

constexpr size_t count = 70;

template <class Env>
auto random_actions(Rng& rng) {
    if constexpr (std::is_integral_v<typename Env::Action>) {
        std::vector<int64_t> actions(count);
        for (auto& action : actions) action = rng.integers(0, Env::num_actions);
        return actions;
    } else {
        std::vector<float> actions(count);
        for (auto& action : actions) action = static_cast<float>(rng.uniform(-3, 3));
        return actions;
    }
}

template <class Env>
void test(typename Env::Params params = {}) {
    if constexpr (requires { params.prepare(); }) params.prepare();
    for (const auto mode : {Autoreset::next_step, Autoreset::same_step, Autoreset::disabled}) {
        Fleet<Env> alone(count, mode, 1, false, {params}, 50);
        Fleet<Env> shared(count, mode, 3, false, std::vector(count, params), 50);
        Rng rng;
        const uint32_t seed = 1;
        rng.seed(std::span(&seed, 1));
        alone.reset();
        shared.reset();
        for (int turn = 0; turn < 300; ++turn) {
            const auto actions = random_actions<Env>(rng);
            alone.step(actions);
            shared.step(actions);
            check(alone.observations == shared.observations);
            check(alone.rewards == shared.rewards);
            check(alone.terminated == shared.terminated && alone.truncated == shared.truncated);
            check(alone.infos == shared.infos && alone.final_infos == shared.final_infos);
            check(alone.final_observations == shared.final_observations);
            if (mode == Autoreset::disabled) {
                const auto finished = alone.finished;
                alone.pool.reset(finished, {});
                shared.pool.reset(finished, {});
            }
        }
    }
}

int main() {
    test<Acrobot>();
    test<CartPole>();
    test<MountainCar>();
    test<MountainCarContinuous>();
    test<Pendulum>();
    test<Blackjack>({.natural = true});
    test<CliffWalking>({.is_slippery = true});
    FrozenLake::Params lake;
    lake.map = "SFFFFHFHFFFHHFFG";
    lake.columns = 4;
    test<FrozenLake>(lake);
    test<Taxi>({.is_rainy = true, .fickle_passenger = true});
}
