// The updates of TD3 as Python calls them, on torch's parameters and Adam's state.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/off_policy.h"
#include "learner/twin_delayed.h"

namespace envfleet {

class TwinDelayed {
  public:
    TwinDelayed(nb::object actor, std::vector<ParameterArrays> critics,
                std::vector<FloatArray> target_actor, std::vector<FloatArray> targets,
                const std::string& activation,
                std::optional<StatisticsArrays> target_actor_statistics,
                std::optional<StatisticsArrays> statistics,
                std::optional<StatisticsArrays> target_statistics)
        : actor_object_(std::move(actor)),
          actor_(nb::cast<TorchTrainable&>(actor_object_)),
          critic_arrays_(std::move(critics)),
          target_actor_arrays_(std::move(target_actor)),
          target_arrays_(std::move(targets)),
          target_actor_statistics_(std::move(target_actor_statistics)),
          statistics_(std::move(statistics)),
          target_statistics_(std::move(target_statistics)),
          critic_adam_(parameters_of(critic_arrays_), actor_.network().kernels()),
          update_(network(), actor_.adam(),
                  pair(values_of(critic_arrays_), activation, statistics_), critic_adam_,
                  following_perceptron(target_actor_arrays_, network(), target_actor_statistics_),
                  memory_of(target_actor_arrays_, actor_.adam()),
                  pair(target_arrays_, activation, target_statistics_),
                  memory_of(target_arrays_, critic_adam_)) {}
    TwinDelayed(const TwinDelayed&) = delete;

    // As many updates as `noise` [updates, batch, components] is for, each with its share of the
    // transitions, in their order; the actor's is due in every update whose number, counted from
    // `done` + 1, is a multiple of `delay`: (what was not finite, [policy loss, value loss, value]
    // added up).
    template <class Number>
    std::pair<NotFiniteTuple, std::vector<double>> update(
        const Observations<Number>& observations, const FloatArray& actions, const Column& rewards,
        const Observations<Number>& next_observations, const Column& discounts,
        const Column& terminated, const nb::ndarray<const float, nb::ndim<3>, nb::c_contig>& noise,
        const StepTuple& actor, const StepTuple& critic, double tau, double reward_scale,
        size_t done, size_t delay, bool two_threads) {
        const size_t updates = noise.shape(0), size = noise.shape(1), rows = updates * size;
        const size_t features = static_cast<size_t>(network().inputs());
        const size_t components = static_cast<size_t>(network().outputs());
        if (noise.shape(2) != components || size == 0 || delay == 0 ||
            observations.size() != rows * features || next_observations.size() != rows * features ||
            actions.size() != rows * components || rewards.size() != rows ||
            discounts.size() != rows || terminated.size() != rows) {
            throw std::invalid_argument("The transitions do not fit the networks or each other.");
        }
        const learner::DelayedSettings settings{step_settings(actor), step_settings(critic), tau,
                                                reward_scale};
        std::vector<double> sums(3);
        nb::gil_scoped_release released;
        learner::Pair pair(two_threads);
        for (size_t i = 0; i < updates; ++i) {
            const size_t row = i * size;
            learner::DelayedMetrics metrics;
            const auto failed = update_.update<Number>(
                {observations.data() + row * features, next_observations.data() + row * features,
                 actions.data() + row * components, rewards.data() + row, discounts.data() + row,
                 terminated.data() + row, noise.data() + row * components,
                 static_cast<ptrdiff_t>(size)},
                (done + i + 1) % delay == 0, settings, pair, metrics);
            if (failed) return {not_finite(failed), sums};
            sums[0] += metrics.policy_loss;
            sums[1] += metrics.value_loss;
            sums[2] += metrics.value;
        }
        return {std::nullopt, sums};
    }

  private:
    const learner::Perceptron& network() const { return actor_.network().network(); }

    learner::TwinCritics pair(const std::vector<FloatArray>& arrays, const std::string& activation,
                              const std::optional<StatisticsArrays>& statistics) const {
        return twin_critics(arrays, activation, statistics, network().inputs(),
                            network().outputs());
    }

    nb::object actor_object_;  // kept alive
    TorchTrainable& actor_;
    std::vector<ParameterArrays> critic_arrays_;
    std::vector<FloatArray> target_actor_arrays_, target_arrays_;
    std::optional<StatisticsArrays> target_actor_statistics_, statistics_, target_statistics_;
    learner::Adam critic_adam_;
    learner::DelayedUpdate update_;
};

}  // namespace envfleet
