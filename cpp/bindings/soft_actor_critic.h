// The updates of SAC as Python calls them, on torch's parameters and Adam's state.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/off_policy.h"
#include "learner/soft_actor_critic.h"

namespace envfleet {

class SoftActorCritic {
  public:
    SoftActorCritic(nb::object actor, std::vector<ParameterArrays> critics,
                    std::vector<FloatArray> targets, const std::string& activation,
                    std::optional<StatisticsArrays> statistics,
                    std::optional<StatisticsArrays> target_statistics, ParameterArrays temperature)
        : actor_object_(std::move(actor)),
          actor_(nb::cast<TorchTrainable&>(actor_object_)),
          critic_arrays_(std::move(critics)),
          target_arrays_(std::move(targets)),
          statistics_(std::move(statistics)),
          target_statistics_(std::move(target_statistics)),
          temperature_array_(std::move(temperature)),
          critic_adam_(parameters_of(critic_arrays_), kernels()),
          temperature_adam_({parameter_of(temperature_array_)}, kernels()),
          update_(actor_.network().network(), actor_.adam(),
                  pair(values_of(critic_arrays_), activation, statistics_), critic_adam_,
                  pair(target_arrays_, activation, target_statistics_),
                  memory_of(target_arrays_, critic_adam_), temperature_adam_) {}
    SoftActorCritic(const SoftActorCritic&) = delete;

    // As many updates as `noise` [updates, 2, batch, components] is for, each with its share of the
    // transitions, in their order: (what was not finite, [policy loss, value loss, entropy,
    // temperature, value] added up).
    template <class Number>
    std::pair<NotFiniteTuple, std::vector<double>> update(
        const Observations<Number>& observations, const FloatArray& actions, const Column& rewards,
        const Observations<Number>& next_observations, const Column& discounts,
        const Column& terminated, const nb::ndarray<const float, nb::ndim<4>, nb::c_contig>& noise,
        const StepTuple& actor, const StepTuple& critic, const StepTuple& temperature, double tau,
        double target_entropy, double reward_scale, bool two_threads) {
        const size_t updates = noise.shape(0), size = noise.shape(2), rows = updates * size;
        const size_t features = static_cast<size_t>(actor_.network().network().inputs());
        const size_t components = static_cast<size_t>(actor_.network().network().outputs()) / 2;
        if (noise.shape(1) != 2 || noise.shape(3) != components || size == 0 ||
            observations.size() != rows * features || next_observations.size() != rows * features ||
            actions.size() != rows * components || rewards.size() != rows ||
            discounts.size() != rows || terminated.size() != rows) {
            throw std::invalid_argument("The transitions do not fit the networks or each other.");
        }
        const learner::SacSettings settings{
            step_settings(actor), step_settings(critic), step_settings(temperature), tau,
            target_entropy,       reward_scale};
        std::vector<double> sums(5);
        nb::gil_scoped_release released;
        learner::Pair pair(two_threads);
        for (size_t i = 0; i < updates; ++i) {
            const size_t row = i * size;
            const float* own_noise = noise.data() + 2 * row * components;
            learner::SacMetrics metrics;
            const auto failed = update_.update<Number>(
                {observations.data() + row * features, next_observations.data() + row * features,
                 actions.data() + row * components, rewards.data() + row, discounts.data() + row,
                 terminated.data() + row, own_noise, own_noise + size * components,
                 static_cast<ptrdiff_t>(size)},
                settings, pair, metrics);
            if (failed) return {not_finite(failed), sums};
            sums[0] += metrics.policy_loss;
            sums[1] += metrics.value_loss;
            sums[2] += metrics.entropy;
            sums[3] += metrics.temperature;
            sums[4] += metrics.value;
        }
        return {std::nullopt, sums};
    }

  private:
    const learner::Kernels& kernels() const { return actor_.network().kernels(); }

    learner::TwinCritics pair(const std::vector<FloatArray>& arrays, const std::string& activation,
                              const std::optional<StatisticsArrays>& statistics) const {
        const learner::Perceptron& actor = actor_.network().network();
        return twin_critics(arrays, activation, statistics, actor.inputs(), actor.outputs() / 2);
    }

    nb::object actor_object_;  // kept alive
    TorchTrainable& actor_;
    std::vector<ParameterArrays> critic_arrays_;
    std::vector<FloatArray> target_arrays_;
    std::optional<StatisticsArrays> statistics_, target_statistics_;
    ParameterArrays temperature_array_;
    learner::Adam critic_adam_, temperature_adam_;
    learner::SacUpdate update_;
};

}  // namespace envfleet
