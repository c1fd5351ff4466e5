// The module envfleet._learner: networks and updates in compiled code, on torch's own memory.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/on_policy.h"
#include "bindings/perceptron.h"
#include "bindings/policy.h"
#include "bindings/q_network.h"
#include "bindings/recurrence.h"
#include "bindings/soft_actor_critic.h"
#include "bindings/twin_delayed.h"

namespace envfleet {
namespace {

const learner::Kernels& chosen_kernels(const std::optional<std::string>& name) {
    return name ? learner::kernels_named(*name) : learner::best_kernels();
}

template <class Number>
nb::object forward(TorchPerceptron& self,
                   const nb::ndarray<const Number, nb::c_contig, nb::device::cpu>& observations) {
    const learner::Perceptron& network = self.network();
    const size_t rows = observations.ndim() ? observations.shape(0) : 0;
    if (observations.size() != rows * static_cast<size_t>(network.inputs())) {
        throw std::invalid_argument("Expected observations of " + std::to_string(network.inputs()) +
                                    " numbers each, got " + std::to_string(observations.size()) +
                                    " in " + std::to_string(rows) + " rows.");
    }
    const size_t outputs = static_cast<size_t>(network.outputs());
    auto* memory = new float[rows * outputs];
    nb::capsule owner(memory, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    if (rows <= static_cast<size_t>(learner::block_rows)) {
        network.forward(observations.data(), static_cast<ptrdiff_t>(rows), memory, self.room());
    } else {
        nb::gil_scoped_release released;
        learner::Activations room = network.activations();
        network.forward(observations.data(), static_cast<ptrdiff_t>(rows), memory, room);
    }
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(memory, {rows, outputs}, owner));
}

template <class Number>
void def_update(nb::class_<SoftActorCritic>& sac) {
    sac.def("update", &SoftActorCritic::update<Number>, nb::arg("observations").noconvert(),
            nb::arg("actions"), nb::arg("rewards"), nb::arg("next_observations").noconvert(),
            nb::arg("discounts"), nb::arg("terminated"), nb::arg("noise"), nb::kw_only(),
            nb::arg("actor"), nb::arg("critic"), nb::arg("temperature"), nb::arg("tau"),
            nb::arg("target_entropy"), nb::arg("reward_scale"), nb::arg("two_threads"));
}

template <class Number>
void def_update(nb::class_<TwinDelayed>& td3) {
    td3.def("update", &TwinDelayed::update<Number>, nb::arg("observations").noconvert(),
            nb::arg("actions"), nb::arg("rewards"), nb::arg("next_observations").noconvert(),
            nb::arg("discounts"), nb::arg("terminated"), nb::arg("noise"), nb::kw_only(),
            nb::arg("actor"), nb::arg("critic"), nb::arg("tau"), nb::arg("reward_scale"),
            nb::arg("done"), nb::arg("delay"), nb::arg("two_threads"));
}

template <class Number>
void def_update(nb::class_<QNetwork>& dqn) {
    dqn.def("update", &QNetwork::update<Number>, nb::arg("observations").noconvert(),
            nb::arg("choices"), nb::arg("rewards"), nb::arg("next_observations").noconvert(),
            nb::arg("discounts"), nb::arg("terminated"), nb::arg("weights").none(),
            nb::arg("errors"), nb::kw_only(), nb::arg("updates"), nb::arg("step"), nb::arg("tau"),
            nb::arg("reward_scale"), nb::arg("is_double"), nb::arg("two_threads"));
}

}  // namespace

NB_MODULE(_learner, module) {
    module.doc() = "Networks and their updates in compiled code, on torch's own memory.";
    bind_policy(module);
    bind_recurrence(module);
    module.def("kernel_names", &learner::kernel_names,
               "The instruction sets this processor has, the best one last.");

    nb::class_<TorchPerceptron>(module, "Perceptron",
                                "A perceptron's forward pass on weights that torch owns.")
        .def(
            "__init__",
            [](TorchPerceptron* self, LayerArrays layers, const std::string& activation,
               std::optional<StatisticsArrays> statistics, std::optional<std::string> kernels) {
                new (self) TorchPerceptron(std::move(layers), activation, std::move(statistics),
                                           chosen_kernels(kernels));
            },
            nb::arg("layers"), nb::arg("activation"), nb::arg("statistics").none() = nb::none(),
            nb::arg("kernels").none() = nb::none())
        .def_prop_ro("inputs", [](const TorchPerceptron& self) { return self.network().inputs(); })
        .def_prop_ro("outputs",
                     [](const TorchPerceptron& self) { return self.network().outputs(); })
        .def_prop_ro("kernels",
                     [](const TorchPerceptron& self) { return self.network().kernels().name; })
        .def("forward", &forward<float>, nb::arg("observations").noconvert())
        .def("forward", &forward<double>, nb::arg("observations").noconvert());

    nb::class_<TorchTrainable>(
        module, "Trainable",
        "A network and its optimiser's state, which torch owns and updates change in place.")
        .def(
            "__init__",
            [](TorchTrainable* self, std::vector<ParameterArrays> parameters,
               const std::string& activation, std::optional<StatisticsArrays> statistics,
               std::optional<std::string> kernels) {
                new (self) TorchTrainable(std::move(parameters), activation, std::move(statistics),
                                          chosen_kernels(kernels));
            },
            nb::arg("parameters"), nb::arg("activation"), nb::arg("statistics").none() = nb::none(),
            nb::arg("kernels").none() = nb::none());

    nb::class_<OnPolicy>(module, "OnPolicy", "The updates of A2C and PPO.")
        .def(nb::init<nb::object, nb::object, const std::string&, std::vector<ptrdiff_t>>(),
             nb::arg("actor"), nb::arg("critic"), nb::arg("head"), nb::arg("sizes"))
        .def("load", &OnPolicy::load<float>, nb::arg("observations").noconvert(),
             nb::arg("choices").none(), nb::arg("numbers").none(), nb::arg("advantages"),
             nb::arg("returns"))
        .def("load", &OnPolicy::load<double>, nb::arg("observations").noconvert(),
             nb::arg("choices").none(), nb::arg("numbers").none(), nb::arg("advantages"),
             nb::arg("returns"))
        .def("remember_policy", &OnPolicy::remember_policy, nb::arg("two_threads"))
        .def("ppo_epoch", &OnPolicy::ppo_epoch, nb::arg("order"), nb::kw_only(),
             nb::arg("minibatch"), nb::arg("entropy_coef"), nb::arg("normalize_advantages"),
             nb::arg("clip_range"), nb::arg("actor"), nb::arg("critic"), nb::arg("two_threads"))
        .def("a2c", &OnPolicy::a2c, nb::kw_only(), nb::arg("critic_updates"),
             nb::arg("entropy_coef"), nb::arg("normalize_advantages"), nb::arg("actor"),
             nb::arg("critic"), nb::arg("two_threads"));

    nb::class_<SoftActorCritic> sac(module, "SoftActorCritic", "The updates of SAC.");
    sac.def(nb::init<nb::object, std::vector<ParameterArrays>, std::vector<FloatArray>,
                     const std::string&, std::optional<StatisticsArrays>,
                     std::optional<StatisticsArrays>, ParameterArrays>(),
            nb::arg("actor"), nb::arg("critics"), nb::arg("targets"), nb::arg("activation"),
            nb::arg("statistics").none(), nb::arg("target_statistics").none(),
            nb::arg("temperature"));
    def_update<float>(sac);
    def_update<double>(sac);

    nb::class_<TwinDelayed> td3(module, "TwinDelayed", "The updates of TD3.");
    td3.def(nb::init<nb::object, std::vector<ParameterArrays>, std::vector<FloatArray>,
                     std::vector<FloatArray>, const std::string&, std::optional<StatisticsArrays>,
                     std::optional<StatisticsArrays>, std::optional<StatisticsArrays>>(),
            nb::arg("actor"), nb::arg("critics"), nb::arg("target_actor"), nb::arg("targets"),
            nb::arg("activation"), nb::arg("target_actor_statistics").none(),
            nb::arg("statistics").none(), nb::arg("target_statistics").none());
    def_update<float>(td3);
    def_update<double>(td3);

    nb::class_<QNetwork> dqn(module, "QNetwork", "The updates of DQN.");
    dqn.def(nb::init<nb::object, std::vector<FloatArray>, std::optional<StatisticsArrays>>(),
            nb::arg("network"), nb::arg("target"), nb::arg("target_statistics").none());
    def_update<float>(dqn);
    def_update<double>(dqn);
}

}  // namespace envfleet
