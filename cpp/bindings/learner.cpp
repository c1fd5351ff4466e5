// The module envfleet._learner: networks and updates in compiled code, on torch's own memory.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/perceptron.h"
#include "bindings/policy.h"

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

}  // namespace

NB_MODULE(_learner, module) {
    bind_policy(module);
    module.def("kernel_names", &learner::kernel_names);

    nb::class_<TorchPerceptron>(module, "Perceptron")
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
}

}  // namespace envfleet
