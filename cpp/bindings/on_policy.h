// The updates of A2C and PPO as Python calls them, on torch's parameters and Adam's state.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/perceptron.h"
#include "learner/on_policy.h"

namespace envfleet {

// A tensor with its exp_avg, exp_avg_sq and step: as torch.optim.Adam(fused=True) keeps them.
using ParameterArrays = std::tuple<FloatArray, FloatArray, FloatArray, FloatArray>;
// lr, beta1, beta2, eps, max_grad_norm.
using StepTuple = std::tuple<double, double, double, double, double>;
// What was not finite, and its value.
using NotFiniteTuple = std::optional<std::pair<std::string, double>>;

inline learner::Parameter parameter_of(const ParameterArrays& arrays) {
    const auto& [value, mean, square, step] = arrays;
    if (mean.size() != value.size() || square.size() != value.size() || step.size() != 1) {
        throw std::invalid_argument("The state of an optimizer does not fit its parameters.");
    }
    return {value.data(), mean.data(), square.data(), step.data(),
            static_cast<ptrdiff_t>(value.size())};
}

inline std::vector<learner::Parameter> parameters_of(const std::vector<ParameterArrays>& arrays) {
    std::vector<learner::Parameter> parameters;
    for (const ParameterArrays& each : arrays) parameters.push_back(parameter_of(each));
    return parameters;
}

// Weight and bias of each layer are the first of the parameters; log deviations may follow.
inline std::vector<learner::Layer> layers_of(const std::vector<ParameterArrays>& arrays) {
    std::vector<learner::Layer> layers;
    for (size_t i = 0; i + 1 < arrays.size(); i += 2) {
        const FloatArray &weight = std::get<0>(arrays[i]), &bias = std::get<0>(arrays[i + 1]);
        if (weight.ndim() != 2 || bias.size() != weight.shape(0)) {
            throw std::invalid_argument("Expected the weight and the bias of each layer in turn.");
        }
        layers.push_back({weight.data(), bias.data(), static_cast<ptrdiff_t>(weight.shape(1)),
                          static_cast<ptrdiff_t>(weight.shape(0))});
    }
    return layers;
}

inline learner::StepSettings step_settings(const StepTuple& settings) {
    const auto& [rate, beta1, beta2, epsilon, longest] = settings;
    return {{rate, beta1, beta2, epsilon}, longest};
}

inline NotFiniteTuple not_finite(const std::optional<learner::NotFinite>& found) {
    if (!found) return std::nullopt;
    return std::pair(found->what, found->value);
}

// A network with its optimiser, and the tensors of both.
class TorchTrainable {
  public:
    TorchTrainable(std::vector<ParameterArrays> parameters, const std::string& activation,
                   std::optional<StatisticsArrays> statistics, const learner::Kernels& kernels)
        : parameters_(std::move(parameters)),
          statistics_(std::move(statistics)),
          adam_(parameters_of(parameters_), kernels),
          network_(perceptron(activation, kernels),
                   learner::gradients_of(adam_, parameters_.size() / 2)) {}
    TorchTrainable(const TorchTrainable&) = delete;

    learner::Trainable& network() { return network_; }
    learner::Adam& adam() { return adam_; }

  private:
    learner::Perceptron perceptron(const std::string& activation,
                                   const learner::Kernels& kernels) const {
        const std::vector<learner::Layer> layers = layers_of(parameters_);
        const size_t features = layers.empty() ? 0 : static_cast<size_t>(layers[0].inputs);
        return {layers, activation_named(activation), statistics_of(statistics_, features),
                kernels};
    }

    std::vector<ParameterArrays> parameters_;
    std::optional<StatisticsArrays> statistics_;
    learner::Adam adam_;
    learner::Trainable network_;
};

// The head of an actor, by the name of its distribution; `sizes` are those of its choices.
inline std::unique_ptr<learner::Head> make_head(const learner::Trainable& actor,
                                                const learner::Adam& adam, float* last_gradient,
                                                const std::string& name,
                                                const std::vector<ptrdiff_t>& sizes) {
    const ptrdiff_t outputs = actor.network().outputs();
    if (name == "categorical") {
        ptrdiff_t total = 0;
        for (const ptrdiff_t size : sizes) total += size;
        if (total != outputs) throw std::invalid_argument("The choices do not fit the outputs.");
        return std::make_unique<learner::CategoricalHead>(sizes, actor.kernels());
    }
    if (name == "bernoulli") {
        return std::make_unique<learner::BernoulliHead>(outputs, actor.kernels());
    }
    if (name != "normal") throw std::invalid_argument("There is no head called " + name + ".");
    const size_t last = adam.size() - 1;
    if (adam.size() % 2 == 0 || adam.parameter(last).count != outputs) {
        throw std::invalid_argument("A Gaussian needs a log deviation for each output.");
    }
    return std::make_unique<learner::NormalHead>(outputs, adam.parameter(last).value, last_gradient,
                                                 actor.kernels());
}

class OnPolicy {
  public:
    OnPolicy(nb::object actor, nb::object critic, const std::string& head,
             std::vector<ptrdiff_t> sizes)
        : actor_object_(std::move(actor)),
          critic_object_(std::move(critic)),
          actor_(nb::cast<TorchTrainable&>(actor_object_).network()),
          critic_(nb::cast<TorchTrainable&>(critic_object_).network()),
          adam_(adam_of(actor_object_)),
          sizes_(std::move(sizes)),
          room_(learner::room_like(adam_)),
          head_(make_head(actor_, adam_, adam_.gradient(adam_.size() - 1), head, sizes_)),
          other_head_(make_head(actor_, adam_, room_.back().data(), head, sizes_)),
          update_(actor_, adam_, *head_, *other_head_, room_, critic_, adam_of(critic_object_)) {
        if (critic_.network().outputs() != 1 ||
            critic_.network().inputs() != actor_.network().inputs()) {
            throw std::invalid_argument("Actor and critic do not fit each other.");
        }
    }
    OnPolicy(const OnPolicy&) = delete;

    // The transitions to learn from: observations [n, ...], advantages and returns [n], actions
    // [n, components] as choices counted from 0 or as floats.
    template <class Number>
    void load(const nb::ndarray<const Number, nb::c_contig, nb::device::cpu>& observations,
              const std::optional<nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig>>& choices,
              const std::optional<nb::ndarray<const float, nb::ndim<2>, nb::c_contig>>& numbers,
              const nb::ndarray<const float, nb::ndim<1>, nb::c_contig>& advantages,
              const nb::ndarray<const float, nb::ndim<1>, nb::c_contig>& returns) {
        const size_t count = advantages.shape(0);
        const size_t features = static_cast<size_t>(actor_.network().inputs());
        const size_t components = static_cast<size_t>(head_->components());
        const bool fits = head_->takes_choices() ? choices && choices->size() == count * components
                                                 : numbers && numbers->size() == count * components;
        if (count == 0 || observations.size() != count * features || returns.size() != count ||
            !fits) {
            throw std::invalid_argument("The transitions do not fit the networks or each other.");
        }
        if (choices) check_choices(choices->data(), count);
        nb::gil_scoped_release released;
        learner::Transitions& data = update_.data();
        const ptrdiff_t rows = static_cast<ptrdiff_t>(count);
        data.count = rows;
        normalized(actor_, observations.data(), rows, data.actor_inputs);
        normalized(critic_, observations.data(), rows, data.critic_inputs);
        if (choices) data.choices.assign(choices->data(), choices->data() + choices->size());
        if (numbers) copy(numbers->data(), numbers->size(), data.numbers);
        copy(advantages.data(), count, data.advantages);
        copy(returns.data(), count, data.returns);
    }

    void remember_policy(bool two_threads) {
        nb::gil_scoped_release released;
        update_.remember_policy(two_threads);
    }

    // (what was not finite, [actor loss, critic loss, entropy, divergence, share clipped])
    std::pair<NotFiniteTuple, std::vector<double>> ppo_epoch(
        const nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& order,
        ptrdiff_t minibatch, double entropy_coef, bool normalize_advantages, double clip_range,
        const StepTuple& actor, const StepTuple& critic, bool two_threads) {
        const ptrdiff_t count = update_.data().count;
        if (static_cast<ptrdiff_t>(order.size()) != count || minibatch < 1) {
            throw std::invalid_argument("The order must name every transition.");
        }
        for (size_t i = 0; i < order.size(); ++i) {
            if (order.data()[i] < 0 || order.data()[i] >= count) {
                throw std::invalid_argument("The order names a transition there is not.");
            }
        }
        learner::OnPolicyMetrics metrics;
        nb::gil_scoped_release released;
        const auto failed = update_.ppo_epoch(
            order.data(), minibatch, {entropy_coef, normalize_advantages, clip_range},
            step_settings(actor), step_settings(critic), two_threads, metrics);
        return {not_finite(failed), numbers_of(metrics)};
    }

    std::pair<NotFiniteTuple, std::vector<double>> a2c(int critic_updates, double entropy_coef,
                                                       bool normalize_advantages,
                                                       const StepTuple& actor,
                                                       const StepTuple& critic, bool two_threads) {
        learner::OnPolicyMetrics metrics;
        nb::gil_scoped_release released;
        const auto failed =
            update_.a2c(critic_updates, {entropy_coef, normalize_advantages}, step_settings(actor),
                        step_settings(critic), two_threads, metrics);
        return {not_finite(failed), numbers_of(metrics)};
    }

  private:
    static learner::Adam& adam_of(const nb::object& network) {
        return nb::cast<TorchTrainable&>(network).adam();
    }

    void check_choices(const int32_t* choices, size_t count) const {
        for (size_t i = 0; i < count; ++i) {
            for (const ptrdiff_t size : sizes_) {
                if (*choices < 0 || *choices >= size) {
                    throw std::invalid_argument("An action is outside its space.");
                }
                ++choices;
            }
        }
    }

    template <class Number>
    static void normalized(learner::Trainable& network, const Number* observations, ptrdiff_t rows,
                           learner::Floats& to) {
        const learner::Normalization normalize = network.network().normalization();
        const ptrdiff_t features = network.network().inputs(), row = network.row();
        to.reserve(rows * row);
        for (ptrdiff_t i = 0; i < rows; ++i) {
            normalize.apply(observations + i * features, to.data() + i * row, 1);
        }
    }

    static void copy(const float* from, size_t count, learner::Floats& to) {
        to.reserve(static_cast<ptrdiff_t>(count));
        std::copy_n(from, count, to.data());
    }

    static std::vector<double> numbers_of(const learner::OnPolicyMetrics& metrics) {
        return {metrics.policy.loss, metrics.value_loss, metrics.policy.entropy,
                metrics.policy.divergence, metrics.policy.clipped};
    }

    nb::object actor_object_, critic_object_;  // kept alive
    learner::Trainable& actor_;
    learner::Trainable& critic_;
    learner::Adam& adam_;
    std::vector<ptrdiff_t> sizes_;
    std::vector<learner::Floats> room_;
    std::unique_ptr<learner::Head> head_, other_head_;
    learner::OnPolicyUpdate update_;
};

}  // namespace envfleet
