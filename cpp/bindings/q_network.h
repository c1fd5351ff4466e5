// The updates of DQN as Python calls them, on torch's parameters and Adam's state.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/off_policy.h"
#include "learner/q_network.h"

namespace envfleet {

class QNetwork {
  public:
    QNetwork(nb::object trained, std::vector<FloatArray> target,
             std::optional<StatisticsArrays> target_statistics)
        : network_object_(std::move(trained)),
          network_(nb::cast<TorchTrainable&>(network_object_)),
          target_arrays_(std::move(target)),
          target_statistics_(std::move(target_statistics)),
          update_(network(), network_.adam(),
                  following_perceptron(target_arrays_, network(), target_statistics_),
                  memory_of(target_arrays_, network_.adam())) {}
    QNetwork(const QNetwork&) = delete;

    // So many updates, each with its share of the transitions, in their order; `errors` receives
    // how much each value was above its target: (what was not finite, [loss, value] added up).
    template <class Number>
    std::pair<NotFiniteTuple, std::vector<double>> update(
        const Observations<Number>& observations,
        const nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& choices,
        const Column& rewards, const Observations<Number>& next_observations,
        const Column& discounts, const Column& terminated, const std::optional<Column>& weights,
        const FloatArray& errors, size_t updates, const StepTuple& step, double tau,
        double reward_scale, bool is_double, bool two_threads) {
        const size_t rows = rewards.size(), size = updates == 0 ? 0 : rows / updates;
        const size_t features = static_cast<size_t>(network().inputs());
        const int32_t count = static_cast<int32_t>(network().outputs());
        const auto known = [&](int32_t choice) { return choice >= 0 && choice < count; };
        if (size == 0 || size * updates != rows || observations.size() != rows * features ||
            next_observations.size() != rows * features || choices.size() != rows ||
            discounts.size() != rows || terminated.size() != rows || errors.size() != rows ||
            (weights && weights->size() != rows) ||
            !std::all_of(choices.data(), choices.data() + rows, known)) {
            throw std::invalid_argument("The transitions do not fit the network or each other.");
        }
        const learner::ChoiceSettings settings{step_settings(step), tau, reward_scale, is_double};
        std::vector<double> sums(2);
        nb::gil_scoped_release released;
        learner::Pair pair(two_threads);
        for (size_t i = 0; i < updates; ++i) {
            const size_t row = i * size;
            learner::ChoiceMetrics metrics;
            const auto failed = update_.update<Number>(
                {observations.data() + row * features, next_observations.data() + row * features,
                 choices.data() + row, rewards.data() + row, discounts.data() + row,
                 terminated.data() + row, weights ? weights->data() + row : nullptr,
                 errors.data() + row, static_cast<ptrdiff_t>(size)},
                settings, pair, metrics);
            if (failed) return {not_finite(failed), sums};
            sums[0] += metrics.loss;
            sums[1] += metrics.value;
        }
        return {std::nullopt, sums};
    }

  private:
    const learner::Perceptron& network() const { return network_.network().network(); }

    nb::object network_object_;  // kept alive
    TorchTrainable& network_;
    std::vector<FloatArray> target_arrays_;
    std::optional<StatisticsArrays> target_statistics_;
    learner::ChoiceUpdate update_;
};

}  // namespace envfleet
