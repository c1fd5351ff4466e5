// The compiled learner: its kernels against plain loops in float64, for every instruction set this
// processor has, and its updates, which must not depend on the number of threads.
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "learner/kernels.cpp"
#include "learner/kernels_baseline.cpp"
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#include "learner/kernels_avx2.cpp"
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl")
#include "learner/kernels_avx512.cpp"
#pragma GCC pop_options
#endif
#include "learner/on_policy.h"
#include "learner/q_network.h"
#include "learner/soft_actor_critic.h"
#include "learner/twin_delayed.h"
#include "tests/check.h"

using namespace envfleet::learner;

namespace {

std::mt19937 generator(7);

std::vector<float> numbers(ptrdiff_t count, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> drawn(static_cast<size_t>(count));
    for (float& each : drawn) each = normal(generator);
    return drawn;
}

ptrdiff_t between(ptrdiff_t low, ptrdiff_t high) {
    return std::uniform_int_distribution<ptrdiff_t>(low, high)(generator);
}

// How many floats lie between a result and the exact one.
double units_off(float result, double exact) {
    const float nearest = static_cast<float>(exact);
    const float unit = std::nextafter(std::fabs(nearest), std::numeric_limits<float>::infinity()) -
                       std::fabs(nearest);
    return std::fabs(static_cast<double>(result) - exact) / static_cast<double>(unit);
}

void check_multiply(const Kernels& kernels) {
    for (int round = 0; round < 60; ++round) {
        const ptrdiff_t rows = between(1, 30), columns = between(1, 150), depth = between(1, 40);
        const ptrdiff_t b_row = padded(columns);
        const std::vector<float> a = numbers(rows * depth), bias = numbers(rows);
        std::vector<float> b = numbers(depth * b_row + slack), c = numbers(rows * columns + 1);
        const std::vector<float> before = c;
        const bool turned = round % 2, add = round % 3 == 0, biased = !add && round % 3 == 1;
        kernels.multiply({.a = a.data(),
                          .a_row = turned ? 1 : depth,
                          .a_column = turned ? rows : 1,
                          .b = b.data(),
                          .b_row = b_row,
                          .c = c.data(),
                          .c_row = columns,
                          .rows = rows,
                          .columns = columns,
                          .depth = depth,
                          .bias = biased ? bias.data() : nullptr,
                          .accumulate = add});
        for (ptrdiff_t i = 0; i < rows; ++i) {
            for (ptrdiff_t j = 0; j < columns; ++j) {
                double exact = add ? before[i * columns + j] : biased ? bias[i] : 0;
                for (ptrdiff_t k = 0; k < depth; ++k) {
                    exact += double(a[turned ? k * rows + i : i * depth + k]) * b[k * b_row + j];
                }
                check(std::fabs(c[i * columns + j] - exact) < 3e-5);
            }
        }
        check(c.back() == before.back());
    }
}

void check_transpose(const Kernels& kernels) {
    for (int round = 0; round < 30; ++round) {
        const ptrdiff_t rows = between(1, 40), columns = between(1, 40);
        const std::vector<float> from = numbers(rows * columns);
        std::vector<float> to(static_cast<size_t>(rows * columns));
        kernels.transpose(from.data(), columns, rows, columns, to.data(), rows);
        for (ptrdiff_t i = 0; i < rows; ++i) {
            for (ptrdiff_t j = 0; j < columns; ++j) {
                check(to[j * rows + i] == from[i * columns + j]);
            }
        }
    }
}

void check_function(void (*function)(float*, ptrdiff_t), double (*exact)(double), float from,
                    float to, double most) {
    const ptrdiff_t count = 16'000;
    std::vector<float> x(count), y(count);
    for (ptrdiff_t i = 0; i < count; ++i) x[i] = y[i] = from + (to - from) * float(i) / count;
    function(y.data(), count);
    for (ptrdiff_t i = 0; i < count; ++i) check(units_off(y[i], exact(x[i])) <= most);
}

float of(void (*function)(float*, ptrdiff_t), float x) {
    std::vector<float> values(16, x);
    function(values.data(), 16);
    return values[3];
}

void check_functions(const Kernels& kernels) {
    const float infinity = std::numeric_limits<float>::infinity();
    check_function(kernels.tanh, std::tanh, -10, 10, 2);
    check_function(kernels.tanh, std::tanh, -1, 1, 2);
    check_function(kernels.exp, std::exp, -87, 88.7f, 1);
    check_function(kernels.log, std::log, 1e-3f, 100, 1);
    check_function(kernels.log, std::log, 1.0001f, 2, 1);
    for (const auto function : {kernels.tanh, kernels.relu, kernels.exp, kernels.log}) {
        check(std::isnan(of(function, std::nanf(""))));
    }
    check(of(kernels.tanh, infinity) == 1 && of(kernels.tanh, -infinity) == -1);
    check(of(kernels.exp, 89) == infinity && of(kernels.exp, infinity) == infinity);
    check(of(kernels.exp, -infinity) == 0 && of(kernels.exp, -90) == 0);
    check(of(kernels.log, infinity) == infinity && std::isnan(of(kernels.log, -1)));
    check(of(kernels.relu, -3) == 0 && of(kernels.relu, 3) == 3);
}

// A network with its optimiser's memory, as torch would own them.
struct Network {
    Network(std::vector<ptrdiff_t> sizes, ptrdiff_t others, const Kernels& kernels,
            int copies = 1) {
        for (size_t i = 0; i + 1 < sizes.size(); ++i) {
            add(copies * sizes[i] * sizes[i + 1]);
            add(copies * sizes[i + 1]);
            layers.push_back({memory[8 * i].data(), memory[8 * i + 4].data(), sizes[i],
                              sizes[i + 1], copies == 2});
        }
        if (others) add(others);
        std::vector<Parameter> parameters;
        for (size_t i = 0; i < memory.size(); i += 4) {
            parameters.push_back({memory[i].data(), memory[i + 1].data(), memory[i + 2].data(),
                                  memory[i + 3].data(), static_cast<ptrdiff_t>(memory[i].size())});
        }
        adam.emplace(parameters, kernels);
    }

    void add(ptrdiff_t count) {
        memory.push_back(numbers(count, 0.3f));
        for (const ptrdiff_t size : {count, count, ptrdiff_t{1}}) {
            memory.emplace_back(static_cast<size_t>(size), 0.0f);
        }
    }

    std::vector<std::vector<float>> memory;  // value, mean, square and step of each parameter
    std::vector<Layer> layers;
    std::optional<Adam> adam;
};

const StepSettings step{{1e-3, 0.9, 0.99, 1e-8}, 0.5};

Transitions transitions(ptrdiff_t count, ptrdiff_t row, ptrdiff_t choices) {
    Transitions data;
    data.count = count;
    for (Floats* each : {&data.actor_inputs, &data.critic_inputs}) *each = Floats(count * row);
    for (Floats* each : {&data.advantages, &data.returns}) *each = Floats(count);
    for (Floats* each :
         {&data.actor_inputs, &data.critic_inputs, &data.advantages, &data.returns}) {
        const std::vector<float> drawn = numbers(each->size());
        std::copy(drawn.begin(), drawn.end(), each->data());
    }
    for (ptrdiff_t i = 0; i < count; ++i) data.choices.push_back(int32_t(between(0, choices - 1)));
    return data;
}

// All weights after two epochs; `poison` makes a return NaN before the second.
std::vector<std::vector<float>> ppo(const Kernels& kernels, bool two_threads, bool poison) {
    generator.seed(3);
    Network actor({5, 20, 33, 3}, 0, kernels), critic({5, 20, 33, 1}, 0, kernels);
    Trainable policy(Perceptron(actor.layers, Activation::tanh, std::nullopt, kernels),
                     gradients_of(*actor.adam, 3));
    Trainable values(Perceptron(critic.layers, Activation::relu, std::nullopt, kernels),
                     gradients_of(*critic.adam, 3));
    CategoricalHead head({3}, kernels), other({3}, kernels);
    std::vector<Floats> room = room_like(*actor.adam);
    OnPolicyUpdate update(policy, *actor.adam, head, other, room, values, *critic.adam);
    update.data() = transitions(333, policy.row(), 3);
    update.remember_policy(two_threads);
    std::vector<int64_t> order(333);
    for (int64_t i = 0; i < 333; ++i) order[i] = (i * 7) % 333;
    OnPolicyMetrics metrics;
    const PolicySettings settings{0.01, true, 0.2};
    check(!update.ppo_epoch(order.data(), 70, settings, step, step, two_threads, metrics));
    check(std::isfinite(metrics.policy.loss) && metrics.value_loss > 0);
    check(!update.a2c(2, settings, step, step, two_threads, metrics));
    if (poison) {
        const auto before = critic.memory;
        update.data().returns[7] = std::nanf("");
        const auto found =
            update.ppo_epoch(order.data(), 333, settings, step, step, false, metrics);
        check(found && found->what == "critic loss" && std::isnan(found->value));
        check(before == critic.memory);
    }
    auto weights = actor.memory;
    weights.insert(weights.end(), critic.memory.begin(), critic.memory.end());
    return weights;
}

// The memory of a network that follows another.
std::vector<Memory> followed(Network& network) {
    std::vector<Memory> memory;
    for (size_t i = 0; i < network.memory.size(); i += 4) {
        memory.push_back({network.memory[i].data(), ptrdiff_t(network.memory[i].size())});
    }
    return memory;
}

// All weights after five updates of TD3; `rows` may leave nothing to the second half.
std::vector<std::vector<float>> td3(const Kernels& kernels, bool two_threads, ptrdiff_t rows) {
    generator.seed(5);
    const ptrdiff_t features = 5, size = 2;
    Network actor({features, 20, size}, 0, kernels), slow({features, 20, size}, 0, kernels);
    Network critic({features + size, 20, 1}, 0, kernels, 2),
        target({features + size, 20, 1}, 0, kernels, 2);
    DelayedUpdate update(Perceptron(actor.layers, Activation::relu, std::nullopt, kernels),
                         *actor.adam, {critic.layers, Activation::relu, std::nullopt}, *critic.adam,
                         Perceptron(slow.layers, Activation::relu, std::nullopt, kernels),
                         followed(slow), {target.layers, Activation::relu, std::nullopt},
                         followed(target));
    const auto observations = numbers(rows * features), next = numbers(rows * features);
    const auto actions = numbers(rows * size), rewards = numbers(rows),
               noise = numbers(rows * size);
    const std::vector<float> discounts(rows, 0.99f), terminated(rows, 0.0f);
    Pair pair(two_threads);
    for (int i = 0; i < 5; ++i) {
        const auto before = actor.memory;
        DelayedMetrics metrics;
        check(
            !update.update<float>({observations.data(), next.data(), actions.data(), rewards.data(),
                                   discounts.data(), terminated.data(), noise.data(), rows},
                                  i % 2 == 1, {step, step, 0.01, 1}, pair, metrics));
        check(std::isfinite(metrics.policy_loss) && metrics.value_loss > 0);
        check((before == actor.memory) == (i % 2 == 0));
    }
    auto weights = actor.memory;
    for (const Network* each : {&slow, &critic, &target}) {
        weights.insert(weights.end(), each->memory.begin(), each->memory.end());
    }
    return weights;
}

// The same of DQN.
std::vector<std::vector<float>> dqn(const Kernels& kernels, bool two_threads, ptrdiff_t rows) {
    generator.seed(6);
    const ptrdiff_t features = 5, choices = 3;
    Network network({features, 20, choices}, 0, kernels),
        target({features, 20, choices}, 0, kernels);
    ChoiceUpdate update(
        Perceptron(network.layers, Activation::tanh, std::nullopt, kernels), *network.adam,
        Perceptron(target.layers, Activation::tanh, std::nullopt, kernels), followed(target));
    const auto observations = numbers(rows * features), next = numbers(rows * features);
    const auto rewards = numbers(rows), weights = numbers(rows);
    std::vector<int32_t> done;
    for (ptrdiff_t i = 0; i < rows; ++i) done.push_back(int32_t(between(0, choices - 1)));
    const std::vector<float> discounts(rows, 0.99f), terminated(rows, 0.0f);
    std::vector<float> errors(rows, std::nanf(""));
    Pair pair(two_threads);
    for (int i = 0; i < 4; ++i) {
        ChoiceMetrics metrics;
        check(!update.update<float>(
            {observations.data(), next.data(), done.data(), rewards.data(), discounts.data(),
             terminated.data(), i == 0 ? nullptr : weights.data(), errors.data(), rows},
            {step, 0.01, 1, i % 2 == 0}, pair, metrics));
        check(std::isfinite(metrics.loss) && std::isfinite(metrics.value));
        for (const float error : errors) check(std::isfinite(error));
    }
    auto all = network.memory;
    all.insert(all.end(), target.memory.begin(), target.memory.end());
    all.push_back(errors);
    return all;
}

std::vector<std::vector<float>> sac(const Kernels& kernels, bool two_threads) {
    generator.seed(4);
    const ptrdiff_t features = 5, size = 2, count = 100;
    Network actor({features, 20, 2 * size}, 0, kernels);
    Network critic({features + size, 20, 1}, 0, kernels, 2),
        target({features + size, 20, 1}, 0, kernels, 2);
    Network temperature({}, 1, kernels);
    SacUpdate update(Perceptron(actor.layers, Activation::relu, std::nullopt, kernels), *actor.adam,
                     {critic.layers, Activation::relu, std::nullopt}, *critic.adam,
                     {target.layers, Activation::relu, std::nullopt}, followed(target),
                     *temperature.adam);
    const auto observations = numbers(count * features), next = numbers(count * features);
    const auto actions = numbers(count * size), rewards = numbers(count),
               noise = numbers(2 * count * size);
    const std::vector<float> discounts(count, 0.99f), terminated(count, 0.0f);
    Pair pair(two_threads);
    for (int i = 0; i < 5; ++i) {
        SacMetrics metrics;
        check(!update.update<float>(
            {observations.data(), next.data(), actions.data(), rewards.data(), discounts.data(),
             terminated.data(), noise.data(), noise.data() + count * size, count},
            {step, step, step, 0.01, -2, 1}, pair, metrics));
        check(std::isfinite(metrics.policy_loss) && metrics.value_loss > 0);
    }
    auto weights = actor.memory;
    for (const Network* each : {&critic, &target, &temperature}) {
        weights.insert(weights.end(), each->memory.begin(), each->memory.end());
    }
    return weights;
}

}  // namespace

int main() {
    for (const std::string& name : kernel_names()) {
        const Kernels& kernels = kernels_named(name);
        check_multiply(kernels);
        check_transpose(kernels);
        check_functions(kernels);
        check(ppo(kernels, false, false) == ppo(kernels, true, false));
        ppo(kernels, false, true);
        check(sac(kernels, false) == sac(kernels, true));
        for (const ptrdiff_t rows : {40, 100}) {
            check(td3(kernels, false, rows) == td3(kernels, true, rows));
            check(dqn(kernels, false, rows) == dqn(kernels, true, rows));
        }
    }
    bool refused = false;
    try {
        kernels_named("avx3");
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    check(refused);
}
